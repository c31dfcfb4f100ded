"""The tensors of a Hugging Face folder under the names that a model with a head gives them, and which are too many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from domainbert.base.errors import DomainbertError
from domainbert.encoders.config import EncoderConfig
from domainbert.encoders.families import family, head_kinds, name_map
from domainbert.models.weights import WEIGHT_TYPES, read_weights

_BUFFERS = (".position_ids", ".token_type_ids")  # constants that older versions of transformers saved


def load_tensors(path: Path, config: EncoderConfig) -> dict[str, Tensor]:
    """All tensors of a folder; where the base model was saved alone, its names get the prefix they lack.

    Older versions of transformers saved tied tensors twice; here they are there once.

    Args:
        path: the model folder.
        config: its architecture.

    Raises:
        DomainbertError: the weights cannot be read.
    """
    own, tensors = family(config), read_weights(path)
    if not any(name.startswith(own.prefix) for name in tensors):
        tensors = {own.prefix + name: tensor for name, tensor in tensors.items()}
    for copy, source in own.tied(config).items():
        if copy in tensors and torch.equal(tensors[copy], tensors.setdefault(source, tensors[copy])):
            del tensors[copy]
    return tensors


def encoder_names(names: Mapping[str, Sequence[str]]) -> set[str]:
    """The Hugging Face names of the encoder's tensors in a name map."""
    return {name for ours, theirs in names.items() if ours.startswith("encoder.") for name in theirs}


def vocabulary_names(config: EncoderConfig) -> Sequence[str]:
    """The Hugging Face names of the tensors with a row for each entry, the word embeddings first."""
    return family(config).per_entry(config)


def predicts_entries(config: EncoderConfig, kind: str) -> bool:
    """Whether a kind of head predicts vocabulary entries, with the word embeddings as output weights."""
    return set(vocabulary_names(config)) <= _all_names(config, [kind])


def check_names(path: Path, tensors: Iterable[str], config: EncoderConfig, head: str) -> tuple[str, ...]:
    """The names of tensors that a model with this head has no place for: a pooler, or another head, which is usual.

    Args:
        path: the folder, for messages.
        tensors: names, as `load_tensors` gives them.
        config: the architecture.
        head: one of `encoders.families.head_kinds`.

    Raises:
        DomainbertError: a part of an encoder that is not the one of `config.json`; or the head predicts entries and the
            folder has output weights of its own.
    """
    used, known = _all_names(config, [head]), _all_names(config, head_kinds(config)) | set(family(config).unread)
    left = sorted(name for name in tensors if name not in used and not name.endswith(_BUFFERS))
    foreign = [name for name in left if name.startswith(family(config).prefix) and name not in known]
    if foreign:
        raise DomainbertError(
            f"{path}: weights that config.json does not account for: {', '.join(foreign[:5])} ({len(foreign)} in all); "
            f"expected those of the {config.model_type} encoder it describes"
        )
    apart = [(copy, source) for copy, source in family(config).tied(config).items() if copy in left]
    if apart and predicts_entries(config, head):
        copy, source = apart[0]
        raise DomainbertError(f"{path}: {copy} differs from {source}; expected a head that is tied to the embeddings")
    return tuple(left)


def check_types(path: Path, tensors: Mapping[str, Tensor], names: Iterable[str]) -> None:
    """Refuse quantised weights, which mean nothing without their scales, and whole numbers, which are none."""
    for name in names:
        if name in tensors and tensors[name].dtype not in WEIGHT_TYPES:
            raise DomainbertError(f"{path}: {name} holds {tensors[name].dtype}; expected weights of 16 to 64 bits")


def check_vocabulary(path: Path, tensors: Mapping[str, Tensor], config: EncoderConfig, vocab_size: int) -> None:
    """Check that the tensors with a row for each entry are all there are, and fit `config.json`.

    Args:
        path: the folder, for messages.
        tensors: as `load_tensors` gives them.
        config: the architecture.
        vocab_size: rows that `config.json` says.

    Raises:
        DomainbertError: they are missing, quantised, of another length, or the output weights are not the embeddings.
    """
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


def _all_names(config: EncoderConfig, kinds: Sequence[str]) -> set[str]:
    return {name for kind in kinds for theirs in name_map(config, kind).values() for name in theirs}
