"""WordPiece, BERT's kind of vocabulary.

`tokenizers.WordPieceTrainer` learns byte-pair merges and saves them as WordPiece. By default its result is random: a
piece `##c` gets its id in the order of a hash table, and ids break ties between merges of equal count. Here every `##c`
has its id before training begins.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Encoding, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.trainers import WordPieceTrainer
from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.tokenization.kind import Bools, Pieces, Surface, TokenizerKind, tokens_by_id
from domainbert.tokenization.special_tokens import TOKEN_NAMES, bert_template, template_of
from domainbert.tokenization.train import MAX_ALPHABET, TrainingWords, choose_alphabet, most_frequent, train_backend
from domainbert.tokenization.words import WordCounter, count_words, normalized_words

SPECIAL_TOKENS = {role: name for role, (name, _) in TOKEN_NAMES.items()}  # role -> token, in the order of the ids 0-4
_PREFIX = "##"  # of a piece that continues a word
_MAX_WORD_CHARACTERS = 100  # a longer word becomes [UNK], in BERT and in transformers
_BERT_CLASSES = frozenset({"BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MPNetTokenizer"})


def bert_backend(
    vocab: Mapping[str, int], config: Mapping[str, Any], special_tokens: Mapping[str, str] = SPECIAL_TOKENS
) -> Tokenizer:
    """Build a BERT WordPiece tokenizer from a vocabulary (piece to id).

    `config` has keys of `tokenizer_config.json`: `do_lower_case` (default true), `strip_accents` (default: as
    `do_lower_case`) and `tokenize_chinese_chars` (default true); null is the default.
    """
    flags = {name: value for name, value in config.items() if value is not None}
    options: dict[str, Any] = {"max_input_chars_per_word": _MAX_WORD_CHARACTERS, "continuing_subword_prefix": _PREFIX}
    backend = Tokenizer(WordPiece(dict(vocab), unk_token=special_tokens["unk_token"], **options))
    backend.normalizer = BertNormalizer(
        clean_text=True,
        handle_chinese_chars=flags.get("tokenize_chinese_chars", True),
        strip_accents=flags.get("strip_accents"),
        lowercase=flags.get("do_lower_case", True),
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    present = [token for token in special_tokens.values() if token in vocab]
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in present])
    return backend


class _WordPieces(Pieces):
    """Entries whose prefix, usually "##", marks pieces that continue a word."""

    reads_pretokens = False

    @property
    def _prefix(self) -> str:
        return str(self.backend.model.continuing_subword_prefix)

    @cached_property
    def begins_word(self) -> Bools:
        """Whether each entry begins a word, (vocab_size,)."""
        import numpy as np  # imported here because checks of recipes do not need it

        surfaces = map(self.surface, tokens_by_id(self.backend))
        return np.asarray([surface is None or surface.starts_word for surface in surfaces], dtype=np.bool_)

    @override
    def word_starts(self, text: str, encoding: Encoding) -> Bools:
        return self.begins_word[encoding.ids]

    def surface(self, token: str) -> Surface | None:
        if not token:
            return None
        inside = token.startswith(self._prefix) and len(token) > len(self._prefix)
        return Surface(token.removeprefix(self._prefix) if inside else token, starts_word=not inside)

    def starts_word(self, surface: Surface) -> bool:
        """Whether a surface starts a word: also a sign and a Chinese character, at which every text is cut."""
        return surface.starts_word or self._split(f"a{surface.text}")[0] == "a"

    def spell(self, surface: Surface) -> list[int]:
        first = self.backend.model if surface.starts_word else self._inside_model
        models = chain([first], repeat(self.backend.model))  # words after a sign start there
        words = zip(models, self._split(surface.text), strict=False)
        return [token.id for model, word in words for token in model.tokenize(word)]

    @cached_property
    def _split(self) -> Callable[[str], list[str]]:
        return normalized_words(self.backend)

    @cached_property
    def _inside_model(self) -> WordPiece:
        """WordPiece model of only the continuing pieces, without prefix: it cuts text inside words."""
        prefix, unknown = self._prefix, self.backend.model.unk_token
        ids = self.backend.get_vocab(with_added_tokens=False)
        inside = {token.removeprefix(prefix): token_id for token, token_id in ids.items() if token.startswith(prefix)}
        # drop "##" itself, and a continuing piece that reads like [UNK]
        inside = {token: token_id for token, token_id in inside.items() if token and token != unknown}
        if unknown in ids:
            inside[unknown] = ids[unknown]
        return WordPiece(inside, unk_token=unknown, continuing_subword_prefix="")


class WordPieceKind(TokenizerKind):
    """WordPiece; a lowercase vocabulary has no accents, unless `keep_accents`."""

    name = "WordPiece"
    special_tokens = SPECIAL_TOKENS
    lowercases = True

    def __init__(self, keep_accents: bool = False) -> None:
        self._keep_accents = keep_accents

    @override
    def accepts(self, backend: Tokenizer) -> bool:
        return isinstance(backend.model, WordPiece)

    def select(self, counter: WordCounter, lowercase: bool, min_character_count: int) -> TrainingWords:
        """Return the words that are not too long and contain only characters of the alphabet."""
        words = counter.words(self.word_splitter(self._backend({}, lowercase)))
        characters = count_words(words, split=list)
        alphabet, rare_characters = choose_alphabet(characters, lowercase, min_character_count, MAX_ALPHABET)
        long = {word for word in words if len(word) > _MAX_WORD_CHARACTERS}
        rare = {word for word in words.keys() - long if not alphabet.issuperset(word)}
        counts, infrequent = most_frequent({word: words[word] for word in words.keys() - long - rare})
        return TrainingWords(
            counts=counts,
            alphabet=sorted(alphabet),
            rare_characters=rare_characters,
            rare_words=sum(words[word] for word in rare),
            infrequent_words=infrequent,
            long_words=sum(words[word] for word in long),
        )

    def train(self, words: TrainingWords, vocab_size: int, lowercase: bool, min_frequency: int) -> Tokenizer:
        """Return a trained tokenizer; ids: special tokens, characters, `##` characters, then the pieces as learned."""
        split = self.word_splitter(self._backend({}, lowercase))
        # characters that can continue a word, so that "ac" is not split: neither punctuation nor Chinese characters
        continuing = [character for character in words.alphabet if split(f"a{character}") == [f"a{character}"]]
        seeds = [*SPECIAL_TOKENS.values(), *words.alphabet, *(_PREFIX + character for character in continuing)]
        tokenizer = Tokenizer(WordPiece({}, unk_token=SPECIAL_TOKENS["unk_token"]))
        trainer = partial(WordPieceTrainer, continuing_subword_prefix=_PREFIX)
        pieces = tokens_by_id(train_backend(tokenizer, trainer, words, seeds, vocab_size, min_frequency))
        return self._backend({piece: token_id for token_id, piece in enumerate(pieces)}, lowercase)

    def _backend(self, vocab: Mapping[str, int], lowercase: bool) -> Tokenizer:
        return bert_backend(vocab, {"do_lower_case": lowercase, "strip_accents": False if self._keep_accents else None})

    @override
    def pieces(self, backend: Tokenizer) -> Pieces:
        return _WordPieces(backend)

    @override
    def word_splitter(self, backend: Tokenizer) -> Callable[[str], list[str]]:
        return normalized_words(backend)

    def read(self, folder: Path, config: Mapping[str, Any], named: Mapping[str, str]) -> Tokenizer | None:
        """Return the tokenizer of `vocab.txt`; None if the file is missing.

        As in transformers, `do_lower_case` is true by default. But without `tokenizer_config.json`, as in the oldest
        checkpoints, a vocabulary with a capital letter is cased.
        """
        path = folder / "vocab.txt"
        if not path.is_file():
            return None
        vocab = _read_vocab(path)
        return bert_backend(vocab, config or {"do_lower_case": not _is_cased(vocab)}, {**SPECIAL_TOKENS, **named})

    @override
    def configure(self, backend: Tokenizer, config: Mapping[str, Any]) -> None:
        """Use the normalizer that `config` describes, if `config` names a BERT class: for these classes, transformers
        ignores the normalizer in `tokenizer.json`."""
        default_name = "BertTokenizer" if "do_lower_case" in config else ""  # a folder may name no class
        name = config.get("tokenizer_class", default_name)
        if str(name).removesuffix("Fast") in _BERT_CLASSES and isinstance(backend.normalizer, BertNormalizer):
            backend.normalizer = bert_backend({}, config).normalizer

    def hugging_face_config(self, backend: Tokenizer, special_tokens: Mapping[str, str]) -> dict[str, Any]:
        """Return BERT's class and its settings, if they define the same tokenizer as `backend`; otherwise return a
        class that reads everything from `tokenizer.json`."""
        normalizer = backend.normalizer
        if isinstance(normalizer, BertNormalizer):
            settings = {
                "do_lower_case": normalizer.lowercase,
                "strip_accents": normalizer.strip_accents,
                "tokenize_chinese_chars": normalizer.handle_chinese_chars,
            }
            ids = backend.get_vocab()
            template = bert_template(ids[special_tokens["cls_token"]], ids[special_tokens["sep_token"]])
            same = _backend_config(bert_backend({}, settings, special_tokens)) == _backend_config(backend)
            if same and template_of(backend) == template:
                return {"tokenizer_class": "BertTokenizer", **settings}
        inputs = ["input_ids", "token_type_ids", "attention_mask"]  # the default of BERT's class
        return {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": inputs}

    def other_files(self, backend: Tokenizer) -> dict[str, str]:
        """Return `vocab.txt`, one piece per line."""
        return {"vocab.txt": "".join(f"{token}\n" for token in tokens_by_id(backend))}

    @override
    def decoder(self, backend: Tokenizer) -> decoders.Decoder:
        return decoders.WordPiece(prefix=backend.model.continuing_subword_prefix)


def _backend_config(backend: Tokenizer) -> list[Any]:
    """Return the normalizer, pre-tokenizer and model options, without the vocabulary."""
    state = json.loads(backend.to_str())
    return [state["normalizer"], state["pre_tokenizer"], {**state["model"], "vocab": {}}]


def _is_cased(vocab: Mapping[str, int]) -> bool:
    # special tokens such as "[UNK]" do not count
    return any(token != token.lower() for token in vocab if not (token.startswith("[") and token.endswith("]")))


def _read_vocab(path: Path) -> dict[str, int]:
    try:
        # not splitlines(), which also splits at U+2028 and other characters that may be pieces
        lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise DomainbertError(f"not UTF-8 ({error})", file=path, expected="a vocab.txt in UTF-8") from error
    vocab: dict[str, int] = {}
    for line, token in enumerate(lines, 1):
        if token in vocab:
            first = f"{token!r} is also in line {vocab[token] + 1}"
            raise DomainbertError(first, file=path, line=line, expected="each piece once")
        vocab[token] = line - 1
    return vocab
