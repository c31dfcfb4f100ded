"""Languages of packed rows: the share of each in what is read, and how often its text is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from domainbert.base.errors import DomainbertError
from domainbert.corpus.languages import LanguageShares
from domainbert.data.order import whole_shares
from domainbert.data.packing import Ints, RowPlan
from domainbert.data.splits import LanguageSampling, PreparedSplit

if TYPE_CHECKING:
    from domainbert.pretraining.phases import RowPhase

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
        of_piece = split.languages[split.documents_at(plan.starts)]
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

    def passes(self, rows_read: int) -> NDArray[np.float64]:
        """(languages,) passes over the text of each in so many rows."""
        return rows_read / len(self.of_row) * self.draws / self.rows


def passes_by_language(phases: Sequence[RowPhase]) -> tuple[dict[str, Any], list[str]]:
    """The facts of the languages of a training under `languages`, by name the tokens of each, its share of what is read
    and the passes over it, and a warning of each that is read too often; without languages neither. The passes are
    printed."""
    read = [(phase.reader.languages, phase.rows_read) for phase in phases]
    passes = [languages.passes(rows) for languages, rows in read if languages is not None]
    languages = read[-1][0]
    if languages is None:
        return {}, []
    counts = dict(zip(languages.sampling.names, np.sum(passes, axis=0).tolist(), strict=True))
    lines = zip(languages.shares.lines("tokens"), counts.values(), strict=True)
    print("\n".join(f"{line}: {count:.2f} passes" for line, count in lines))
    facts = {name: one | {"passes": counts[name]} for name, one in languages.shares.as_dict("tokens").items()}
    return {"languages": facts}, [
        f"language {name}: its text is read {count:.1f} times, more than {MOST_PASSES}, and may be learnt by heart; "
        "try a higher corpus.languages.alpha in prepare, a smaller budget or more text"
        for name, count in counts.items()
        if count > MOST_PASSES
    ]
