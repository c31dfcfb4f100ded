"""The tokenizer the rest of the package sees: load a Hugging Face folder, encode, save.

A `DomainTokenizer` never truncates, never pads and never adds special tokens: windows, packing and `[CLS]`/`[SEP]` are
decided where batches are built.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Encoding, Tokenizer

from domainbert.base.errors import DomainbertError
from domainbert.base.files import read_json
from domainbert.base.sealed import check_sealed
from domainbert.tokenization.bert import SPECIAL_TOKENS, encode_text, tokens_by_id
from domainbert.tokenization.kind import Bools, Pieces, expected_kinds, kind_of, known_kinds
from domainbert.tokenization.template import Ints, template_of

_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "vocab.json", "merges.txt"),
)
_NO_LIMIT = 10**9  # transformers writes 1e30 when it does not know how many positions there are


class DomainTokenizer:
    """A `tokenizers.Tokenizer` with the facts that batches, masking and model folders need.

    Truncation and padding of the backend are switched off, and its post-processor is written anew, by which offsets are
    the same however it was made. Special tokens are by role (`pad_token`, ...), those usual for the kind unless given.
    The longest input of the model, special tokens included, may be unknown.

    >>> from domainbert import DomainTokenizer
    >>> from tokenizers import Tokenizer
    >>> tokenizer = DomainTokenizer(Tokenizer.from_file("model/tokenizer.json"))
    >>> [tokenizer.tokens[number] for number in tokenizer.encode(["The high court"])[0]]
    ['the', 'high', 'court']

    Raises:
        DomainbertError: another kind, a special token that is not in the vocabulary, or a post-processor that frames
            texts in a way that has no `Template`.
    """

    def __init__(
        self, backend: Tokenizer, special_tokens: Mapping[str, str] | None = None, model_max_length: int | None = None
    ) -> None:
        kind = kind_of(backend)
        if kind is None:
            found = type(backend.model).__name__
            raise DomainbertError(f"the tokenizer is a {found} model; expected {expected_kinds()}")
        special_tokens = kind.special_tokens_of(backend) if special_tokens is None else special_tokens
        vocab = backend.get_vocab(with_added_tokens=True)
        missing = [f"{token} ({role})" for role, token in special_tokens.items() if token not in vocab]
        if missing:
            raise DomainbertError(f"the tokenizer's vocabulary has no {', '.join(missing)}")
        ids = {role: vocab[token] for role, token in special_tokens.items()}
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = True  # "[SEP]" in a text is text
        self.kind = kind
        named = set(special_tokens.values())
        # around a text or a pair, as the post-processor has it, else as the kind does
        self.template = template_of(backend) or kind.template(ids["cls_token"], ids["sep_token"])
        backend.post_processor = kind.post_processor(self.template, tokens_by_id(backend))
        # what has no role is found in a text, special or not, as transformers finds it
        self._special_apart = {
            one.content
            for number, one in backend.get_added_tokens_decoder().items()
            if one.special and one.content not in named and number not in self.template.special_ids
        }
        self.backend = _flagged(backend, self._special_apart, False)
        self.special_tokens = dict(special_tokens)
        self.model_max_length = model_max_length
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (ids[role] for role in SPECIAL_TOKENS)
        self.special_ids = frozenset(ids.values()) | self.template.special_ids

    @cached_property
    def tokens(self) -> list[str]:
        """The vocabulary in the order of its ids; "" where an id is not used."""
        return tokens_by_id(self.backend)

    @property
    def vocab_size(self) -> int:
        """One more than the highest id, added tokens included: the rows that an embedding needs."""
        return len(self.tokens)

    @cached_property
    def pieces(self) -> Pieces:
        """The entries as text."""
        return self.kind.pieces(self.backend)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of what decides which ids a text gets; not of truncation, padding or post-processing."""
        state = json.loads(self.backend.to_str())
        added = sorted((one["id"], one["content"], *_matched_by(one)) for one in state["added_tokens"])
        facts = [state["model"], state["normalizer"], state["pre_tokenizer"], added, self.special_tokens]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, without special tokens and never cut."""
        return [encoding.ids for encoding in self._encode_fast(texts)]

    def encode_with_starts(self, texts: Sequence[str]) -> list[tuple[Ints, Bools]]:
        """The ids of each text as `encode` gives them, and whether each piece begins a word."""
        import numpy as np  # a recipe is checked without it

        encode = self.encode_with_offsets if self.pieces.reads_pretokens else self._encode_fast
        starts = self.pieces.word_starts
        encodings = zip(texts, encode(texts), strict=True)
        return [(np.asarray(one.ids, dtype=np.int64), starts(text, one)) for text, one in encodings]

    def encode_with_offsets(self, texts: Sequence[str]) -> list[Encoding]:
        """As `encode`, with `.ids`, `.offsets` (characters of the text) and `.word_ids` (pre-tokens) for each text."""
        for text in texts:
            encode_text(text)
        return list(self.backend.encode_batch(texts, add_special_tokens=False))

    def _encode_fast(self, texts: Sequence[str]) -> list[Encoding]:
        """Without offsets and pre-tokens."""
        for text in texts:
            encode_text(text)
        return list(self.backend.encode_batch_fast(texts, add_special_tokens=False))

    def copy_backend(self) -> Tokenizer:
        """A copy of the backend for a folder, in which all special tokens are flagged as they were read."""
        return _flagged(Tokenizer.from_str(self.backend.to_str()), self._special_apart, True)

    def save(self, folder: Path, model_max_length: int | None = None, token_types: bool = True) -> None:
        """Write the tokenizer files of a Hugging Face folder, mode 0644, which transformers loads with the same ids.

        The folder is made if it is missing, and other files in it are left alone. The longest input of the model is
        what was loaded, unless it is given. Without `token_types` transformers hands the model none: one that tells no
        two apart has no row for the second text of a pair.
        """
        config = {**self.kind.hugging_face_config(self.backend, self.special_tokens), **self.special_tokens}
        if not token_types:
            config["model_input_names"] = ["input_ids", "attention_mask"]
        length = model_max_length or self.model_max_length
        if length is not None:
            config["model_max_length"] = length
        whole = self.copy_backend()
        whole.decoder = self.kind.decoder(self.backend)  # from pieces to text again, which is not asked for here
        files = {
            "tokenizer.json": whole.to_str(pretty=True) + "\n",
            "tokenizer_config.json": _json(config),
            "special_tokens_map.json": _json(self.special_tokens),
            **self.kind.other_files(self.backend),
        }
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_text(content, encoding="utf-8", newline="\n")
            (folder / name).chmod(0o644)


def _flagged(backend: Tokenizer, tokens: Collection[str], special: bool) -> Tokenizer:
    """The tokenizer with some of its added tokens special or not; the same if there are none."""
    if not tokens:
        return backend
    state = json.loads(backend.to_str())
    for one in state["added_tokens"]:
        one["special"] = special if one["content"] in tokens else one["special"]
    changed = Tokenizer.from_str(json.dumps(state))
    changed.encode_special_tokens = backend.encode_special_tokens
    return changed


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _matched_by(added: Mapping[str, Any]) -> list[str]:
    """Flags that decide where an added token is found in a text, in which special ones are not."""
    return [name for name in ("single_word", "lstrip", "rstrip", "normalized") if added[name] and not added["special"]]


def load_tokenizer(folder: Path) -> DomainTokenizer:
    """Read the tokenizer of a Hugging Face folder; errors are those of `read_backend` and `DomainTokenizer`.

    >>> from domainbert import load_tokenizer
    >>> load_tokenizer("model").special_tokens["mask_token"]
    '[MASK]'
    """
    backend, special_tokens, length = read_backend(folder)
    try:
        return DomainTokenizer(backend, special_tokens, length)
    except DomainbertError as error:
        raise DomainbertError(f"{folder}: {error}") from error


def read_backend(folder: Path) -> tuple[Tokenizer, dict[str, str], int | None]:
    """Read `tokenizer.json`, or the files that a kind had before there was one, and what stands beside it.

    Returns:
        The tokenizer, whatever its model; the token of each role, as the folder or else the kind names it; the model's
        longest input, or None when it is not told.

    Raises:
        DomainbertError: no tokenizer is there, a file cannot be read, or it is not what a stage wrote there.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DomainbertError(f"{folder}: no such folder; expected one with a tokenizer.json or a vocab.txt")
    check_sealed(folder, *_FILES)
    beside = [folder / name for name in ("tokenizer_config.json", "special_tokens_map.json")]
    config, tokens_map = (read_json(path, "an object") if path.is_file() else {} for path in beside)
    named = _special_tokens(folder, config, tokens_map)
    if (folder / "tokenizer.json").is_file():
        backend = _read_tokenizer_json(folder / "tokenizer.json")
        if (kind := kind_of(backend)) is not None:
            kind.configure(backend, config)
    else:
        read = (kind.read(folder, config, named) for kind in known_kinds())
        found = next((one for one in read if one is not None), None)
        if found is None:
            expected = "tokenizer.json, vocab.txt of a BERT, or vocab.json and merges.txt of a RoBERTa"
            raise DomainbertError(f"{folder}: no tokenizer; expected {expected}")
        backend = found
        _add_tokens(folder, backend, config, tokens_map, named)
    kind = kind_of(backend)
    usual = {} if kind is None else kind.special_tokens_of(backend)
    return backend, {**usual, **named}, _max_length(folder, config.get("model_max_length"))


