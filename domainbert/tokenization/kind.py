"""Interface of the kinds of vocabulary (WordPiece, byte-level BPE, Unigram), and a list of all kinds.

The entries of a vocabulary are called pieces. The role of a piece is whether it begins or continues a word.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tokenizers import AddedToken, Encoding, Tokenizer, decoders, processors
from typing_extensions import override

from domainbert.base.choices import choices_of, concrete_subclasses
from domainbert.tokenization.config import TokenizerKindConfig
from domainbert.tokenization.special_tokens import Template, bert_template, usual_special_tokens
from domainbert.tokenization.train import TrainingWords
from domainbert.tokenization.words import WordCounter

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Bools: TypeAlias = "NDArray[np.bool_]"
MAX_WORD_PIECES = 16  # a longer run of pieces without a space, as in Thai, is split into several words
META_SPACE = "\u2581"  # "▁", for the space before a word in sentencepiece: "▁bank"


class Surface(NamedTuple):
    """Text and role of an entry, without the marks of its kind of vocabulary."""

    text: str  # without "##", "Ġ" or "▁"
    starts_word: bool  # False: continues a word


class Pieces(ABC):
    """Texts of the entries of one vocabulary, and which of them begin words."""

    reads_pretokens = True
    """Whether `word_starts` needs `word_ids` and `offsets` of an encoding; encoding without them is faster."""

    def __init__(self, backend: Tokenizer) -> None:
        self.backend = backend

    def word_starts(self, text: str, encoding: Encoding) -> Bools:
        """Return whether each piece of a text begins a word, (pieces,). Default: words are pre-tokens, so
        a piece begins a word if its pre-token is not the pre-token of the piece before it."""
        import numpy as np  # imported here because checks of recipes do not need it

        # -1 is no pre-token, so the first piece begins a word
        return np.diff(np.asarray(encoding.word_ids, dtype=np.int64), prepend=-1) != 0

    def _split_long_words(self, starts: Bools, may_start: Bools) -> None:
        """Split words of more than 16 pieces, in place: after 16 pieces, a new word starts at the next piece that may
        start a word. `starts` (pieces,) is True for the first piece of each word, `may_start` (pieces,) for each piece
        that may start a word."""
        import numpy as np

        firsts = np.flatnonzero(starts)
        sizes = np.diff(firsts, append=len(starts))  # pieces of each word
        is_long = sizes > MAX_WORD_PIECES
        for first, size in zip(firsts[is_long], sizes[is_long], strict=True):
            word_start = first
            for index in range(first + 1, first + size):
                if index - word_start >= MAX_WORD_PIECES and may_start[index]:
                    starts[index] = True
                    word_start = index

    @abstractmethod
    def surface(self, token: str) -> Surface | None:
        """Return the text and role of an entry; None if it has no text, such as part of a character."""

    def starts_word(self, surface: Surface) -> bool:
        """Whether texts contain a surface at the start of a word; by default `surface.starts_word`."""
        return surface.starts_word

    @abstractmethod
    def spell(self, surface: Surface) -> list[int]:
        """Return the ids of the entries that spell a surface in its role, unknown parts included."""

    def fold(self, text: str) -> str:
        """Return a text as the vocabulary normalises it, without white space at both ends. An uncased vocabulary
        lowercases it."""
        normalizer = self.backend.normalizer
        return (text if normalizer is None else str(normalizer.normalize_str(text))).strip()

    def readable(self, token: str) -> str:
        """Return the readable form of an entry, for reports. Default: the entry itself."""
        return token

    def inside_text(self, word: str) -> str:
        """Return the string to encode so that a word gets the pieces that it has in the middle of a text: with a space
        before it, or (default) the word alone."""
        return word


class MarkedPieces(Pieces):
    """Entries of a vocabulary in which entries that begin a word begin with "▁"."""

    @override
    def surface(self, token: str) -> Surface | None:
        text = token.removeprefix(META_SPACE)
        return Surface(text, token.startswith(META_SPACE)) if text else None

    @override
    def spell(self, surface: Surface) -> list[int]:
        text = META_SPACE + surface.text if surface.starts_word else surface.text
        return [token.id for token in self.backend.model.tokenize(text)]

    @override
    def fold(self, text: str) -> str:
        return super().fold(text).removeprefix(META_SPACE)

    @override
    def inside_text(self, word: str) -> str:
        return f" {word}"


class TokenizerKind(ABC):
    """A kind of vocabulary: training, reading, writing and extending it, and its marks of words."""

    name: str  # of the kind, in messages
    special_tokens: Mapping[str, str]
    """Role (`pad_token`, ...) to special token of trained vocabularies, in the order of their ids."""
    lowercases: bool  # default of `lowercase` in training

    @abstractmethod
    def accepts(self, backend: Tokenizer) -> bool:
        """Whether a tokenizer is of this kind."""

    @abstractmethod
    def select(self, counter: WordCounter, lowercase: bool, min_character_count: int) -> TrainingWords:
        """Return the normalised words to train on. A character must occur `min_character_count` times to become a
        piece, unless the kind has a piece for every character."""

    @abstractmethod
    def train(self, words: TrainingWords, vocab_size: int, lowercase: bool, min_frequency: int) -> Tokenizer:
        """Return a tokenizer trained on counted words; its bytes depend only on the arguments. Raise `DomainbertError`
        if there are no words, or if they need more or yield fewer than `vocab_size` entries."""

    @abstractmethod
    def pieces(self, backend: Tokenizer) -> Pieces:
        """Return the texts of the entries of a vocabulary of this kind."""

    @abstractmethod
    def word_splitter(self, backend: Tokenizer) -> Callable[[str], list[str]]:
        """Return a function that splits a string of `WordCounter` into words, as `select` does."""

    @abstractmethod
    def hugging_face_config(self, backend: Tokenizer, special_tokens: Mapping[str, str]) -> dict[str, Any]:
        """Return `tokenizer_class` and its settings for `tokenizer_config.json`, with which transformers produces the
        same ids."""

    def special_tokens_of(self, backend: Tokenizer) -> dict[str, str]:
        """Return the special token of each role, for a folder that does not name them."""
        return usual_special_tokens(backend.get_vocab(with_added_tokens=True), self.special_tokens)

    def template(self, cls_id: int, sep_id: int) -> Template:
        """Return the template for a tokenizer that defines none. Default: BERT's."""
        return bert_template(cls_id, sep_id)

    def read(self, folder: Path, config: Mapping[str, Any], named: Mapping[str, str]) -> Tokenizer | None:
        """Return the tokenizer of a folder without a `tokenizer.json`; None if it has no tokenizer of this kind.
        `config` is the content of `tokenizer_config.json`, `named` maps roles to the special tokens that the folder
        names."""
        return None

    def configure(self, backend: Tokenizer, config: Mapping[str, Any]) -> None:
        """Change `backend` by the settings in `config` that override `tokenizer.json` in transformers. Default:
        change nothing."""
        return None

    def other_files(self, backend: Tokenizer) -> dict[str, str]:
        """Return further files to write into the folder of the tokenizer: name to content. Default: none."""
        return {}

    def post_processor(self, template: Template, tokens: Sequence[str]) -> processors.PostProcessor:
        """Return the post-processor of `tokenizer.json` for a template; `tokens` are the entries by id."""
        return template.processor(tokens)

    @abstractmethod
    def decoder(self, backend: Tokenizer) -> decoders.Decoder:
        """Return the decoder of `tokenizer.json`, from pieces to text."""

    def entry(self, word: str) -> str:
        """Return the entry for a whole word of `word_splitter`, such as "▁bank" for " bank"."""
        return word

    def extend(self, backend: Tokenizer, model: dict[str, Any], entries: Mapping[str, int]) -> None:
        """Add entries of whole words (entry to id) to `model`, the model in the `tokenizer.json` of `backend`.

        The added tokens of `backend` become entries of `model`, too. The ids of texts that do not contain the new words
        or longer words with them do not change.
        """
        model["vocab"] |= {**backend.get_vocab(with_added_tokens=True), **entries}


