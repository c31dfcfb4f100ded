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
    room = data.max_length - 2  # [CLS] and [SEP]
    longer = [index for index, ids in enumerate(data.token_ids) if len(ids) > room]
    if len(longer) > rule.limit * len(data.token_ids):
        share = f"{len(longer):,} of {len(data.token_ids):,} texts of {data.dataset.name}"
        longest = max(map(len, data.token_ids))
        message = f"{share} have more than the {room:,} pieces of a window, the longest {longest:,}"
        yield rule.finding(message, data.dataset.places(longer))


@rule("warning", threshold=0.01)
def unknown_words(data: TokenizedSet, rule: Rule[TokenizedSet]) -> Iterator[Finding]:
    """More than this share of the pieces are unknown to the vocabulary: [UNK].

    Train a vocabulary on text of this kind, or add the words with `transfer`.
    """
    unknown_id = data.tokenizer.unk_id
    affected = [index for index, ids in enumerate(data.token_ids) if unknown_id in ids]
    count, total = sum(ids.count(unknown_id) for ids in data.token_ids), sum(map(len, data.token_ids))
    if count > rule.limit * total:
        share = f"{count:,} of {total:,} pieces ({100 * count / total:.1f} %) of {data.dataset.name}"
        yield rule.finding(f"{share} are unknown to the vocabulary", data.dataset.places(affected), count)


RULES = [longer_than_window, unknown_words]
