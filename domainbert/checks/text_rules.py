"""Rules on the texts of a labelled set and their tokens, independent of the labels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from domainbert.base.errors import counted
from domainbert.checks.finding import Finding, Rule, rule
from domainbert.checks.labelled_set import CheckedSet, first_indices

if TYPE_CHECKING:
    from domainbert.tokenization.load import DomainTokenizer

_CONTROLS = "[\x00-\x08\x0b\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffd]"  # without tab and line breaks
# UTF-8 that was decoded as Latin-1 or Mac Roman
_WRONGLY_DECODED = "\u00c3[\x80-\xbf]|\u00c2[\xa0-\xbf]|\u00e2\u20ac|\u201a\u00c4|\u221a[\u00c4-\u00d6]"
BROKEN = re.compile(f"{_CONTROLS}|{_WRONGLY_DECODED}")
_MARKUP = re.compile(
    r"</?[A-Za-z][A-Za-z0-9]*(\s+[a-z-]+=[^<>]*)?\s*/?>|&(?:[a-zA-Z]{2,8}|#\d{2,6}|#x[0-9a-fA-F]{2,6});"
)
_PERSONAL = re.compile(  # bounded repetitions: the time of unbounded ones grows with the fifth power of a long number
    r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}\b"
    r"|(?<![\w.])\+(?!\d+\.\d+\b(?![ .-]\d))"  # not a decimal number
    r"[1-9]\d{0,2}[ .-]?(?:\(\d{1,5}\)|\d{1,5})(?:[ .-]?\d{2,5}){2,4}\b"
    r"|\b(?:[Tt]el|[Pp]hone|[Mm]obile|[Ff]ax)[.: ]+\+?\(?\d[\d ()./-]{6,}\d"
)


@rule("warning")
def broken_characters(data: CheckedSet, rule: Rule[CheckedSet]) -> Iterator[Finding]:
    """A text has control characters, unpaired surrogates, U+FFFD, or wrongly decoded UTF-8 ("Ã©", "â€™").

    Decode the source again with its real encoding; a vocabulary does not contain such characters.
    """
    yield from _matches(data, rule, BROKEN, "broken characters")


@rule("warning")
def markup_in_text(data: CheckedSet, rule: Rule[CheckedSet]) -> Iterator[Finding]:
    """A text has HTML or XML tags, or character references such as `&amp;`.

    Remove the markup from all splits and from the texts to predict.
    """
    yield from _matches(data, rule, _MARKUP, "markup")


@rule("warning")
def personal_data(data: CheckedSet, rule: Rule[CheckedSet]) -> Iterator[Finding]:
    """A text has an e-mail address or a phone number.

    Clarify whether you may train on it and publish the model.
    """
    yield from _matches(data, rule, _PERSONAL, "an e-mail address or phone number")


def _matches(data: CheckedSet, rule: Rule[CheckedSet], pattern: re.Pattern[str], description: str) -> Iterator[Finding]:
    matches = map(pattern.search, data.texts)
    places = [data.place_of_span(index, *match.span()) for index, match in enumerate(matches) if match is not None]
    if places:
        yield rule.finding(f"{len(places):,} of {len(data.texts):,} texts of {data.name} have {description}", places)


@rule("warning", threshold=100)
def long_word(data: CheckedSet, rule: Rule[CheckedSet]) -> Iterator[Finding]:
    """A word has more characters than the threshold; WordPiece maps it to the unknown token.

    Look for a missing space, a link, a sequence or a base64 image.
    """
    longest_words = [max(text.split(), key=len, default="") for text in data.texts]
    places = [data.place(index, word) for index, word in enumerate(longest_words) if len(word) > rule.limit]
    if places:
        verb = "has" if len(places) == 1 else "have"
        texts = f"{counted(len(places), 'texts')} of {data.name}"
        yield rule.finding(f"{texts} {verb} a word over {rule.limit:g} characters", places)


@rule("warning", threshold=0.01)
def duplicates(data: CheckedSet, rule: Rule[CheckedSet]) -> Iterator[Finding]:
    """More than this share of the texts are copies of an earlier text; case, punctuation and white space are ignored.

    Remove the copies; otherwise they get more weight than other texts.
    """
    first = first_indices(data.identities)
    repeated = [index for index, identity in enumerate(data.identities) if index != first[identity]]
    copies = [index for index in repeated if not data.is_short(index)]
    if len(copies) > rule.limit * len(data.items):
        share = f"{100 * len(copies) / len(data.items):.1f} %"
        verb = "is a copy" if len(copies) == 1 else "are copies"
        message = f"{counted(len(copies), 'texts')} ({share}) of {data.name} {verb} of earlier texts"
        yield rule.finding(message, data.places(copies))


RULES = [broken_characters, markup_in_text, personal_data, long_word, duplicates]
"""Rules for every labelled set."""


@dataclass(frozen=True)
class TokenizedSet:
    """A labelled set with the tokenizer and the window length of its model."""

    dataset: CheckedSet
    tokenizer: DomainTokenizer
    max_length: int | None
    """Window length in tokens, special tokens included; None: unknown."""

    @cached_property
    def token_ids(self) -> list[list[int]]:
        """Token ids of each text (of both texts of a pair), without special tokens."""
        return self.tokenizer.encode(self.dataset.texts)


@rule("warning", threshold=0.05)
def longer_than_window(data: TokenizedSet, rule: Rule[TokenizedSet]) -> Iterator[Finding]:
    """More than this share of the texts are longer than a window (`max_length`) and are split into several windows.

    Raise `max_length`, up to the number of positions of the encoder, or split the texts into shorter items.
    """
    if data.max_length is None:
        return
    num_special_tokens = data.tokenizer.template.num_special_tokens
    lengths = [
        len(ids) + num_special_tokens(pair=len(item.texts) == 2)
        for ids, item in zip(data.token_ids, data.dataset.items, strict=True)
    ]
    longer = [index for index, length in enumerate(lengths) if length > data.max_length]
    if len(longer) > rule.limit * len(lengths):
        share = f"{len(longer):,} of {len(lengths):,} texts of {data.dataset.name}"
        message = f"{share} have more than {data.max_length:,} tokens (max_length), the longest {max(lengths):,}"
        yield rule.finding(message, data.dataset.places(longer))


PIECES_RULES = [longer_than_window]
"""Rules on the tokens of training and validation sets."""
