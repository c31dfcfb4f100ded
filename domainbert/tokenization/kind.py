"""Kinds of vocabulary (WordPiece, byte-level BPE, Unigram): their interface, and a list of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tokenizers import Encoding, Tokenizer, decoders, processors

from domainbert.base.choices import choices_of, concrete_subclasses
from domainbert.tokenization.config import TokenizerKindConfig
from domainbert.tokenization.special_tokens import usual_special_tokens
from domainbert.tokenization.template import Template, bert_template
from domainbert.tokenization.train import TrainingWords
from domainbert.tokenization.words import WordCounter

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Bools: TypeAlias = "NDArray[np.bool_]"
MAX_WORD_PIECES = 16  # a longer run of pieces without a space, as in Thai, counts as several words


class Surface(NamedTuple):
    """Text and role of an entry."""

    text: str  # without "##", "Ġ" or "▁"
    starts_word: bool  # or continues one


class Pieces(ABC):
    """Text of the entries of one vocabulary, whose tokenizer is `backend`, and its marks of words."""

    reads_pretokens = True
    """Whether `word_starts` needs `word_ids` and `offsets` of an encoding; its ids are read faster alone."""

    def __init__(self, backend: Tokenizer) -> None:
        self.backend = backend

    @cached_property
    def begins_word(self) -> Bools | None:
        """(vocab_size,) Whether each entry begins a pre-token, if these are the words of `align.basic_words` and the
        entry alone says so; else None, and `word_starts` decides."""
        return None

    def word_starts(self, text: str, encoding: Encoding) -> Bools:
        """(pieces,) Whether each piece of a text begins a word: pre-tokens, unless a kind knows better."""
        import numpy as np  # a recipe is checked without it

        return np.diff(np.asarray(encoding.word_ids, dtype=np.int64), prepend=-1) != 0

    def _cap(self, starts: Bools, may_start: Bools) -> None:
        """Let a word of more than 16 pieces be several, in place: both are (pieces,), and the next one begins with the
        first piece that may."""
        import numpy as np

        firsts = np.flatnonzero(starts)
        sizes = np.diff(firsts, append=len(starts))
        for first, size in zip(firsts[sizes > MAX_WORD_PIECES], sizes[sizes > MAX_WORD_PIECES], strict=True):
            last = first
            for place in range(first + 1, first + size):
                if place - last >= MAX_WORD_PIECES and may_start[place]:
                    starts[place] = True
                    last = place

    @abstractmethod
    def surface(self, token: str) -> Surface | None:
        """Text and role of an entry; None where it is no text by itself."""

    @abstractmethod
    def spell(self, surface: Surface) -> list[int]:
        """The ids of the entries that spell a surface in its role; unknown parts may be among them."""

    def fold(self, text: str) -> str:
        """The text as the vocabulary sees it: lowercased, without accents, or as it is."""
        normalizer = self.backend.normalizer
        return (text if normalizer is None else str(normalizer.normalize_str(text))).strip()

    def shown(self, token: str) -> str:
        """An entry to read, in a report."""
        return token

    def inside_text(self, word: str) -> str:
        """A word as it stands in the middle of a text, to be encoded by itself."""
        return word


class TokenizerKind(ABC):
    """A kind of vocabulary: how it is trained, read, written and extended, and how it marks words."""

    name: str  # in messages
    special_tokens: Mapping[str, str]
    """Role (`pad_token`, ...) to the token's string in what it trains, in the order of their ids."""
    lowercases: bool  # whether a vocabulary of this kind is uncased unless it is told

    @abstractmethod
    def accepts(self, backend: Tokenizer) -> bool:
        """Whether a tokenizer is of this kind."""

    @abstractmethod
    def select(self, counter: WordCounter, lowercase: bool, min_character_count: int) -> TrainingWords:
        """The words to train on, perhaps lowercased and without accents. A character must occur `min_character_count`
        times to get a piece, where it has none by itself."""

    @abstractmethod
    def train(self, words: TrainingWords, vocab_size: int, lowercase: bool, min_frequency: int) -> Tokenizer:
        """Train on counted words, as `train.learn` does; the bytes depend on the arguments only."""

    @abstractmethod
    def pieces(self, backend: Tokenizer) -> Pieces:
        """The entries of a vocabulary of this kind as text."""

    @abstractmethod
    def cutter(self, backend: Tokenizer) -> Callable[[str], list[str]]:
        """Cuts a string between spaces into words, as `select` does, so that they can be counted and extended by."""

    @abstractmethod
    def hugging_face_config(self, backend: Tokenizer, special_tokens: Mapping[str, str]) -> dict[str, Any]:
        """Content of `tokenizer_config.json` beside the special tokens: `tokenizer_class` and its settings, with which
        `transformers` gives the ids that are given here."""

    def special_tokens_of(self, backend: Tokenizer) -> dict[str, str]:
        """Role to special token of a tokenizer of this kind, where its folder does not say."""
        return usual_special_tokens(backend.get_vocab(with_added_tokens=True), self.special_tokens)

    def template(self, cls_id: int, sep_id: int) -> Template:
        """The special tokens around texts, where the tokenizer does not say."""
        return bert_template(cls_id, sep_id)

    def read(self, folder: Path, config: Mapping[str, Any], named: Mapping[str, str]) -> Tokenizer | None:
        """The tokenizer of a folder without a `tokenizer.json`; None where there is none of this kind. `config` is its
        `tokenizer_config.json`, `named` role to special token, as far as the folder says."""
        return None

    def configure(self, backend: Tokenizer, config: Mapping[str, Any]) -> None:
        """Change a tokenizer that a `tokenizer.json` describes as transformers does by `tokenizer_config.json`."""
        return None

    def other_files(self, backend: Tokenizer) -> dict[str, str]:
        """Further files of a folder, name to content, beside `tokenizer.json` and `tokenizer_config.json`."""
        return {}

    def post_processor(self, template: Template, tokens: Sequence[str]) -> processors.PostProcessor:
        """The post-processor of `tokenizer.json` for the template."""
        return template.processor(tokens)

    @abstractmethod
    def decoder(self, backend: Tokenizer) -> decoders.Decoder:
        """The decoder of `tokenizer.json`, from pieces to text."""

    def entry(self, word: str) -> str:
        """The entry of a whole word that `cutter` gave."""
        return word

    def extend(self, backend: Tokenizer, model: dict[str, Any], entries: Mapping[str, int]) -> None:
        """Add entries of whole words to `model`, the one in the `tokenizer.json` of `backend`, and with their ids the
        added tokens that the model lacks; a text without such a word keeps its ids."""
        model["vocab"] |= {**backend.get_vocab(with_added_tokens=True), **entries}


def known_kinds() -> list[TokenizerKind]:
    """Every kind in the order of their names, those of packages that `--allow-import` names first."""
    choices_of(TokenizerKindConfig)  # imports ours
    kinds = concrete_subclasses(TokenizerKindConfig)
    kinds = sorted(kinds, key=lambda kind: (kind.__module__.startswith("domainbert."), kind.__name__))
    return [kind().build() for kind in kinds]


def expected_kinds(*more: str) -> str:
    """The kinds and what else would be right, for a message: "byte-level BPE, Unigram or WordPiece"."""
    *first, last = [*(kind.name for kind in known_kinds()), *more]
    return f"{', '.join(first)} or {last}"


def kind_of(backend: Tokenizer) -> TokenizerKind | None:
    """The kind of a tokenizer; None if it is of another one."""
    return next((kind for kind in known_kinds() if kind.accepts(backend)), None)
