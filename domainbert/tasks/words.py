"""Words of contents, as pieces and as character ranges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from domainbert.labelled.char_spans import Stretch, join_words
from domainbert.labelled.contents import Content, words_of_content
from domainbert.tokenization.align import AlignedText, AlignedWords, align_words
from domainbert.tokenization.load import DomainTokenizer
from domainbert.tokenization.splitting import WordSplitting, align_raw


class TaggedWords(NamedTuple):
    """Tags of the words of a sentence, and the probability of each tag."""

    tags: list[str]
    scores: list[float]


def aligned_contents(
    tokenizer: DomainTokenizer, contents: Sequence[Content], splitting: WordSplitting | None
) -> list[AlignedWords]:
    """Return the pieces and words of each content; `splitting` defines the words of a text."""
    texts = [content for content in contents if isinstance(content, str)]
    words = [words_of_content(content) for content in contents if not isinstance(content, str)]
    from_texts, from_words = iter(align_raw(tokenizer, texts, splitting)), iter(align_words(tokenizer, words))
    return [next(from_texts if isinstance(content, str) else from_words) for content in contents]


def text_and_offsets(content: Content, words: AlignedWords) -> tuple[str, list[Stretch]]:
    """Return the text of a content and the character ranges of its words; a list of words is joined by spaces."""
    if isinstance(words, AlignedText) and isinstance(content, str):
        return content, words.word_offsets
    return join_words(words_of_content(content))
