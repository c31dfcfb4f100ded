"""The tensors of a Hugging Face folder under the names that a model with a head gives them, and which are too many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from domainbert.base.errors import DomainbertError
from domainbert.encoders.base import HEADS
from domainbert.encoders.config import EncoderConfig
from domainbert.encoders.families import family
from domainbert.encoders.shapes import shapes_only
from domainbert.models.weights import WEIGHT_TYPES, read_weights

_BUFFERS = (".position_ids", ".token_type_ids")  # constants that older versions of transformers saved


def load_tensors(path: Path, config: EncoderConfig) -> dict[str, Tensor]:
    """All tensors of a folder; where the base model was saved alone, its names get the prefix they lack.

    Older versions of transformers saved the tied output weights and bias twice; here they are there once.

    Args:
        path: the model folder.
        config: its architecture.

    Raises:
        DomainbertError: the weights cannot be read.
    """
    prefix, tensors = base_prefix(config), read_weights(path)
    if not any(name.startswith(prefix) for name in tensors):
        tensors = {prefix + name: tensor for name, tensor in tensors.items()}
    embeddings, bias = vocabulary_names(config)
    weight_again, bias_again = (f"{_decoder(config)}.{kind}" for kind in ("weight", "bias"))
    if bias_again in tensors and bias_again != bias:
        tensors.setdefault(bias, tensors[bias_again])
        del tensors[bias_again]
    if embeddings in tensors and weight_again in tensors and torch.equal(tensors[weight_again], tensors[embeddings]):
        del tensors[weight_again]
    return tensors


def base_prefix(config: EncoderConfig) -> str:
    """What Hugging Face's base model is called in a model with a head: "bert."."""
    return min(encoder_names(family(config).name_map(config, None))).partition(".")[0] + "."


def encoder_names(names: Mapping[str, Sequence[str]]) -> set[str]:
    """The Hugging Face names of the encoder's tensors in a name map."""
    return {name for ours, theirs in names.items() if ours.startswith("encoder.") for name in theirs}


def vocabulary_names(config: EncoderConfig) -> tuple[str, str]:
    """The Hugging Face names of the two tensors with a row for each entry: word embeddings, and masked-LM bias."""
    with shapes_only():
        encoder = family(config).build_encoder(config, vocab_size=1)
    weight = encoder.input_embeddings.weight
    ours = next(name for name, parameter in encoder.named_parameters() if parameter is weight)
    names = family(config).name_map(config, "masked_lm")
    return names[f"encoder.{ours}"][0], names["head.bias"][0]


def check_names(path: Path, tensors: Iterable[str], config: EncoderConfig, head: str) -> tuple[str, ...]:
    """The names of tensors that a model with this head has no place for: a pooler, or another head, which is usual.

    Args:
        path: the folder, for messages.
        tensors: names, as `load_tensors` gives them.
        config: the architecture.
        head: one of `encoders.base.HEADS`.

    Raises:
        DomainbertError: a part of an encoder that is not the one of `config.json`; or the head is `masked_lm` and the
            folder has output weights of its own.
    """
    used, known = _all_names(config, [head]), _all_names(config, HEADS)
    left = sorted(name for name in tensors if name not in used and not name.endswith(_BUFFERS))
    foreign = [name for name in left if name.startswith(base_prefix(config)) and name not in known]
    if foreign:
        raise DomainbertError(
            f"{path}: weights that config.json does not account for: {', '.join(foreign[:5])} ({len(foreign)} in all); "
            f"expected those of the {config.model_type} encoder it describes"
        )
    decoder = _decoder(config) + ".weight"
    if head == "masked_lm" and decoder in left:
        raise DomainbertError(
            f"{path}: {decoder} differs from the word embeddings; expected a head that is tied to them"
        )
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
    check_names(path, tensors, config, "masked_lm")
    names = vocabulary_names(config)
    check_types(path, tensors, names)
    if names[0] not in tensors:
        raise DomainbertError(f"{path}: weights are missing: {names[0]}")
    for name in names:
        if name in tensors and len(tensors[name]) != vocab_size:
            raise DomainbertError(f"{path}: {name} has {len(tensors[name]):,} rows; config.json implies {vocab_size:,}")


def _all_names(config: EncoderConfig, heads: Sequence[str]) -> set[str]:
    return {name for head in heads for theirs in family(config).name_map(config, head).values() for name in theirs}


def _decoder(config: EncoderConfig) -> str:
    """What Hugging Face calls the output layer that is tied to the embeddings, without `.weight` and `.bias`."""
    stem = vocabulary_names(config)[1].removesuffix(".bias")
    return stem if stem.endswith("projector") else f"{stem}.decoder"
