"""Rules on entities: stretches of text, of which a task labels all that there are."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from domainbert.checks.finding import Finding, Rule, rule
from domainbert.checks.labelled_set import CheckedSet
from domainbert.labelled.plain_items import PlainItem

_WORD = re.compile(r"\S+")
_MOST_WORDS = 8  # of a surface that is looked for elsewhere
_LEAST_TAGGED = 5  # places of a surface, before missing it elsewhere is odd
_LEAST_BESIDE = 20  # entities with a determiner, inside or before them
_CLOSES = {")": "(", "]": "[", "}": "{", "\u00bb": "\u00ab", "\u201d": "\u201c"}
_NO_BEGIN = set(",.;:!?%/") | set(_CLOSES)
_NO_END = set(",;:!?/") | set(_CLOSES.values())
_JOINING = frozenset(["-", "/", "\u2010", "\u2011", "\u2013"])
_ENGLISH = "a an the this that these those its their our his her my your some any each such"
_OTHERS = "der die das den dem des ein eine einen einem einer le la les un une du el los las una il lo gli"
_DETERMINERS = {*_ENGLISH.split(), *_OTHERS.split()}


Stretch = tuple[int, int, int]
"""The number of an item, and the characters of its text: the first, and the one after the last."""


class Tagged(NamedTuple):
    """The words of an item, as `(start, end)` characters of its text, and its entities as ranges of words."""

    text: str
    words: list[tuple[int, int]]
    entities: list[tuple[int, int]]

    def characters(self, begin: int, end: int) -> tuple[int, int]:
        """The characters of a range of words."""
        return self.words[begin][0], self.words[end - 1][1]

    def surface(self, begin: int, end: int) -> str:
        """The text of a range of words."""
        return self.text[slice(*self.characters(begin, end))]


def tagged(item: PlainItem) -> Tagged:
    """The words and entities of an item; entities that do not begin and end with words are left out."""
    text = item.texts[0]
    words = [match.span() for match in _WORD.finditer(text)]
    begins = {start: number for number, (start, _) in enumerate(words)}
    ends = {end: number + 1 for number, (_, end) in enumerate(words)}
    pairs = [(begins.get(one.start), ends.get(one.end)) for one in item.stretches or ()]
    return Tagged(text, words, [(begin, end) for begin, end in pairs if begin is not None and end is not None])


@rule("warning")
def punctuation_at_edge(one: CheckedSet, rule: Rule[CheckedSet]) -> Iterator[Finding]:
    """An entity begins or ends with white space, punctuation or half of a pair of brackets.

    Draw its borders anew: strict scores count a border beside that as wrong.
    """
    found = []
    for number, item in enumerate(one.items):
        for stretch in item.stretches or ():
            if _has_odd_edge(item.texts[0][stretch.start : stretch.end]):
                found.append(one.place_of_stretch(number, stretch.start, stretch.end))
    if found:
        yield rule.finding(f"{len(found):,} entities of {one.name} begin or end with punctuation or white space", found)


def _has_odd_edge(surface: str) -> bool:
    if surface != surface.strip():
        return True
    if len(surface) == 1:
        return not surface.isalnum() and surface in _NO_BEGIN | _NO_END
    first, last = surface[0], surface[-1]
    if last in _CLOSES:
        return surface.count(last) > surface.count(_CLOSES[last])
    alone = surface[-2:] in (" .", " -")
    dot = first == "." and not surface[1].isdigit()  # but ".95"
    return first in _NO_BEGIN - {"."} or dot or last in _NO_END or alone


@rule("warning", threshold=0.9)
def surface_missed(one: CheckedSet, rule: Rule[CheckedSet]) -> Iterator[Finding]:
    """The words of an entity are tagged in more than this share of five places or more, and not in the others.

    Read the others: where they were forgotten, tag them.
    """
    known = [tagged(item) for item in one.items]
    labelled = Counter(item.surface(*entity) for item in known for entity in item.entities)
    often = {surface for surface, count in labelled.items() if count >= _LEAST_TAGGED and _has_letters(surface)}
    missed: dict[str, list[Stretch]] = defaultdict(list)
    for number, item in enumerate(known):
        for words in _free_places(item, often):
            missed[item.surface(*words)].append((number, *item.characters(*words)))
    odd = {word: found for word, found in missed.items() if labelled[word] > rule.limit * (labelled[word] + len(found))}
    places = [one.place_of_stretch(*place) for place in sorted(place for found in odd.values() for place in found)]
    if places:
        message = f"{len(places):,} places of {one.name} have no tag, though the same words have one almost everywhere"
        yield rule.finding(f"{message} ({_listed(odd, labelled)})", places)


def _listed(odd: Mapping[str, list[Stretch]], labelled: Counter[str]) -> str:
    most = sorted(odd, key=lambda word: (-len(odd[word]), word))[:3]
    return ", ".join(f"{word!r} {labelled[word]:,} times tagged, {len(odd[word]):,} not" for word in most)


def _has_letters(surface: str) -> bool:
    return sum(map(str.isalpha, surface)) > 1


def _free_places(item: Tagged, surfaces: set[str]) -> Iterator[tuple[int, int]]:
    """Ranges of words that are one of the surfaces, and touch no entity; the longest from each word."""
    taken = {word for begin, end in item.entities for word in range(begin, end)}
    for begin in range(len(item.words)):
        for end in range(min(len(item.words), begin + _MOST_WORDS), begin, -1):
            if item.surface(begin, end) in surfaces:
                if taken.isdisjoint(range(begin, end)) and not _in_a_compound(item, begin, end):
                    yield begin, end
                break


def _in_a_compound(item: Tagged, begin: int, end: int) -> bool:
    """Whether a hyphen or slash joins words to others, as "DM" in "DM - kinase"."""
    beside = [item.surface(at, at + 1) for at in (begin - 1, end) if 0 <= at < len(item.words)]
    return not _JOINING.isdisjoint(beside)


@rule("warning", threshold=0.1)
def boundary_habits(one: CheckedSet, rule: Rule[CheckedSet]) -> Iterator[Finding]:
    """A determiner ("the", "their", "une") belongs to the entity behind it in some places, and not in others; the rarer
    habit has more than this share of twenty places or more.

    Write down which it is, and change the others: no model can know the border.
    """
    inside, before = defaultdict[str, list[Stretch]](list), defaultdict[str, list[Stretch]](list)
    for number, item in enumerate(map(tagged, one.items)):
        for begin, end in item.entities:
            first, previous = (_determiner(item, at) for at in (begin, begin - 1))
            if first and end - begin > 1:
                inside[first].append((number, *item.characters(begin, end)))
            elif previous:
                before[previous].append((number, *item.characters(begin - 1, end)))
    told, found = [], []
    for word in sorted(inside.keys() & before.keys()):
        rarer, other = sorted((inside[word], before[word]), key=len)
        total = len(rarer) + len(other)
        if total >= _LEAST_BESIDE and len(rarer) > rule.limit * total:
            told.append(f"{word!r} {len(inside[word]):,} times inside, {len(before[word]):,} before it")
            found += rarer
    if found:
        message = f"entities of {one.name} begin with a determiner or leave it out: {'; '.join(told)}"
        yield rule.finding(message, [one.place_of_stretch(*place) for place in sorted(found)])


def _determiner(item: Tagged, at: int) -> str:
    """The determiner at a word, lowercased; empty where it is none. A capital "A" is a name, as in "A - T", too."""
    word = item.surface(at, at + 1) if at >= 0 else ""
    return word.lower() if word.lower() in _DETERMINERS and word != "A" else ""


RULES = [punctuation_at_edge, surface_missed, boundary_habits]
"""Of training and validation."""
