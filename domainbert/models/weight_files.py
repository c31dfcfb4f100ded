"""Finds the weights of a Hugging Face folder. Free of torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from domainbert.base.errors import DomainbertError
from domainbert.base.manifests import check_outputs_unchanged

INDEX = ".index.json"
_FILES = ("model.safetensors", "pytorch_model.bin")


def find_weights(folder: Path) -> Path:
    """Return the path of the file with the weights, or of the index of their shards; safetensors are preferred.

    Raises `DomainbertError` if there are no weights, or they have changed since a stage wrote them.
    """
    check_outputs_unchanged(folder, "model*.safetensors*", "pytorch_model*.bin*")
    for name in _FILES:
        for file in (folder / name, folder / (name + INDEX)):
            if file.is_file():
                return file
    raise DomainbertError(
        f"{folder}: no {' and no '.join(_FILES)}; expected a model folder with its weights, in one file or in shards"
    )


def missing_weights_problem(names: Sequence[str]) -> str:
    """Return the problem, for an error message, that the files of a model lack weights."""
    return f"weights are missing: {', '.join(names[:5])} ({len(names)} in all); expected a complete model"
