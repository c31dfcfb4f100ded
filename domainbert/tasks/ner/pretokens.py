"""BIOES tags of words with several pre-tokens.

The words of raw text are its pre-tokens, so a model must learn tags that are valid for pre-tokens: the single word
"men's" with the tag S-x has the pre-token tags B-x I-x E-x. Unlike in IOB2, the tag of a word then differs from the tag
of its first pre-token. A BIOES model therefore tags pre-tokens, and the tags of words are derived from them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from domainbert.labelled.tag_schemes import Span, tags_from_spans, to_iob2
from domainbert.tokenization.align import AlignedWords


def split_words(words: AlignedWords) -> tuple[AlignedWords, list[int]]:
    """Return the pieces with each pre-token as a word, and for each original word the index of its first pre-token."""
    begins_pretoken = np.asarray(words.starts_pretoken, dtype=bool)
    begins_pretoken[words.first_piece] = True
    pretoken_of = np.cumsum(begins_pretoken) - 1  # index of each piece's pre-token
    firsts = [int(pretoken_of[piece]) for piece in words.first_piece]
    first_pieces = np.flatnonzero(begins_pretoken).tolist()
    return AlignedWords(
        words.input_ids, pretoken_of.tolist(), begins_pretoken.tolist(), first_pieces, words.extra
    ), firsts


def pretoken_tags(spans: Sequence[Span], firsts: Sequence[int], num_pretokens: int) -> list[str]:
    """Return the BIOES tags of pre-tokens for entities given in words; `firsts` as from `split_words`."""
    bounds = [*firsts, num_pretokens]
    return tags_from_spans([(bounds[start], bounds[end], kind) for start, end, kind in spans], num_pretokens, "BIOES")


def word_tags(tags: Sequence[str], firsts: Sequence[int]) -> list[str]:
    """Return IOB2 tags of words from tags of pre-tokens: a word is in the entity of its first pre-token."""
    iob2 = to_iob2(tags)
    return to_iob2([iob2[first] for first in firsts])
