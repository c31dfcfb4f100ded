"""The precision a device is good at."""

from __future__ import annotations

from typing import Literal

import torch

from domainbert.training.config import Precision


def resolve_precision(precision: Precision) -> Literal["32-true", "bf16-mixed", "16-mixed"]:
    """`auto` is `bf16-mixed` where the hardware multiplies bf16 matrices (GPUs, CPUs with AMX), else `32-true`."""
    if precision != "auto":
        return precision
    fast = torch.cuda.is_bf16_supported() if torch.cuda.is_available() else torch.cpu._is_amx_tile_supported()
    return "bf16-mixed" if fast else "32-true"


def autocast_dtype(precision: Precision) -> torch.dtype | None:
    """The dtype of `torch.autocast`, or None for full precision."""
    return {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}.get(resolve_precision(precision))
