"""The tensors of a Hugging Face folder: safetensors or PyTorch's own format, in one file or in shards, under the names
that a model with a head gives them; and which are too many."""

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
from domainbert.models.weight_files import INDEX, find_weights

WEIGHT_TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_CONVERT = (
    "if you trust it, convert it to safetensors: "
    "transformers.AutoModelForMaskedLM.from_pretrained(folder).save_pretrained(folder)"
)
_BUFFERS = (".position_ids", ".token_type_ids")  # constants that older versions of transformers saved


def load_tensors(path: Path, config: EncoderConfig) -> dict[str, Tensor]:
    """All tensors of a folder; where the base model was saved alone, its names get the prefix they lack.

    Older versions of transformers saved tied tensors twice; here they are there once.
    """
    own, tensors = family(config), read_weights(path)
    if not any(name.startswith(own.prefix) for name in tensors):
        tensors = {own.prefix + name: tensor for name, tensor in tensors.items()}
    tensors = {own.renamed(name, config): tensor for name, tensor in tensors.items()}
    for copy, source in own.tied(config).items():
        if copy in tensors and torch.equal(tensors[copy], tensors.setdefault(source, tensors[copy])):
            del tensors[copy]
    return tensors


def vocabulary_names(config: EncoderConfig) -> Sequence[str]:
    """The Hugging Face names of the tensors with a row for each entry, the word embeddings first."""
    return family(config).per_entry(config)


def predicts_entries(config: EncoderConfig, kind: str | None) -> bool:
    """Whether a kind of head predicts vocabulary entries, with the word embeddings as output weights."""
    return set(vocabulary_names(config)) <= _all_names(config, [kind])


def check_names(path: Path, tensors: Iterable[str], config: EncoderConfig, head: str) -> tuple[str, ...]:
    """The names of tensors, of `load_tensors`, that a model with this head has no place for: a pooler, or another head,
    which is usual.

    Raises:
        DomainbertError: a part of an encoder that is not the one of `config.json`; or the head predicts entries and the
            folder has output weights of its own.
    """
    own, used = family(config), _all_names(config, [head])
    known = _all_names(config, head_kinds(config)) | set(own.unread)
    left = sorted(name for name in tensors if name not in used and not name.endswith(_BUFFERS))
    foreign = [name for name in left if name.startswith(own.prefix) and name not in known]
    if foreign:
        raise DomainbertError(
            f"{path}: weights that config.json does not account for: {', '.join(foreign[:5])} ({len(foreign)} in all); "
            f"expected those of the {config.model_type} encoder it describes"
        )
    for copy, source in own.tied(config).items() if predicts_entries(config, head) else ():
        if copy in left:
            raise DomainbertError(
                f"{path}: {copy} differs from {source}; expected a head that is tied to the embeddings"
            )
    return tuple(left)


def check_types(path: Path, tensors: Mapping[str, Tensor], names: Iterable[str]) -> None:
    """Refuse quantised weights, which mean nothing without their scales, and whole numbers, which are none."""
    for name in names:
        if name in tensors and tensors[name].dtype not in WEIGHT_TYPES:
            raise DomainbertError(f"{path}: {name} holds {tensors[name].dtype}; expected weights of 16 to 64 bits")


def check_vocabulary(path: Path, tensors: Mapping[str, Tensor], config: EncoderConfig, vocab_size: int) -> None:
    """`DomainbertError` where tensors with a row for each entry are missing, quantised or not of the length that
    `config.json` says, or the output weights are not the embeddings."""
    for kind in head_kinds(config):
        if predicts_entries(config, kind):
            check_names(path, tensors, config, kind)
    names = vocabulary_names(config)
    check_types(path, tensors, names)
    if names[0] not in tensors:
        raise DomainbertError(f"{path}: weights are missing: {names[0]}")
    for name in names:
        if name in tensors and len(tensors[name]) != vocab_size:
            raise DomainbertError(f"{path}: {name} has {len(tensors[name]):,} rows; config.json implies {vocab_size:,}")


def _all_names(config: EncoderConfig, kinds: Sequence[str | None]) -> set[str]:
    return {name for kind in kinds for theirs in name_map(config, kind).values() for name in theirs}


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
    if found := non_finite(tensors):
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
    except Exception as error:  # UnpicklingError, RuntimeError, ...; what torch says there is to drop the guard
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
    if unusual:
        raise DomainbertError(f"{index}: names {unusual[0][:80]!r}; expected files in the same folder")
    tensors: dict[str, Tensor] = {}
    for name in files:
        if not (index.parent / name).is_file():
            raise DomainbertError(f"{index}: names {name}, which is not there; expected all {len(files)} weight files")
        tensors.update(_read_file(index.parent / name))
    missing = sorted(places.keys() - tensors.keys())
    if missing:
        raise DomainbertError(f"{index}: {', '.join(missing[:5])} in none of its files ({len(missing)} in all)")
    return tensors
