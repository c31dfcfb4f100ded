"""Errors of a model on items of a test set, in a form for reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from domainbert.labelled.char_spans import Stretch

CORRECT, TYPE, BOUNDARY, MISSED, SPURIOUS = "correct", "type", "boundary", "missed", "spurious"
"""Values of `Mark.kind`, see `metrics.entities.ERROR_KINDS`; a task may define further kinds."""

MAX_UNCUT = 600
"""Number of characters up to which a text is not shortened."""

CONTEXT = 200
"""Number of characters kept on either side of a mark in a longer text."""

_MAX_WORD = 30  # characters within which a word boundary is searched
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
    def char_range(self) -> Stretch | None:
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
        """Return a JSON object with the text, its marks and the kinds of error.

        A long text is reduced to excerpts around the errors; the marks have positions in the reduced text. Correct
        marks outside the excerpts are omitted.
        """
        marks = [*self.gold, *self.predicted]
        wrong = [mark for mark in marks if mark.is_wrong]
        ranges = _char_ranges(marks)
        centres = _char_ranges(wrong) or ranges  # an error of the whole text has no range
        cut = excerpt(self.text, centres, uncut=ranges)
        pair = {} if self.text_pair is None else {"text_pair": excerpt(self.text_pair, centres=[]).text}
        return {
            "text": cut.text,
            **pair,
            "gold": _marks_in_excerpt(self.gold, cut),
            "predicted": _marks_in_excerpt(self.predicted, cut),
            "kinds": sorted({mark.kind for mark in wrong if mark.kind}),
            "labels": sorted({mark.label for mark in wrong} if self.labels is None else self.labels),
            "severity": self.severity,
        }


def compare_labels(gold: str, predicted: str, null_label: str | None = None) -> str:
    """Return the kind of error, or `CORRECT` for equal labels.

    It is `MISSED` if the predicted label is the null label, `SPURIOUS` if the gold label is, otherwise `TYPE`.
    """
    if gold == predicted:
        return CORRECT
    if null_label is not None and null_label in (gold, predicted):
        return MISSED if predicted == null_label else SPURIOUS
    return TYPE


def label_marks(
    gold: str, predicted: str, scores: Mapping[str, float], null_label: str | None = None
) -> tuple[list[Mark], list[Mark]]:
    """Return the gold marks and the predicted marks of a text with one label: a mark each, or [] for the null label.

    `scores` are the probabilities of the labels.
    """
    kind = compare_labels(gold, predicted, null_label)

    def marks_of(label: str) -> list[Mark]:
        return [] if label == null_label else [Mark(label, score=scores.get(label, 0.0), kind=kind)]

    return marks_of(gold), marks_of(predicted)


def _char_ranges(marks: Sequence[Mark]) -> list[Stretch]:
    return [mark.char_range for mark in marks if mark.char_range]


def _marks_in_excerpt(marks: Sequence[Mark], cut: Excerpt) -> list[dict[str, Any]]:
    objects = []
    for mark in marks:
        if mark.char_range is not None:  # otherwise it is a label of the whole text
            shifted = cut.shift(mark.char_range)
            if shifted is None:  # outside of the excerpt
                continue
            mark = replace(mark, start=shifted[0], end=shifted[1])
        objects.append({key: value for key, value in asdict(mark).items() if value is not None})
    return objects


@dataclass(frozen=True)
class Excerpt:
    """Parts of a text, with "…" for omitted parts."""

    text: str
    kept: Sequence[tuple[Stretch, int]]
    """Ranges of the whole text that the excerpt keeps, in order, each with the offset in `text` at which it starts."""

    def shift(self, char_range: Stretch) -> Stretch | None:
        """Return the range in the excerpt for a range of the whole text; None if the excerpt omits it."""
        for (start, end), offset in self.kept:
            if start <= char_range[0] and char_range[1] <= end:
                return char_range[0] - start + offset, char_range[1] - start + offset
        return None


def excerpt(text: str, centres: Sequence[Stretch], uncut: Sequence[Stretch] = ()) -> Excerpt:
    """Return the parts of a long text around the ranges `centres`; without ranges, its beginning.

    A short text is kept as a whole. A range of `uncut` is in the excerpt as a whole or not at all.
    """
    excerpt_text, previous_end = "", 0
    kept = []
    for start, end in _merge_ranges(_kept_ranges(text, centres, uncut)):
        if start > previous_end:
            excerpt_text += f" {_CUT} " if previous_end else f"{_CUT} "
        kept.append(((start, end), len(excerpt_text)))
        excerpt_text, previous_end = excerpt_text + text[start:end], end
    return Excerpt(excerpt_text + (f" {_CUT}" if previous_end < len(text) else ""), kept)


def _kept_ranges(text: str, centres: Sequence[Stretch], uncut: Sequence[Stretch]) -> list[Stretch]:
    """Return the character ranges of an excerpt: those around `centres`, and the ranges `uncut` that overlap these."""
    if len(text) <= MAX_UNCUT:
        return [(0, len(text))]
    around = [_extend_to_words(text, start - CONTEXT, end + CONTEXT) for start, end in centres]
    if not around:
        around = [_extend_to_words(text, 0, MAX_UNCUT)]

    def overlaps(first: int, last: int) -> bool:
        return any(max(first, start) < min(last, end) for start, end in around)

    return around + [char_range for char_range in uncut if overlaps(*char_range)]


def _extend_to_words(text: str, start: int, end: int) -> Stretch:
    """Return a range of `text`, extended at each end to the next space within `_MAX_WORD` characters, if any."""
    start, end = max(start, 0), min(end, len(text))
    space_before = text.rfind(" ", max(start - _MAX_WORD, 0), start)  # -1 if there is none
    space_after = text.find(" ", end, end + _MAX_WORD)
    word_start = start if space_before < 0 else space_before + 1
    word_end = end if space_after < 0 else space_after
    return word_start, word_end


def _merge_ranges(stretches: Sequence[Stretch]) -> list[Stretch]:
    """Merge ranges that overlap or are at most one character apart."""
    merged: list[Stretch] = []
    for start, end in sorted(stretches):
        if merged and start <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged
