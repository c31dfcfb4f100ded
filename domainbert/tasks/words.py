"""Words of what a model reads, as pieces and as characters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from domainbert.labelled.contents import Content, words_of_content
from domainbert.labelled.stretches import Stretch, joined_words
from domainbert.tokenization.align import AlignedText, AlignedWords, align_words
from domainbert.tokenization.load import DomainTokenizer
from domainbert.tokenization.splitting import WordSplitting, align_raw


class TaggedWords(NamedTuple):
    """The tag of each word of a sentence, and a probability of each."""

    tags: list[str]
    scores: list[float]


def aligned_contents(
    tokenizer: DomainTokenizer, contents: Sequence[Content], splitting: WordSplitting | None
) -> list[AlignedWords]:
    """The pieces of texts, which are split into words by `splitting`, and of lists of words."""
    texts = [content for content in contents if isinstance(content, str)]
    of_text = iter(align_raw(tokenizer, texts, splitting))
    words = [words_of_content(content) for content in contents if not isinstance(content, str)]
    of_words = iter(align_words(tokenizer, words))
    return [next(of_text if isinstance(content, str) else of_words) for content in contents]


def placed_words(content: Content, words: AlignedWords) -> tuple[str, list[Stretch]]:
    """A text and the characters of its words; that of a list of words has single spaces between them."""
    if isinstance(words, AlignedText) and isinstance(content, str):
        return content, words.word_offsets
    return joined_words(words_of_content(content))
