"""Which pieces belong to which word: for words that are given, and for the pre-tokens of raw text.

A pre-token is what BERT's pre-tokenizer cuts at spaces and punctuation; "men's" is one word of a CoNLL file and three
pre-tokens: men ' s.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Encoding

from domainbert.tokenization.bert import SPECIAL_TOKENS, bert_backend, encode_text
from domainbert.tokenization.load import DomainTokenizer


@dataclass(frozen=True)
class AlignedWords:
    """The pieces of a list of words, without special tokens."""

    input_ids: list[int]
    """(pieces,) Ids of the pieces."""
    word_index: list[int]
    """(pieces,) Which word each piece belongs to; never falls, and every word has at least one piece."""
    starts_pretoken: list[bool]
    """(pieces,) False for a piece that continues a pre-token ("##ing")."""
    first_piece: list[int]
    """(words,) Position of each word's first piece."""
    extra: int
    """Special tokens that the tokenizer puts around them."""


@dataclass(frozen=True)
class AlignedText(AlignedWords):
    """The pieces of a text; its pre-tokens are the words."""

    word_offsets: list[tuple[int, int]]
    """(words,) Characters of the text, end exclusive, that each pre-token covers."""


def align_words(tokenizer: DomainTokenizer, words: Sequence[Sequence[str]]) -> list[AlignedWords]:
    """The pieces of each list of words.

    A word that tokenizes to nothing (control characters only) gets one [UNK], so that it can be labelled and counted.

    Raises:
        DomainbertError: a word holds half a surrogate pair.
    """
    for word in (word for sentence in words for word in sentence):
        encode_text(word)
    encodings = tokenizer.backend.encode_batch(
        [list(sentence) for sentence in words], is_pretokenized=True, add_special_tokens=False
    )
    return [_align(tokenizer, encoding, len(sentence)) for encoding, sentence in zip(encodings, words, strict=True)]


def align_text(tokenizer: DomainTokenizer, texts: Sequence[str]) -> list[AlignedText]:
    """The pieces of each text, and where in it its pre-tokens stand.

    Characters that BERT drops (spaces, control characters) belong to no pre-token.

    Raises:
        DomainbertError: a text holds half a surrogate pair.
    """
    aligned = []
    for text, encoding in zip(texts, tokenizer.encode_with_offsets(texts), strict=True):
        offsets = _word_offsets(text, encoding)
        pieces = _align(tokenizer, encoding, len(offsets))
        aligned.append(
            AlignedText(
                pieces.input_ids, pieces.word_index, pieces.starts_pretoken, pieces.first_piece, pieces.extra, offsets
            )
        )
    return aligned


def basic_words(texts: Sequence[str]) -> list[list[tuple[int, int]]]:
    """Where the words of each text stand: characters, end exclusive, before any vocabulary is chosen.

    They are the pre-tokens that `align_text` finds with a vocabulary of ours: cut at white space, beside each
    punctuation mark and each Chinese character, without control characters.

    Raises:
        DomainbertError: a text holds half a surrogate pair.
    """
    for text in texts:
        encode_text(text)
    backend = bert_backend({token: number for number, token in enumerate(SPECIAL_TOKENS.values())}, {})
    backend.encode_special_tokens = True  # "[SEP]" in a text is text, as it is for `DomainTokenizer`
    encodings = backend.encode_batch(list(texts), add_special_tokens=False)
    return [_word_offsets(text, encoding) for text, encoding in zip(texts, encodings, strict=True)]


def _align(tokenizer: DomainTokenizer, encoding: Encoding, num_words: int) -> AlignedWords:
    continuation = tokenizer.continuation
    aligned = AlignedWords([], [], [], [], tokenizer.template.extra())
    ids, word_ids = encoding.ids, encoding.word_ids
    position = 0
    for word in range(num_words):
        aligned.first_piece.append(len(aligned.input_ids))
        start = position
        while position < len(ids) and word_ids[position] == word:
            position += 1
        pieces = ids[start:position] or [tokenizer.unk_id]
        aligned.input_ids.extend(pieces)
        aligned.word_index.extend([word] * len(pieces))
        aligned.starts_pretoken.extend(not continuation[piece] for piece in pieces)
    return aligned


def _word_offsets(text: str, encoding: Encoding) -> list[tuple[int, int]]:
    """The characters of each pre-token, with the non-spacing marks after it: accents, vowel signs of Thai.

    The normalizer of an uncased vocabulary drops those marks and leaves them out of its offsets.
    """
    offsets: list[tuple[int, int]] = []
    previous = None
    for word, (start, end) in zip(encoding.word_ids, encoding.offsets, strict=True):
        while end < len(text) and unicodedata.category(text[end]) == "Mn":
            end += 1
        if word == previous:
            offsets[-1] = (offsets[-1][0], end)
        else:
            offsets.append((start, end))
        previous = word
    return offsets
