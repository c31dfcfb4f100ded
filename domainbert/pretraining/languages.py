"""Languages of packed rows: sampling shares, and the number of passes over the text of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from domainbert.base.errors import DomainbertError
from domainbert.corpus.languages import LanguageShares
from domainbert.data.batches import whole_shares
from domainbert.data.packing import Ints, RowPlan
from domainbert.data.splits import LanguageSampling, PreparedSplit

if TYPE_CHECKING:
    from domainbert.pretraining.phases import RowPhase

MAX_PASSES = 10
"""Maximum number of passes over the text of a language without a warning."""


@dataclass(frozen=True)
class RowLanguages:
    """Languages of the rows of a split.

    Sampling shares refer to tokens, but rows are drawn: the row share of a language is its token share divided by the
    mean number of tokens in its rows.
    """

    row_languages: Ints  # (rows,) language of each row, as index into `sampling.names`
    tokens: Ints  # (languages,) number of tokens
    sampling: LanguageSampling

    @classmethod
    def of(cls, split: PreparedSplit, plan: RowPlan) -> RowLanguages | None:
        """Return the languages of the rows of a plan; None for a corpus without languages.

        Raises:
            DomainbertError: a row contains texts in several languages.
        """
        if split.sampling is None or split.languages is None:
            return None
        piece_languages = split.languages[split.documents_at(plan.starts)]
        row_languages = piece_languages[plan.row_offsets[:-1]]  # of the first piece of each row
        if not np.array_equal(np.repeat(row_languages, np.diff(plan.row_offsets)), piece_languages):
            raise DomainbertError(
                where="prepared",
                found="a corpus with languages; the objective would put several languages into the same row",
                expected="another objective, such as MaskedLM, or a corpus prepared without corpus.languages",
            )
        tokens = np.bincount(split.languages, weights=split.lengths, minlength=len(split.sampling.names))
        return cls(row_languages, tokens.astype(np.int64), split.sampling)

    @property
    def rows(self) -> Ints:
        """(languages,) number of rows."""
        return np.bincount(self.row_languages, minlength=len(self.tokens)).astype(np.int64)

    @cached_property
    def shares(self) -> LanguageShares:
        """Share of each language in the tokens to read."""
        return self.sampling.languages.shares(dict(zip(self.sampling.names, self.tokens.tolist(), strict=True)))

    @property
    def row_shares(self) -> NDArray[np.float64]:
        """(languages,) share of each language in the rows to draw; the sum is not 1."""
        token_shares = np.array(list(self.shares.sampled.values()))
        return token_shares * self.rows / self.tokens

    @property
    def draws(self) -> Ints:
        """(languages,) number of rows to draw in a pass; together as many as the split has."""
        return whole_shares(self.row_shares, len(self.row_languages))

    @property
    def tokens_per_pass(self) -> float:
        """Expected number of tokens in a pass."""
        return float((self.draws * self.tokens / self.rows).sum())

    def passes(self, rows_read: int) -> NDArray[np.float64]:
        """Return how often the text of each language is read, (languages,), when `rows_read` rows are read."""
        num_passes = rows_read / len(self.row_languages)
        return num_passes * self.draws / self.rows


def passes_by_language(phases: Sequence[RowPhase]) -> tuple[dict[str, Any], list[str]]:
    """Print how often each language is read in a training, and return facts and warnings.

    Facts for the metrics of the run: `languages`, with tokens, share and passes by name. Warnings: one for each
    language that is read more than `MAX_PASSES` times. A corpus without languages has neither, and nothing is printed.
    """
    languages = phases[-1].reader.languages
    if languages is None:
        return {}, []
    passes = [phase.reader.languages.passes(phase.rows_read) for phase in phases if phase.reader.languages is not None]
    counts = dict(zip(languages.sampling.names, np.sum(passes, axis=0).tolist(), strict=True))  # over all phases
    lines = zip(languages.shares.lines("tokens"), counts.values(), strict=True)
    print("\n".join(f"{line}: {count:.2f} passes" for line, count in lines))
    facts = {name: shares | {"passes": counts[name]} for name, shares in languages.shares.as_dict("tokens").items()}
    warnings = [
        f"language {name!r}: its text is read {count:.1f} times, more than {MAX_PASSES}, and may be memorised; "
        "try a higher corpus.languages.alpha in `prepare`, a smaller budget or more text"
        for name, count in counts.items()
        if count > MAX_PASSES
    ]
    return {"languages": facts}, warnings
