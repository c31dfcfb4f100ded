"""Rules on a labelled set as a vocabulary reads it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from domainbert.checks.finding import Finding, Rule, rule
from domainbert.checks.labelled_set import CheckedSet

if TYPE_CHECKING:
    from domainbert.tokenization.load import DomainTokenizer


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


RULES = [longer_than_window, unknown_words]
