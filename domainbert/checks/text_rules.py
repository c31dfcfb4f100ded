"""Rules on the texts of one labelled set, whatever its labels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from domainbert.checks.finding import Finding, Rule, rule
from domainbert.checks.labelled_set import CheckedSet

LEAST_CHARACTERS = 30
"""Texts with fewer, punctuation and white space aside, may well be the same by chance: "Results:", "Thank you."."""

_CONTROLS = "[\x00-\x08\x0b\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffd]"  # without tab and line breaks
_MISREAD = "\u00c3[\x80-\xbf]|\u00c2[\xa0-\xbf]|\u00e2\u20ac|\u201a\u00c4|\u221a[\u00c4-\u00d6]"  # Latin-1, Mac Roman
BROKEN = re.compile(f"{_CONTROLS}|{_MISREAD}")
_MARKUP = re.compile(
    r"</?[A-Za-z][A-Za-z0-9]*(\s+[a-z-]+=[^<>]*)?\s*/?>|&(?:[a-zA-Z]{2,8}|#\d{2,6}|#x[0-9a-fA-F]{2,6});"
)
_PERSONAL = re.compile(
    r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}\b"
    r"|(?<![\w.])\+\d{1,3}[ .-]?(?:\(\d+\)|\d+)(?:[ .-]?\d{2,}){2,4}\b"
    r"|\b(?:[Tt]el|[Pp]hone|[Mm]obile|[Ff]ax)[.: ]+\+?\(?\d[\d ()./-]{6,}\d"
)


@rule("warning")
def broken_characters(one: CheckedSet, rule: Rule[CheckedSet]) -> Iterator[Finding]:
    """A text has control characters, halves of characters, U+FFFD, or misread UTF-8 ("Ã©", "â€™").

    Read the source again in its own encoding; a vocabulary knows no such characters.
    """
    yield from _matches(one, rule, BROKEN, "broken characters")


@rule("warning")
def markup_in_text(one: CheckedSet, rule: Rule[CheckedSet]) -> Iterator[Finding]:
    """A text has tags of HTML or XML, or entities such as `&amp;`.

    Take the text out of the markup, in all splits and in what will be predicted.
    """
    yield from _matches(one, rule, _MARKUP, "markup")


@rule("warning")
def personal_data(one: CheckedSet, rule: Rule[CheckedSet]) -> Iterator[Finding]:
    """A text has an e-mail address or a phone number.

    Ask whether you may train on it, and publish a model that has seen it.
    """
    yield from _matches(one, rule, _PERSONAL, "an e-mail address or phone number")


def _matches(one: CheckedSet, rule: Rule[CheckedSet], pattern: re.Pattern[str], what: str) -> Iterator[Finding]:
    found = [(number, match) for number, text in enumerate(one.texts) if (match := pattern.search(text))]
    if found:
        places = [one.place_of_stretch(number, *match.span()) for number, match in found]
        yield rule.finding(f"{len(found):,} of {len(one.texts):,} texts of {one.name} have {what}", places)


@rule("warning", threshold=100)
def long_word(one: CheckedSet, rule: Rule[CheckedSet]) -> Iterator[Finding]:
    """A word has more characters than the threshold; WordPiece reads it as one unknown piece.

    Look for a lost space, a link, a sequence or a picture in base 64.
    """
    longest = [(number, max(text.split(), key=len, default="")) for number, text in enumerate(one.texts)]
    found = [(number, word) for number, word in longest if len(word) > rule.limit]
    if found:
        places = [one.place(number, word) for number, word in found]
        yield rule.finding(f"{len(found):,} texts of {one.name} have a word of over {rule.limit:g} characters", places)


@rule("warning", threshold=0.01)
def duplicates(one: CheckedSet, rule: Rule[CheckedSet]) -> Iterator[Finding]:
    """More than this share of the texts are copies of an earlier one; case, punctuation and white space do not count.

    Leave the copies out, or a model will weigh them more than others.
    """
    copies = [number for first, *others in repeated(one) for number in others]
    if len(copies) > rule.limit * len(one.items):
        share = f"{100 * len(copies) / len(one.items):.1f} %"
        yield rule.finding(
            f"{len(copies):,} texts ({share}) of {one.name} stand in it before", one.places(sorted(copies))
        )


def repeated(one: CheckedSet) -> list[list[int]]:
    """The numbers of items that are copies of each other, in groups of two or more; of texts that are long enough."""
    counts = Counter(one.identities)
    groups: dict[object, list[int]] = {}
    for number, identity in enumerate(one.identities):
        if counts[identity] > 1 and sum(map(len, one.words[number])) >= LEAST_CHARACTERS:
            groups.setdefault(identity, []).append(number)
    return list(groups.values())


RULES = [broken_characters, markup_in_text, personal_data, long_word, duplicates]
"""Of every set."""
