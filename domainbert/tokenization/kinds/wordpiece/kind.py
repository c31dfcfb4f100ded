"""WordPiece: BERT's tokenizer, its folder and its marks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer, decoders
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer

from domainbert.base.errors import DomainbertError
from domainbert.tokenization.bert import SPECIAL_TOKENS, bert_backend, tokens_by_id
from domainbert.tokenization.kind import Pieces, Surface, TokenizerKind
from domainbert.tokenization.kinds.wordpiece.train import select_words, train_on_words
from domainbert.tokenization.template import bert_template, template_of
from domainbert.tokenization.train import TrainingWords
from domainbert.tokenization.words import WordCounter, normalized_words

if TYPE_CHECKING:
    from domainbert.tokenization.kind import Bools


class WordPieces(Pieces):
    """Pieces that continue a word are marked, by "##" as a rule."""

    @property
    def _prefix(self) -> str:
        return str(self.backend.model.continuing_subword_prefix)

    @cached_property
    def begins_word(self) -> Bools | None:
        """See `Pieces.begins_word`: what is not marked does."""
        import numpy as np  # a recipe is checked without it

        surfaces = map(self.surface, tokens_by_id(self.backend))
        return np.asarray([surface is None or surface.starts_word for surface in surfaces], dtype=np.bool_)

    def surface(self, token: str) -> Surface | None:
        """See `Pieces.surface`."""
        inside = token.startswith(self._prefix) and len(token) > len(self._prefix)
        return Surface(token.removeprefix(self._prefix) if inside else token, not inside) if token else None

    def spell(self, surface: Surface) -> list[int]:
        """See `Pieces.spell`."""
        model = self.backend.model if surface.starts_word else self._inner
        return [token.id for token in model.tokenize(surface.text)]

    @cached_property
    def _inner(self) -> WordPiece:
        """A model of the continuing pieces alone, without their prefix: it cuts the inside of a word as they do."""
        prefix, unknown = self._prefix, self.backend.model.unk_token
        ids = self.backend.get_vocab(with_added_tokens=False)
        inner = {token.removeprefix(prefix): number for token, number in ids.items() if token.startswith(prefix)}
        inner = {token: number for token, number in inner.items() if token and token != unknown}
        if unknown in ids:
            inner[unknown] = ids[unknown]
        return WordPiece(inner, unk_token=unknown, continuing_subword_prefix="")


class WordPieceKind(TokenizerKind):
    """BERT's kind."""

    name = "WordPiece"
    special_tokens = SPECIAL_TOKENS
    lowercases = True

    def accepts(self, backend: Tokenizer) -> bool:
        """See `TokenizerKind.accepts`."""
        return isinstance(backend.model, WordPiece)

    def select(self, counter: WordCounter, lowercase: bool, min_character_count: int) -> TrainingWords:
        """See `TokenizerKind.select`."""
        return select_words(counter, lowercase, min_character_count)

    def train(self, words: TrainingWords, vocab_size: int, lowercase: bool, min_frequency: int) -> Tokenizer:
        """See `TokenizerKind.train`."""
        return train_on_words(words, vocab_size, lowercase, min_frequency)

    def pieces(self, backend: Tokenizer) -> Pieces:
        """See `TokenizerKind.pieces`."""
        return WordPieces(backend)

    def cutter(self, backend: Tokenizer) -> Callable[[str], list[str]]:
        """See `TokenizerKind.cutter`."""
        return normalized_words(backend)

    def read(self, folder: Path, config: Mapping[str, Any], named: Mapping[str, str]) -> Tokenizer | None:
        """Read `vocab.txt` as transformers does: `do_lower_case` is true unless `tokenizer_config.json` says false.

        The oldest checkpoints have no `tokenizer_config.json`; then the vocabulary itself says it, because an uncased
        one never holds a capital letter.
        """
        path = folder / "vocab.txt"
        if not path.is_file():
            return None
        vocab = _read_vocab(path)
        return bert_backend(vocab, config or {"do_lower_case": not _is_cased(vocab)}, {**SPECIAL_TOKENS, **named})

    def hugging_face_config(self, backend: Tokenizer, special_tokens: Mapping[str, str]) -> dict[str, Any]:
        """BERT's class builds all but the vocabulary anew from these settings. Where that would give other ids than
        `tokenizer.json`, a class that takes all from there."""
        normalizer = backend.normalizer
        if isinstance(normalizer, BertNormalizer):
            settings = {
                "do_lower_case": normalizer.lowercase,
                "strip_accents": normalizer.strip_accents,
                "tokenize_chinese_chars": normalizer.handle_chinese_chars,
            }
            ids = backend.get_vocab()
            frame = bert_template(ids[special_tokens["cls_token"]], ids[special_tokens["sep_token"]])
            same = _settings(bert_backend({}, settings, special_tokens)) == _settings(backend)
            if same and template_of(backend) == frame:
                return {"tokenizer_class": "BertTokenizer", **settings}
        inputs = ["input_ids", "token_type_ids", "attention_mask"]  # BERT's class has them by itself
        return {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": inputs}

    def other_files(self, backend: Tokenizer) -> dict[str, str]:
        """The pieces, a line each."""
        return {"vocab.txt": "".join(f"{token}\n" for token in tokens_by_id(backend))}

    def decoder(self, backend: Tokenizer) -> decoders.Decoder:
        """See `TokenizerKind.decoder`."""
        return decoders.WordPiece(prefix=backend.model.continuing_subword_prefix)


def _settings(backend: Tokenizer) -> list[Any]:
    """All that decides the ids of a text but the entries."""
    state = json.loads(backend.to_str())
    return [state["normalizer"], state["pre_tokenizer"], {**state["model"], "vocab": {}}]


def _is_cased(vocab: Mapping[str, int]) -> bool:
    """Whether an entry other than "[UNK]" and its like holds a capital letter."""
    return any(token != token.lower() for token in vocab if not (token.startswith("[") and token.endswith("]")))


def _read_vocab(path: Path) -> dict[str, int]:
    """Piece to id, which is the number of its line counted from 0."""
    try:
        # not splitlines(), which also breaks at U+2028 and other characters that may be pieces
        lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise DomainbertError(f"{path}: not UTF-8: {error}") from error
    vocab: dict[str, int] = {}
    for number, token in enumerate(lines, 1):
        if token in vocab:
            raise DomainbertError(
                f"{path}:{number}: {token!r} is in line {vocab[token] + 1} too; expected each piece once"
            )
        vocab[token] = number - 1
    return vocab
