"""Finds the weights of a Hugging Face folder. Free of torch."""

from __future__ import annotations

from pathlib import Path

from domainbert.base.errors import DomainbertError
from domainbert.base.sealed import check_sealed

INDEX = ".index.json"
_FILES = ("model.safetensors", "pytorch_model.bin")


def find_weights(folder: Path) -> Path:
    """The file with the weights, or the index of their shards; safetensors if there are any.

    `DomainbertError` if there are none, or they are not what a stage wrote there.
    """
    check_sealed(folder, "model*.safetensors*", "pytorch_model*.bin*")
    for name in _FILES:
        for file in (folder / name, folder / (name + INDEX)):
            if file.is_file():
                return file
    raise DomainbertError(
        f"{folder}: no {' and no '.join(_FILES)}; expected a model folder with its weights, in one file or in shards"
    )
