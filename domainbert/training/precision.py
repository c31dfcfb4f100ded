"""Choice of the training precision for a device."""

from __future__ import annotations

from typing import Literal

import torch

from domainbert.training.config import Precision


def trains_on_gpu(accelerator: str | None = None) -> bool:
    """Return whether training uses a GPU with this `accelerator` of `lightning.Trainer`; None uses an available GPU."""
    return torch.cuda.is_available() and accelerator != "cpu"


def resolve_precision(
    precision: Precision, accelerator: str | None = None
) -> Literal["32-true", "bf16-mixed", "16-mixed"]:
    """Return the precision, with `auto` resolved: `bf16-mixed` if the hardware multiplies bf16 matrices fast, else
    `32-true`.

    Fast are GPUs from Ampere on (older GPUs emulate bf16 slowly), CPUs with AMX, and AMD CPUs with AVX512-BF16. Intel
    CPUs with AVX512-BF16 but without AMX (as in some virtual machines) multiply bf16 at half the speed of fp32 (Emerald
    Rapids: 84 and 155 GFLOP/s). `accelerator` is as in `trains_on_gpu`.
    """
    if precision != "auto":
        return precision
    if trains_on_gpu(accelerator):
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        features = torch.cpu.get_capabilities()
        # without AMX, only AMD
        fast_vectors = features.get("avx512_bf16", False) and not features.get("cpu_name", "").startswith("Intel")
        fast = features.get("amx_bf16", False) or fast_vectors
    return "bf16-mixed" if fast else "32-true"


def autocast_dtype(precision: Precision, accelerator: str | None = None) -> torch.dtype | None:
    """Return the dtype for `torch.autocast`; None for full precision."""
    return {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}.get(resolve_precision(precision, accelerator))
