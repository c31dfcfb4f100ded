"""Reads the tensors of a Hugging Face folder (safetensors or PyTorch format, one file or shards), and checks them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from domainbert.base.errors import DomainbertError
from domainbert.encoders.config import EncoderConfig
from domainbert.encoders.families import family, head_kinds, name_map
from domainbert.models.weight_files import INDEX, find_weights, missing_weights_problem

WEIGHT_TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_CONVERT = (
    "if you trust it, convert it to safetensors: "
    "transformers.AutoModelForMaskedLM.from_pretrained(folder).save_pretrained(folder)"
)
_BUFFERS = (".position_ids", ".token_type_ids")  # constants that older versions of transformers saved


def load_tensors(path: Path, config: EncoderConfig) -> dict[str, Tensor]:
    """Return all tensors of a model folder by their current Hugging Face names.

    If the base model was saved without a head, its prefix is added to the names. Tied tensors, which older versions of
    transformers saved twice, are returned once.
    """
    model_family, tensors = family(config), read_weights(path)
    if not any(name.startswith(model_family.prefix) for name in tensors):
        tensors = {model_family.prefix + name: tensor for name, tensor in tensors.items()}
    tensors = {model_family.canonical_name(name, config): tensor for name, tensor in tensors.items()}
    for copy, source in model_family.tied(config).items():
        if copy not in tensors:
            continue
        tensors.setdefault(source, tensors[copy])
        if torch.equal(tensors[copy], tensors[source]):
            del tensors[copy]
    return tensors


def vocabulary_names(config: EncoderConfig) -> Sequence[str]:
    """Return the Hugging Face names of the tensors with one row per vocabulary entry, the word embeddings first."""
    return family(config).vocabulary_tensors(config)


def predicts_entries(config: EncoderConfig, kind: str | None) -> bool:
    """Return whether a kind of head predicts vocabulary entries, with the word embeddings as output weights."""
    return set(vocabulary_names(config)) <= _all_names(config, [kind])


def find_unused_weights(path: Path, tensors: Iterable[str], config: EncoderConfig, head: str) -> tuple[str, ...]:
    """Return the names of tensors (from `load_tensors`) that a model with this kind of head does not use, such as a
    pooler or another head; () if it uses all.

    Raises:
        DomainbertError: an encoder tensor does not belong to the architecture of `config.json`; or the head predicts
            vocabulary entries, and the folder's output weights are not tied to the embeddings.
    """
    model_family, used = family(config), _all_names(config, [head])
    valid_names = _all_names(config, head_kinds(config)) | set(model_family.ignored_tensors)
    unused = sorted(name for name in tensors if name not in used and not name.endswith(_BUFFERS))
    unexpected = [name for name in unused if name.startswith(model_family.prefix) and name not in valid_names]
    if unexpected:
        raise DomainbertError(
            f"{path}: unexpected weights: {', '.join(unexpected[:5])} ({len(unexpected)} in all); expected the weights "
            f"of the {config.model_type} encoder that config.json describes"
        )
    for copy, source in model_family.tied(config).items():
        if copy in unused and predicts_entries(config, head):
            raise DomainbertError(
                f"{path}: {copy} differs from {source}; expected a head that is tied to the embeddings"
            )
    return tuple(unused)


def check_types(path: Path, tensors: Mapping[str, Tensor], names: Iterable[str]) -> None:
    """Raise `DomainbertError` if a tensor in `names` has no floating-point numbers, such as quantised weights."""
    for name in names:
        if name in tensors and tensors[name].dtype not in WEIGHT_TYPES:
            raise DomainbertError(f"{path}: {name} holds {tensors[name].dtype}; expected weights of 16 to 64 bits")


def check_vocabulary(path: Path, tensors: Mapping[str, Tensor], config: EncoderConfig, vocab_size: int) -> None:
    """Raise `DomainbertError` if word embeddings are missing, quantised or not tied to the output weights, or if a
    tensor with one row per entry has another number of rows than in `config.json`."""
    for kind in head_kinds(config):
        if predicts_entries(config, kind):
            find_unused_weights(path, tensors, config, kind)
    names = vocabulary_names(config)
    check_types(path, tensors, names)
    if names[0] not in tensors:
        raise DomainbertError(f"{path}: {missing_weights_problem(names[:1])}")
    for name in names:
        if name in tensors and len(tensors[name]) != vocab_size:
            raise DomainbertError(f"{path}: {name} has {len(tensors[name]):,} rows; config.json implies {vocab_size:,}")


def _all_names(config: EncoderConfig, kinds: Sequence[str | None]) -> set[str]:
    """Return the Hugging Face names of all tensors of models with these kinds of heads."""
    return {name for kind in kinds for names in name_map(config, kind).values() for name in names}


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Return all tensors of a folder by name, from safetensors if there are any, otherwise from `pytorch_model.bin`.

    A `pytorch_model.bin` is a pickle; it is read with `weights_only=True`, which builds tensors and runs no code.
    The gamma and beta of norms in checkpoints from TensorFlow are renamed to weight and bias.

    Raises:
        DomainbertError: there are no weights, a file is missing, damaged or changed since a stage wrote it, a pickle
            contains more than tensors, or a weight is not finite.
    """
    file = find_weights(folder)
    tensors = _read_shards(file) if file.name.endswith(INDEX) else _read_file(file)
    current_names = {name: re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name)) for name in tensors}
    return {current_names[name]: tensor for name, tensor in tensors.items()}


