"""Align pieces (subword tokens) with given words, or with the words of raw text.

BERT's pre-tokenizer cuts a text into pre-tokens at spaces and punctuation: "men's" is one word of a CoNLL file and
three pre-tokens, men ' s.
"""

from __future__ import annotations

import itertools
import unicodedata
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from tokenizers import Encoding, Tokenizer

from domainbert.tokenization.kinds.wordpiece.kind import SPECIAL_TOKENS, bert_backend
from domainbert.tokenization.load import DomainTokenizer
from domainbert.tokenization.words import encode_text


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

    If spaces belong to pieces, the words are encoded with a space between them. A word without pieces (only control
    characters) becomes [UNK], so that it can be labelled and counted. `DomainbertError` for an unpaired surrogate.
    """
    for word in (word for sentence in words for word in sentence):
        encode_text(word)
    if tokenizer.pieces.begins_word is None:
        return _align_words_by_offsets(tokenizer, words)
    has_mark = [any(map(_has_combining_mark, sentence)) for sentence in words]
    aligned = {
        mark: iter(align(tokenizer, [sentence for sentence, has in zip(words, has_mark, strict=True) if has == mark]))
        for mark, align in ((True, _align_words_by_offsets), (False, _align_by_pretokens))
    }
    return [next(aligned[mark]) for mark in has_mark]


def _has_combining_mark(word: str) -> bool:
    """Whether a word has a combining mark: WordPiece cuts between punctuation and a mark, `basic_words` does not."""
    return not word.isascii() and any(unicodedata.category(character) == "Mn" for character in word)


def _align_by_pretokens(tokenizer: DomainTokenizer, words: Sequence[Sequence[str]]) -> list[AlignedWords]:
    """`align_words` for a vocabulary with `begins_word`, by the pre-tokens that `tokenizers` assigns to words."""
    begins = tokenizer.pieces.begins_word
    assert begins is not None
    encodings = tokenizer.backend.encode_batch(
        [list(sentence) for sentence in words], is_pretokenized=True, add_special_tokens=False
    )
    return [
        _build_aligned_words(tokenizer, encoding.ids, encoding.word_ids, begins[encoding.ids].tolist(), len(sentence))
        for encoding, sentence in zip(encodings, words, strict=True)
    ]


def align_text(tokenizer: DomainTokenizer, texts: Sequence[str]) -> list[AlignedText]:
    """Encode texts, and return the pieces of each text with the words of `basic_words`.

    Characters that BERT drops (spaces, control characters, a mark after a space) do not belong to a word. Pieces of
    such characters belong to the previous word, or are dropped before the first word. Words that share a piece are
    merged. `DomainbertError` for an unpaired surrogate.
    """
    encodings = tokenizer.encode_with_offsets(texts)
    if _splits_as_basic_words(tokenizer):
        words = [_word_offsets(text, encoding) for text, encoding in zip(texts, encodings, strict=True)]
    else:
        words = basic_words(texts)
    return [_align_text(tokenizer, *arguments) for arguments in zip(texts, encodings, words, strict=True)]


def _splits_as_basic_words(tokenizer: DomainTokenizer) -> bool:
    """Whether the tokenizer's pre-tokens are the words of `basic_words`: same normalizer and pre-tokenizer, no added
    tokens that are matched in texts."""
    backend, basic = tokenizer.backend, _basic_backend()
    same = all(str(getattr(backend, name)) == str(getattr(basic, name)) for name in ("normalizer", "pre_tokenizer"))
    return same and all(token.special for token in backend.get_added_tokens_decoder().values())


def _align_words_by_offsets(tokenizer: DomainTokenizer, words: Sequence[Sequence[str]]) -> list[AlignedWords]:
    """`align_words` by character offsets in the words joined with spaces: as in training, the space before a word
    belongs to its first piece."""
    texts = [" ".join(sentence) for sentence in words]
    aligned = []
    encodings = tokenizer.encode_with_offsets(texts)
    for text, encoding, pretokens, sentence in zip(texts, encodings, basic_words(texts), words, strict=True):
        ends = list(itertools.accumulate(len(word) + 1 for word in sentence))
        begins = [0, *ends[:-1]] if sentence else []
        word_of = _words_of_pieces(text, encoding.offsets, begins)
        pretoken_of = _words_of_pieces(text, encoding.offsets, [start for start, _ in pretokens])
        starts = _is_first_of_run(pretoken_of)
        aligned.append(_build_aligned_words(tokenizer, encoding.ids, word_of, starts, len(sentence)))
    return aligned


def _align_text(
    tokenizer: DomainTokenizer, text: str, encoding: Encoding, words: Sequence[tuple[int, int]]
) -> AlignedText:
    word_of = _words_of_pieces(text, encoding.offsets, [start for start, _ in words])
    first = next((piece for piece, word in enumerate(word_of) if word >= 0), len(word_of))  # the first piece of a word
    lowest = word_of[first] if first < len(word_of) else 0
    while 0 < first < len(word_of) and encoding.word_ids[first - 1] == encoding.word_ids[first]:
        first -= 1  # a separate piece for the space before the first word
    word_of = [max(word, lowest) for word in word_of[first:]]
    starts = _is_first_of_run(word_of)
    first_piece = [piece for piece, start in enumerate(starts) if start]
    # a word is merged with the word before it if they share a piece
    present = [word_of[piece] for piece in first_piece]
    stops = [*(words[following - 1][1] for following in present[1:]), words[-1][1]] if present else []
    offsets = [(words[word][0], stop) for word, stop in zip(present, stops, strict=True)]
    index = [count - 1 for count in itertools.accumulate(starts)]
    extra = tokenizer.template.num_special_tokens()
    return AlignedText(encoding.ids[first:], index, starts, first_piece, extra, offsets)


def _is_first_of_run(values: Sequence[Any]) -> list[bool]:
    """Return whether each value differs from the previous value; True for the first."""
    return [not index or value != values[index - 1] for index, value in enumerate(values)]


def _words_of_pieces(text: str, offsets: Sequence[tuple[int, int]], begins: Sequence[int]) -> list[int]:
    """Return the index of the word of each piece, by its first non-space character; -1 before the first word.

    `begins` (words,) are the first characters of the words, ascending. A piece of spaces belongs to the previous word.
    The exception is a separate piece for the space before a word: it has empty offsets at the beginning of that word.
    """
    words: list[int] = []
    for start, stop in offsets:
        position: int | None = start
        if stop <= start or text[start].isspace():
            characters = range(start, min(max(stop, start + 1), len(text)))
            position = next((index for index in characters if not text[index].isspace()), None)
        if position is None:
            words.append(words[-1] if words else bisect_right(begins, start) - 1)
        else:
            word = bisect_right(begins, position) - 1
            words.append(0 if word < 0 and begins and stop > begins[0] else word)
    return words


def basic_words(texts: Sequence[str]) -> list[list[tuple[int, int]]]:
    """Return the spans (characters, end exclusive) of the words of each text, independent of a vocabulary.

    Texts are cut at white space and around each punctuation mark and Chinese character; control characters are dropped.
    `DomainbertError` for an unpaired surrogate.
    """
    for text in texts:
        encode_text(text)
    encodings = _basic_backend().encode_batch(list(texts), add_special_tokens=False)
    return [_word_offsets(text, encoding) for text, encoding in zip(texts, encodings, strict=True)]


@cache
def _basic_backend() -> Tokenizer:
    backend = bert_backend({token: index for index, token in enumerate(SPECIAL_TOKENS.values())}, {})
    backend.encode_special_tokens = True  # "[SEP]" in a text is plain text, as in `DomainTokenizer`
    return backend


def _build_aligned_words(
    tokenizer: DomainTokenizer, ids: list[int], word_of: Sequence[Any], starts: list[bool], num_words: int
) -> AlignedWords:
    """Return the aligned words of a sentence: `ids`, `word_of` and `starts` are (pieces,); a word without pieces gets
    [UNK]."""
    first_piece = [index for index, start in enumerate(_is_first_of_run(word_of)) if start]
    if len(first_piece) == num_words:  # each word has pieces
        return AlignedWords(ids, [*word_of], starts, first_piece, tokenizer.template.num_special_tokens())
    aligned = AlignedWords([], [], [], [], tokenizer.template.num_special_tokens())
    position = 0
    for word in range(num_words):
        aligned.first_piece.append(len(aligned.input_ids))
        start = position
        while position < len(ids) and word_of[position] == word:
            position += 1
        pieces = ids[start:position] or [tokenizer.unk_id]
        aligned.input_ids.extend(pieces)
        aligned.word_index.extend([word] * len(pieces))
        aligned.starts_pretoken.extend(starts[start:position] or [True])
    return aligned


def _word_offsets(text: str, encoding: Encoding) -> list[tuple[int, int]]:
    """Return the spans of pre-tokens, extended by combining marks (accents, vowel signs of Thai) before the next piece:
    the normalizer of an uncased vocabulary drops these marks, and its offsets do not cover them."""
    offsets: list[tuple[int, int]] = []
    previous, piece_offsets = None, encoding.offsets  # each access creates a new list
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
