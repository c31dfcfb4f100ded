"""A long text cut down to what stands around some places in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domainbert.labelled.text_rows import Stretch

WHOLE = 600
"""A text of so many characters is kept as it is."""

AROUND = 200
"""Of a longer one so many are kept on either side of a place."""

_WORD = 30  # how far off a border of words is looked for
_CUT = "…"


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
