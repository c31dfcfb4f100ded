"""Run tests on mutants: each in a process forked from one that has already imported the slow modules."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mutations import Mutant

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "domainbert"
_IMPORTED = ("torch", "torch._dynamo", "lightning.pytorch", "torchmetrics", "datasets", "hypothesis", "transformers")
_IMPORTED += ("optuna", "onnxruntime", "safetensors.torch", "tokenizers", "seqeval", "sklearn.metrics", "pytest")
_LEAST_SECONDS = 15.0


@dataclass
class Slot:
    """A folder with a copy of the package, for one mutant at a time."""

    folder: Path

    def __post_init__(self) -> None:
        shutil.copytree(ROOT / PACKAGE, self.folder / PACKAGE)

    def put(self, mutant: Mutant) -> None:
        """Put a mutant in."""
        file = self.folder / PACKAGE / mutant.module
        file.write_text(mutant.source, encoding="utf-8")
        Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)

    def restore(self, module: str) -> None:
        """Undo it."""
        shutil.copy2(ROOT / PACKAGE / module, self.folder / PACKAGE / module)


@dataclass
class _Child:
    pid: int
    started: float
    limit: float


def import_once() -> None:
    """Import what tests need and takes long, but nothing of the package."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
    sys.dont_write_bytecode = True
    for name in _IMPORTED:
        try:
            importlib.import_module(name)
        except ImportError:  # tests that need it are skipped
            continue
    assert PACKAGE not in sys.modules
    gc.freeze()  # so that no child looks through all of that


def passes(slot: Slot, tests: Sequence[str]) -> float:
    """Return the seconds that tests take on the unchanged package in a slot.

    Raises:
        SystemExit: they fail: nothing could be said of a mutant.
    """
    child = _fork(slot, tests, 3600.0)
    while (code := _ended(child)) is None:
        time.sleep(0.02)
    if code:
        print((slot.folder / "log").read_text(errors="replace")[-10_000:])  # the folder is deleted at the end
        raise SystemExit(f"{' '.join(tests)}: fail without a mutant; see their output above")
    return time.monotonic() - child.started


def judge(
    group: Sequence[Mutant], tests: Sequence[str], seconds: float, slots: Sequence[Slot], until: Callable[[], bool]
) -> Iterator[tuple[Mutant, str, float]]:
    """Whether tests notice mutants: each with `noticed`, `time` (ended by its limit: noticed too) or `survived`.

    Args:
        group: the mutants.
        tests: theirs.
        seconds: what the tests take without a mutant.
        slots: as many run at a time.
        until: says when to start no more.
    """
    waiting, free = list(reversed(group)), list(slots)
    running: dict[int, tuple[Slot, Mutant, _Child]] = {}
    try:
        while running or (waiting and not until()):
            while waiting and free and not until():
                mutant, slot = waiting.pop(), free.pop()
                slot.put(mutant)
                child = _fork(slot, tests, _LEAST_SECONDS + 3 * seconds)
                running[child.pid] = slot, mutant, child
            for slot, mutant, child in list(running.values()):
                code = _ended(child)
                if code is not None:
                    del running[child.pid]
                    slot.restore(mutant.module)
                    free.append(slot)
                    verdict = "survived" if code == 0 else "time" if code < 0 else "noticed"
                    yield mutant, verdict, time.monotonic() - child.started
            time.sleep(0.02)
    finally:
        for pid in running:
            _end(pid)


def _ended(child: _Child) -> int | None:
    """The exit code of a child, -1 for one that was ended; None while it runs."""
    pid, status = os.waitpid(child.pid, os.WNOHANG)
    if pid:
        _end(child.pid)
        return os.waitstatus_to_exitcode(status) if not os.WIFSIGNALED(status) else 1
    if time.monotonic() - child.started < child.limit:
        return None
    _end(child.pid)
    os.waitpid(child.pid, 0)
    return -1


def _end(group: int) -> None:
    """End a child and the processes that it has started."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def _fork(slot: Slot, tests: Sequence[str], limit: float) -> _Child:
    shutil.rmtree(slot.folder / "tmp", ignore_errors=True)
    (slot.folder / "tmp").mkdir()
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return _Child(pid, time.monotonic(), limit)
    code = 1
    try:
        os.setsid()
        with open(slot.folder / "log", "w") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        code = _run(slot.folder, tests)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def _run(folder: Path, tests: Sequence[str]) -> int:
    os.chdir(ROOT)
    os.environ |= {"PYTHONPATH": str(folder), "TMPDIR": str(folder / "tmp")}
    # the mutant first; the root, for `tests` in processes that tests spawn, last
    sys.path[:] = [str(folder), *(part for part in sys.path if part not in ("", str(ROOT))), str(ROOT)]
    options = ["-x", "-q", "--no-header", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:randomly"]
    import hypothesis
    import pytest

    phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]  # whether it fails, not the shortest way
    hypothesis.settings.register_profile("mutants", phases=phases, deadline=None, database=None)
    hypothesis.settings.load_profile("mutants")
    return int(pytest.main([*options, f"--basetemp={folder / 'tmp' / 'pytest'}", *tests]))
