"""Train a WordPiece vocabulary whose bytes depend on the words and the settings only.

`tokenizers.WordPieceTrainer` learns byte-pair merges and writes them down as WordPiece. Run as it is, it gives other
ids every time: a piece `##c` gets its id when the trainer first meets it, in the random order of a hash table, and the
ids then decide between merges of equal count. Here every `##c` has its id before training begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.trainers import WordPieceTrainer

from domainbert.base.errors import DomainbertError
from domainbert.tokenization.bert import MAX_WORD_CHARACTERS, PREFIX, SPECIAL_TOKENS, bert_backend, tokens_by_id
from domainbert.tokenization.words import WordCounter, normalized_words

MULTIPLE = 64
"""Vocabulary sizes are multiples of this, which keeps the output matrix on the fast path of matrix products."""

_ASCII = frozenset(map(chr, range(33, 127)))
MIN_CHARACTER_COUNT = 10
MAX_ALPHABET = 1000
"""Most characters other than printable ASCII that get a piece."""

_MAX_WORDS = 400_000  # distinct; the trainer needs up to 1 kB for each
_FED_AT_ONCE = 20_000  # characters in a string; tokenizers holds 256 strings at a time


@dataclass(frozen=True)
class TrainingWords:
    """The words a vocabulary is trained on, and what was left out."""

    counts: dict[str, int]
    """How often each normalized word occurs, in the order of the words."""
    alphabet: list[str]
    """Characters that get a piece, in the order of their code points."""
    rare_characters: dict[str, int] = field(default_factory=dict)
    """Characters without a piece, the most frequent first: a word that holds one becomes [UNK]."""
    rare_words: int = 0
    """Occurrences of words left out because they hold a rare character."""
    infrequent_words: int = 0
    """Occurrences of words left out because 400,000 words are more frequent."""
    long_words: int = 0
    """Occurrences of words left out because they have more than 100 characters: those become [UNK]."""


def round_vocab_size(vocab_size: int) -> int:
    """The next multiple of 64."""
    return -(-vocab_size // MULTIPLE) * MULTIPLE


def train_wordpiece(
    texts: Iterable[str],
    vocab_size: int,
    lowercase: bool = True,
    min_frequency: int = 2,
    sample_bytes: int = 1_000_000_000,
    min_character_count: int = MIN_CHARACTER_COUNT,
) -> Tokenizer:
    """Train a BERT tokenizer on texts; see `train_on_words` for what can go wrong.

    Args:
        texts: documents of the training split.
        vocab_size: number of pieces, special tokens included; rounded up to a multiple of 64.
        lowercase: uncased: lowercase the text and strip its accents.
        min_frequency: how often a pair of pieces must occur to become a piece.
        sample_bytes: train on a sample by hash of at most so many bytes.
        min_character_count: see `select_words`.
    """
    counter = WordCounter(sample_bytes)
    for text in texts:
        counter.add(text)
    words = select_words(counter, lowercase, min_character_count)
    return train_on_words(words, vocab_size, lowercase, min_frequency)


def select_words(
    counter: WordCounter, lowercase: bool, min_character_count: int = MIN_CHARACTER_COUNT
) -> TrainingWords:
    """The words to train on: normalized, made of characters that are frequent enough, and not too long.

    The alphabet is printable ASCII, whether it occurs or not, so that no word of it is ever unknown; and every other
    character that occurs at least `min_character_count` times, up to the 1,000 most frequent (where counts are equal,
    the smaller code point).
    """
    words = counter.words(normalized_words(bert_backend({}, {"do_lower_case": lowercase})))
    characters: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            characters[character] += count
    usual = frozenset(map(str.lower, _ASCII)) if lowercase else _ASCII
    ranked = sorted(characters.keys() - usual, key=lambda character: (-characters[character], character))
    frequent = [character for character in ranked if characters[character] >= min_character_count][:MAX_ALPHABET]
    alphabet = usual.union(frequent)
    long = {word for word in words if len(word) > MAX_WORD_CHARACTERS}
    rare = {word for word in words.keys() - long if not alphabet.issuperset(word)}
    usable = sorted(words.keys() - long - rare, key=lambda word: (-words[word], word))
    return TrainingWords(
        counts={word: words[word] for word in sorted(usable[:_MAX_WORDS])},
        alphabet=sorted(alphabet),
        rare_characters={character: characters[character] for character in ranked[len(frequent) :]},
        rare_words=sum(words[word] for word in rare),
        infrequent_words=sum(words[word] for word in usable[_MAX_WORDS:]),
        long_words=sum(words[word] for word in long),
    )


def train_on_words(words: TrainingWords, vocab_size: int, lowercase: bool, min_frequency: int) -> Tokenizer:
    """Train a BERT tokenizer on counted words.

    The ids are those of the special tokens, the characters, the `##` characters, and the pieces as they were learnt.

    Raises:
        DomainbertError: there are no words; or they do not support so many pieces, or the alphabet alone needs more.
    """
    size = round_vocab_size(vocab_size)
    asked = f"vocab_size {vocab_size:,}" + ("" if size == vocab_size else f" (rounded to {size:,})")
    if not words.counts:
        raise DomainbertError("the corpus is empty: it holds no word to train a vocabulary on")
    seeds = [*SPECIAL_TOKENS.values(), *words.alphabet, *_continuing(words.alphabet, lowercase)]
    if len(seeds) > size:
        raise DomainbertError(
            f"{asked} is too small: the special tokens and the {len(words.alphabet):,} characters of the corpus need "
            f"{len(seeds):,} pieces; expected at least {round_vocab_size(len(seeds)):,}"
        )
    pieces = _learn(words.counts, seeds, size, min_frequency)
    if len(pieces) < size:
        possible = len(pieces) // MULTIPLE * MULTIPLE
        remedy = f"at most {possible:,}, or more text" if possible >= len(seeds) else "more text"
        raise DomainbertError(
            f"the corpus is too small for {asked}: with min_frequency {min_frequency} it supports {len(pieces):,} "
            f"pieces; expected {remedy}"
        )
    return bert_backend({piece: number for number, piece in enumerate(pieces)}, {"do_lower_case": lowercase})


def _learn(counts: Mapping[str, int], seeds: list[str], vocab_size: int, min_frequency: int) -> list[str]:
    """The pieces in the order of their ids."""
    learner = Tokenizer(WordPiece({}, unk_token=SPECIAL_TOKENS["unk_token"]))
    learner.pre_tokenizer = WhitespaceSplit()
    trainer = WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=seeds,
        continuing_subword_prefix=PREFIX,
        show_progress=False,
    )
    learner.train_from_iterator(_spelt_out(counts), trainer)
    return tokens_by_id(learner)


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


def _continuing(alphabet: Iterable[str], lowercase: bool) -> list[str]:
    """`##c` for each character that can stand inside a word: punctuation and Chinese characters never do."""
    cut = normalized_words(bert_backend({}, {"do_lower_case": lowercase}))
    return [PREFIX + character for character in alphabet if cut(f"a{character}") == [f"a{character}"]]
