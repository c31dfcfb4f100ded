"""Rules on entity annotations, for tasks whose annotators should label every entity."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import NamedTuple

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


def tagged_text(item: PlainItem) -> TaggedText:
    """Return the words and entities of an item, without entities whose borders are not word borders."""
    text = item.texts[0]
    words = [match.span() for match in _WORD.finditer(text)]
    begins = {start: index for index, (start, _) in enumerate(words)}
    ends = {end: index + 1 for index, (_, end) in enumerate(words)}
    ranges = [(begins.get(span.start), ends.get(span.end)) for span in item.stretches or ()]
    return TaggedText(text, words, [(begin, end) for begin, end in ranges if begin is not None and end is not None])


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
        message = f"{len(places):,} entities of {data.name} begin or end with punctuation or white space"
        yield rule.finding(message, places)


def _has_odd_edge(surface: str) -> bool:
    if surface != surface.strip():
        return True
    if len(surface) == 1:
        return not surface.isalnum() and surface in _NOT_FIRST | _NOT_LAST
    first, last = surface[0], surface[-1]
    if last in _OPENING_OF:
        return surface.count(last) > surface.count(_OPENING_OF[last])
    separate_sign = surface[-2:] in (" .", " -")
    starts_with_dot = first == "." and not surface[1].isdigit()  # but ".95"
    return first in _NOT_FIRST - {"."} or starts_with_dot or last in _NOT_LAST or separate_sign


@rule("warning", threshold=0.9)
def surface_missed(data: CheckedSet, rule: Rule[CheckedSet]) -> Iterator[Finding]:
    """The words of an entity have no tag in some places, although more than this share of their occurrences, and at
    least five, are tagged.

    Read the untagged places, and tag the entities that were missed.
    """
    items = [tagged_text(item) for item in data.items]
    num_tagged = Counter(item.surface(*entity) for item in items for entity in item.entities)
    often = {surface for surface, count in num_tagged.items() if count >= _MIN_TAGGED and _has_several_letters(surface)}
    missed: dict[str, list[Stretch]] = defaultdict(list)
    for index, item in enumerate(items):
        for begin, end in _untagged_ranges(item, often):
            missed[item.surface(begin, end)].append((index, *item.character_span(begin, end)))
    suspicious = {
        surface: stretches
        for surface, stretches in missed.items()
        if num_tagged[surface] > rule.limit * (num_tagged[surface] + len(stretches))
    }
    places = [data.place_of_span(*stretch) for stretch in sorted(chain.from_iterable(suspicious.values()))]
    if places:
        message = f"{len(places):,} places of {data.name} have no tag, but the same words have one almost everywhere"
        yield rule.finding(f"{message} ({_examples(suspicious, num_tagged)})", places)


def _examples(suspicious: Mapping[str, list[Stretch]], num_tagged: Counter[str]) -> str:
    """Format the three texts with the most untagged places, with their numbers of tagged and untagged places."""
    most = sorted(suspicious, key=lambda surface: (-len(suspicious[surface]), surface))[:3]
    return ", ".join(f"{text!r} {num_tagged[text]:,} times tagged, {len(suspicious[text]):,} not" for text in most)


def _has_several_letters(surface: str) -> bool:
    return sum(map(str.isalpha, surface)) > 1


def _untagged_ranges(item: TaggedText, surfaces: set[str]) -> Iterator[tuple[int, int]]:
    """Yield the word ranges (begin, end) whose text is in `surfaces` and which overlap no entity. For each first
    word only the longest range in `surfaces` counts."""
    tagged_words = {word for begin, end in item.entities for word in range(begin, end)}
    for begin in range(len(item.words)):
        for end in range(min(len(item.words), begin + _MAX_WORDS), begin, -1):
            if item.surface(begin, end) in surfaces:
                if tagged_words.isdisjoint(range(begin, end)) and not _is_in_compound(item, begin, end):
                    yield begin, end
                break


def _is_in_compound(item: TaggedText, begin: int, end: int) -> bool:
    """Whether a hyphen or slash joins the words to a neighbour, as "DM" in "DM - kinase"."""
    neighbours = [item.surface(index, index + 1) for index in (begin - 1, end) if 0 <= index < len(item.words)]
    return not _JOINING_SIGNS.isdisjoint(neighbours)


@rule("warning", threshold=0.1)
def boundary_habits(data: CheckedSet, rule: Rule[CheckedSet]) -> Iterator[Finding]:
    """A determiner ("the", "their", "une") is part of the entity in some places and precedes it in others; the rarer
    habit has more than this share of at least twenty places.

    Decide for one habit and correct the other places: a model cannot learn an inconsistent border.
    """
    inside, before = defaultdict[str, list[Stretch]](list), defaultdict[str, list[Stretch]](list)
    for index, item in enumerate(map(tagged_text, data.items)):
        for begin, end in item.entities:
            first, previous = _determiner(item, begin), _determiner(item, begin - 1)
            if first and end - begin > 1:
                inside[first].append((index, *item.character_span(begin, end)))
            elif previous:
                before[previous].append((index, *item.character_span(begin - 1, end)))
    habits, rare = [], []
    for word in sorted(inside.keys() & before.keys()):
        rarer, commoner = sorted((inside[word], before[word]), key=len)
        total = len(rarer) + len(commoner)
        if total >= _MIN_DETERMINERS and len(rarer) > rule.limit * total:
            habits.append(f"{word!r} {len(inside[word]):,} times inside, {len(before[word]):,} before it")
            rare += rarer
    if rare:
        message = f"entities of {data.name} include a determiner in some places and not in others: {'; '.join(habits)}"
        yield rule.finding(message, [data.place_of_span(*stretch) for stretch in sorted(rare)])


def _determiner(item: TaggedText, index: int) -> str:
    """Return word `index` in lower case if it is a determiner, else "". "A" may be a name ("A - T") and is none."""
    word = item.surface(index, index + 1) if index >= 0 else ""
    return word.lower() if word.lower() in _DETERMINERS and word != "A" else ""


RULES = [punctuation_at_edge, surface_missed, boundary_habits]
"""Rules for training and validation sets."""
