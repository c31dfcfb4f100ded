"""Read the weights of a Hugging Face folder: safetensors or PyTorch's own format, in one file or in shards."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from domainbert.base.errors import DomainbertError
from domainbert.models.weight_files import INDEX, find_weights

WEIGHT_TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_CONVERT = (
    "if you trust it, convert it to safetensors: "
    "transformers.AutoModelForMaskedLM.from_pretrained(folder).save_pretrained(folder)"
)


def read_weights(folder: Path) -> dict[str, Tensor]:
    """All tensors by their names in the folder, from safetensors if there are any, else from `pytorch_model.bin`.

    A `pytorch_model.bin` is a pickle; it is read with `weights_only=True`, which builds tensors and runs nothing.
    Norms are called weight and bias, also where a checkpoint that comes from TensorFlow calls them gamma and beta.

    Raises:
        DomainbertError: there are no weights, a file is missing, broken or not what a stage wrote there, a pickle holds
            more than tensors, or a weight is not finite.
    """
    file = find_weights(folder)
    tensors = _read_shards(file) if file.name.endswith(INDEX) else _read_file(file)
    return {re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", key)): t for key, t in tensors.items()}


def non_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """The first tensor with values that are NaN or infinite, and how many, in words; None if all are finite."""
    for name, tensor in tensors.items():
        if tensor.dtype in WEIGHT_TYPES and not bool(tensor.isfinite().all()):
            count = int((~tensor.isfinite()).sum())
            return f"{name}: {count:,} of {tensor.numel():,} values are NaN or infinite"
    return None


def _read_file(file: Path) -> dict[str, Tensor]:
    tensors = _tensors_of(file)
    found = non_finite(tensors)
    if found:
        raise DomainbertError(f"{file}: {found}; expected the weights of a model whose training did not diverge")
    return tensors


def _tensors_of(file: Path) -> dict[str, Tensor]:
    if file.suffix == ".safetensors":
        try:
            return load_file(file)
        except (SafetensorError, OSError) as error:
            raise DomainbertError(f"{file}: not a readable safetensors file: {error}") from error
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    except (
        Exception
    ) as error:  # UnpicklingError, RuntimeError, EOFError, ...; what torch says there is to drop the guard
        raise DomainbertError(f"{file}: holds more than tensors, or is damaged; {_CONVERT}") from error
    if not isinstance(content, dict) or not all(isinstance(tensor, Tensor) for tensor in content.values()):
        raise DomainbertError(f"{file}: expected names and tensors, as `save_pretrained` writes them; {_CONVERT}")
    return content


def _read_shards(index: Path) -> dict[str, Tensor]:
    try:
        places: dict[str, str] = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        files = sorted(set(places.values()))
        unusual = [name for name in files if Path(name).name != name]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DomainbertError(f"{index}: not an index of weight files: {error!r}") from error
    tensors: dict[str, Tensor] = {}
    if unusual:
        raise DomainbertError(f"{index}: names {unusual[0][:80]!r}; expected files in the same folder")
    for name in files:
        if not (index.parent / name).is_file():
            raise DomainbertError(f"{index}: names {name}, which is not there; expected all {len(files)} weight files")
        tensors.update(_read_file(index.parent / name))
    missing = sorted(places.keys() - tensors.keys())
    if missing:
        raise DomainbertError(f"{index}: {', '.join(missing[:5])} in none of its files ({len(missing)} in all)")
    return tensors
