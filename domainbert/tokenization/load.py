"""The tokenizer of the package: load a Hugging Face folder, encode, save.

A `DomainTokenizer` never truncates, pads or adds special tokens: batches do this.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from tokenizers import AddedToken, Encoding, Tokenizer

from domainbert.base.errors import DomainbertError
from domainbert.base.fields import Range, check_value
from domainbert.base.files import read_json, replaced_files
from domainbert.base.paths import check_regular, resolve_path
from domainbert.base.run_record import check_outputs_unchanged
from domainbert.tokenization.kind import Bools, Pieces, expected_kinds, kind_of, registered_kinds, tokens_by_id
from domainbert.tokenization.special_tokens import TOKEN_NAMES, Ints, template_of
from domainbert.tokenization.words import check_size, check_unicode

TOKENIZER_FILES = (  # of a tokenizer, in a Hugging Face folder
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "vocab.json", "merges.txt"),
)
_TYPES = {  # of values in tokenizer_config.json
    **dict.fromkeys(("do_lower_case", "strip_accents", "tokenize_chinese_chars", "add_prefix_space"), bool | None),
    "model_max_length": Annotated[float, Range(1, sys.float_info.max)] | None,
}
_NO_LIMIT = 10**9  # transformers writes 1e30 if the number of positions is unknown


class DomainTokenizer:
    """A `tokenizers.Tokenizer` with the properties that batches, masking and model folders need.

    Truncation and padding of the backend are disabled, and its post-processor is replaced, so that offsets have the
    same meaning for all tokenizers.

    >>> from domainbert import DomainTokenizer
    >>> from tokenizers import Tokenizer
    >>> tokenizer = DomainTokenizer(Tokenizer.from_file("model/tokenizer.json"))
    >>> [tokenizer.tokens[token_id] for token_id in tokenizer.encode(["The high court"])[0]]
    ['the', 'high', 'court']

    Args:
        backend: the tokenizer; it is changed.
        special_tokens: role (`pad_token`, ...) to special token; None: the defaults of the kind.
        model_max_length: maximum input length, special tokens included; None: unknown.

    Raises:
        DomainbertError: another kind, a special token that is not in the vocabulary, or a post-processor that is not a
            `Template`.
    """

    def __init__(
        self, backend: Tokenizer, special_tokens: Mapping[str, str] | None = None, model_max_length: int | None = None
    ) -> None:
        kind = kind_of(backend)
        if kind is None:
            found = f"the tokenizer is a {type(backend.model).__name__} model"
            raise DomainbertError(found, expected=expected_kinds())
        special_tokens = kind.special_tokens_of(backend) if special_tokens is None else special_tokens

        vocab = backend.get_vocab(with_added_tokens=True)
        missing = [f"{token} ({role})" for role, token in special_tokens.items() if token not in vocab]
        if missing:
            raise DomainbertError(
                f"the vocabulary has no {', '.join(missing)}", expected="an entry for every special token"
            )
        ids = {role: vocab[token] for role, token in special_tokens.items()}

        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = True  # "[SEP]" in a text is plain text
        self.kind = kind
        self.special_tokens = dict(special_tokens)
        self.model_max_length = model_max_length
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (ids[role] for role in TOKEN_NAMES)
        self.template = template_of(backend) or kind.template(self.cls_id, self.sep_id)
        self.special_ids = frozenset(ids.values()) | self.template.special_ids
        backend.post_processor = kind.post_processor(self.template, tokens_by_id(backend))
        # special tokens without a role are matched in texts, as in transformers
        self._tokens_without_role = {
            token.content
            for token_id, token in backend.get_added_tokens_decoder().items()
            if token.special and token_id not in self.special_ids
        }
        self.backend = _with_special_flag(backend, self._tokens_without_role, special=False)

    @cached_property
    def tokens(self) -> list[str]:
        """The vocabulary in the order of its ids; "" for an unused id."""
        return tokens_by_id(self.backend)

    @property
    def vocab_size(self) -> int:
        """Highest id + 1, added tokens included: the number of rows of an embedding."""
        return len(self.tokens)

    @cached_property
    def pieces(self) -> Pieces:
        """Texts of the entries, and which entries begin words."""
        return self.kind.pieces(self.backend)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of everything that determines the ids of a text: not truncation, padding or post-processing."""
        state = json.loads(self.backend.to_str())
        added = sorted((token["id"], token["content"], *_match_flags(token)) for token in state["added_tokens"])
        facts = [state["model"], state["normalizer"], state["pre_tokenizer"], added, self.special_tokens]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def as_plain(self) -> dict[str, Any]:
        """Return the tokenizer as plain values for a checkpoint; `from_plain` inverts it."""
        facts = {"special_tokens": dict(self.special_tokens), "max_length": self.model_max_length}
        return {"backend": self.copy_backend().to_str(), **facts}

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> DomainTokenizer:
        """Return the tokenizer of a result of `as_plain`."""
        return cls(Tokenizer.from_str(values["backend"]), values["special_tokens"], values["max_length"])

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, without special tokens and without truncation."""
        return [encoding.ids for encoding in self._encode_fast(texts)]

    def encode_with_starts(self, texts: Sequence[str]) -> list[tuple[Ints, Bools]]:
        """Return for each text its ids, as `encode` does, and whether each piece begins a word; both are (pieces,)."""
        import numpy as np  # imported here because checks of recipes do not need it

        pieces = self.pieces
        encodings = self.encode_with_offsets(texts) if pieces.reads_pretokens else self._encode_fast(texts)
        return [
            (np.asarray(encoding.ids, dtype=np.int64), pieces.word_starts(text, encoding))
            for text, encoding in zip(texts, encodings, strict=True)
        ]

    def encode_with_offsets(self, texts: Sequence[str]) -> list[Encoding]:
        """Return an encoding of each text, without special tokens and without truncation: `.ids`, `.offsets`
        (characters) and `.word_ids` (pre-tokens)."""
        check_unicode(texts)
        return list(self.backend.encode_batch(texts, add_special_tokens=False))

    def _encode_fast(self, texts: Sequence[str]) -> list[Encoding]:
        """Return encodings without `.offsets` and `.word_ids`, which take time."""
        check_unicode(texts)
        return list(self.backend.encode_batch_fast(texts, add_special_tokens=False))

    def copy_backend(self) -> Tokenizer:
        """Return a copy of the backend, with the original flags of all special tokens."""
        return _with_special_flag(Tokenizer.from_str(self.backend.to_str()), self._tokens_without_role, special=True)

    def save(self, folder: Path, model_max_length: int | None = None, token_types: bool = True) -> None:
        """Write the tokenizer files (mode 0644) of a Hugging Face folder; transformers loads them with the same ids.

        Args:
            folder: created if it is missing; other files in it are not changed.
            model_max_length: default: the loaded value.
            token_types: False if the model has fewer than two token types: transformers then passes none to it.
        """
        config = {**self.kind.hugging_face_config(self.backend, self.special_tokens), **self.special_tokens}
        if not token_types:
            config["model_input_names"] = ["input_ids", "attention_mask"]
        length = model_max_length or self.model_max_length
        if length is not None:
            config["model_max_length"] = length
        backend = self.copy_backend()
        backend.decoder = self.kind.decoder(self.backend)
        files = {
            "tokenizer.json": backend.to_str(pretty=True) + "\n",
            "tokenizer_config.json": _format_json(config),
            "special_tokens_map.json": _format_json(self.special_tokens),
            **self.kind.other_files(self.backend),
        }
        with replaced_files(Path(folder), "tokenizer.json") as new:
            for name, content in files.items():
                (new / name).write_text(content, encoding="utf-8", newline="\n")
                (new / name).chmod(0o644)


def _with_special_flag(backend: Tokenizer, tokens: Collection[str], special: bool) -> Tokenizer:
    if not tokens:
        return backend
    state = json.loads(backend.to_str())
    for token in state["added_tokens"]:
        if token["content"] in tokens:
            token["special"] = special
    changed = Tokenizer.from_str(json.dumps(state))
    changed.encode_special_tokens = backend.encode_special_tokens  # not in the JSON
    return changed


def _format_json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _match_flags(token: Mapping[str, Any]) -> list[str]:
    # special tokens are not matched
    return [name for name in ("single_word", "lstrip", "rstrip", "normalized") if token[name] and not token["special"]]


def load_tokenizer(path: str | Path) -> DomainTokenizer:
    """Return the tokenizer of a Hugging Face folder, `package:NAME/folder` or `hub:NAME[@REVISION]`.

    Raise `DomainbertError` if its files have no tokenizer of a known kind with all special tokens.

    >>> from domainbert import load_tokenizer
    >>> load_tokenizer("model").special_tokens["mask_token"]
    '[MASK]'
    """
    folder = resolve_path(path)
    backend, special_tokens, length = read_backend(folder)
    try:
        return DomainTokenizer(backend, special_tokens, length)
    except DomainbertError as error:
        raise error.within(file=folder) from error


def read_backend(folder: Path) -> tuple[Tokenizer, dict[str, str], int | None]:
    """Read `tokenizer.json` (or the older files of a kind) and the configuration files of a folder.

    Returns:
        The tokenizer, of any model; role to special token, from the folder or the defaults of the kind; the maximum
        input length of the model, or None if it is unknown.

    Raises:
        DomainbertError: no tokenizer, an unreadable file, or a file that has changed since a stage wrote it.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DomainbertError("no such folder", file=folder, expected="one with a tokenizer.json or a vocab.txt")
    check_regular(*folder.glob("*"))
    check_outputs_unchanged(folder, *TOKENIZER_FILES)
    paths = [folder / name for name in ("tokenizer_config.json", "special_tokens_map.json")]
    config, tokens_map = (read_json(path, "an object") if path.is_file() else {} for path in paths)
    for name, hint in _TYPES.items():
        check_value(f"{paths[0]}: {name}", config.get(name), hint)
    named = _read_special_tokens(folder, config, tokens_map)  # the special tokens that the folder names
    has_json = (folder / "tokenizer.json").is_file()
    backend = _read_tokenizer_json(folder / "tokenizer.json") if has_json else _read_older_files(folder, config, named)
    check_size(folder, backend)
    kind = kind_of(backend)
    if not has_json:
        _add_tokens(folder, backend, config, tokens_map, named)
    elif kind is not None:
        kind.configure(backend, config)
    defaults = {} if kind is None else kind.special_tokens_of(backend)
    length = config.get("model_max_length")
    max_length = int(length) if length is not None and length < _NO_LIMIT else None
    return backend, {**defaults, **named}, max_length


