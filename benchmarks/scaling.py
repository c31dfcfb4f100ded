"""Masked-LM pretraining on several processes: how much of each one's speed is left, and what the gradients' way costs.

    python benchmarks/scaling.py [--ranks 1 2] [--device cpu] [--rounds 5] [--steps 5]

On CPUs every rank has its own cores, as many as every other; one rank alone has no more. Each rank has the same rows a
step whatever their number (weak scaling), so n ranks would ideally be n times as fast as one.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import socket
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from prepared_corpus import CACHE, VOCAB_SIZE, prepared_corpus
from pretraining import Settings, train
from side_by_side import Measurement, Rounds, Side, Turns, measure, num_cores, report

_LENGTH = 128
_WARM_UP = 4  # compiling comes with the first of these steps, allocating with the second
_PACKAGES = ("domainbert", "torch", "lightning", "numpy")
_ALONE = ", gradients kept"


@dataclass(frozen=True)
class Ranks:
    """Processes that train one model.

    Attributes:
        settings: with the rows of all ranks together.
        device: `cpu` or `gpu`.
        cores: of each rank.
        exchange: whether gradients are averaged over the ranks; else each goes on with its own.
        rounds: how much is measured.
        out: folder for logs.
    """

    settings: Settings
    device: str
    cores: Sequence[Sequence[int]]
    exchange: bool
    rounds: Rounds
    out: Path


def train_ranks(turns: Turns, ranks: Ranks) -> dict[str, Any]:
    """Start the other ranks, and be the first: it alone takes turns, and the others wait for it where it waits."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    others = _start_others(ranks, port)
    facts = _be_rank(ranks, 0, port, turns.done)
    for other in others:
        other.join()
        assert other.exitcode == 0, f"a rank failed with exit code {other.exitcode}"
    cores = len(ranks.cores[0])
    return facts | {"ranks": len(ranks.cores), "cores_of_a_rank": cores, "gradients_exchanged": ranks.exchange}


def _start_others(ranks: Ranks, port: int) -> list[BaseProcess]:
    context = multiprocessing.get_context("spawn")
    others = [
        context.Process(target=_be_rank, args=(ranks, rank, port, _nothing), daemon=True)
        for rank in range(1, len(ranks.cores))
    ]
    for other in others:
        other.start()
    return others


def _nothing(_: float) -> None:
    """After a step of a rank that takes no turns."""


def _be_rank(ranks: Ranks, rank: int, port: int, after_step: Callable[[float], None]) -> dict[str, Any]:
    _settle_in(ranks, rank, port)
    from domainbert.training.processes import all_reduce_max

    steps = 0

    def pause(tokens: float) -> None:
        nonlocal steps
        steps += 1
        after_step(tokens)
        if steps in ranks.rounds.pauses:
            all_reduce_max(steps)  # returns when all ranks have asked, so none runs on while the first one waits

    return train(ranks.settings, ranks.rounds.num_units, pause, ranks.out, _trainer_arguments(ranks))


def _settle_in(ranks: Ranks, rank: int, port: int) -> None:
    """This rank's cores, and the variables that torchrun would set; torch must not have been imported."""
    cores, size = ranks.cores[rank], len(ranks.cores)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    if ranks.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": "scaling"}
    os.environ |= {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), "RANK": str(rank), "LOCAL_RANK": str(rank)}
    os.environ["OMP_NUM_THREADS"] = str(len(cores))
    import torch

    torch.set_num_threads(len(cores))


def _trainer_arguments(ranks: Ranks) -> dict[str, Any]:
    if ranks.exchange:
        return {"accelerator": ranks.device}
    from lightning.pytorch.strategies import DDPStrategy

    class KeepGradients(DDPStrategy):
        def configure_ddp(self) -> None:
            super().configure_ddp()
            self.model.register_comm_hook(None, _keep)  # on CPUs Lightning's own argument for it has no effect

    return {"accelerator": ranks.device, "strategy": KeepGradients()}


