"""Print warnings of stages, and warn of a distillation whose loss did not decrease."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from domainbert.pretraining.config import CORPUS_ADVICE


def print_warnings(warnings: Sequence[str]) -> None:
    """Print warnings at once; a recipe repeats them at its end."""
    for warning in warnings:
        print(f"warning: {warning}", flush=True)


def distillation_warnings(history: Sequence[Mapping[str, float]]) -> list[str]:
    """Return a warning if the last validation loss is not below the first, otherwise [].

    `history` has a row per validation.
    """
    first, last = history[0]["loss"], history[-1]["loss"]
    if len(history) < 2 or last < first:
        return []
    return [f"the validation loss has not fallen: {first:.4f} at first, {last:.4f} at last; {CORPUS_ADVICE}"]
