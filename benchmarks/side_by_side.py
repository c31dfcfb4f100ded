"""Measures systems side by side: each in a process of its own that stays warm, taking turns, idle in between.

Neither compilation nor loading is measured, and whatever slows the machine for a while slows all sides alike.
"""

from __future__ import annotations

import faulthandler
import importlib.metadata
import json
import multiprocessing
import os
import platform
import signal
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
from process_tree import PeakMemory, cpu_seconds_of_tree, descendants, kill_all, peak_memory_bytes

_SAMPLE_SECONDS, _STOP_SECONDS = 0.1, 10
_LOG_LINES = 20
_CPU_FLAGS = ("amx_tile", "amx_bf16", "amx_int8", "avx512_bf16", "avx512f", "avx2")


@dataclass(frozen=True)
class Side:
    """One of the systems; the first of several is the one whose ratio to the others is reported.

    Attributes:
        name: as the table has it.
        work: a module-level function. It does `turns.num_units` units of work, calls `turns.done` after each, and
            returns facts for the JSON.
        settings: what `work` gets beside its turns.
    """

    name: str
    work: Callable[[Turns, Any], dict[str, Any]]
    settings: Any


@dataclass(frozen=True)
class Rounds:
    """Amount of measured work: `count` rounds in which each side does `units`, after `warm_up` units of its own.

    When its turn comes, a side first does `settle` units unmeasured: caches are cold and threads asleep.
    """

    count: int
    warm_up: int
    units: int
    settle: int = 1

    @property
    def num_units(self) -> int:
        """The units of work a side does in all."""
        return self.warm_up + self.count * (self.settle + self.units)

    @property
    def pauses(self) -> range:
        """After how many units a side waits for its turn, or for the others to end."""
        return range(self.warm_up, self.num_units + 1, self.settle + self.units)


@dataclass(frozen=True)
class Measurement:
    """One side in one round.

    Attributes:
        side: its name.
        round: from 0.
        amount: what the units added up to, tokens for example.
        seconds: wall time.
        cpu_seconds: of this side and the processes it started: at most `seconds` times the cores.
        other_cpu_seconds: of everything else on the machine; if it is not near 0, the rate is too low. None off Linux.
    """

    side: str
    round: int
    amount: float
    seconds: float
    cpu_seconds: float
    other_cpu_seconds: float | None

    @property
    def rate(self) -> float:
        """Amount per second."""
        return self.amount / self.seconds


class Turns:
    """Callback of a side after each unit of work: lets it run when it is its turn and measures it."""

    def __init__(self, side: str, rounds: Rounds, connection: Connection) -> None:
        self._side, self._rounds, self._connection = side, rounds, connection
        self._protocol = self._take_turns()
        next(self._protocol)

    @property
    def num_units(self) -> int:
        """The units of work a side does in all."""
        return self._rounds.num_units

    def measures(self, unit: int) -> bool:
        """Whether unit number `unit`, from 0, is one of those measured."""
        rounds = self._rounds
        since = unit - rounds.warm_up
        return since >= 0 and since % (rounds.settle + rounds.units) >= rounds.settle

    def done(self, amount: float) -> None:
        """A unit of work is done, `amount` of it. Returns when the next one may begin."""
        self._protocol.send(amount)

    def _take_turns(self) -> Generator[None, float, None]:
        for _ in range(self._rounds.warm_up):
            yield
        self._wait()
        for number in range(self._rounds.count):
            for _ in range(self._rounds.settle):
                yield
            start = _clocks()
            amount = 0.0
            for _ in range(self._rounds.units):
                amount += yield
            spent = [after - before for before, after in zip(start, _clocks(), strict=True)]
            other = None if spent[2] != spent[2] else max(0.0, round(spent[2] - spent[1], 2))
            self._connection.send(Measurement(self._side, number, amount, spent[0], round(spent[1], 2), other))
            self._wait()
        yield

    def _wait(self) -> None:
        self._connection.send("idle")
        self._connection.recv()  # asleep until it is this side's turn


