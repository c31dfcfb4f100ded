"""Whole words: counting them, recognising their vocabularies, and writing them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import WordLevel

from domainbert.tokenization.kind import Pieces, Surface, TokenizerKind
from domainbert.tokenization.train import TrainingWords
from domainbert.tokenization.words import WordCounter


class Words(Pieces):
    """Each entry is a word, and begins one."""

    def surface(self, token: str) -> Surface | None:
        """See `Pieces.surface`."""
        return Surface(token, True) if token else None

    def spell(self, surface: Surface) -> list[int]:
        """See `Pieces.spell`."""
        return [piece.id for piece in self.backend.model.tokenize(surface.text)]


class WholeWordsKind(TokenizerKind):
    """Words between spaces, with special tokens that are called as nowhere else."""

    name = "whole words"
    special_tokens: Mapping[str, str] = {
        "pad_token": "<nothing>",
        "mask_token": "<hidden>",
        "cls_token": "<text>",
        "sep_token": "<end>",
        "unk_token": "<other>",
    }
    lowercases = False

    def accepts(self, backend: Tokenizer) -> bool:
        """See `TokenizerKind.accepts`."""
        return isinstance(backend.model, WordLevel)

    def select(self, counter: WordCounter, lowercase: bool, min_character_count: int) -> TrainingWords:
        """See `TokenizerKind.select`."""
        return TrainingWords(dict(counter.words(str.split)), [])

    def train(self, words: TrainingWords, vocab_size: int, lowercase: bool, min_frequency: int) -> Tokenizer:
        """See `TokenizerKind.train`."""
        entries = [*self.special_tokens.values(), *sorted(words.counts, key=lambda word: (-words.counts[word], word))]
        vocab = {token: number for number, token in enumerate(entries[:vocab_size])}
        backend = Tokenizer(WordLevel(vocab, self.special_tokens["unk_token"]))
        backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        backend.add_special_tokens([AddedToken(token, special=True) for token in self.special_tokens.values()])
        return backend

    def pieces(self, backend: Tokenizer) -> Pieces:
        """See `TokenizerKind.pieces`."""
        return Words(backend)

    def word_splitter(self, backend: Tokenizer) -> Callable[[str], list[str]]:
        """See `TokenizerKind.word_splitter`."""
        return str.split

    def hugging_face_config(self, backend: Tokenizer, special_tokens: Mapping[str, str]) -> dict[str, Any]:
        """See `TokenizerKind.hugging_face_config`."""
        return {"tokenizer_class": "PreTrainedTokenizerFast"}

    def decoder(self, backend: Tokenizer) -> decoders.Decoder:
        """See `TokenizerKind.decoder`."""
        return decoders.Fuse()
