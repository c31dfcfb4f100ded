"""Languages of packed rows: the share of each in what is read, and how often its text is read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from domainbert.base.errors import DomainbertError
from domainbert.corpus.languages import LanguageShares
from domainbert.data.order import whole_shares
from domainbert.data.packing import Ints, RowPlan
from domainbert.data.prepared import LanguageSampling, PreparedSplit

if TYPE_CHECKING:
    from domainbert.pretraining.batches import PackedRowsReader

MOST_PASSES = 10
"""Passes over the text of a language above which a training warns."""


@dataclass(frozen=True)
class RowLanguages:
    """Languages of the rows of a split.

    The shares are of tokens, and an order draws rows. So a language gets rows in proportion to its share, divided by
    the tokens of its rows in the mean.
    """

    of_row: Ints  # (rows,) the language of each, its place in `names`
    tokens: Ints  # (languages,) of each
    sampling: LanguageSampling

    @classmethod
    def of(cls, split: PreparedSplit, plan: RowPlan) -> RowLanguages | None:
        """Those of a plan, None without languages; `DomainbertError` where it puts several of them into a row."""
        if split.sampling is None or split.languages is None:
            return None
        of_piece = split.languages[documents_of(plan.starts, split)]
        of_row = of_piece[plan.row_offsets[:-1]]
        if not np.array_equal(np.repeat(of_row, np.diff(plan.row_offsets)), of_piece):
            raise DomainbertError("prepared: a corpus with languages; this objective puts several of them into a row")
        tokens = np.bincount(split.languages, split.lengths, len(split.sampling.names))
        return cls(of_row, tokens.astype(np.int64), split.sampling)

    @property
    def rows(self) -> Ints:
        """(languages,) rows of each."""
        return np.bincount(self.of_row, minlength=len(self.tokens)).astype(np.int64)

    @cached_property
    def shares(self) -> LanguageShares:
        """The shares of the tokens that are read."""
        return self.sampling.languages.shares(dict(zip(self.sampling.names, self.tokens.tolist(), strict=True)))

    @property
    def row_shares(self) -> NDArray[np.float64]:
        """(languages,) parts of the rows that are drawn."""
        return np.array(list(self.shares.read.values())) * self.rows / self.tokens

    @property
    def draws(self) -> Ints:
        """(languages,) rows of each in a pass, which has as many rows as there are."""
        return whole_shares(self.row_shares, len(self.of_row))

    @property
    def tokens_per_pass(self) -> float:
        """Tokens of these rows in the mean."""
        return float((self.draws * self.tokens / self.rows).sum())

    def facts(self, rows_read: int) -> dict[str, dict[str, Any]]:
        """By name the tokens of each language, its share of what is read, and the passes over it in so many rows."""
        passes = rows_read / len(self.of_row) * self.draws / self.rows
        facts = self.shares.as_dict("tokens")
        return {name: facts[name] | {"passes": float(count)} for name, count in zip(facts, passes, strict=True)}


def documents_of(starts: Ints, split: PreparedSplit) -> Ints:
    """The documents (pieces,) in which pieces begin at those places of the token stream."""
    return (np.searchsorted(split.document_offsets, starts, side="right") - 1).astype(np.int64)


def passes_by_language(reader: PackedRowsReader, rows_read: int) -> tuple[dict[str, Any], list[str]]:
    """The facts of the languages of a training that reads so many rows, under `languages`, and a warning of each that
    is read too often; without languages neither. The passes are printed."""
    if reader.languages is None:
        return {}, []
    facts, lines = reader.languages.facts(rows_read), reader.languages.shares.lines("tokens")
    print("\n".join(f"{line}: {one['passes']:.2f} passes" for line, one in zip(lines, facts.values(), strict=True)))
    often = {name: one["passes"] for name, one in facts.items() if one["passes"] > MOST_PASSES}
    return {"languages": facts}, [
        f"language {name}: its text is read {passes:.1f} times, more than {MOST_PASSES}, and may be learnt by heart; "
        "try a higher corpus.languages.alpha in prepare, a smaller budget or more text"
        for name, passes in often.items()
    ]