def _clocks() -> tuple[float, float, float]:
    """Wall time, CPU time of this process and those it started, and of the machine (NaN off Linux), in seconds."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter(), cpu_seconds_of_tree(), _machine_cpu_seconds()


def _machine_cpu_seconds() -> float:
    try:
        fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except FileNotFoundError:
        return float("nan")
    idle, waiting = fields[3:5]
    return (sum(fields) - idle - waiting) / os.sysconf("SC_CLK_TCK")


def measure(
    sides: Sequence[Side],
    rounds: Rounds,
    logs: Path,
    sample_memory: bool = False,
    partial: Path | None = None,
) -> tuple[list[Measurement], dict[str, dict[str, Any]]]:
    """Run the sides in turn.

    Args:
        sides: the systems.
        rounds: how much of each.
        logs: folder for what the sides print.
        sample_memory: also measure each side together with the processes that it starts, by looking ten times a second
            while it works (see `PeakMemory`); that takes a few percent of a processor.
        partial: file for the rounds measured so far, for a run that is cut off.

    Returns:
        All measurements, and for each side its facts with `peak_memory_bytes` (resident, of the side's own process,
        compilation included) and what was sampled.

    Raises:
        SystemExit: a side failed; the message ends with its last lines.
    """
    logs.mkdir(parents=True, exist_ok=True)
    os.environ["OMP_NUM_THREADS"] = str(num_cores())
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # or the sides would go on without us
    together = has_gpu()  # sides compile at the same time there; on a CPU one after the other, as they would share it
    workers = [_Worker(side, rounds, logs / f"{n}.log", sample_memory) for n, side in enumerate(sides)]
    try:
        for worker in workers:
            _say(f"warming up: {worker.side.name}")
            worker.start()
            if not together:
                worker.warm_up()
        if together:
            for worker in workers:
                worker.warm_up()
        found: list[Measurement] = []
        for number in range(rounds.count):
            for worker in workers:
                found.append(worker.turn())
                _say(f"round {number + 1} of {rounds.count}: {found[-1].side}: {found[-1].rate:,.0f} per second")
            if partial is not None:
                write_partial(partial, found)
        return found, {worker.side.name: worker.finish() for worker in workers}
    finally:
        for worker in workers:
            worker.terminate()
        deadline = time.monotonic() + _STOP_SECONDS  # of all sides together
        for worker in workers:
            worker.kill(max(0.0, deadline - time.monotonic()))


def has_gpu() -> bool:
    """Whether torch finds a GPU; asked without starting CUDA in this process."""
    return Path("/proc/driver/nvidia").exists() and os.environ.get("CUDA_VISIBLE_DEVICES") != ""


def write_partial(path: Path, measurements: Sequence[Measurement]) -> None:
    """Write the measurements of the rounds done; `report` replaces the file when all are."""
    sides = dict.fromkeys(one.side for one in measurements)
    rates = {side: [one.rate for one in measurements if one.side == side] for side in sides}
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_suffix(".partial")
    written.write_text(json.dumps({"partial": True, "rates": rates}, indent=1) + "\n", encoding="utf-8")
    written.replace(path)  # a run that is cut off here leaves the rounds before


class _Worker:
    """The parent's end of a side."""

    def __init__(self, side: Side, rounds: Rounds, log: Path, sample_memory: bool) -> None:
        self.side, self.log, self._sample_memory = side, log, sample_memory
        self._memory, self._below = PeakMemory(), list[psutil.Process]()
        context = multiprocessing.get_context("spawn")
        self._connection, self._theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(side, rounds, self._theirs, log))

    def start(self) -> None:
        self._process.start()
        self._theirs.close()  # so that the end of the process ends `recv`

    def warm_up(self) -> None:
        """Wait until the side is ready for its first turn."""
        self._receive()

    def turn(self) -> Measurement:
        self._connection.send("go")
        measurement = self._receive()
        self._receive()
        return measurement

    def finish(self) -> dict[str, Any]:
        self._connection.send("go")
        facts = self._receive()
        self._process.join()
        return facts | self._memory.as_dict()

    def terminate(self) -> None:
        """Ask the side to end; `kill` ends it."""
        if self._process.pid is not None and self._process.is_alive():
            self._below = descendants(self._process.pid)
            os.kill(self._process.pid, signal.SIGUSR1)  # its log shows where it was
            self._connection.close()  # so that a side which waits for its turn ends, whatever it makes of the signal
            self._process.terminate()

    def kill(self, seconds: float) -> None:
        """Wait for the end of the side, and kill it after so many seconds with all processes that it started."""
        if self._process.pid is not None:
            self._process.join(seconds)
            self._process.kill()
            self._process.join()
            kill_all(self._below)  # workers of loaders and compilers would hold the output open

    def _receive(self) -> Any:
        try:
            while self._sample_memory and not self._connection.poll(_SAMPLE_SECONDS):
                self._memory.sample(self._process.pid)
            return self._connection.recv()
        except EOFError:
            tail = self.log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
            raise SystemExit("\n".join([f"{self.side.name} failed; the end of {self.log}:", *tail])) from None


def _work(side: Side, rounds: Rounds, connection: Connection, log: Path) -> None:
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    faulthandler.register(signal.SIGUSR1)
    try:
        facts = side.work(Turns(side.name, rounds, connection), side.settings)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # helper processes of compilers must not keep the connection open
    connection.send({**facts, "peak_memory_bytes": peak_memory_bytes()})


