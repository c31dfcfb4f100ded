"""The precision a device is good at."""

from __future__ import annotations

from typing import Literal

import torch

from domainbert.training.config import Precision


def resolve_precision(precision: Precision) -> Literal["32-true", "bf16-mixed", "16-mixed"]:
    """`auto` is `bf16-mixed` where the hardware multiplies bf16 matrices, else `32-true`.

    These are GPUs from Ampere on (older ones emulate bf16, slowly), and CPUs with AMX or AVX512-BF16.
    """
    if precision != "auto":
        return precision
    if torch.cuda.is_available():
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        found = torch.cpu.get_capabilities()
        fast = found.get("amx_bf16", False) or found.get("avx512_bf16", False)
    return "bf16-mixed" if fast else "32-true"


def autocast_dtype(precision: Precision) -> torch.dtype | None:
    """The dtype of `torch.autocast`, or None for full precision."""
    return {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}.get(resolve_precision(precision))
