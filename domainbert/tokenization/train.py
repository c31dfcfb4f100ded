"""Training of a vocabulary, whatever its kind: counted words, sizes, and a trainer that is fed by counts.

The bytes of a vocabulary depend on the words and the settings only: every entry that is not learnt has its id before
training begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.trainers import Trainer

from domainbert.base.errors import DomainbertError
from domainbert.tokenization.bert import tokens_by_id

MULTIPLE = 64  # vocabulary sizes that keep the output matrix on the fast path of matrix products
MAX_ALPHABET = 1000  # characters other than printable ASCII that get a piece, in a vocabulary of characters
_MAX_WORDS = 400_000  # distinct; the trainer needs up to 1 kB for each
_FED_AT_ONCE = 20_000  # characters in a string; tokenizers holds 256 strings at a time


@dataclass(frozen=True)
class TrainingWords:
    """The words a vocabulary is trained on, and what was left out."""

    counts: dict[str, int]  # occurrences of each word, as the vocabulary sees it; in the order of the words
    alphabet: list[str]  # characters that get a piece, in the order of their code points
    rare_characters: dict[str, int] = field(default_factory=dict)
    """Characters without a piece, the most frequent first: such a character, or the whole word, becomes [UNK]."""
    # occurrences of words left out because ...
    rare_words: int = 0  # they hold a rare character
    infrequent_words: int = 0  # 400,000 words are more frequent
    long_words: int = 0  # they have too many characters: those become [UNK]

    @property
    def rare_share(self) -> float:
        """Share of the characters that have no piece, rare words included."""
        rare = sum(self.rare_characters.values())
        return rare / max(rare + sum(len(word) * count for word, count in self.counts.items()), 1)


def most_frequent(words: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """The 400,000 most frequent words, in the order of the words; and the occurrences of the others."""
    ranked = sorted(words, key=lambda word: (-words[word], word))
    kept = {word: words[word] for word in sorted(ranked[:_MAX_WORDS])}
    return kept, sum(words[word] for word in ranked[_MAX_WORDS:])


def learn(
    learner: Tokenizer,
    make_trainer: Callable[..., Trainer],
    words: TrainingWords,
    seeds: Sequence[str],
    vocab_size: int,
    min_frequency: int,
) -> Tokenizer:
    """Give the learner, an empty model of a kind, a vocabulary from counted words; returns it.

    The size is that of `Wanted`. The first entries are the seeds, in the order of their ids. A pair of pieces must
    occur `min_frequency` times to become one.

    Raises:
        DomainbertError: as `Wanted`.
    """
    wanted = Wanted(words, len(seeds), vocab_size, min_frequency)
    learner.pre_tokenizer = WhitespaceSplit()
    trainer = make_trainer(
        vocab_size=wanted.size, min_frequency=min_frequency, special_tokens=list(seeds), show_progress=False
    )
    learner.train_from_iterator(_spelt_out(words.counts), trainer)
    wanted.check(len(tokens_by_id(learner)))
    return learner


@dataclass(frozen=True)
class Wanted:
    """The number of entries that a vocabulary is to have, special tokens included: a multiple of 64.

    Raises:
        DomainbertError: there are no words, or the entries that are there before training alone are more.
    """

    words: TrainingWords
    num_seeds: int  # entries that are there before training: special tokens and characters
    vocab_size: int  # asked for
    min_frequency: int

    def __post_init__(self) -> None:
        if not self.words.counts:
            raise DomainbertError("the corpus is empty: it holds no word to train a vocabulary on")
        if self.num_seeds > self.size:
            raise DomainbertError(
                f"{self._asked} is too small: the special tokens and the {len(self.words.alphabet):,} characters of "
                f"the corpus need {self.num_seeds:,} pieces; expected at least {round_vocab_size(self.num_seeds):,}"
            )

    @property
    def size(self) -> int:
        """The size asked for, rounded up."""
        return round_vocab_size(self.vocab_size)

    def check(self, found: int) -> None:
        """Raise an error if training has found fewer entries."""
        if found >= self.size:
            return
        possible = found // MULTIPLE * MULTIPLE
        remedy = f"at most {possible:,}, or more text" if possible >= self.num_seeds else "more text"
        raise DomainbertError(
            f"the corpus is too small for {self._asked}: with min_frequency {self.min_frequency} it supports {found:,} "
            f"pieces; expected {remedy}"
        )

    @property
    def _asked(self) -> str:
        rounded = "" if self.size == self.vocab_size else f" (rounded to {self.size:,})"
        return f"vocab_size {self.vocab_size:,}{rounded}"


def round_vocab_size(vocab_size: int) -> int:
    """The next multiple of 64."""
    return -(-vocab_size // MULTIPLE) * MULTIPLE


def _spelt_out(counts: Mapping[str, int]) -> Iterator[str]:
    """Every word as often as it occurs, in strings of bounded length: the trainer does not take counts."""
    parts: list[str] = []
    size = 0
    for word, count in counts.items():
        while count:
            times = min(count, max(_FED_AT_ONCE // (len(word) + 1), 1))
            parts.append(" ".join([word] * times))
            size += times * (len(word) + 1)
            count -= times
            if size >= _FED_AT_ONCE:
                yield " ".join(parts)
                parts, size = [], 0
    yield " ".join(parts)
