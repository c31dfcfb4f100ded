"""Places in a stream of tokens where a sentence begins, as far as the tokens say so."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from domainbert.data.packing import Ints
from domainbert.data.splits import PreparedSplit
from domainbert.tokenization.load import DomainTokenizer

_WIDE_ENDS = ("\u3002", "\uff01", "\uff1f")  # full-width . ! ? as in Chinese, behind which there is no space
_ENDS = (".", "!", "?", "\u2026", *_WIDE_ENDS)
_CLOSES = "\"')]}\u201d\u2019\u00bb\u300d\u300f\uff09"
_CONTEXT = 3  # tokens before a place that decide on it
_CHUNK = 1_000_000  # tokens read at once

Bools = NDArray[np.bool_]


class SentenceMarks(NamedTuple):
    """Roles of the entries of a vocabulary at the border of two sentences, each (V,)."""

    ends: Bools  # ends with . ! ? and perhaps closing quotes or brackets
    wide: Bools  # the same of a script without spaces
    closes: Bools  # nothing but closing quotes or brackets
    begins: Bools  # begins a word, which may be the first one: of a cased vocabulary, not in lower case
    begins_wide: Bools  # the same without a space before it
    digits: Bools  # nothing but digits
    first_digit: Bools  # begins with one

    @classmethod
    def of(cls, tokenizer: DomainTokenizer) -> SentenceMarks:
        """Those of a vocabulary; special tokens have none, but that an unknown word may be the first one."""
        surfaces = [tokenizer.pieces.surface(token) for token in tokenizer.tokens]
        texts = ["" if n in tokenizer.special_ids or s is None else s.text for n, s in enumerate(surfaces)]
        spaced = np.asarray([s is not None and s.starts_word for s in surfaces])
        cased = tokenizer.pieces.fold("A") == "A"
        bare = [text.rstrip(_CLOSES) for text in texts]
        signs = (*_ENDS, *_CLOSES, ",", ";", ":")
        may = np.asarray([bool(t) and not t.startswith(signs) and not (cased and t[0].islower()) for t in texts])
        may[tokenizer.unk_id] = True
        return cls(
            np.asarray([text.endswith(_ENDS) for text in bare]),
            np.asarray([text.endswith(_WIDE_ENDS) for text in bare]),
            np.asarray([bool(text) and not rest for text, rest in zip(texts, bare, strict=True)]),
            may & spaced,
            may,
            np.asarray([text.isdigit() for text in texts]),
            np.asarray([text[:1].isdigit() for text in texts]),
        )

    def starts(self, ids: NDArray[np.integer]) -> Bools:
        """(n,) whether a sentence begins at each token, of tokens (n,); the first three are context alone.

        That is behind . ! ? and up to two closing quotes or brackets, as in `corpus.sentences`. Tokens do not say
        whether there was a space in "2.5", so no sentence begins behind digits, a full stop, and before digits.
        """
        found = np.zeros(len(ids), dtype=np.bool_)
        if len(ids) <= _CONTEXT:
            return found
        one, two, three, here = (ids[_CONTEXT - back : len(ids) - back] for back in (1, 2, 3, 0))
        closes = self.closes[one]
        behind, behind_wide = (
            ends[one] | (closes & ends[two]) | (closes & self.closes[two] & ends[three])
            for ends in (self.ends, self.wide)
        )
        number = self.ends[one] & self.digits[two] & self.first_digit[here]
        begins = (behind & self.begins[here] & ~number) | (behind_wide & self.begins_wide[here])
        found[_CONTEXT:] = begins
        return found


def sentence_starts(split: PreparedSplit, tokenizer: DomainTokenizer) -> Ints:
    """The places of the split, ascending, at which a sentence begins that is not the first of its text."""
    return places(split, SentenceMarks.of(tokenizer).starts)


def places(split: PreparedSplit, says: Callable[[NDArray[np.integer]], Bools]) -> Ints:
    """The places of the split, ascending, that a function of tokens says; it sees three tokens before each but the
    first ones."""
    found = []
    for start in range(0, split.num_tokens, _CHUNK):
        first = max(start - _CONTEXT, 0)
        said = says(split.take(first, min(start + _CHUNK, split.num_tokens)))
        found.append(start + np.flatnonzero(said[start - first :]))
    return np.concatenate([np.zeros(0, dtype=np.int64), *found])
