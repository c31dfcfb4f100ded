"""Mistakes of a model in an item of a test set, for a person to look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from domainbert.labelled.stretches import Stretch

CORRECT, TYPE, BOUNDARY, MISSED, SPURIOUS = "correct", "type", "boundary", "missed", "spurious"
"""Kinds of marks, as those of `metrics.entities.ERROR_KINDS`; a task may have others."""

WHOLE = 600
"""A text of so many characters is kept as it is."""

AROUND = 200
"""Of a longer one so many are kept on either side of a place."""

_WORD = 30  # how far off a border of words is looked for
_CUT = "…"


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


@dataclass(frozen=True)
class Excerpt:
    """A text with "…" in place of what is left out."""

    text: str
    kept: Sequence[tuple[Stretch, int]]
    """The characters that are kept, in order, and where they begin in `text`."""

    def moved(self, place: Stretch) -> Stretch | None:
        """The characters of a place of the whole text in this one; None where it is left out."""
        for (start, end), begin in self.kept:
            if start <= place[0] and place[1] <= end:
                return place[0] - start + begin, place[1] - start + begin
        return None


def excerpt(text: str, around: Sequence[Stretch], places: Sequence[Stretch] = ()) -> Excerpt:
    """The text around some places, or its beginning where there are none; no one of `places` is cut in two."""
    written, before = "", 0
    kept = []
    for start, end in _united(_stretches(text, around, places)):
        if start > before:
            written += f" {_CUT} " if before else f"{_CUT} "
        kept.append(((start, end), len(written)))
        written, before = written + text[start:end], end
    return Excerpt(written + (f" {_CUT}" if before < len(text) else ""), kept)


def _stretches(text: str, around: Sequence[Stretch], places: Sequence[Stretch]) -> list[Stretch]:
    if len(text) <= WHOLE:
        return [(0, len(text))]
    wide = [_in_words(text, start - AROUND, end + AROUND) for start, end in around] or [_in_words(text, 0, WHOLE)]
    touched = [one for one in places if any(max(one[0], start) < min(one[1], end) for start, end in wide)]
    return wide + touched


def _in_words(text: str, start: int, end: int) -> Stretch:
    """A stretch that begins and ends with words, if there are borders of words near."""
    start, end = max(start, 0), min(end, len(text))
    space, behind = text.rfind(" ", max(start - _WORD, 0), start), text.find(" ", end, end + _WORD)
    return start if space < 0 else space + 1, end if behind < 0 else behind


def _united(stretches: Sequence[Stretch]) -> list[Stretch]:
    """The same characters, and single ones between them, as stretches apart from each other, in order."""
    found: list[Stretch] = []
    for start, end in sorted(stretches):
        if found and start <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found
