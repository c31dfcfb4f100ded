"""Warnings of stages: their output, and the warning of a distillation whose loss has not fallen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from domainbert.pretraining.config import CORPUS_ADVICE


def say(warnings: Sequence[str]) -> None:
    """Print them as they are found; a recipe repeats them at its end."""
    for warning in warnings:
        print(f"warning: {warning}", flush=True)


def of_distillation(history: Sequence[Mapping[str, float]]) -> list[str]:
    """Warn of a loss that has not fallen between the first and the last validation, which are its rows."""
    first, last = history[0]["loss"], history[-1]["loss"]
    if len(history) < 2 or last < first:
        return []
    return [f"the validation loss has not fallen: {first:.4f} at first, {last:.4f} at last; {CORPUS_ADVICE}"]