def added_special_tokens(special_tokens: Mapping[str, str]) -> list[AddedToken]:
    """Return special tokens, given by role, as added tokens.

    In "a <mask>", the mask takes the space before it (`lstrip`), as in published models: the piece that it replaces
    includes this space.
    """
    return [
        AddedToken(token, special=True, normalized=False, lstrip=role == "mask_token")
        for role, token in special_tokens.items()
    ]


def registered_kinds(model: str | None = None) -> list[TokenizerKind]:
    """Return all kinds, or the kinds whose tokenizers may have this `model` (a class name of `tokenizers.models`).

    The kinds are sorted by name, with kinds of imported user packages first.
    """
    choices_of(TokenizerKindConfig)  # imports the kinds of this package
    configs = concrete_subclasses(TokenizerKindConfig)
    # user packages first: False sorts before True
    configs = sorted(configs, key=lambda config: (config.__module__.startswith("domainbert."), config.__name__))
    return [config().build() for config in configs if model is None or config.model in (None, model)]


def expected_kinds(*more: str) -> str:
    """Format the names of all kinds, and of `more`, for a message: "byte-level BPE, Unigram or WordPiece"."""
    *first, last = [*(kind.name for kind in registered_kinds()), *more]
    return f"{', '.join(first)} or {last}"


def kind_of(backend: Tokenizer) -> TokenizerKind | None:
    """Return the kind of a tokenizer, or None if no kind accepts it."""
    return next((kind for kind in registered_kinds(type(backend.model).__name__) if kind.accepts(backend)), None)


def tokens_by_id(backend: Tokenizer) -> list[str]:
    """Return the vocabulary, added tokens included, in the order of its ids; "" for an unused id."""
    tokens = {token_id: token for token, token_id in backend.get_vocab(with_added_tokens=True).items()}
    return [tokens.get(token_id, "") for token_id in range(max(tokens, default=-1) + 1)]
