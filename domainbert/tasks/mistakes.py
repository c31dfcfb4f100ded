"""Errors of a model on items of a test set, in a form for reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from domainbert.labelled.char_spans import Stretch

CORRECT, TYPE, BOUNDARY, MISSED, SPURIOUS = "correct", "type", "boundary", "missed", "spurious"
"""Kinds of marks, see `metrics.entities.ERROR_KINDS`; a task may define further kinds."""

WHOLE = 600
"""Number of characters up to which a text is not shortened."""

AROUND = 200
"""Number of characters kept on either side of a mark in a longer text."""

_WORD = 30  # characters within which a word boundary is searched
_CUT = "…"


@dataclass(frozen=True)
class Mark:
    """A label of a text, or of its characters `start` to `end` (exclusive)."""

    label: str
    start: int | None = None
    end: int | None = None
    score: float | None = None
    """Probability of the label under the model."""
    kind: str | None = None
    """`correct` or the kind of error; None for a mark that is not scored."""
    head: str | None = None
    """Head word of a dependency arc."""

    @property
    def is_wrong(self) -> bool:
        """Whether the mark is an error of the model."""
        return self.kind not in (None, CORRECT)

    @property
    def place(self) -> Stretch | None:
        """Return (start, end); None for a label of the whole text."""
        return None if self.start is None or self.end is None else (self.start, self.end)


@dataclass(frozen=True)
class Mistake:
    """An item on which a model has errors."""

    text: str
    gold: Sequence[Mark]
    predicted: Sequence[Mark]
    severity: float
    """Probability that the model gives to the error, from 0 to 1."""
    text_pair: str | None = None
    """Second text of a pair; it has no marks."""
    labels: Sequence[str] | None = None
    """Labels for filtering; None takes the labels of the wrong marks."""

    def as_json(self) -> dict[str, Any]:
        """Return a JSON object; a long text is reduced to excerpts around the errors, and marks are shifted.

        Correct marks outside the excerpts are omitted.
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
    """Compare a gold and a predicted label; `nothing` is the negative label."""
    if gold == predicted:
        return CORRECT
    if nothing is not None and nothing in (gold, predicted):
        return MISSED if predicted == nothing else SPURIOUS
    return TYPE


def label_marks(
    gold: str, predicted: str, scores: Mapping[str, float], nothing: str | None = None
) -> tuple[list[Mark], list[Mark]]:
    """Return gold and predicted marks of a text with one label; the negative label gets no mark."""
    kind = kind_of_label(gold, predicted, nothing)
    marks = [Mark(label, score=scores.get(label, 0.0), kind=kind) for label in (gold, predicted)]
    gold_marks, predicted_marks = ([] if mark.label == nothing else [mark] for mark in marks)
    return gold_marks, predicted_marks


def _places(marks: Sequence[Mark]) -> list[Stretch]:
    return [mark.place for mark in marks if mark.place]


def _moved(marks: Sequence[Mark], cut: Excerpt) -> list[dict[str, Any]]:
    """Return the marks inside an excerpt as JSON objects."""
    objects = []
    for mark in marks:
        stretch = mark.place and cut.moved(mark.place)
        if stretch:
            mark = replace(mark, start=stretch[0], end=stretch[1])
        if stretch or not mark.place:
            objects.append({key: value for key, value in asdict(mark).items() if value is not None})
    return objects


@dataclass(frozen=True)
class Excerpt:
    """Parts of a text, with "…" for omitted parts."""

    text: str
    kept: Sequence[tuple[Stretch, int]]
    """Kept ranges of the whole text, in order, each with its offset in `text`."""

    def moved(self, place: Stretch) -> Stretch | None:
        """Map a range of the whole text to a range of the excerpt; None if it is omitted."""
        for (start, end), begin in self.kept:
            if start <= place[0] and place[1] <= end:
                return place[0] - start + begin, place[1] - start + begin
        return None


def excerpt(text: str, around: Sequence[Stretch], places: Sequence[Stretch] = ()) -> Excerpt:
    """Return the text around some ranges, or its beginning without ranges; no range in `places` is cut."""
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
    touched = [place for place in places if any(max(place[0], start) < min(place[1], end) for start, end in wide)]
    return wide + touched


def _in_words(text: str, start: int, end: int) -> Stretch:
    """Extend a range to word boundaries, if there are any within `_WORD` characters."""
    start, end = max(start, 0), min(end, len(text))
    space, behind = text.rfind(" ", max(start - _WORD, 0), start), text.find(" ", end, end + _WORD)
    return start if space < 0 else space + 1, end if behind < 0 else behind


def _united(stretches: Sequence[Stretch]) -> list[Stretch]:
    """Merge ranges that overlap or are at most one character apart; sorted."""
    merged: list[Stretch] = []
    for start, end in sorted(stretches):
        if merged and start <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged
