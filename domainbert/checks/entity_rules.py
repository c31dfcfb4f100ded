"""Rules on entity annotations, for tasks whose annotators should label every entity."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from domainbert.checks.finding import Finding, Rule, rule
from domainbert.checks.labelled_set import CheckedSet
from domainbert.labelled.plain_items import PlainItem

_WORD = re.compile(r"\S+")
_MOST_WORDS = 8  # of an entity that is searched for in the other texts
_LEAST_TAGGED = 5  # tagged occurrences, before an untagged one is suspicious
_LEAST_BESIDE = 20  # entities with this determiner, inside or before them
_CLOSES = {")": "(", "]": "[", "}": "{", "\u00bb": "\u00ab", "\u201d": "\u201c"}
_NO_BEGIN = set(",.;:!?%/") | set(_CLOSES)
_NO_END = set(",;:!?/") | set(_CLOSES.values())
_JOINING = frozenset(["-", "/", "\u2010", "\u2011", "\u2013"])
_ENGLISH = "a an the this that these those its their our his her my your some any each such"
_OTHERS = "der die das den dem des ein eine einen einem einer le la les un une du el los las una il lo gli"
_DETERMINERS = {*_ENGLISH.split(), *_OTHERS.split()}


Stretch = tuple[int, int, int]
"""Item number, start and end character (exclusive)."""


class Tagged(NamedTuple):
    """Words of an item as `(start, end)` characters, and its entities as `(begin, end)` word numbers."""

    text: str
    words: list[tuple[int, int]]
    entities: list[tuple[int, int]]

    def characters(self, begin: int, end: int) -> tuple[int, int]:
        """Start and end character of a range of words."""
        return self.words[begin][0], self.words[end - 1][1]

    def surface(self, begin: int, end: int) -> str:
        """Text of a range of words."""
        return self.text[slice(*self.characters(begin, end))]


def tagged(item: PlainItem) -> Tagged:
    """Words and entities of an item, without entities whose borders are not word borders."""
    text = item.texts[0]
    words = [match.span() for match in _WORD.finditer(text)]
    begins = {start: number for number, (start, _) in enumerate(words)}
    ends = {end: number + 1 for number, (_, end) in enumerate(words)}
    pairs = [(begins.get(data.start), ends.get(data.end)) for data in item.stretches or ()]
    return Tagged(text, words, [(begin, end) for begin, end in pairs if begin is not None and end is not None])


@rule("warning")
def punctuation_at_edge(data: CheckedSet, rule: Rule[CheckedSet]) -> Iterator[Finding]:
    """An entity begins or ends with white space, punctuation or an unpaired bracket.

    Correct its borders: strict scores count an entity with another border as wrong.
    """
    places = []
    for number, item in enumerate(data.items):
        for stretch in item.stretches or ():
            if _has_odd_edge(item.texts[0][stretch.start : stretch.end]):
                places.append(data.place_of_span(number, stretch.start, stretch.end))
    if places:
        message = f"{len(places):,} entities of {data.name} begin or end with punctuation or white space"
        yield rule.finding(message, places)


def _has_odd_edge(surface: str) -> bool:
    if surface != surface.strip():
        return True
    if len(surface) == 1:
        return not surface.isalnum() and surface in _NO_BEGIN | _NO_END
    first, last = surface[0], surface[-1]
    if last in _CLOSES:
        return surface.count(last) > surface.count(_CLOSES[last])
    separate = surface[-2:] in (" .", " -")
    dot = first == "." and not surface[1].isdigit()  # but ".95"
    return first in _NO_BEGIN - {"."} or dot or last in _NO_END or separate


@rule("warning", threshold=0.9)
def surface_missed(data: CheckedSet, rule: Rule[CheckedSet]) -> Iterator[Finding]:
    """The words of an entity have no tag in some places, although more than this share of their occurrences, and at
    least five, are tagged.

    Read the untagged places, and tag the entities that were missed.
    """
    items = [tagged(item) for item in data.items]
    labelled = Counter(item.surface(*entity) for item in items for entity in item.entities)
    often = {surface for surface, count in labelled.items() if count >= _LEAST_TAGGED and _has_letters(surface)}
    missed: dict[str, list[Stretch]] = defaultdict(list)
    for number, item in enumerate(items):
        for words in _free_places(item, often):
            missed[item.surface(*words)].append((number, *item.characters(*words)))
    suspicious = {word: at for word, at in missed.items() if labelled[word] > rule.limit * (labelled[word] + len(at))}
    places = [data.place_of_span(*stretch) for stretch in sorted(chain.from_iterable(suspicious.values()))]
    if places:
        message = f"{len(places):,} places of {data.name} have no tag, but the same words have one almost everywhere"
        yield rule.finding(f"{message} ({_examples(suspicious, labelled)})", places)


def _examples(suspicious: Mapping[str, list[Stretch]], labelled: Counter[str]) -> str:
    most = sorted(suspicious, key=lambda word: (-len(suspicious[word]), word))[:3]
    return ", ".join(f"{word!r} {labelled[word]:,} times tagged, {len(suspicious[word]):,} not" for word in most)


def _has_letters(surface: str) -> bool:
    return sum(map(str.isalpha, surface)) > 1


def _free_places(item: Tagged, surfaces: set[str]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of words that equal one of `surfaces` and overlap no entity; the longest per first word."""
    taken = {word for begin, end in item.entities for word in range(begin, end)}
    for begin in range(len(item.words)):
        for end in range(min(len(item.words), begin + _MOST_WORDS), begin, -1):
            if item.surface(begin, end) in surfaces:
                if taken.isdisjoint(range(begin, end)) and not _in_a_compound(item, begin, end):
                    yield begin, end
                break


