"""Train a tokenizer on texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from domainbert.base.choices import choices_of, find_choice
from domainbert.base.errors import DomainbertError, suggest_name
from domainbert.base.fields import PositiveInt, check_value
from domainbert.tokenization.config import TokenizerKindConfig
from domainbert.tokenization.load import DomainTokenizer
from domainbert.tokenization.train import TrainingWords
from domainbert.tokenization.words import WordCounter


def train_tokenizer(
    texts: Iterable[str] | WordCounter,
    kind: str | TokenizerKindConfig = "wordpiece",
    vocab_size: int = 16384,
    *,
    lowercase: bool | None = None,
    min_frequency: int = 2,
    min_character_count: int = 10,
    sample_bytes: int = 1_000_000_000,
    on_selected: Callable[[TrainingWords], None] | None = None,
) -> DomainTokenizer:
    """Train a tokenizer on texts and return it. The vocabulary does not depend on the order of the texts, unless they
    have more than 250,000 distinct words, of which rare ones are then discarded.

    >>> from domainbert import train_tokenizer
    >>> texts = ["the court of appeal", "courts of law", "the high court and the lower courts"]
    >>> tokenizer = train_tokenizer(texts, vocab_size=128, min_frequency=1)
    >>> [tokenizer.tokens[token_id] for token_id in tokenizer.encode(["The court"])[0]]
    ['the', 'court']

    Args:
        texts: documents, read once and in bounded memory; or a counter of their words.
        kind: `wordpiece`, `byte_bpe`, `unigram`, or a configuration such as `WordPiece(keep_accents=True)`.
        vocab_size: number of entries, special tokens included; rounded up to a multiple of 64.
        lowercase: lowercase all text and strip accents; None is the kind's default (true for WordPiece).
        min_frequency: minimum occurrences of a pair of pieces (Unigram: of a string) to become a piece.
        min_character_count: minimum occurrences of a character beyond printable ASCII to become a piece.
        sample_bytes: maximum bytes of texts to count; a larger set is sampled by a hash of each text.
        on_selected: called with the training words before training begins.

    Raises:
        DomainbertError: unknown kind, no text, or too little text for the vocabulary size.
    """
    check_value("vocab_size", vocab_size, PositiveInt)
    if isinstance(kind, TokenizerKindConfig):
        config = kind
    elif (config_class := find_choice(TokenizerKindConfig, kind)) is not None:
        config = config_class()
    else:
        facts = suggest_name(kind, choices_of(TokenizerKindConfig))
        raise DomainbertError(where="kind", found=repr(kind), **facts)
    vocabulary_kind = config.build()
    counter = texts if isinstance(texts, WordCounter) else _count_words(texts, sample_bytes)
    uncased = vocabulary_kind.lowercases if lowercase is None else lowercase
    words = vocabulary_kind.select(counter, uncased, min_character_count)
    if on_selected is not None:
        on_selected(words)
    return DomainTokenizer(vocabulary_kind.train(words, vocab_size, uncased, min_frequency))


def _count_words(texts: Iterable[str], sample_bytes: int) -> WordCounter:
    if isinstance(texts, str):
        raise DomainbertError(
            where="texts", found="a single string", expected="an iterable of documents, such as a list"
        )
    counter = WordCounter(sample_bytes)
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise DomainbertError(where=f"texts[{index}]", found=type(text).__name__, expected="a string")
        counter.add(text)
    return counter
