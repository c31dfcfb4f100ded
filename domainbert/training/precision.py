"""The precision a device is good at."""

from __future__ import annotations

from typing import Literal

import torch

from domainbert.training.config import Precision


def trains_on_gpu(accelerator: str | None = None) -> bool:
    """Whether a training with this accelerator, of `lightning.Trainer`, is on a GPU; None takes one if there is any."""
    return torch.cuda.is_available() and accelerator != "cpu"


def resolve_precision(
    precision: Precision, accelerator: str | None = None
) -> Literal["32-true", "bf16-mixed", "16-mixed"]:
    """`auto` is `bf16-mixed` where the hardware multiplies bf16 matrices, else `32-true`.

    These are GPUs from Ampere on (older ones emulate bf16, slowly), CPUs with AMX, and AMD's with AVX512-BF16. Intel's
    multiply bf16 at half the speed of fp32 with that alone, which is what a virtual machine without AMX leaves of them
    (Emerald Rapids: 84 against 155 GFLOP/s). The `accelerator` is that of `trains_on_gpu`.
    """
    if precision != "auto":
        return precision
    if trains_on_gpu(accelerator):
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        found = torch.cpu.get_capabilities()
        vectors = found.get("avx512_bf16", False) and not found.get("cpu_name", "").startswith("Intel")
        fast = found.get("amx_bf16", False) or vectors
    return "bf16-mixed" if fast else "32-true"


def autocast_dtype(precision: Precision, accelerator: str | None = None) -> torch.dtype | None:
    """The dtype of `torch.autocast`, or None for full precision."""
    return {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}.get(resolve_precision(precision, accelerator))