def summarise(
    measurements: Sequence[Measurement], facts: Mapping[str, dict[str, Any]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Ratios of the first side to each other one (of medians, and in every round), and each side's rates and facts."""
    rates = {name: [m.rate for m in measurements if m.side == name] for name in facts}
    first, *others = rates
    median = {name: statistics.median(values) for name, values in rates.items()}
    ratios = {
        f"{first} / {other}": {
            "ratio": median[first] / median[other],
            "by_round": [ours / theirs for ours, theirs in zip(rates[first], rates[other], strict=True)],
        }
        for other in others
    }
    sides = {
        name: {"median": median[name], "lowest": min(values), "highest": max(values), **facts[name]}
        for name, values in rates.items()
    }
    return ratios, sides


def report(
    path: Path,
    unit: str,
    settings: Mapping[str, Any],
    packages: Sequence[str],
    measurements: Sequence[Measurement],
    facts: Mapping[str, dict[str, Any]],
    further: Mapping[str, Any] | None = None,
    parts: Sequence[Measurement] = (),
) -> None:
    """Print the table and write the JSON.

    Args:
        path: the JSON file; its stem is the benchmark's name.
        unit: what is counted per second.
        settings: what was run, for whoever reads the JSON.
        packages: whose versions are named.
        measurements: all of them.
        facts: of each side, in order; the first is compared with the others.
        further: what else the JSON holds, next to the ratios.
        parts: what the measurements were put together from, if they were.
    """
    ratios, sides = summarise(measurements, facts)
    found = {"ratios": ratios, **(further or {}), "unit": f"{unit} per second", "sides": sides}
    listed = {"measurements": measurements} | ({"parts": parts} if parts else {})
    details = {name: [asdict(m) | {"rate": m.rate} for m in some] for name, some in listed.items()}
    write_result(path, found, settings, packages, details)
    print("\n".join(_table(ratios, sides, unit, measurements)))
    print(f"written to {os.path.relpath(path)}")


def versions(packages: Sequence[str]) -> dict[str, str]:
    """The versions of packages, and Python's; domainbert need not be installed."""
    return {name: _version(name) for name in packages} | {"python": platform.python_version()}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        if package != "domainbert":
            return "not installed"
        project = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
        return next(line.split('"')[1] for line in project.splitlines() if line.startswith("version = "))


def write_result(
    path: Path,
    found: Mapping[str, Any],
    settings: Mapping[str, Any],
    packages: Sequence[str],
    details: Mapping[str, Any],
) -> None:
    """Write the JSON: what was found, by which command, with what settings, on what, and at last the details."""
    content = {
        "benchmark": path.stem,
        "command": " ".join(["python", os.path.relpath(sys.argv[0]), *sys.argv[1:]]),
        **found,
        "settings": dict(settings),
        "hardware": hardware(),
        "versions": versions(packages),
        **details,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")  # a benchmark may resume from the file: it is never half written
    temporary.write_text(json.dumps(content, indent=1) + "\n")
    temporary.replace(path)


def _table(
    ratios: Mapping[str, Any], sides: Mapping[str, Any], unit: str, measurements: Sequence[Measurement]
) -> list[str]:
    width = max(len(name) for name in [*ratios, *sides])
    lines = [""]
    for name, ratio in ratios.items():
        low, high = min(ratio["by_round"]), max(ratio["by_round"])
        lines.append(f"{name:{width}}  {ratio['ratio']:.2f}x  (by round {low:.2f} to {high:.2f})")
    lines += ["", f"{'':{width}}  {unit + '/s':>12}  {'lowest':>9}  {'highest':>9}  {'peak memory':>11}"]
    for name, side in sides.items():
        memory = f"{side.get('peak_tree_memory_bytes', side['peak_memory_bytes']) / 2**30:.2f} GiB"
        lines.append(
            f"{name:{width}}  {side['median']:>12,.0f}  {side['lowest']:>9,.0f}  {side['highest']:>9,.0f}  {memory:>11}"
        )
    busy = max((m.other_cpu_seconds or 0.0) / (m.seconds * num_cores()) for m in measurements)
    return [*lines, "", f"other processes used up to {busy:.0%} of the processors during a measurement"]


def num_cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def hardware() -> dict[str, Any]:
    """The processor: model, cores used and the instruction sets that decide the speed of a matrix product."""
    facts: dict[str, Any] = {"cpu": platform.processor() or platform.machine(), "cores": num_cores()}
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except FileNotFoundError:
        return facts
    fields = dict(line.split(":", 1) for line in reversed(lines) if ":" in line)
    info = {name.strip(): value.strip() for name, value in fields.items()}
    flags = info.get("flags", "").split()
    return {"cpu": info.get("model name", facts["cpu"]), "cores": num_cores()} | {
        "flags": [flag for flag in _CPU_FLAGS if flag in flags],
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
