"""Write the tokenizer files of a Hugging Face folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from domainbert.tokenization.kind import TokenizerKind


def save_tokenizer(
    backend: Tokenizer,
    kind: TokenizerKind,
    folder: Path,
    model_max_length: int | None,
    special_tokens: Mapping[str, str],
) -> None:
    """Write `tokenizer.json`, `tokenizer_config.json`, `special_tokens_map.json` and what the kind adds, mode 0644.

    Args:
        backend: the tokenizer; it is not changed.
        kind: the kind it is of.
        folder: where; made if it is missing, and other files in it are left alone.
        model_max_length: the longest input of the model, special tokens included; left out when None.
        special_tokens: role to the token's string.
    """
    config = {**kind.hugging_face_config(backend, special_tokens), **special_tokens}
    if model_max_length is not None:
        config["model_max_length"] = model_max_length
    files = {
        "tokenizer.json": _with_decoder(backend, kind).to_str(pretty=True) + "\n",
        "tokenizer_config.json": _json(config),
        "special_tokens_map.json": _json(special_tokens),
        **kind.other_files(backend),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8", newline="\n")
        (folder / name).chmod(0o644)


def _with_decoder(backend: Tokenizer, kind: TokenizerKind) -> Tokenizer:
    """A copy that knows how pieces become text again, which is not asked for here."""
    copy = Tokenizer.from_str(backend.to_str())
    copy.decoder = kind.decoder(backend)
    return copy


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