def _read_older_files(folder: Path, config: Mapping[str, Any], named: Mapping[str, str]) -> Tokenizer:
    """`config` is the content of `tokenizer_config.json`; `named` maps roles to the special tokens that the folder
    names."""
    for kind in registered_kinds():
        if (backend := kind.read(folder, config, named)) is not None:
            return backend
    expected = "tokenizer.json, vocab.txt of a BERT, or vocab.json and merges.txt of a RoBERTa"
    raise DomainbertError("no tokenizer", file=folder, expected=expected)


def _add_tokens(
    folder: Path,
    backend: Tokenizer,
    config: Mapping[str, Any],
    tokens_map: Mapping[str, Any],
    named: Mapping[str, str],
) -> None:
    # older folders have `added_tokens.json` instead of `added_tokens_decoder`
    path, where = folder / "added_tokens.json", f"{folder}/tokenizer_config.json: added_tokens_decoder"
    listed = config.get("added_tokens_decoder")
    if not listed and path.is_file():
        extra = tokens_map.get("additional_special_tokens") or []
        names = (token.get("content") if isinstance(token, dict) else token for token in extra)
        special = {*named.values(), *names}
        where = str(path)
        listed = {
            token_id: {"content": token, "special": token in special, "normalized": token not in special}
            for token, token_id in read_json(path, "an object").items()
        }

    try:
        tokens = {int(token_id): AddedToken(**fields) for token_id, fields in (listed or {}).items()}
    except (TypeError, ValueError, AttributeError) as error:
        raise DomainbertError(f"cannot be read ({error})", where=where, expected="ids and their tokens") from error
    existing = {token.content for token in backend.get_added_tokens_decoder().values()}
    for token_id, token in sorted(tokens.items()):
        if token.content not in existing:
            backend.add_tokens([token])
        if (new_id := backend.token_to_id(token.content)) != token_id:
            raise DomainbertError(
                f"{token.content!r} has id {token_id}, but the vocabulary gives it {new_id}", where=where
            )


def _read_special_tokens(folder: Path, *sources: Mapping[str, Any]) -> dict[str, str]:
    special_tokens: dict[str, str] = {}
    for role in TOKEN_NAMES:
        value = next((source[role] for source in sources if source.get(role)), None)
        if value is None:
            continue
        token = value.get("content") if isinstance(value, dict) else value  # an added token, or its text
        if not isinstance(token, str):
            where = f"{role} in tokenizer_config.json or special_tokens_map.json"
            expected = "a string or an object with `content`"
            raise DomainbertError(file=folder, where=where, found=str(value)[:80], expected=expected)
        special_tokens[role] = token
    return special_tokens


def _read_tokenizer_json(path: Path) -> Tokenizer:
    try:
        return Tokenizer.from_file(str(path))
    except (KeyboardInterrupt, SystemExit):  # no errors of the file, but caught by the next line
        raise
    except BaseException as error:  # the Rust side raises a plain Exception, or a panic, which is not an Exception
        raise DomainbertError(
            f"the package `tokenizers` cannot read it ({error})", file=path, hint="copy it again"
        ) from error
