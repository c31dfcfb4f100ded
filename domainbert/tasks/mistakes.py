"""Mistakes of a model in an item of a test set, for a person to look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from domainbert.labelled.text_rows import Stretch
from domainbert.tasks.excerpt import Excerpt, excerpt

CORRECT, TYPE, BOUNDARY, MISSED, SPURIOUS = "correct", "type", "boundary", "missed", "spurious"
"""Kinds of marks, as those of `metrics.entities.ERROR_KINDS`; a task may have others."""


@dataclass(frozen=True)
class Mark:
    """A label of a text, or of the characters `start` to `end` (exclusive) of it."""

    label: str
    start: int | None = None
    end: int | None = None
    score: float | None = None
    """The probability that the model gives it."""
    kind: str | None = None
    """Whether it is right, or what is wrong with it; None of what only helps to read the text."""
    head: str | None = None
    """Of an arc the word that it comes from."""

    @property
    def is_wrong(self) -> bool:
        """Whether the model is wrong about it."""
        return self.kind not in (None, CORRECT)

    @property
    def place(self) -> Stretch | None:
        """Its characters; None of a label of the whole text."""
        return None if self.start is None or self.end is None else (self.start, self.end)


@dataclass(frozen=True)
class Mistake:
    """An item that a model got wrong."""

    text: str
    gold: Sequence[Mark]
    predicted: Sequence[Mark]
    severity: float
    """From 0 to 1: the probability that the model gives to what is wrong."""
    text_pair: str | None = None
    """The second text of a pair, in which nothing is marked."""
    labels: Sequence[str] | None = None
    """Labels by which it is found; None for those of its marks that are wrong."""

    def as_json(self) -> dict[str, Any]:
        """For a file; a long text is cut down to what stands around its mistakes, and marks are moved along.

        Marks that are right and stand elsewhere are left out with their text.
        """
        marks = [*self.gold, *self.predicted]
        wrong = [mark for mark in marks if mark.is_wrong]
        places = _places(marks)
        cut = excerpt(self.text, _places(wrong) or places, places)
        pair = {} if self.text_pair is None else {"text_pair": excerpt(self.text_pair, []).text}
        return {
            "text": cut.text,
            **pair,
            "gold": _moved(self.gold, cut),
            "predicted": _moved(self.predicted, cut),
            "kinds": sorted({mark.kind for mark in wrong if mark.kind}),
            "labels": sorted({mark.label for mark in wrong} if self.labels is None else self.labels),
            "severity": self.severity,
        }


def kind_of_label(gold: str, predicted: str, nothing: str | None = None) -> str:
    """The kind of a mark where there is one label of gold and one predicted; one of them may mean nothing."""
    if gold == predicted:
        return CORRECT
    if nothing is not None and nothing in (gold, predicted):
        return MISSED if predicted == nothing else SPURIOUS
    return TYPE


def label_marks(
    gold: str, predicted: str, scores: Mapping[str, float], nothing: str | None = None
) -> tuple[list[Mark], list[Mark]]:
    """The marks of a text that has one label, and of the predicted one; what means nothing is no mark."""
    kind = kind_of_label(gold, predicted, nothing)
    marks = ([Mark(one, score=scores.get(one, 0.0), kind=kind)] for one in (gold, predicted))
    wanted, found = ([mark for mark in some if mark.label != nothing] for some in marks)
    return wanted, found


def _places(marks: Sequence[Mark]) -> list[Stretch]:
    return [mark.place for mark in marks if mark.place]


def _moved(marks: Sequence[Mark], cut: Excerpt) -> list[dict[str, Any]]:
    """The marks that are in an excerpt, as for JSON."""
    found = []
    for mark in marks:
        place = mark.place and cut.moved(mark.place)
        if place:
            mark = replace(mark, start=place[0], end=place[1])
        if place or not mark.place:
            found.append({key: value for key, value in asdict(mark).items() if value is not None})
    return found
