"""Reversible map between domainbert's and Hugging Face's parameter names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

NameMap = dict[str, tuple[str, ...]]
"""Hugging Face names by parameter; several tensors are stacked along the first dimension to one parameter."""


def with_weight_and_bias(modules: Mapping[str, str | tuple[str, ...]]) -> NameMap:
    """Return the Hugging Face names of the weight and the bias of each module, by their names here. `modules` has, for
    each module here, the name of its Hugging Face module, or the names of several that are stacked in it."""
    names: NameMap = {}
    for parameter in ("weight", "bias"):
        for module, hf_modules in modules.items():
            stacked = (hf_modules,) if isinstance(hf_modules, str) else hf_modules
            names[f"{module}.{parameter}"] = tuple(f"{name}.{parameter}" for name in stacked)
    return names


def map_layers(hf_layers: Sequence[str], parts: Mapping[str, tuple[str, ...]]) -> dict[str, str | tuple[str, ...]]:
    """Return the Hugging Face names of the modules of all layers, by name, for `with_weight_and_bias`.

    >>> map_layers(["bert.encoder.layer.0"], {"attention.output": ("attention.output.dense",)})
    {'encoder.layers.0.attention.output': ('bert.encoder.layer.0.attention.output.dense',)}
    """
    names: dict[str, str | tuple[str, ...]] = {}
    for index, hf_layer in enumerate(hf_layers):
        for part, hf_parts in parts.items():
            names[f"encoder.layers.{index}.{part}"] = tuple(f"{hf_layer}.{hf_part}" for hf_part in hf_parts)
    return names


def to_hugging_face(state: Mapping[str, Tensor], names: NameMap) -> dict[str, Tensor]:
    """Return a state dict under Hugging Face names; stacked tensors are split."""
    result: dict[str, Tensor] = {}
    for name, hf_names in names.items():
        parts = state[name].detach().chunk(len(hf_names), dim=0)
        result.update({hf_name: part.contiguous() for hf_name, part in zip(hf_names, parts, strict=True)})
    return result


def from_hugging_face(tensors: Mapping[str, Tensor], names: NameMap) -> tuple[dict[str, Tensor], list[str]]:
    """Return the state dict of tensors under Hugging Face names, in fp32, and the Hugging Face names that are missing.

    A parameter is left out if one of its tensors is missing.
    """
    state: dict[str, Tensor] = {}
    missing: list[str] = []
    for name, hf_names in names.items():
        absent = [hf_name for hf_name in hf_names if hf_name not in tensors]
        missing.extend(absent)
        if not absent:
            parts = [tensors[hf_name].to(torch.float32) for hf_name in hf_names]
            state[name] = torch.cat(parts) if len(parts) > 1 else parts[0]
    return state, missing
