"""Trainings that came to nothing, told by their losses: what is wrong, and what to try. Tasks tell their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_CORPUS_ADVICE = "try more steps, another optim.lr or a longer schedule.warmup_steps"


def say(warnings: Sequence[str]) -> None:
    """Print them as they are found; a recipe repeats them at its end."""
    for warning in warnings:
        print(f"warning: {warning}", flush=True)


def of_pretraining(loss: float, without_context: float) -> list[str]:
    """A masked-LM loss that needs no context.

    Args:
        loss: of validation, nats per masked token.
        without_context: what is reached without, see `data.corpus_rows.loss_without_context`.
    """
    if loss < without_context:
        return []
    return [
        f"the validation loss is {loss:.4f}, and {without_context:.4f} is reached without reading any context: a model "
        f"that starts from here may be worse than one from scratch; {_CORPUS_ADVICE}"
    ]


def of_distillation(history: Sequence[Mapping[str, float]]) -> list[str]:
    """A loss that has not fallen between the first and the last validation, which are its rows."""
    first, last = history[0]["loss"], history[-1]["loss"]
    if len(history) < 2 or last < first:
        return []
    return [f"the validation loss has not fallen: {first:.4f} at first, {last:.4f} at last; {_CORPUS_ADVICE}"]
