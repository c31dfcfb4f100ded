"""Rules on a labelled set as a vocabulary reads it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from domainbert.checks.entity_rules import tagged
from domainbert.checks.finding import Finding, Rule, rule
from domainbert.checks.labelled_set import CheckedSet

if TYPE_CHECKING:
    from domainbert.tokenization.load import DomainTokenizer

_LEAST_LETTERS = 1000
_LEAST_WORDS = 100


@dataclass(frozen=True)
class SetInPieces:
    """A labelled set, the vocabulary that reads it, and the tokens of a window."""

    of: CheckedSet
    tokenizer: DomainTokenizer
    max_length: int | None

    @cached_property
    def pieces(self) -> list[list[int]]:
        """The ids of each text, or of both texts of a pair, without special tokens."""
        return self.tokenizer.encode(self.of.texts)

    @cached_property
    def is_uncased(self) -> bool:
        """Whether the vocabulary lowercases what it reads."""
        upper, lower = self.tokenizer.encode(["ABOUT", "about"])
        return upper == lower and self.tokenizer.unk_id not in upper


@rule("warning", threshold=0.05)
def longer_than_window(one: SetInPieces, rule: Rule[SetInPieces]) -> Iterator[Finding]:
    """More than this share of the texts do not fit into one window (`max_length`), and are read in several.

    Raise `max_length` as far as the encoder has positions, or take parts of the text as items.
    """
    if one.max_length is None:
        return
    room = one.max_length - 2
    long = [number for number, ids in enumerate(one.pieces) if len(ids) > room]
    if len(long) > rule.limit * len(one.pieces):
        share = f"{len(long):,} of {len(one.pieces):,} texts of {one.of.name}"
        message = f"{share} have more than the {room:,} pieces of a window, the longest {max(map(len, one.pieces)):,}"
        yield rule.finding(message, one.of.places(long))


@rule("warning", threshold=0.01)
def unknown_words(one: SetInPieces, rule: Rule[SetInPieces]) -> Iterator[Finding]:
    """More than this share of the pieces are unknown to the vocabulary: [UNK].

    Train a vocabulary on text of this kind, or add the words with `transfer`.
    """
    unknown = one.tokenizer.unk_id
    with_some = [number for number, ids in enumerate(one.pieces) if unknown in ids]
    count, total = sum(ids.count(unknown) for ids in one.pieces), sum(map(len, one.pieces))
    if count > rule.limit * total:
        share = f"{count:,} of {total:,} pieces ({100 * count / total:.1f} %) of {one.of.name}"
        yield rule.finding(f"{share} are unknown to the vocabulary", one.of.places(with_some), count)


@rule("warning", threshold=0.3)
def case_is_lost(one: SetInPieces, rule: Rule[SetInPieces]) -> Iterator[Finding]:
    """The vocabulary lowercases its text, and words of entities begin with a capital more often than others by this
    share: the model cannot see what tells them apart.

    Try a cased vocabulary (`lowercase: false` of `vocab`, or another model).
    """
    if not one.of.labels_stretches or not one.is_uncased:
        return
    inside, outside = _capitals(one.of)
    if min(len(inside), len(outside)) < _LEAST_WORDS:
        return
    of_entities, of_others = (sum(words) / len(words) for words in (inside, outside))
    if of_entities - of_others > rule.limit:
        shares = f"{100 * of_entities:.0f} % of the words of entities, {100 * of_others:.0f} % of the others"
        yield rule.finding(
            f"{shares} in {one.of.name} have a capital that the vocabulary does not see", count=sum(inside)
        )


def _capitals(one: CheckedSet) -> tuple[list[bool], list[bool]]:
    """Whether words begin with a capital: those of entities, and the others; first words of sentences are left out."""
    found: tuple[list[bool], list[bool]] = ([], [])
    for item in map(tagged, one.items):
        within = {word for begin, end in item.entities for word in range(begin, end)}
        for number in range(1, len(item.words)):
            first = item.surface(number, number + 1)[0]
            if first.isalpha():
                found[number not in within].append(first.isupper())
    return found


@rule("warning", threshold=0.7)
def text_in_one_case(one: SetInPieces, rule: Rule[SetInPieces]) -> Iterator[Finding]:
    """The vocabulary is cased, and more than this share of the letters are capitals, or none is.

    Take text as it was written, or an uncased vocabulary: one in another case is cut into many pieces.
    """
    letters: Sequence[str] = [letter for text in one.of.texts for letter in text if letter.isalpha()]
    cased = sum(letter.lower() != letter.upper() for letter in letters)
    capitals = sum(map(str.isupper, letters))
    if cased >= _LEAST_LETTERS and not one.is_uncased and (capitals > rule.limit * cased or not capitals):
        share = f"{100 * capitals / cased:.0f} % of the letters of {one.of.name} are capitals"
        yield rule.finding(f"{share}, and the vocabulary is cased", count=capitals)


RULES = [longer_than_window, unknown_words, case_is_lost, text_in_one_case]
