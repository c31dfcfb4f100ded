"""Byte-level BPE: merges of bytes (Radford et al. 2019, section 2.2), with the special tokens of RoBERTa by default.

A text is split into pre-tokens: words, numbers and runs of other signs, each with the space before it, and white space.
A space is added at the beginning of a text (`add_prefix_space`), so that a word has the same pieces there as after a
space; after a line break it has other pieces.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Encoding, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer
from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.tokenization.kind import Bools, Pieces, Surface, TokenizerKind, added_special_tokens, tokens_by_id
from domainbert.tokenization.special_tokens import (
    Template,
    entries_by_id,
    roberta_template,
    special_roles,
    usual_template,
)
from domainbert.tokenization.train import TrainingWords, most_frequent, train_backend
from domainbert.tokenization.words import WordCounter, count_words

_SPACE = "\u0120"  # the character for the byte of a space
_ROBERTA_CLASS = "RobertaTokenizer"


def byte_bpe_backend(
    vocab: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    special_tokens: Mapping[str, str],
    lowercase: bool = False,
    add_prefix_space: bool = True,
) -> Tokenizer:
    """Build a byte-level BPE tokenizer from a vocabulary (entry, with bytes as characters, to id).

    Merges are pairs of entries by priority. `lowercase` also strips accents; `add_prefix_space` adds a space to texts
    that begin without a space.
    """
    backend = Tokenizer(BPE(dict(vocab), list(merges)))
    if lowercase:
        backend.normalizer = normalizers.BertNormalizer(
            clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=True
        )
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    # a token that is missing in `vocab` would get a new id
    present = {role: token for role, token in special_tokens.items() if not vocab or token in vocab}
    backend.add_special_tokens(added_special_tokens(present))
    return backend


class _BytePieces(Pieces):
    """Entries whose characters represent bytes; an entry that begins a word begins with a space."""

    def word_starts(self, text: str, encoding: Encoding) -> Bools:
        """Return whether each piece begins a word, (pieces,).

        Words are pre-tokens, with two exceptions: a combining mark, and the letters after it, continue a word; after 16
        pieces of a word, the next piece that begins a character begins a new word.
        """
        import numpy as np  # imported here because checks of recipes do not need it

        starts = super().word_starts(text, encoding)
        if not text.isascii() and any(unicodedata.category(character)[0] == "M" for character in set(text)):
            offsets = encoding.offsets
            for piece in np.flatnonzero(starts).tolist():
                starts[piece] = not _continues_word(text, offsets[piece][0])
        self._split_long_words(starts, may_start=~self._begins_inside_character[encoding.ids])
        return starts

    @cached_property
    def _begins_inside_character(self) -> Bools:
        """Whether each entry begins with a continuation byte of UTF-8, (vocab_size,)."""
        import numpy as np

        first_bytes = (_BYTE_OF_CHARACTER.get(token[:1], 0) for token in tokens_by_id(self.backend))
        return np.asarray([0x80 <= byte < 0xC0 for byte in first_bytes], dtype=np.bool_)

    def surface(self, token: str) -> Surface | None:
        text = _decode_entry(token.removeprefix(_SPACE))
        return Surface(text, token.startswith(_SPACE)) if text else None

    def spell(self, surface: Surface) -> list[int]:
        text = f" {surface.text}" if surface.starts_word else surface.text
        word = normalizers.ByteLevel().normalize_str(text)
        return [token.id for token in self.backend.model.tokenize(word)]

    def fold(self, text: str) -> str:
        # a ByteLevel normalizer only replaces bytes by characters, which is undone in `surface`
        is_bytes = isinstance(self.backend.normalizer, normalizers.ByteLevel)
        return text.strip() if is_bytes else super().fold(text)

    def readable(self, token: str) -> str:
        """Return the text of an entry, with "Ġ" for the space before a word; part of a character stays unchanged."""
        text = _decode_entry(token)
        if not text.strip():
            return token
        return f"{_SPACE}{text[1:]}" if text.startswith(" ") else text

    def inside_text(self, word: str) -> str:
        return f" {word}"


class ByteBPEKind(TokenizerKind):
    """Byte-level BPE; `special_tokens` as in `special_tokens.special_roles`."""

    name = "byte-level BPE"
    lowercases = False

    def __init__(self, special_tokens: Sequence[str]) -> None:
        self.special_tokens = special_roles(special_tokens)
        self._order = list(special_tokens)

    @override
    def accepts(self, backend: Tokenizer) -> bool:
        return isinstance(backend.model, BPE) and backend.token_to_id(_SPACE) is not None

    def select(self, counter: WordCounter, lowercase: bool, min_character_count: int) -> TrainingWords:
        """Return all words, with bytes as characters: every byte is a piece, so no character is rare."""
        words = counter.words(self.word_splitter(byte_bpe_backend({}, [], self.special_tokens, lowercase)))
        counts, infrequent = most_frequent(count_words(words, lambda word: [self.entry(word)]))
        return TrainingWords(counts, sorted(pre_tokenizers.ByteLevel.alphabet()), infrequent_words=infrequent)

    def train(self, words: TrainingWords, vocab_size: int, lowercase: bool, min_frequency: int) -> Tokenizer:
        """Return a trained tokenizer; ids are the bytes, then the pieces as learned, with the special tokens at their
        positions."""
        special = self.special_tokens.values()
        tokenizer = train_backend(
            Tokenizer(BPE()), BpeTrainer, words, [*special, *words.alphabet], vocab_size, min_frequency
        )
        pieces = tokens_by_id(tokenizer)[len(special) :]  # the special tokens are first
        entries = entries_by_id(self._order, pieces)
        vocab = {entry: token_id for token_id, entry in enumerate(entries)}
        merges = [(first, second) for first, second in json.loads(tokenizer.to_str())["model"]["merges"]]
        backend = byte_bpe_backend(vocab, merges, self.special_tokens, lowercase)
        backend.post_processor = self.post_processor(usual_template(self.special_tokens, vocab), entries)
        return backend

    @override
    def pieces(self, backend: Tokenizer) -> Pieces:
        return _BytePieces(backend)

    def word_splitter(self, backend: Tokenizer) -> Callable[[str], list[str]]:
        """Return a function that splits a string, which begins with white space, into the texts of the pre-tokens that
        it has inside a text."""
        normalizer, pre_tokenize = backend.normalizer, backend.pre_tokenizer.pre_tokenize_str

        def split(string: str) -> list[str]:
            text = f"a{string}"  # a pre-token before the string, so that `add_prefix_space` changes nothing in it
            text = text if normalizer is None else normalizer.normalize_str(text)
            return [text[start:stop] for _, (start, stop) in pre_tokenize(text)[1:]]

        return split

    def read(self, folder: Path, config: Mapping[str, Any], named: Mapping[str, str]) -> Tokenizer | None:
        """Return the tokenizer of `vocab.json` and `merges.txt`; None if a file is missing. As in transformers,
        `add_prefix_space` is false by default."""
        files = folder / "vocab.json", folder / "merges.txt"
        if not all(path.is_file() for path in files):
            return None
        try:
            vocab, merges = BPE.read_file(*map(str, files))
            special_tokens = {**self.special_tokens, **named}
            add_prefix_space = bool(config.get("add_prefix_space", False))
            return byte_bpe_backend(vocab, merges, special_tokens, add_prefix_space=add_prefix_space)
        except Exception as error:  # the Rust side raises a plain Exception
            raise DomainbertError(
                f"vocab.json and merges.txt are not a byte-level BPE ({error})", file=folder
            ) from error

    @override
    def configure(self, backend: Tokenizer, config: Mapping[str, Any]) -> None:
        """Use `add_prefix_space` of `config` (default: false), if `config` names RoBERTa's class: for this class,
        transformers ignores the value in `tokenizer.json`."""
        default_name = _ROBERTA_CLASS if "add_prefix_space" in config else ""  # a folder may name no class
        name = str(config.get("tokenizer_class", default_name)).removesuffix("Fast")
        if name == _ROBERTA_CLASS and isinstance(backend.pre_tokenizer, pre_tokenizers.ByteLevel):
            backend.pre_tokenizer.add_prefix_space = bool(config.get("add_prefix_space", False))

    def hugging_face_config(self, backend: Tokenizer, special_tokens: Mapping[str, str]) -> dict[str, Any]:
        """Return settings with a class that reads everything from `tokenizer.json`: RoBERTa's class would replace the
        normalizer and the pre-tokenizer."""
        config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
        config["model_input_names"] = ["input_ids", "attention_mask"]  # byte-level families have one token type
        if isinstance(backend.pre_tokenizer, pre_tokenizers.ByteLevel):  # transformers 4 ignores tokenizer.json here
            config["add_prefix_space"] = backend.pre_tokenizer.add_prefix_space
        return config

    @override
    def template(self, cls_id: int, sep_id: int) -> Template:
        return roberta_template(cls_id, sep_id)

    def post_processor(self, template: Template, tokens: Sequence[str]) -> processors.PostProcessor:
        """Return the post-processor of a template, with offsets that exclude the space before a word."""
        return processors.Sequence([processors.ByteLevel(trim_offsets=True), template.processor(tokens)])

    @override
    def decoder(self, backend: Tokenizer) -> decoders.Decoder:
        return decoders.ByteLevel()

    @override
    def entry(self, word: str) -> str:
        return str(normalizers.ByteLevel().normalize_str(word))

    @override
    def extend(self, backend: Tokenizer, model: dict[str, Any], entries: Mapping[str, int]) -> None:
        """Add entries to `model` without merges, and set `ignore_merges`: a pre-token that is an entry is not split."""
        super().extend(backend, model, entries)
        model["ignore_merges"] = True


def _continues_word(text: str, position: int) -> bool:
    """Whether a combining mark connects the character at `position` with the previous character."""
    if not 0 < position < len(text) or text[position - 1].isspace():
        return False
    previous, current = (unicodedata.category(text[index])[0] for index in (position - 1, position))
    return current == "M" or (previous == "M" and current == "L")  # combining mark, letter


def _character_bytes() -> dict[str, int]:
    """Return the byte that each character represents (Radford et al. 2019, `bytes_to_unicode`): its code point, or for
    the characters from 256 on, one of the bytes that are not printable."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + rank): byte for rank, byte in enumerate(others)}


_BYTE_OF_CHARACTER = _character_bytes()


def _decode_entry(token: str) -> str:
    try:
        return bytes(_BYTE_OF_CHARACTER[character] for character in token).decode("utf-8")
    except (KeyError, UnicodeDecodeError):
        return ""  # part of a character