def non_finite_problem(tensors: Mapping[str, Tensor]) -> str | None:
    """Return a message on the first tensor with NaN or infinite values and their number; None if all are finite."""
    for name, tensor in tensors.items():
        if tensor.dtype in WEIGHT_TYPES and not bool(tensor.isfinite().all()):
            count = int((~tensor.isfinite()).sum())
            return f"{name}: {count:,} of {tensor.numel():,} values are NaN or infinite"
    return None


def _read_file(file: Path) -> dict[str, Tensor]:
    """Return the tensors of a file; raise `DomainbertError` if a value is not finite."""
    tensors = _load_file(file)
    if problem := non_finite_problem(tensors):
        raise DomainbertError(f"{file}: {problem}; expected the weights of a model whose training did not diverge")
    return tensors


def _load_file(file: Path) -> dict[str, Tensor]:
    if file.suffix == ".safetensors":
        try:
            return load_file(file)
        except (SafetensorError, OSError) as error:
            raise DomainbertError(f"{file}: not a readable safetensors file: {error}") from error
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # UnpicklingError, RuntimeError, ...; torch's message advises weights_only=False
        raise DomainbertError(f"{file}: holds more than tensors, or is damaged; {_CONVERT}") from error
    if not isinstance(content, dict) or not all(isinstance(tensor, Tensor) for tensor in content.values()):
        raise DomainbertError(f"{file}: expected names and tensors, as written by `save_pretrained`; {_CONVERT}")
    return content


def _read_shards(index: Path) -> dict[str, Tensor]:
    """Return the tensors of all files that an index names."""
    try:
        file_by_tensor: dict[str, str] = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        files = sorted(set(file_by_tensor.values()))
        outside = [name for name in files if Path(name).name != name]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DomainbertError(f"{index}: not an index of weight files: {error!r}") from error
    if outside:
        raise DomainbertError(f"{index}: names {outside[0][:80]!r}; expected files in the same folder")
    tensors: dict[str, Tensor] = {}
    for name in files:
        if not (index.parent / name).is_file():
            raise DomainbertError(f"{index}: names {name}, which is missing; expected all {len(files)} weight files")
        tensors.update(_read_file(index.parent / name))
    missing = sorted(file_by_tensor.keys() - tensors.keys())
    if missing:
        raise DomainbertError(f"{index}: {missing_weights_problem(missing)}")
    return tensors