def _in_a_compound(item: Tagged, begin: int, end: int) -> bool:
    """Whether a hyphen or slash joins the words to a neighbour, as "DM" in "DM - kinase"."""
    beside = [item.surface(at, at + 1) for at in (begin - 1, end) if 0 <= at < len(item.words)]
    return not _JOINING.isdisjoint(beside)


@rule("warning", threshold=0.1)
def boundary_habits(data: CheckedSet, rule: Rule[CheckedSet]) -> Iterator[Finding]:
    """A determiner ("the", "their", "une") is part of the entity in some places and precedes it in others; the rarer
    habit has more than this share of at least twenty places.

    Decide for one habit and correct the other places: a model cannot learn an inconsistent border.
    """
    inside, before = defaultdict[str, list[Stretch]](list), defaultdict[str, list[Stretch]](list)
    for number, item in enumerate(map(tagged, data.items)):
        for begin, end in item.entities:
            first, previous = (_determiner(item, at) for at in (begin, begin - 1))
            if first and end - begin > 1:
                inside[first].append((number, *item.characters(begin, end)))
            elif previous:
                before[previous].append((number, *item.characters(begin - 1, end)))
    habits, rare = [], []
    for word in sorted(inside.keys() & before.keys()):
        rarer, commoner = sorted((inside[word], before[word]), key=len)
        total = len(rarer) + len(commoner)
        if total >= _LEAST_BESIDE and len(rarer) > rule.limit * total:
            habits.append(f"{word!r} {len(inside[word]):,} times inside, {len(before[word]):,} before it")
            rare += rarer
    if rare:
        message = f"entities of {data.name} include a determiner in some places and not in others: {'; '.join(habits)}"
        yield rule.finding(message, [data.place_of_span(*stretch) for stretch in sorted(rare)])


def _determiner(item: Tagged, at: int) -> str:
    """Determiner at word number `at`, lowercased, or "". A capital "A" does not count: it may be a name ("A - T")."""
    word = item.surface(at, at + 1) if at >= 0 else ""
    return word.lower() if word.lower() in _DETERMINERS and word != "A" else ""


RULES = [punctuation_at_edge, surface_missed, boundary_habits]
"""Rules for training and validation sets."""
