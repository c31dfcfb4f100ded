"""Words of several pre-tokens in BIOES.

A model reads raw text too, whose words are the pre-tokens, so what it learns of a word has to be right of its
pre-tokens: of the one word "men's" with S-x, these are B-x I-x E-x. The tag of a word is then not that of its first
pre-token, as it is in IOB2. So a model of BIOES tags the pre-tokens, and the tags of the words follow from these.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from domainbert.labelled.tag_schemes import Span, tags_from_spans, to_iob2
from domainbert.tokenization.align import AlignedWords


def split_words(words: AlignedWords) -> tuple[AlignedWords, list[int]]:
    """The same pieces with each pre-token as a word, and of each word before its first pre-token."""
    begins = np.asarray(words.starts_pretoken, dtype=bool)
    begins[words.first_piece] = True
    pretoken_of = np.cumsum(begins) - 1
    firsts = [int(pretoken_of[piece]) for piece in words.first_piece]
    places = np.flatnonzero(begins).tolist()
    return AlignedWords(words.input_ids, pretoken_of.tolist(), begins.tolist(), places, words.extra), firsts


def pretoken_tags(spans: Sequence[Span], firsts: Sequence[int], num_pretokens: int) -> list[str]:
    """BIOES tags of pre-tokens, from the entities in words."""
    begins = [*firsts, num_pretokens]
    return tags_from_spans([(begins[start], begins[end], kind) for start, end, kind in spans], num_pretokens, "BIOES")


def word_tags(tags: Sequence[str], firsts: Sequence[int]) -> list[str]:
    """IOB2 tags of words from the tags of pre-tokens: a word is in the entity of its first pre-token."""
    of_pretokens = to_iob2(tags)
    return to_iob2([of_pretokens[first] for first in firsts])
