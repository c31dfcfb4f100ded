"""Host cost of a training step: the main thread's time with a model that computes nothing.

    python benchmarks/host.py [--work pretrain|finetune] [--workers 0] [--steps 200] [--profile]

Batches, hooks, logging and the optimizer run as in a training; only one parameter learns, and the loss does not depend
on the encoder. `pretrain` reads 64 rows of 512 tokens per step, `finetune` 32 sentences. On a GPU this time is hidden
only if it is shorter than the time of the kernels.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import pstats
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from finetune_ner import Settings as FinetuneSettings
from finetune_ner import parser_of, settings_of
from finetune_ner import train_domainbert as finetune
from prepared_corpus import CACHE, empty, prepared_corpus
from pretraining import Settings as PretrainSettings
from pretraining import train as pretrain
from side_by_side import write_result

_ROWS, _LENGTH = 64, 512
_WARM_UP, _SHOWN = 30, 40  # steps; functions of a profile
_PACKAGES = ("torch", "lightning", "numpy")


class StepTimes:
    """Notes the wall time and the CPU time of the calling thread at the end of each step."""

    def __init__(self, num_steps: int, profile: bool) -> None:
        self.num_units, self.times = num_steps, [(time.perf_counter(), time.thread_time())]
        self.profiler = cProfile.Profile() if profile else None

    def done(self, amount: float = 0.0) -> None:
        """Note the end of a step; `amount` is not used."""
        self.times.append((time.perf_counter(), time.thread_time()))
        if self.profiler is not None and len(self.times) == _WARM_UP:
            self.profiler.enable()
        if len(self.times) == self.num_units + 1:
            raise _Enough

    def summary(self) -> dict[str, float]:
        """Milliseconds of a step after the warm-up: median CPU time of the main thread, median and mean wall time."""
        pairs = list(zip(self.times[_WARM_UP:], self.times[_WARM_UP + 1 :], strict=False))
        wall, cpu = ([1000 * (after[i] - before[i]) for before, after in pairs] for i in (0, 1))
        return {
            "main_thread_ms": statistics.median(cpu),
            "main_thread_mean_ms": statistics.fmean(cpu),
            "wall_ms": statistics.median(wall),
            "steps": len(pairs),
        }


class _Enough(Exception):
    """Ends a training after the last step to measure."""


def compute_nothing(module: Any) -> None:
    """Freeze all parameters but one and replace the forward pass by a product of that parameter with zero."""
    *frozen, learning = sorted(module.parameters(), key=lambda parameter: -parameter.numel())
    for parameter in frozen:
        parameter.requires_grad = False

    def losses(models: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
        return {"masked_lm": learning.sum() * 0.0}

    if hasattr(module, "summed_losses"):
        module.summed_losses = losses
    else:
        module._sums = lambda batch: {"task": learning.sum() * 0.0}


def run_pretrain(times: StepTimes, workers: int) -> None:
    """Pretrain a small encoder that computes nothing."""
    _, prepared = prepared_corpus()
    settings = PretrainSettings(prepared, "tiny", _LENGTH, _ROWS, 0.1)
    pretrain(settings, times.num_units + 1, times.done, empty(CACHE / "host"), None, workers, compute_nothing)


def run_finetune(times: StepTimes, workers: int) -> None:
    """Fine-tune a published encoder that computes nothing on ECON-IE."""
    settings: FinetuneSettings = settings_of(parser_of("").parse_args(["--epochs", "20"]))
    finetune(times, settings, workers, compute_nothing)  # type: ignore[arg-type]


WORK: dict[str, Callable[[StepTimes, int], None]] = {"pretrain": run_pretrain, "finetune": run_finetune}


def main() -> None:
    """Measure, print and write the JSON."""
    parser = argparse.ArgumentParser(description="Host cost of a training step")
    parser.add_argument("--work", choices=tuple(WORK), nargs="+", default=list(WORK))
    parser.add_argument("--workers", type=int, default=0, help="num_workers of the training")
    parser.add_argument("--steps", type=int, default=200, help="optimizer steps, the warm-up included")
    parser.add_argument("--profile", action="store_true", help="print the functions that take most time")
    parser.add_argument("--out", type=Path, help="JSON file; None writes none")
    options = parser.parse_args()
    found = {}
    for name in options.work:
        times = StepTimes(options.steps, options.profile)
        with contextlib.suppress(_Enough):
            WORK[name](times, options.workers)
        if times.profiler is not None:
            times.profiler.disable()
            pstats.Stats(times.profiler).sort_stats("tottime").print_stats(_SHOWN)
        found[name] = times.summary()
        print(f"{name}: {found[name]['main_thread_ms']:.2f} ms a step in the main thread")
    if options.out:
        write_result(options.out, {"host": found}, {"workers": options.workers}, _PACKAGES, {})


if __name__ == "__main__":
    main()
