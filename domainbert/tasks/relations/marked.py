"""Texts with two marked entities. Free of torch."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.labelled.row_values import problem_with_text, refuse, shown
from domainbert.labelled.stretches import Stretch, stretch_of, words_inside
from domainbert.tasks.relations.config import RelationFormat

Markers = Sequence[str]
"""Four: before and after the first entity, the head; before and after the second, the tail."""


@dataclass(frozen=True)
class MarkedText:
    """A text with a marker before and after each of two entities, whatever they are written as."""

    text: str
    marks: tuple[Stretch, Stretch, Stretch, Stretch]
    """The characters of the four markers, in the order of `Markers`."""

    @property
    def words(self) -> list[str]:
        """The words of the text, as they stand between spaces."""
        return self.text.split()

    @property
    def key(self) -> list[object]:
        """The text and its marks, as a value of JSON."""
        return [self.text, [list(mark) for mark in self.marks]]

    @property
    def entities(self) -> tuple[Stretch, Stretch]:
        """The characters of head and tail, without white space between markers and them."""
        before_head, after_head, before_tail, after_tail = self.marks
        return self._inside(before_head, after_head), self._inside(before_tail, after_tail)

    def _inside(self, before: Stretch, after: Stretch) -> Stretch:
        inside = self.text[before[1] : after[0]]
        start = before[1] + len(inside) - len(inside.lstrip())
        return start, start + len(inside.strip())

    @property
    def unmarked(self) -> str:
        """The text without markers and white space: the same whichever two of its entities are marked."""
        return "".join(self.written(("", "", "", ""))[0].split())

    def written(self, markers: Markers, spaced: bool = False) -> tuple[str, list[int]]:
        """The text with other markers in place of its own, perhaps with white space around each, and where they begin.

        Vocabularies whose pieces have the space before them would put one behind an entry of its own, anyway.
        """
        text, at, begins = "", 0, [0] * len(self.marks)
        for number in sorted(range(len(self.marks)), key=self.marks.__getitem__):
            start, end = self.marks[number]
            text += self.text[at:start]
            text += " " if spaced and text and not text[-1].isspace() else ""
            begins[number] = len(text)
            follows = self.text[end : end + 1]
            text, at = text + markers[number] + (" " if spaced and follows.strip() else ""), end
        return text + self.text[at:], begins


def marked_text(row: Mapping[str, Any], text_key: str, format: RelationFormat) -> MarkedText:
    """The text and entities of a row, which are given as characters or have markers around them.

    Raises:
        DomainbertError: no text; one entity alone; characters that are no stretch of the text, or do not begin and end
            with words; entities that overlap, unless one lies in the other; markers that are not there, or in several
            places.
    """
    refuse(problem_with_text(dict(row), text_key))
    text, keys = row[text_key], (format.head_key, format.tail_key)
    if not any(key in row for key in keys):
        return find_markers(text, format.markers)
    stretches, problems = [], []
    for key in keys:
        try:
            stretches.append(_stretch(text, row, key))
        except DomainbertError as error:
            problems.append(f"{key!r}: {error}")
    refuse(*problems)
    head, tail = stretches
    _check_nested(text, head, tail)
    return put_markers(text, head, tail, format.markers)


def find_markers(text: str, markers: Markers) -> MarkedText:
    """A text that has markers in it, each entity from its first marker to the next second one. Where all have white
    space inside of them, others do not count: in `<< A >> of [[ B ]] and 4-[[(C` there is one of each.

    `DomainbertError` if an entity has no markers, or there are several first ones.
    """
    pairs = (markers[:2], markers[2:])
    space = r"\s" if all(_entity(pair, r"\s").search(text) for pair in pairs) else ""
    entities, problems = [], []
    for begin, end in pairs:
        found, begins = _entity((begin, end), space).search(text), re.findall(re.escape(begin) + space, text)
        if found is not None and len(begins) == 1:
            entities.append(found)
        else:
            told = f"{len(begins)} entities begin with {begin}" if found else f"no entity between {begin} and {end}"
            problems.append(f"{told}; expected one entity between each pair of markers")
    refuse(*problems)
    head, tail = entities
    _check_nested(text, head.span(), tail.span())
    return MarkedText(text, (head.span(1), head.span(2), tail.span(1), tail.span(2)))


def _entity(pair: Sequence[str], space: str) -> re.Pattern[str]:
    """Pattern of an entity between two markers, with `space` inside of them."""
    begin, end = map(re.escape, pair)
    return re.compile(f"({begin}){space}.+?{space}({end})", re.DOTALL)


def put_markers(text: str, head: Stretch, tail: Stretch, markers: Markers) -> MarkedText:
    """A text with markers around two stretches, spaces inside of them: `<< A >>-induced`. Where one lies in the other
    so do its markers; of two that are the same, the head's are outside."""
    (head_start, head_end), (tail_start, tail_end) = head, tail
    # at one place markers that end something come before those that begin something; the inner one ends first
    order = [
        ((head_start, 1, -head_end), 0),
        ((tail_start, 1, -tail_end), 2),
        ((tail_end, 0, -tail_start), 3),
        ((head_end, 0, -head_start), 1),
    ]
    written, at, marks = "", 0, [(0, 0)] * 4
    for (place, begins, _), number in sorted(order, key=lambda one: one[0]):
        written += text[at:place]
        touches = bool(begins) and any(end == len(written) > 0 for _, end in marks)
        written += " " if touches or not begins else ""
        marks[number] = (len(written), len(written) + len(markers[number]))
        written, at = written + markers[number] + (" " if begins else ""), place
    return MarkedText(written + text[at:], (marks[0], marks[1], marks[2], marks[3]))


def _stretch(text: str, row: Mapping[str, Any], key: str) -> Stretch:
    value = row.get(key)
    if not isinstance(value, dict):
        found = f"is {shown(value)}" if key in row else "is missing"
        raise DomainbertError(f"{found}; expected an object with start and end, as for the other entity")
    from domainbert.tokenization.align import basic_words  # imports tokenizers, which a help text does without

    stretch = stretch_of(text, value)
    words_inside(text, stretch, *basic_words([text]))
    return stretch


def _check_nested(text: str, head: Stretch, tail: Stretch) -> None:
    first, second = sorted((head, tail))
    if first[0] < second[0] < first[1] < second[1]:
        pair = " and ".join(reprlib.repr(text[start:end]) for start, end in (head, tail))
        raise DomainbertError(f"{pair} overlap; expected entities that do not overlap, or one inside the other")
