"""Train vocabularies of all kinds: training words, vocabulary sizes, and `tokenizers` trainers fed with word counts.

The bytes of a vocabulary depend only on the words and the settings, because every entry that is not learned has its id
before training begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.trainers import Trainer

from domainbert.base.errors import DomainbertError

SIZE_MULTIPLE = 64  # of vocabulary sizes, for fast matrix products with the output matrix
MAX_ALPHABET = 1000  # characters other than printable ASCII that become pieces, in WordPiece
_MAX_WORDS = 400_000  # distinct training words; the trainer needs up to 1 kB per word
_CHUNK_CHARACTERS = 20_000  # of a training string; tokenizers holds 256 strings at a time


@dataclass(frozen=True)
class TrainingWords:
    """Words that a vocabulary is trained on, and the numbers of excluded words."""

    counts: dict[str, int]  # occurrences by normalised word, sorted by word
    alphabet: list[str]  # characters that become pieces, sorted by code point
    rare_characters: dict[str, int] = field(default_factory=dict)
    """Characters without a piece, the most frequent first: the character, or its whole word, becomes [UNK]."""
    rare_words: int = 0  # occurrences of words that contain a rare character
    infrequent_words: int = 0  # occurrences of words that are not among the 400,000 most frequent
    long_words: int = 0  # occurrences of words that have too many characters and become [UNK]

    @property
    def rare_share(self) -> float:
        """Share of the characters of the training text that have no piece."""
        rare = sum(self.rare_characters.values())
        return rare / max(rare + sum(len(word) * count for word, count in self.counts.items()), 1)


def choose_alphabet(
    characters: Mapping[str, int], lowercase: bool, min_count: int, limit: int | None = None
) -> tuple[frozenset[str], dict[str, int]]:
    """Return the characters that become pieces (the alphabet), and the counts of all others, the most frequent first.

    The alphabet is printable ASCII, so that no ASCII word is unknown, and up to `limit` of the most frequent other
    characters (ties: the smaller code point) that occur `min_count` times.
    """
    ascii_characters = {character.lower() if lowercase else character for character in map(chr, range(33, 127))}
    ranked = sorted(characters.keys() - ascii_characters, key=lambda character: (-characters[character], character))
    frequent = [character for character in ranked if characters[character] >= min_count][:limit]
    rare = {character: characters[character] for character in ranked[len(frequent) :]}
    return frozenset(ascii_characters.union(frequent)), rare


def most_frequent(words: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Return the 400,000 most frequent words, sorted by word, and the number of occurrences of the other words."""
    ranked = sorted(words, key=lambda word: (-words[word], word))
    frequent = {word: words[word] for word in sorted(ranked[:_MAX_WORDS])}
    return frequent, sum(words[word] for word in ranked[_MAX_WORDS:])


def train_backend(
    tokenizer: Tokenizer,
    make_trainer: Callable[..., Trainer],
    words: TrainingWords,
    seeds: Sequence[str],
    vocab_size: int,
    min_frequency: int,
) -> Tokenizer:
    """Train `tokenizer`, whose model is empty, on word counts and return it.

    `make_trainer` is a class of `tokenizers.trainers`. The seeds (special tokens and characters) become the first
    entries, in order. A pair of pieces must occur `min_frequency` times to become a piece.
    """
    target = VocabularySize(words, len(seeds), vocab_size, min_frequency)
    tokenizer.pre_tokenizer = WhitespaceSplit()
    trainer = make_trainer(
        vocab_size=target.size, min_frequency=min_frequency, special_tokens=list(seeds), show_progress=False
    )
    tokenizer.train_from_iterator(_repeated_words(words.counts), trainer)
    target.check(tokenizer.get_vocab_size())
    return tokenizer


@dataclass(frozen=True)
class VocabularySize:
    """Number of entries of a vocabulary to train, special tokens included: `vocab_size` rounded up to a multiple of 64.

    Raises:
        DomainbertError: there are no words, or the seeds alone exceed the size.
    """

    words: TrainingWords
    num_seeds: int  # entries that exist before training: special tokens and characters
    vocab_size: int
    min_frequency: int

    def __post_init__(self) -> None:
        if not self.words.counts:
            raise DomainbertError("the corpus has no words", expected="text to train a vocabulary on")
        if self.num_seeds > self.size:
            raise DomainbertError(
                f"{self._description} is too small: the special tokens and the "
                f"{len(self.words.alphabet):,} characters of the corpus need {self.num_seeds:,} pieces",
                expected=f"at least {round_vocab_size(self.num_seeds):,}",
            )

    @property
    def size(self) -> int:
        """`vocab_size`, rounded up."""
        return round_vocab_size(self.vocab_size)

    def check(self, num_entries: int) -> None:
        """Raise `DomainbertError` if training has produced fewer entries than `size`."""
        if num_entries >= self.size:
            return
        possible = num_entries // SIZE_MULTIPLE * SIZE_MULTIPLE
        advice = f"a vocab_size of at most {possible:,}, or more text" if possible >= self.num_seeds else "more text"
        raise DomainbertError(
            f"the corpus is too small for {self._description}: with min_frequency "
            f"{self.min_frequency} it supports {num_entries:,} pieces",
            expected=advice,
        )

    @property
    def _description(self) -> str:
        rounded = "" if self.size == self.vocab_size else f" (rounded to {self.size:,})"
        return f"vocab_size {self.vocab_size:,}{rounded}"


def round_vocab_size(vocab_size: int) -> int:
    """Return the size rounded up to a multiple of 64."""
    return -(-vocab_size // SIZE_MULTIPLE) * SIZE_MULTIPLE


def _repeated_words(counts: Mapping[str, int]) -> Iterator[str]:
    # the trainer takes no counts
    words: list[str] = []  # of the next string
    size = 0
    for word, count in counts.items():
        while count:
            times = min(count, max(_CHUNK_CHARACTERS // (len(word) + 1), 1))
            words += [word] * times
            size += times * (len(word) + 1)
            count -= times
            if size >= _CHUNK_CHARACTERS:
                yield " ".join(words)
                words, size = [], 0
    yield " ".join(words)
