"""The reversible map between our parameter names and those of Hugging Face."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

NameMap = dict[str, tuple[str, ...]]
"""Our parameter -> the Hugging Face tensors it consists of, stacked along the first dimension."""


def with_weight_and_bias(modules: Mapping[str, str | tuple[str, ...]]) -> NameMap:
    """The map of parameters of modules that have a weight and a bias: ours to theirs, or to those stacked in it."""
    names: NameMap = {}
    for kind in ("weight", "bias"):
        for ours, theirs in modules.items():
            stacked = (theirs,) if isinstance(theirs, str) else theirs
            names[f"{ours}.{kind}"] = tuple(f"{name}.{kind}" for name in stacked)
    return names


def numbered(
    ours: str, theirs: Sequence[str], parts: Mapping[str, tuple[str, ...]]
) -> dict[str, str | tuple[str, ...]]:
    """Modules of layers: `{ours}.0.{part}` to `{theirs[0]}.{part}`, ..."""
    return {
        f"{ours}.{index}.{part}": tuple(f"{layer}.{name}" for name in names)
        for index, layer in enumerate(theirs)
        for part, names in parts.items()
    }


def to_hugging_face(state: Mapping[str, Tensor], names: NameMap) -> dict[str, Tensor]:
    """Our state dict under Hugging Face names, stacked tensors taken apart."""
    result: dict[str, Tensor] = {}
    for ours, theirs in names.items():
        parts = state[ours].detach().chunk(len(theirs), dim=0)
        result.update({name: part.contiguous() for name, part in zip(theirs, parts, strict=True)})
    return result


def from_hugging_face(tensors: Mapping[str, Tensor], names: NameMap) -> tuple[dict[str, Tensor], list[str]]:
    """Our state dict from tensors under Hugging Face names, and the names that were missing."""
    state: dict[str, Tensor] = {}
    missing: list[str] = []
    for ours, theirs in names.items():
        absent = [name for name in theirs if name not in tensors]
        missing.extend(absent)
        if not absent:
            parts = [tensors[name].to(torch.float32) for name in theirs]
            state[ours] = torch.cat(parts) if len(parts) > 1 else parts[0]
    return state, missing
