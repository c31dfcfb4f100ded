"""Align pieces (subword tokens) with given words, or with the words of raw text.

BERT's pre-tokenizer cuts a text into pre-tokens at spaces and punctuation: "men's" is one word of a CoNLL file and
three pre-tokens, men ' s.
"""

from __future__ import annotations

import itertools
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from tokenizers import Encoding, Tokenizer

from domainbert.tokenization.kinds.wordpiece.kind import SPECIAL_TOKENS, bert_backend
from domainbert.tokenization.load import DomainTokenizer
from domainbert.tokenization.words import check_unicode

TREEBANK = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}", "``": '"', "''": '"'}
"""Words of the Penn Treebank, and the marks that they stand for."""


@dataclass(frozen=True)
class AlignedWords:
    """The pieces of a list of words, without special tokens."""

    input_ids: list[int]  # (pieces,)
    word_index: list[int]  # (pieces,) index of the word of each piece, ascending; every word has at least one piece
    starts_pretoken: list[bool]  # (pieces,) False for a piece that continues a pre-token ("##ing") or is a space
    first_piece: list[int]  # (words,) index of the first piece of each word
    extra: int  # number of special tokens that the tokenizer adds to the pieces


@dataclass(frozen=True)
class AlignedText(AlignedWords):
    """The pieces of a text, and its words."""

    word_offsets: list[tuple[int, int]]  # (words,) characters of each pre-token in the text, end exclusive


def align_words(tokenizer: DomainTokenizer, words: Sequence[Sequence[str]]) -> list[AlignedWords]:
    """Encode sentences, each a list of words, and return the pieces of each sentence with their words.

    The words are encoded with spaces between them: as in training, the space before a word belongs to its first piece.
    A name of a mark, such as -LRB-, is encoded as the mark, which raw text has.
    Punctuation divides a word into several pre-tokens; the result marks the first piece of each pre-token.
    A word without pieces (only control characters) becomes [UNK], so that it can be labelled and counted.
    """
    words = [[TREEBANK.get(word, word) for word in sentence] for sentence in words]
    texts = [" ".join(sentence) for sentence in words]
    encodings = tokenizer.encode_with_offsets(texts)
    pretokens_of_texts = _basic_words_of(tokenizer, texts, encodings)
    aligned = []
    for sentence, text, encoding, pretokens in zip(words, texts, encodings, pretokens_of_texts, strict=True):
        # characters at which the words begin: 1 for the space after each word
        begins = list(itertools.accumulate((len(word) + 1 for word in sentence), initial=0))[: len(sentence)]
        word_of = _words_of_pieces(text, encoding.offsets, begins)
        pretoken_of = _words_of_pieces(text, encoding.offsets, [start for start, _ in pretokens])
        starts_pretoken = _is_first_of_run(pretoken_of)
        aligned.append(_build_aligned_words(tokenizer, encoding.ids, word_of, starts_pretoken, len(sentence)))
    return aligned


def align_text(tokenizer: DomainTokenizer, texts: Sequence[str]) -> list[AlignedText]:
    """Encode texts, and return the pieces of each text with the words of `basic_words`.

    Characters that BERT drops (spaces, control characters, a mark after a space) do not belong to a word. Pieces of
    such characters belong to the previous word, or are dropped before the first word. Words that share a piece are
    merged.
    """
    encodings = tokenizer.encode_with_offsets(texts)
    words = _basic_words_of(tokenizer, texts, encodings)
    return [_align_text(tokenizer, *arguments) for arguments in zip(texts, encodings, words, strict=True)]


def _basic_words_of(
    tokenizer: DomainTokenizer, texts: Sequence[str], encodings: Sequence[Encoding]
) -> list[list[tuple[int, int]]]:
    """Return the `basic_words` of texts that `tokenizer` has encoded as `encodings`.

    If the tokenizer has the normalizer and pre-tokenizer of BERT, and no added tokens that are matched in texts, the
    words are the pre-tokens of `encodings`. Otherwise the texts are encoded again.
    """
    backend, basic = tokenizer.backend, _basic_backend()
    is_bert = all(str(getattr(backend, name)) == str(getattr(basic, name)) for name in ("normalizer", "pre_tokenizer"))
    if is_bert and all(token.special for token in backend.get_added_tokens_decoder().values()):
        return [_word_offsets(text, encoding) for text, encoding in zip(texts, encodings, strict=True)]
    return basic_words(texts)


def _align_text(
    tokenizer: DomainTokenizer, text: str, encoding: Encoding, words: Sequence[tuple[int, int]]
) -> AlignedText:
    """Return the pieces of a text with its words, from the spans of its `basic_words`."""
    word_of = _words_of_pieces(text, encoding.offsets, [start for start, _ in words])
    num_dropped = _num_pieces_before_words(word_of, encoding.word_ids)
    first_word = next((word for word in word_of if word >= 0), 0)
    word_of = [max(word, first_word) for word in word_of[num_dropped:]]  # the piece of the space has -1
    starts = _is_first_of_run(word_of)
    first_piece = [piece for piece, start in enumerate(starts) if start]
    # words without a piece of their own are merged with the word before: this word begins each merged word
    merged_begins = [word_of[piece] for piece in first_piece]
    merged_words = itertools.pairwise([*merged_begins, len(words)])  # index of the first word, end exclusive
    offsets = [(words[begin][0], words[end - 1][1]) for begin, end in merged_words]
    index = [count - 1 for count in itertools.accumulate(starts)]
    extra = tokenizer.template.num_special_tokens()
    return AlignedText(encoding.ids[num_dropped:], index, starts, first_piece, extra, offsets)