def _add_tokens(
    folder: Path,
    backend: Tokenizer,
    config: Mapping[str, Any],
    tokens_map: Mapping[str, Any],
    named: Mapping[str, str],
) -> None:
    """Add the tokens that stand beside a vocabulary without a `tokenizer.json`: those of `added_tokens_decoder`, or of
    `added_tokens.json`, which older folders have."""
    path = folder / "added_tokens.json"
    listed = config.get("added_tokens_decoder")
    if not listed and path.is_file():
        extra = tokens_map.get("additional_special_tokens") or []
        special = {*named.values(), *(one.get("content") if isinstance(one, dict) else one for one in extra)}
        listed = {
            number: {"content": token, "special": token in special, "normalized": token not in special}
            for token, number in read_json(path, "an object").items()
        }
    try:
        tokens = {int(number): AddedToken(**one) for number, one in (listed or {}).items()}
    except (TypeError, ValueError, AttributeError) as error:
        raise DomainbertError(f"{folder}: added tokens: {error}; expected ids and tokens") from error
    known = {one.content for one in backend.get_added_tokens_decoder().values()}
    for number, token in sorted(tokens.items()):
        if token.content not in known:
            backend.add_tokens([token])
        if (found := backend.token_to_id(token.content)) != number:
            raise DomainbertError(f"{folder}: the added token {token.content!r} has id {number}; expected {found}")


def _max_length(folder: Path, value: Any) -> int | None:
    if value is None:
        return None
    if type(value) not in (int, float) or not value >= 1:
        found = f"model_max_length in tokenizer_config.json: {value!r}"
        raise DomainbertError(f"{folder}: {found}; expected a positive number")
    return int(value) if value < _NO_LIMIT else None


def _special_tokens(folder: Path, *sources: Mapping[str, Any]) -> dict[str, str]:
    """The token of each role, from the first source that names it; there it is a string or a mapping with `content`."""
    found: dict[str, str] = {}
    for role in SPECIAL_TOKENS:
        value = next((source[role] for source in sources if source.get(role)), None)
        if value is None:
            continue
        token = value.get("content") if isinstance(value, dict) else value
        if not isinstance(token, str):
            expected = "expected the token, or an object with its content"
            raise DomainbertError(f"{folder}: {role}: {str(value)[:80]}; {expected}")
        found[role] = token
    return found


def _read_tokenizer_json(path: Path) -> Tokenizer:
    try:
        return Tokenizer.from_file(str(path))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the Rust side raises plain Exception whatever is wrong, or panics, which is none
        raise DomainbertError(f"{path}: not a tokenizer.json that tokenizers can read: {error}") from error
