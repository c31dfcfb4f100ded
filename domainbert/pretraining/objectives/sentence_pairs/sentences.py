"""Detects starts of sentences in a stream of tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from domainbert.data.packing import Ints
from domainbert.data.splits import PreparedSplit
from domainbert.tokenization.load import DomainTokenizer

_WIDE_ENDS = ("\u3002", "\uff01", "\uff1f")  # full-width . ! ? as in Chinese, not followed by a space
_ENDS = (".", "!", "?", "\u2026", *_WIDE_ENDS)
_CLOSES = "\"')]}\u201d\u2019\u00bb\u300d\u300f\uff09"
_CONTEXT = 3  # number of preceding tokens that are needed to classify a position
_CHUNK = 1_000_000  # tokens per read

Bools = NDArray[np.bool_]


class SentenceMarks(NamedTuple):
    """Properties of vocabulary entries at sentence boundaries, (V,) each."""

    ends: Bools  # ends with . ! ?, optionally followed by closing quotes or brackets
    wide_ends: Bools  # the same with full-width . ! ?, which no space follows
    closes: Bools  # consists of closing quotes or brackets
    may_begin: Bools  # may start a sentence: no mark, and not in lower case, in a cased vocabulary
    begins_word: Bools  # begins a word
    digits: Bools  # consists of digits
    first_digit: Bools  # begins with a digit

    @classmethod
    def of(cls, tokenizer: DomainTokenizer) -> SentenceMarks:
        """Return the properties of a vocabulary. Special tokens have none; the unknown token may start a sentence."""
        surfaces = [tokenizer.pieces.surface(token) for token in tokenizer.tokens]
        texts = ["" if surface is None else surface.text for surface in surfaces]
        for special_id in tokenizer.special_ids:
            texts[special_id] = ""
        bare = [text.rstrip(_CLOSES) for text in texts]  # without closing quotes and brackets
        is_cased = tokenizer.pieces.fold("A") == "A"
        marks = (*_ENDS, *_CLOSES, ",", ";", ":")
        is_lower = np.asarray([is_cased and text[:1].islower() for text in texts])
        may_begin = np.asarray([text != "" and not text.startswith(marks) for text in texts]) & ~is_lower
        may_begin[tokenizer.unk_id] = True
        return cls(
            ends=np.asarray([text.endswith(_ENDS) for text in bare]),
            wide_ends=np.asarray([text.endswith(_WIDE_ENDS) for text in bare]),
            closes=np.asarray([text != "" and bare_text == "" for text, bare_text in zip(texts, bare, strict=True)]),
            may_begin=may_begin,
            begins_word=np.asarray([surface is not None and surface.starts_word for surface in surfaces]),
            digits=np.asarray([text.isdigit() for text in texts]),
            first_digit=np.asarray([text[:1].isdigit() for text in texts]),
        )

    def starts(self, ids: NDArray[np.integer]) -> Bools:
        """Return whether a sentence begins at each token: (N,) -> (N,); False for the first three, which are context.

        A sentence begins after . ! ? and up to two closing quotes or brackets, as in `corpus.sentences`, and a word
        begins with it unless the marks are full-width. Tokens do not show whether "2.5" had a space, so no sentence
        begins between digits with a full stop and digits.
        """
        is_start = np.zeros(len(ids), dtype=np.bool_)
        if len(ids) <= _CONTEXT:
            return is_start
        # each token from the fourth on, and the first, second and third token before it
        token, before1, before2, before3 = (ids[_CONTEXT - back : len(ids) - back] for back in range(4))
        closes = self.closes[before1]

        def follows(ends: Bools) -> Bools:
            """Return whether each token follows one of `ends` and up to two closing tokens."""
            return ends[before1] | (closes & ends[before2]) | (closes & self.closes[before2] & ends[before3])

        in_number = self.ends[before1] & self.digits[before2] & self.first_digit[token]
        follows_end = follows(self.ends) & self.begins_word[token] & ~in_number
        is_start[_CONTEXT:] = self.may_begin[token] & (follows_end | follows(self.wide_ends))
        return is_start


def positions_where(split: PreparedSplit, predicate: Callable[[NDArray[np.integer]], Bools]) -> Ints:
    """Return the positions in a split, ascending, where `predicate` is true.

    The predicate is called with chunks of token ids, each with the three preceding tokens as context.
    """
    positions = []
    for start in range(0, split.num_tokens, _CHUNK):
        chunk_start = max(start - _CONTEXT, 0)
        matches = predicate(split.take(chunk_start, min(start + _CHUNK, split.num_tokens)))
        positions.append(start + np.flatnonzero(matches[start - chunk_start :]))
    return np.concatenate([np.zeros(0, dtype=np.int64), *positions])
