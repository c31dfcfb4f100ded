"""Trainings that came to nothing, told by their scores: what is wrong, and what to try."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from domainbert.pretraining.config import CORPUS_ADVICE
from domainbert.tasks.labelled import LabelledText
from domainbert.tasks.ner.conll import Sentence

_TASK_ADVICE = "try another optim.lr (lower if the loss jumps, higher if it stands still) or more epochs"
_NEAR = 0.02  # of macro F1: as good as no better
_FAR = 0.1  # of macro F1: better, whatever the accuracy


def say(warnings: Sequence[str]) -> None:
    """Print them as they are found; a recipe repeats them at its end."""
    for warning in warnings:
        print(f"warning: {warning}", flush=True)


def of_distillation(history: Sequence[Mapping[str, float]]) -> list[str]:
    """A loss that has not fallen between the first and the last validation, which are its rows."""
    first, last = history[0]["loss"], history[-1]["loss"]
    if len(history) < 2 or last < first:
        return []
    return [f"the validation loss has not fallen: {first:.4f} at first, {last:.4f} at last; {CORPUS_ADVICE}"]


def of_task(items: Sequence[Any], scores: Mapping[str, float]) -> list[str]:
    """A tagger that finds nothing, or a classifier that is no better than one that always gives the same class.

    Args:
        items: the validation set; of tasks other than entities and classes nothing is known.
        scores: its `f1`, and the `accuracy` of classes.
    """
    if isinstance(items[0], Sentence):
        entities = sum(len(sentence.spans) for sentence in items)
        if entities and not scores["f1"]:
            return [f"finds none of the {entities:,} entities of the validation set; {_TASK_ADVICE}"]
    if isinstance(items[0], LabelledText):
        f1, accuracy = _of_one_class([item.label for item in items])
        near = scores["f1"] <= f1 + _NEAR
        if f1 < 1 and (near or (scores["accuracy"] <= accuracy and scores["f1"] <= f1 + _FAR)):
            found = f"macro F1 {100 * scores['f1']:.1f} and accuracy {100 * scores['accuracy']:.1f} on validation"
            always = f"one class for every text gets {100 * f1:.1f} and {100 * accuracy:.1f}"
            return [f"{found}, while {always}; {_TASK_ADVICE}"]
    return []


def _of_one_class(labels: Sequence[str]) -> tuple[float, float]:
    """Macro F1 and accuracy of the most frequent class for every text."""
    counts = Counter(labels)
    share = counts.most_common(1)[0][1] / len(labels)
    return 2 * share / (1 + share) / len(counts), share