def _num_pieces_before_words(word_of: Sequence[int], pretoken_of: Sequence[int | None]) -> int:
    """Return the number of pieces at the beginning that belong to no word (-1 in `word_of`), for example of control
    characters. A separate piece for the space before the first word, in its pre-token, is not counted."""
    first = next((piece for piece, word in enumerate(word_of) if word >= 0), len(word_of))
    while 0 < first < len(word_of) and pretoken_of[first - 1] == pretoken_of[first]:
        first -= 1
    return first


def _is_first_of_run(values: Sequence[Any]) -> list[bool]:
    return [not index or value != values[index - 1] for index, value in enumerate(values)]


def _words_of_pieces(text: str, offsets: Sequence[tuple[int, int]], begins: Sequence[int]) -> list[int]:
    """Return the index of the word of each piece: the last word that begins at or before the first non-space character
    of the piece; -1 if no word does. `begins` (words,) are the positions where the words begin, ascending.

    - A piece of spaces belongs to the word of the previous piece.
    - An empty piece stands for the space before a word, and belongs to the word that begins at its position.
    - A piece that begins before the first word and reaches into it belongs to the first word.
    """
    words: list[int] = []
    for start, stop in offsets:
        characters = text[start : max(stop, start + 1)]  # of an empty piece: the next character
        if visible := characters.lstrip():
            first_visible = start + len(characters) - len(visible)
            word = bisect_right(begins, first_visible) - 1  # the last word that begins at or before it
            reaches_first_word = bool(begins) and stop > begins[0]
            words.append(0 if word < 0 and reaches_first_word else word)
        else:
            words.append(words[-1] if words else bisect_right(begins, start) - 1)
    return words


def basic_words(texts: Sequence[str]) -> list[list[tuple[int, int]]]:
    """Return the spans (characters, end exclusive) of the words of each text, independent of a vocabulary.

    Texts are cut at white space and around each punctuation mark and Chinese character; control characters are dropped.
    """
    check_unicode(texts)
    encodings = _basic_backend().encode_batch(list(texts), add_special_tokens=False)
    return [_word_offsets(text, encoding) for text, encoding in zip(texts, encodings, strict=True)]


@cache
def _basic_backend() -> Tokenizer:
    """Return BERT's tokenizer with only special tokens, for its normalizer and pre-tokenizer."""
    backend = bert_backend({token: index for index, token in enumerate(SPECIAL_TOKENS.values())}, {})
    backend.encode_special_tokens = True  # "[SEP]" in a text is plain text, as in `DomainTokenizer`
    return backend


def _build_aligned_words(
    tokenizer: DomainTokenizer, ids: list[int], word_of: Sequence[int], starts_pretoken: list[bool], num_words: int
) -> AlignedWords:
    """Return pieces with their words; a word without pieces gets [UNK]. `word_of`: (pieces,) index of the word."""
    first_piece = [index for index, is_first in enumerate(_is_first_of_run(word_of)) if is_first]
    if len(first_piece) == num_words:  # each word has pieces
        return AlignedWords(ids, [*word_of], starts_pretoken, first_piece, tokenizer.template.num_special_tokens())
    aligned = AlignedWords([], [], [], [], tokenizer.template.num_special_tokens())
    for word in range(num_words):
        start, stop = bisect_left(word_of, word), bisect_right(word_of, word)  # pieces of the word
        aligned.first_piece.append(len(aligned.input_ids))
        aligned.input_ids.extend(ids[start:stop] or [tokenizer.unk_id])
        aligned.starts_pretoken.extend(starts_pretoken[start:stop] or [True])
        aligned.word_index.extend([word] * max(stop - start, 1))
    return aligned


def _word_offsets(text: str, encoding: Encoding) -> list[tuple[int, int]]:
    """Return the span of each pre-token of an encoded text.

    A span includes the combining marks (accents, vowel signs of Thai) before the next piece. The offsets of `encoding`
    do not include them, because the normalizer of an uncased vocabulary drops these marks.
    """
    offsets: list[tuple[int, int]] = []
    previous = None  # pre-token of the piece before
    piece_offsets = encoding.offsets  # each access creates a new list
    next_starts = [*(start for start, _ in piece_offsets[1:]), len(text)]
    for word, (start, end), next_start in zip(encoding.word_ids, piece_offsets, next_starts, strict=False):
        while end < next_start and not text[end].isascii() and unicodedata.category(text[end]) == "Mn":
            end += 1
        if word == previous:
            offsets[-1] = (offsets[-1][0], end)
        else:
            offsets.append((start, end))
        previous = word
    return offsets
