"""Rules on how a vocabulary tokenizes a labelled set."""

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
    """A labelled set, its tokenizer, and the window length in tokens."""

    of: CheckedSet
    tokenizer: DomainTokenizer
    max_length: int | None

    @cached_property
    def pieces(self) -> list[list[int]]:
        """Token ids of each text (of both texts of a pair), without special tokens."""
        return self.tokenizer.encode(self.of.texts)


@rule("warning", threshold=0.05)
def longer_than_window(data: SetInPieces, rule: Rule[SetInPieces]) -> Iterator[Finding]:
    """More than this share of the texts are longer than a window (`max_length`) and are split into several windows.

    Raise `max_length`, up to the number of positions of the encoder, or split the texts into shorter items.
    """
    if data.max_length is None:
        return
    room = data.max_length - 2
    longer = [number for number, ids in enumerate(data.pieces) if len(ids) > room]
    if len(longer) > rule.limit * len(data.pieces):
        share = f"{len(longer):,} of {len(data.pieces):,} texts of {data.of.name}"
        message = f"{share} have more than the {room:,} pieces of a window, the longest {max(map(len, data.pieces)):,}"
        yield rule.finding(message, data.of.places(longer))


@rule("warning", threshold=0.01)
def unknown_words(data: SetInPieces, rule: Rule[SetInPieces]) -> Iterator[Finding]:
    """More than this share of the pieces are unknown to the vocabulary: [UNK].

    Train a vocabulary on text of this kind, or add the words with `transfer`.
    """
    unknown = data.tokenizer.unk_id
    affected = [number for number, ids in enumerate(data.pieces) if unknown in ids]
    count, total = sum(ids.count(unknown) for ids in data.pieces), sum(map(len, data.pieces))
    if count > rule.limit * total:
        share = f"{count:,} of {total:,} pieces ({100 * count / total:.1f} %) of {data.of.name}"
        yield rule.finding(f"{share} are unknown to the vocabulary", data.of.places(affected), count)


RULES = [longer_than_window, unknown_words]
