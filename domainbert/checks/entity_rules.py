"""Rules on entity annotations, for tasks whose annotators should label every entity."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from domainbert.base.errors import counted
from domainbert.checks.finding import Finding, Rule, rule
from domainbert.checks.labelled_set import CheckedSet
from domainbert.labelled.items import PlainItem

_WORD = re.compile(r"\S+")
_MAX_WORDS = 8  # of an entity that is searched for in other texts
_MIN_TAGGED = 5  # tagged occurrences, before an untagged one is suspicious
_MIN_DETERMINERS = 20  # entities with a determiner, inside or before them, before the rarer habit is suspicious
# closing to opening bracket or quotation mark
_OPENING_OF = {")": "(", "]": "[", "}": "{", "\u00bb": "\u00ab", "\u201d": "\u201c"}
# signs that are not the first or not the last character of an entity
_NOT_FIRST = set(",.;:!?%/") | set(_OPENING_OF)
_NOT_LAST = set(",;:!?/") | set(_OPENING_OF.values())
_JOINING_SIGNS = frozenset(["-", "/", "\u2010", "\u2011", "\u2013"])
_ENGLISH_DETERMINERS = "a an the this that these those its their our his her my your some any each such"
_OTHER_DETERMINERS = "der die das den dem des ein eine einen einem einer le la les un une du el los las una il lo gli"
_DETERMINERS = {*_ENGLISH_DETERMINERS.split(), *_OTHER_DETERMINERS.split()}

Stretch = tuple[int, int, int]
"""Item index, start and end character (exclusive)."""


class TaggedText(NamedTuple):
    """A text with its words and its tagged entities; all ends are exclusive."""

    text: str
    words: list[tuple[int, int]]  # (start, end) characters of each word
    entities: list[tuple[int, int]]  # (begin, end) word indices of each entity

    def character_span(self, begin: int, end: int) -> tuple[int, int]:
        """Return the start and end character of the words `begin` to `end`."""
        return self.words[begin][0], self.words[end - 1][1]

    def surface(self, begin: int, end: int) -> str:
        """Return the text of the words `begin` to `end`."""
        return self.text[slice(*self.character_span(begin, end))]


def _tagged_text(item: PlainItem) -> TaggedText:
    """Return the text with its words, and its entities as ranges of words; without entities that end inside a word."""
    text = item.texts[0]  # an item with entities has a single text
    words = [match.span() for match in _WORD.finditer(text)]
    begins = {start: index for index, (start, _) in enumerate(words)}
    ends = {end: index + 1 for index, (_, end) in enumerate(words)}
    entities = []
    for span in item.stretches or ():
        begin, end = begins.get(span.start), ends.get(span.end)
        if begin is not None and end is not None:
            entities.append((begin, end))
    return TaggedText(text, words, entities)


@rule("warning")
def punctuation_at_edge(data: CheckedSet, rule: Rule[CheckedSet]) -> Iterator[Finding]:
    """An entity begins or ends with white space, punctuation or an unpaired bracket.

    Correct its borders: strict scores count an entity with another border as wrong.
    """
    places = []
    for index, item in enumerate(data.items):
        for stretch in item.stretches or ():
            if _has_odd_edge(item.texts[0][stretch.start : stretch.end]):
                places.append(data.place_of_span(index, stretch.start, stretch.end))
    if places:
        verb = "begins or ends" if len(places) == 1 else "begin or end"
        entities = f"{counted(len(places), 'entities')} of {data.name}"
        yield rule.finding(f"{entities} {verb} with punctuation or white space", places)


def _has_odd_edge(surface: str) -> bool:
    if surface != surface.strip():
        return True
    if len(surface) == 1:
        return not surface.isalnum() and surface in _NOT_FIRST | _NOT_LAST
    first, last = surface[0], surface[-1]
    is_unpaired = last in _OPENING_OF and surface.count(last) > surface.count(_OPENING_OF[last])
    bad_first = first in _NOT_FIRST and not (first == "." and surface[1].isdigit())  # ".95" is a number
    return bad_first or is_unpaired or last in _NOT_LAST or surface.endswith((" .", " -"))


@rule("warning", threshold=0.9)
def surface_missed(data: CheckedSet, rule: Rule[CheckedSet]) -> Iterator[Finding]:
    """The words of an entity have no tag in some places, although more than this share of their occurrences, and at
    least five, are tagged.

    Read the untagged places, and tag the entities that were missed.
    """
    # surfaces that are tagged often enough
    texts = [_tagged_text(item) for item in data.items]
    num_tagged = Counter(text.surface(*entity) for text in texts for entity in text.entities)
    frequent = {
        surface
        for surface, count in num_tagged.items()
        if count >= _MIN_TAGGED and sum(map(str.isalpha, surface)) > 1  # a single letter may mean something else
    }

    # their untagged places, if nearly all other places are tagged
    untagged: dict[str, list[Stretch]] = defaultdict(list)
    for index, text in enumerate(texts):
        for begin, end in _untagged_ranges(text, frequent):
            untagged[text.surface(begin, end)].append((index, *text.character_span(begin, end)))
    suspicious = {
        surface: stretches
        for surface, stretches in untagged.items()
        if num_tagged[surface] > rule.limit * (num_tagged[surface] + len(stretches))
    }
    places = [data.place_of_span(*stretch) for stretch in sorted(chain.from_iterable(suspicious.values()))]
    if places:
        without_tag = f"{counted(len(places), 'places')} of {data.name} {'has' if len(places) == 1 else 'have'} no tag"
        message = f"{without_tag}, but the same words have one almost everywhere"
        yield rule.finding(f"{message} ({_examples(suspicious, num_tagged)})", places)


def _examples(untagged: Mapping[str, list[Stretch]], num_tagged: Counter[str]) -> str:
    most = sorted(untagged, key=lambda surface: (-len(untagged[surface]), surface))[:3]
    return ", ".join(f"{text!r} {num_tagged[text]:,} times tagged, {len(untagged[text]):,} not" for text in most)


def _untagged_ranges(item: TaggedText, surfaces: set[str]) -> Iterator[tuple[int, int]]:
    """Yield the word ranges (begin, end) whose text is in `surfaces`, if they overlap no entity and are not part of a
    compound. Of the ranges that begin with the same word, only the longest range in `surfaces` is considered."""
    tagged_words = {word for begin, end in item.entities for word in range(begin, end)}
    for begin in range(len(item.words)):
        for end in range(min(len(item.words), begin + _MAX_WORDS), begin, -1):
            if item.surface(begin, end) in surfaces:
                if tagged_words.isdisjoint(range(begin, end)) and not _is_in_compound(item, begin, end):
                    yield begin, end
                break


def _is_in_compound(item: TaggedText, begin: int, end: int) -> bool:
    """Whether the word before or after a word range is a hyphen or slash, as after "DM" in "DM - kinase"."""
    neighbours = [item.surface(index, index + 1) for index in (begin - 1, end) if 0 <= index < len(item.words)]
    return not _JOINING_SIGNS.isdisjoint(neighbours)


@rule("warning", threshold=0.1)
def boundary_habits(data: CheckedSet, rule: Rule[CheckedSet]) -> Iterator[Finding]:
    """A determiner ("the", "their", "une") is part of the entity in some places and precedes it in others; the rarer
    habit has more than this share of at least twenty places.

    Decide for one habit and correct the other places: a model cannot learn an inconsistent border.
    """
    # by determiner: entities that it is part of, and entities that it precedes
    inside, before = defaultdict[str, list[Stretch]](list), defaultdict[str, list[Stretch]](list)
    for index, text in enumerate(map(_tagged_text, data.items)):
        for begin, end in text.entities:
            first, previous = _determiner(text, begin), _determiner(text, begin - 1)
            if first and end - begin > 1:  # not for an entity that consists of the determiner
                inside[first].append((index, *text.character_span(begin, end)))
            elif previous:
                before[previous].append((index, *text.character_span(begin - 1, end)))

    habits: list[str] = []
    rare_stretches: list[Stretch] = []
    for word in sorted(inside.keys() & before.keys()):
        rarer = min(inside[word], before[word], key=len)
        total = len(inside[word]) + len(before[word])
        if total >= _MIN_DETERMINERS and len(rarer) > rule.limit * total:
            habits.append(f"{word!r} {len(inside[word]):,} times inside, {len(before[word]):,} before the entity")
            rare_stretches += rarer
    if habits:
        message = f"entities of {data.name} include a determiner in some places and not in others: {'; '.join(habits)}"
        yield rule.finding(message, [data.place_of_span(*stretch) for stretch in sorted(rare_stretches)])


def _determiner(item: TaggedText, index: int) -> str:
    """Return word `index` in lower case if it is a determiner, otherwise "". A capital "A" may be a name ("A - T")."""
    if index < 0:
        return ""
    word = item.surface(index, index + 1)
    is_determiner = word.lower() in _DETERMINERS and word != "A"
    return word.lower() if is_determiner else ""


RULES = [punctuation_at_edge, surface_missed, boundary_habits]
"""Rules for training and validation sets."""