def _keep(_, bucket):  # without annotations: torch wants them to be classes, and here they are strings
    """Instead of averaging a bucket of gradients over the ranks."""
    import torch

    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def sides_of(counts: Sequence[int], settings: Settings, device: str, rounds: Rounds) -> list[Side]:
    """The most ranks first; with several, also without the exchange of gradients."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(num_cores()))
    each = len(cores) // max(counts)
    groups = [cores[rank * each : (rank + 1) * each] for rank in range(max(counts))]
    sides = []
    for count in sorted(counts, reverse=True):
        together = replace(settings, rows=count * settings.rows)
        for exchange in (True, False) if count > 1 else (True,):
            name = f"{count} rank{'s' * (count > 1)}{'' if exchange else _ALONE}"
            out = CACHE / "scaling" / name.replace(", ", "-").replace(" ", "-")
            sides.append(Side(name, train_ranks, Ranks(together, device, groups[:count], exchange, rounds, out)))
    return sides


def efficiencies(counts: Sequence[int], measurements: Sequence[Measurement]) -> dict[str, Any]:
    """For each number of ranks n > 1, of medians and by round:

    `efficiency`: rate(n) / (n rate(1)). `communication_share`: 1 - rate(n) / rate(n without exchange), the part of the
    time that averaging the gradients takes. `efficiency_without_communication`: what is lost to shared caches, memory
    and clock, and to waiting for the slowest; efficiency is this times (1 - communication_share).
    """
    rates: dict[str, list[float]] = {}
    for measurement in measurements:
        rates.setdefault(measurement.side, []).append(measurement.rate)
    for side in list(rates):
        rates[side].insert(0, statistics.median(rates[side]))
    found = {}
    for count in (count for count in sorted(counts) if count > 1):
        rows = list(zip(rates["1 rank"], rates[f"{count} ranks"], rates[f"{count} ranks{_ALONE}"], strict=True))
        found[str(count)] = {
            "efficiency": _median_and_rounds([n / (count * one) for one, n, _ in rows]),
            "communication_share": _median_and_rounds([1 - n / alone for _, n, alone in rows]),
            "efficiency_without_communication": _median_and_rounds([alone / (count * one) for one, _, alone in rows]),
        }
    return found


def _median_and_rounds(values: Sequence[float]) -> dict[str, Any]:
    return {"of_medians": values[0], "by_round": list(values[1:])}


def check_exchange(counts: Sequence[int], facts: Mapping[str, dict[str, Any]]) -> None:
    """Raises: AssertionError: ranks that keep their gradients learn what those learn that exchange them."""
    for count in (count for count in counts if count > 1):
        exchanged, kept = (facts[f"{count} ranks{suffix}"]["losses"] for suffix in ("", _ALONE))
        assert exchanged != kept, f"{count} ranks: the gradients were exchanged all the same: {kept}"


def _default_device() -> tuple[str, int]:
    """GPUs where there are several, else processors; and how many ranks there may be."""
    import torch

    gpus = torch.cuda.device_count()
    return ("gpu", gpus) if gpus > 1 else ("cpu", min(2, num_cores()))


def main() -> None:
    """Measure and report."""
    device, most = _default_device()
    powers = sorted({1, most} | {2**power for power in range(most.bit_length()) if 2**power <= most})
    parser = argparse.ArgumentParser(description="Pretraining on several processes")
    parser.add_argument("--ranks", type=int, nargs="+", default=powers, help="numbers of processes, 1 among them")
    parser.add_argument("--device", choices=("cpu", "gpu"), default=device, help="of a rank: a GPU or some cores")
    parser.add_argument("--encoder", default="small", help="name of an encoder, as in a YAML")
    parser.add_argument("--rows", type=int, default=64, help="rows of 128 tokens of a rank and step")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each side; the median counts")
    parser.add_argument("--steps", type=int, default=5, help="optimiser steps of a measurement")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "scaling.json")
    options = parser.parse_args()
    if 1 not in options.ranks or min(options.ranks) < 1 or max(options.ranks) > num_cores():
        parser.error(f"--ranks: {options.ranks}; expected 1 and others, up to the {num_cores()} cores")
    name, prepared = prepared_corpus()
    settings = Settings(prepared, options.encoder, _LENGTH, options.rows, 0.1)
    rounds = Rounds(options.rounds, _WARM_UP, options.steps)
    rows = f"{options.rows} rows of {_LENGTH} a rank"
    print(f"{options.encoder}, {rows}, {name} corpus, {options.device}, {num_cores()} cores")
    measurements, facts = measure(sides_of(options.ranks, settings, options.device, rounds), rounds, CACHE / "logs")
    check_exchange(options.ranks, facts)
    found = efficiencies(options.ranks, measurements)
    described = {"corpus": name, "vocab_size": VOCAB_SIZE, "rounds": asdict(rounds)}
    described |= {field: value for field, value in asdict(settings).items() if field != "prepared"}
    described |= {"device": options.device}
    report(options.out, "tokens", described, _PACKAGES, measurements, facts, {"scaling": found})
    for count, shares in found.items():
        parts = (f"{part.replace('_', ' ')} {value['of_medians']:.1%}" for part, value in shares.items())
        print(f"{count} ranks: {', '.join(parts)}")


if __name__ == "__main__":
    main()
