"""Write the tokenizer files of a Hugging Face folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders
from tokenizers.normalizers import BertNormalizer

from domainbert.base.errors import DomainbertError
from domainbert.tokenization.bert import SPECIAL_TOKENS, tokens_by_id
from domainbert.tokenization.template import Template


def save_tokenizer(
    backend: Tokenizer,
    folder: Path,
    model_max_length: int | None,
    template: Template,
    special_tokens: Mapping[str, str] = SPECIAL_TOKENS,
) -> None:
    """Write `tokenizer.json`, `tokenizer_config.json`, `special_tokens_map.json` and `vocab.txt`, all with mode 0644.

    The settings in `tokenizer_config.json` are taken from the tokenizer itself, because transformers builds its own
    from them, and a contradiction with `tokenizer.json` would give other ids there than here.

    Args:
        backend: a WordPiece tokenizer with BERT's normalizer; it is not changed.
        folder: where; made if it is missing, and other files in it are left alone.
        model_max_length: the longest input of the model, special tokens included; left out when None.
        template: the special tokens around texts.
        special_tokens: role to the token's string.

    Raises:
        DomainbertError: the normalizer is not BERT's, so transformers could not be told of it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = _config(backend, special_tokens, model_max_length)
    _write(folder / "tokenizer.json", _complete(backend, template).to_str(pretty=True) + "\n")
    _write(folder / "tokenizer_config.json", _json(config))
    _write(folder / "special_tokens_map.json", _json(special_tokens))
    _write(folder / "vocab.txt", "".join(f"{token}\n" for token in tokens_by_id(backend)))


def _complete(backend: Tokenizer, template: Template) -> Tokenizer:
    """A copy with what encoding here does not use: the special tokens, and how pieces become text again."""
    copy = Tokenizer.from_str(backend.to_str())
    copy.post_processor = template.processor(tokens_by_id(backend))
    copy.decoder = decoders.WordPiece(prefix=copy.model.continuing_subword_prefix)
    return copy


def _config(backend: Tokenizer, special_tokens: Mapping[str, str], model_max_length: int | None) -> dict[str, Any]:
    normalizer = backend.normalizer
    if not isinstance(normalizer, BertNormalizer):
        raise DomainbertError(f"the tokenizer normalizes with {normalizer!r}; only a BertNormalizer can be written")
    config: dict[str, Any] = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": normalizer.lowercase,
        "strip_accents": normalizer.strip_accents,
        "tokenize_chinese_chars": normalizer.handle_chinese_chars,
        **special_tokens,
    }
    return config if model_max_length is None else {**config, "model_max_length": model_max_length}


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")
    path.chmod(0o644)
