"""Byte-level BPE: merges of bytes (Radford et al. 2019, section 2.2), with the special tokens of RoBERTa unless told.

A text is cut into pre-tokens: a word, a number or a run of signs, each with the space before it, and white space by
itself. What is learnt from a corpus, what is read of it and what stands in labelled files all has that space, because
the beginning of a text gets one too (`add_prefix_space`).
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Encoding, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer
from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.tokenization.bert import tokens_by_id
from domainbert.tokenization.kind import Bools, Pieces, Surface, TokenizerKind
from domainbert.tokenization.special_tokens import ids_in_order, special_roles
from domainbert.tokenization.template import Template, roberta_template, usual_template
from domainbert.tokenization.train import TrainingWords, learn, most_frequent
from domainbert.tokenization.words import WordCounter, count_words

_SPACE = "\u0120"  # how the byte of a space is written


def byte_bpe_backend(
    vocab: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    special_tokens: Mapping[str, str],
    lowercase: bool = False,
    add_prefix_space: bool = True,
) -> Tokenizer:
    """A byte-level BPE tokenizer over a vocabulary: entry, its bytes as characters, to id.

    Merges are pairs of entries, those merged first at the beginning. `lowercase` strips accents, too; with
    `add_prefix_space` a text that begins without a space gets one.
    """
    backend = Tokenizer(BPE(dict(vocab), list(merges)))
    if lowercase:
        backend.normalizer = normalizers.BertNormalizer(
            clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=True
        )
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    backend.add_special_tokens(
        [  # "a <mask>" takes the space, as in RoBERTa: what is hidden there begins with it
            AddedToken(token, special=True, normalized=False, lstrip=role == "mask_token")
            for role, token in special_tokens.items()
            if not vocab or token in vocab
        ]
    )
    return backend


class _BytePieces(Pieces):
    """Pieces that begin a word begin with a space, and each character stands for a byte."""

    def word_starts(self, text: str, encoding: Encoding) -> Bools:
        """A pre-token is a word. But a combining mark continues the word before it, and so do the letters after it; and
        where a word has more than 16 pieces, the next piece that begins a character begins another one."""
        import numpy as np  # a recipe is checked without it

        starts = super().word_starts(text, encoding)
        if not text.isascii() and any(map(_is_mark, set(text))):
            offsets = encoding.offsets
            for place in np.flatnonzero(starts).tolist():
                starts[place] = not _continues(text, offsets[place][0])
        self._cap(starts, ~self._is_part[encoding.ids])
        return starts

    @cached_property
    def _is_part(self) -> Bools:
        """(vocab_size,) Whether each entry begins with a byte that is not the first of its character."""
        import numpy as np

        first_bytes = (_BYTE_OF.get(token[:1], 0) for token in tokens_by_id(self.backend))
        return np.asarray([0x80 <= byte < 0xC0 for byte in first_bytes], dtype=np.bool_)

    def surface(self, token: str) -> Surface | None:
        text = _from_bytes(token.removeprefix(_SPACE))
        return Surface(text, token.startswith(_SPACE)) if text else None

    def spell(self, surface: Surface) -> list[int]:
        spelt = normalizers.ByteLevel().normalize_str(" " * surface.starts_word + surface.text)
        return [token.id for token in self.backend.model.tokenize(spelt)]

    def fold(self, text: str) -> str:
        writes_bytes = isinstance(self.backend.normalizer, normalizers.ByteLevel)  # that is none of the text
        return text.strip() if writes_bytes else super().fold(text)

    def shown(self, token: str) -> str:
        """The text, with the mark of the space; a part of a character as it is."""
        text = _from_bytes(token)
        return _SPACE * text.startswith(" ") + text.removeprefix(" ") if text.strip() else token

    def inside_text(self, word: str) -> str:
        return f" {word}"


class ByteBPEKind(TokenizerKind):
    """RoBERTa's kind, with special tokens in the order of their ids, as `special_tokens.special_roles` reads them."""

    name = "byte-level BPE"
    lowercases = False

    def __init__(self, special_tokens: Sequence[str]) -> None:
        self.special_tokens = special_roles(special_tokens)
        self._order = list(special_tokens)

    @override
    def accepts(self, backend: Tokenizer) -> bool:
        return isinstance(backend.model, BPE) and backend.token_to_id(_SPACE) is not None

    def select(self, counter: WordCounter, lowercase: bool, min_character_count: int) -> TrainingWords:
        """All words: there is a piece for every byte, so none is left out for its characters."""
        cut = counter.words(self.cutter(byte_bpe_backend({}, [], self.special_tokens, lowercase)))
        counts, infrequent = most_frequent(count_words(cut, lambda word: [self.entry(word)]))
        return TrainingWords(counts, sorted(pre_tokenizers.ByteLevel.alphabet()), infrequent_words=infrequent)

    def train(self, words: TrainingWords, vocab_size: int, lowercase: bool, min_frequency: int) -> Tokenizer:
        """The ids are those of the bytes and the pieces as they were learnt, with the special tokens where they are to
        stand."""
        special = self.special_tokens.values()
        learner = learn(Tokenizer(BPE()), BpeTrainer, words, [*special, *words.alphabet], vocab_size, min_frequency)
        entries = ids_in_order(self._order, tokens_by_id(learner)[len(special) :])
        vocab = {entry: number for number, entry in enumerate(entries)}
        merges = [(first, second) for first, second in json.loads(learner.to_str())["model"]["merges"]]
        backend = byte_bpe_backend(vocab, merges, self.special_tokens, lowercase)
        frame = usual_template(self.special_tokens, vocab)
        backend.post_processor = self.post_processor(frame, entries)
        return backend

    @override
    def pieces(self, backend: Tokenizer) -> Pieces:
        return _BytePieces(backend)

    def cutter(self, backend: Tokenizer) -> Callable[[str], list[str]]:
        """Cuts into pre-tokens, the first with a space before it, as text and not as bytes."""
        normalizer, pre_tokenize = backend.normalizer, backend.pre_tokenizer.pre_tokenize_str

        def cut(string: str) -> list[str]:
            text = " " * bool(string) + (string if normalizer is None else normalizer.normalize_str(string))
            return [text[start:stop] for _, (start, stop) in pre_tokenize(text)]

        return cut

    def read(self, folder: Path, config: Mapping[str, Any], named: Mapping[str, str]) -> Tokenizer | None:
        """Read `vocab.json` and `merges.txt` as transformers does: no space is added unless `tokenizer_config.json`
        says so."""
        files = folder / "vocab.json", folder / "merges.txt"
        if not all(path.is_file() for path in files):
            return None
        try:
            vocab, merges = BPE.read_file(*map(str, files))
            special, add = {**self.special_tokens, **named}, bool(config.get("add_prefix_space", False))
            return byte_bpe_backend(vocab, merges, special, add_prefix_space=add)
        except Exception as error:  # the Rust side raises plain Exception whatever is wrong
            raise DomainbertError(f"{folder}: vocab.json and merges.txt are no byte-level BPE: {error}") from error

    def hugging_face_config(self, backend: Tokenizer, special_tokens: Mapping[str, str]) -> dict[str, Any]:
        """A class that takes all from `tokenizer.json`: RoBERTa's own would build a normalizer and a pre-tokenizer."""
        inputs = ["input_ids", "attention_mask"]  # the families that read bytes have one type of token
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": inputs}
        cut = backend.pre_tokenizer
        # transformers 4 adds no space unless it is told here, whatever tokenizer.json says
        return config | (
            {"add_prefix_space": cut.add_prefix_space} if isinstance(cut, pre_tokenizers.ByteLevel) else {}
        )

    @override
    def template(self, cls_id: int, sep_id: int) -> Template:
        return roberta_template(cls_id, sep_id)

    def post_processor(self, template: Template, tokens: Sequence[str]) -> processors.PostProcessor:
        """With offsets that leave out the space before a word."""
        return processors.Sequence([processors.ByteLevel(trim_offsets=True), template.processor(tokens)])

    @override
    def decoder(self, backend: Tokenizer) -> decoders.Decoder:
        return decoders.ByteLevel()

    @override
    def entry(self, word: str) -> str:
        return str(normalizers.ByteLevel().normalize_str(word))

    @override
    def extend(self, backend: Tokenizer, model: dict[str, Any], entries: Mapping[str, int]) -> None:
        """A pre-token that is an entry is taken whole, without merges that lead to it."""
        super().extend(backend, model, entries)
        model["ignore_merges"] = True


def _continues(text: str, place: int) -> bool:
    """Whether a character is of the word of the one before it, because one of the two is a combining mark."""
    if not 0 < place < len(text) or text[place - 1].isspace():
        return False
    before, here = (unicodedata.category(text[at])[0] for at in (place - 1, place))
    return here == "M" or (before == "M" and here == "L")


@cache
def _is_mark(character: str) -> bool:
    return unicodedata.category(character)[0] == "M"


def _byte_characters() -> dict[str, int]:
    """The character that stands for each byte in a byte-level vocabulary (Radford et al. 2019, `bytes_to_unicode`)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + rank): byte for rank, byte in enumerate(others)}


_BYTE_OF = _byte_characters()


def _from_bytes(token: str) -> str:
    """The text of a byte-level entry; "" if it is a part of a character."""
    try:
        return bytes(_BYTE_OF[character] for character in token).decode("utf-8")
    except (KeyError, UnicodeDecodeError):
        return ""
