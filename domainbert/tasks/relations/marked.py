"""Texts with two marked entities. Free of torch."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from domainbert.base.errors import DomainbertError, Problems
from domainbert.labelled.char_spans import Stretch, read_char_span, strip_span, words_inside
from domainbert.labelled.row_values import problem_with_text, raise_problems, shown
from domainbert.tasks.relations.config import RelationFormat

Markers = Sequence[str]
"""Four markers: before and after the first entity (head), before and after the second (tail)."""

NO_MARKERS: Markers = ("", "", "", "")


@dataclass(frozen=True)
class MarkedText:
    """A text with a marker before and after each of two entities."""

    text: str
    marks: tuple[Stretch, Stretch, Stretch, Stretch]
    """Character ranges of the four markers, in the order of `Markers`."""

    @property
    def words(self) -> list[str]:
        """Return the words of the text, split at white space."""
        return self.text.split()

    @property
    def key(self) -> list[object]:
        """Return the text and its marks as a JSON value."""
        return [self.text, [list(mark) for mark in self.marks]]

    @property
    def entities(self) -> tuple[Stretch, Stretch]:
        """Return the character ranges of head and tail, without surrounding white space."""
        before_head, after_head, before_tail, after_tail = self.marks
        head = strip_span(self.text, before_head[1], after_head[0])
        return head, strip_span(self.text, before_tail[1], after_tail[0])

    @property
    def unmarked(self) -> str:
        """Return the text without markers and white space: equal for all pairs of entities of one text."""
        text, _ = self.with_markers(NO_MARKERS)
        return "".join(text.split())  # markers may have been inserted with spaces

    def with_markers(self, markers: Markers, spaced: bool = False) -> tuple[str, list[int]]:
        """Return the text with its markers replaced by `markers`, and the start of each marker.

        `spaced` puts white space around each marker, as some tokenizers insert a space after an added token anyway.
        """
        text = ""
        copied_chars = 0  # of the original text
        starts = [0] * len(self.marks)
        for (start, end), index in sorted((mark, index) for index, mark in enumerate(self.marks)):
            text += self.text[copied_chars:start]
            if spaced and text and not text[-1].isspace():
                text += " "
            starts[index] = len(text)
            text += markers[index]
            if spaced and self.text[end : end + 1].strip():  # a character other than white space follows
                text += " "
            copied_chars = end
        return text + self.text[copied_chars:], starts


def marked_text(row: Mapping[str, Any], text_key: str, format: RelationFormat) -> MarkedText:
    """Return the text and entities of a row; entities are given by character offsets or by markers in the text.

    Raises:
        DomainbertError: no text; a single entity; offsets outside the text or not aligned with words; entities that
            overlap without nesting; missing or duplicate markers.
    """
    raise_problems(problem_with_text(dict(row), text_key, option="text_key"))
    text, keys = row[text_key], (format.head_key, format.tail_key)
    if not any(key in row for key in keys):
        return find_markers(text, format.markers)
    stretches, problems = [], Problems("row")
    for key in keys:
        with problems.collecting(repr(key)):
            stretches.append(_read_entity(text, row, key))
    problems.raise_if_any()
    head, tail = stretches
    _check_nested(text, head, tail)
    return insert_markers(text, head, tail, format.markers)


def find_markers(text: str, markers: Markers) -> MarkedText:
    """Return a text with its markers located; an entity extends from its opening marker to the next closing marker.

    If both entities have white space inside their markers, markers without white space are ignored: in
    `<< A >> of [[ B ]] and 4-[[(C`, the second `[[` is not a marker.

    Raise `DomainbertError` if an entity has no markers, or there are several opening markers.
    """
    pairs = (markers[:2], markers[2:])
    has_inner_space = all(_entity_pattern(pair, r"\s").search(text) for pair in pairs)
    space = r"\s" if has_inner_space else ""
    entities, problems = [], Problems("row")
    for name, (begin, end) in zip(("head", "tail"), pairs, strict=True):
        match = _entity_pattern((begin, end), space).search(text)
        openings = re.findall(re.escape(begin) + space, text)
        if match is not None and len(openings) == 1:
            entities.append(match)
        else:
            found = f"{len(openings)} entities begin with {begin!r}" if match else f"no {name} entity"
            expected = f"one between {begin!r} and {end!r} (format.{name}_markers)"
            problems.add(found, expected=expected)
    problems.raise_if_any()
    head, tail = entities
    _check_nested(text, head.span(), tail.span())
    return MarkedText(text, (head.span(1), head.span(2), tail.span(1), tail.span(2)))


def _entity_pattern(pair: Sequence[str], space: str) -> re.Pattern[str]:
    """Return the pattern of an entity between two markers, which are groups 1 and 2. `space` is the pattern between the
    entity and each marker; it may be empty."""
    begin, end = map(re.escape, pair)
    return re.compile(f"({begin}){space}.+?{space}({end})", re.DOTALL)


def insert_markers(text: str, head: Stretch, tail: Stretch, markers: Markers) -> MarkedText:
    """Return a text with markers inserted around two ranges.

    Spaces separate markers from the ranges and from each other, but not from the text outside: `<< A >>-induced`.

    The markers of a nested range are nested; for equal ranges the markers of the head are outside.
    """
    # (range, index of its opening marker), the shorter range first, as it may be inside; of equal ranges the tail
    inner, outer = sorted([(tail, 2), (head, 0)], key=lambda entry: entry[0][1] - entry[0][0])
    # (offset, index of the marker) in the order of the text; at the same offset closings first, and nested
    closings = [(end, opening + 1) for (_, end), opening in (inner, outer)]
    openings = [(start, opening) for (start, _), opening in (outer, inner)]
    insertions = sorted([*closings, *openings], key=itemgetter(0))  # stable
    marked = ""
    copied_chars = 0  # of `text`
    marks = [(0, 0)] * 4  # (start, end) of each marker in `marked`; (0, 0) before it is inserted
    for offset, index in insertions:
        opens = index in (0, 2)
        marked += text[copied_chars:offset]
        follows_marker = len(marked) in [end for _, end in marks if end]
        needs_space = follows_marker or not opens
        if needs_space:
            marked += " "
        marks[index] = (len(marked), len(marked) + len(markers[index]))
        marked += markers[index]
        if opens:
            marked += " "
        copied_chars = offset
    return MarkedText(marked + text[copied_chars:], (marks[0], marks[1], marks[2], marks[3]))


def _read_entity(text: str, row: Mapping[str, Any], key: str) -> Stretch:
    from domainbert.tokenization.align import basic_words  # imports tokenizers, which --help does not need

    value = row.get(key)
    if not isinstance(value, dict):
        problem, found = ("", shown(value)) if key in row else ("missing", "")
        raise DomainbertError(problem, found=found, expected='an object such as {"start": 0, "end": 4}')
    stretch = read_char_span(text, value)
    words_inside(text, stretch, *basic_words([text]))  # raises an error if the entity splits a word
    return stretch


def _check_nested(text: str, head: Stretch, tail: Stretch) -> None:
    """Raise `DomainbertError` if two entities overlap and neither is inside the other."""
    first, second = sorted((head, tail))
    if first[0] < second[0] < first[1] < second[1]:
        pair = " and ".join(reprlib.repr(text[start:end]) for start, end in (head, tail))
        raise DomainbertError(f"{pair} overlap", expected="entities that do not overlap, or one inside the other")
