"""Train a WordPiece vocabulary whose bytes depend on the words and the settings only.

`tokenizers.WordPieceTrainer` learns byte-pair merges and writes them down as WordPiece. Run as it is, it gives other
ids every time: a piece `##c` gets its id when the trainer first meets it, in the random order of a hash table, and the
ids then decide between merges of equal count. Here every `##c` has its id before training begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial

from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.trainers import WordPieceTrainer

from domainbert.tokenization.bert import MAX_WORD_CHARACTERS, PREFIX, SPECIAL_TOKENS, bert_backend, tokens_by_id
from domainbert.tokenization.train import MAX_ALPHABET, TrainingWords, learn, most_frequent
from domainbert.tokenization.words import WordCounter, normalized_words

_ASCII = frozenset(map(chr, range(33, 127)))
MIN_CHARACTER_COUNT = 10


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
        sample_bytes: the most bytes of text to train on; of more, a sample by hash.
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
    counts, infrequent = most_frequent({word: words[word] for word in words.keys() - long - rare})
    return TrainingWords(
        counts=counts,
        alphabet=sorted(alphabet),
        rare_characters={character: characters[character] for character in ranked[len(frequent) :]},
        rare_words=sum(words[word] for word in rare),
        infrequent_words=infrequent,
        long_words=sum(words[word] for word in long),
    )


def train_on_words(words: TrainingWords, vocab_size: int, lowercase: bool, min_frequency: int) -> Tokenizer:
    """Train a BERT tokenizer on counted words; `train.learn` says what can go wrong.

    The ids are those of the special tokens, the characters, the `##` characters, and the pieces as they were learnt.
    """
    seeds = [*SPECIAL_TOKENS.values(), *words.alphabet, *_continuing(words.alphabet, lowercase)]
    learner = Tokenizer(WordPiece({}, unk_token=SPECIAL_TOKENS["unk_token"]))
    trainer = partial(WordPieceTrainer, continuing_subword_prefix=PREFIX)
    pieces = tokens_by_id(learn(learner, trainer, words, seeds, vocab_size, min_frequency))
    return bert_backend({piece: number for number, piece in enumerate(pieces)}, {"do_lower_case": lowercase})


def _continuing(alphabet: Iterable[str], lowercase: bool) -> list[str]:
    """`##c` for each character that can stand inside a word: punctuation and Chinese characters never do."""
    cut = normalized_words(bert_backend({}, {"do_lower_case": lowercase}))
    return [PREFIX + character for character in alphabet if cut(f"a{character}") == [f"a{character}"]]
