"""Functions that torch's compiler must skip. The decorators import it, a second: import this module in functions."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from domainbert.encoders.text_dropout import random_int16


@torch.compiler.assume_constant_result
def has_flash(index: int | None) -> bool:
    """Return whether torch has flash attention and GPU number `index` supports it."""
    return torch.backends.cuda.is_flash_attention_available() and torch.cuda.get_device_capability(index) >= (8, 0)


@torch.compiler.disable  # compiled code is slower here, and the compiler cannot trace the random numbers
def dropout_on_cpu(values: Tensor, rate: float, by_text: bool, positions: Tensor | None) -> Tensor:
    """Return `values` after dropout with random bits from `text_dropout`; see `attention.drop`."""
    mask, scale = _keep_mask(values.shape, rate, by_text, positions), 1 / (1 - rate)
    if values.dtype.itemsize == mask.dtype.itemsize:
        # The factors are built from their bits, because a conversion would be slow.
        return values * mask.mul_(_bits(scale, values.dtype)).view(values.dtype)
    return values * mask.to(values.dtype).mul_(scale)


@functools.cache
def _bits(value: float, dtype: torch.dtype) -> int:
    """Return the bits of a 16-bit floating-point number, as an int16."""
    return int(torch.tensor(value, dtype=dtype).view(torch.int16))


def _keep_mask(shape: torch.Size, rate: float, by_text: bool, positions: Tensor | None) -> Tensor:
    """Return 1 for a kept element and 0 for a dropped one, as int16, by clamping: booleans are slow to convert."""
    num_dropped = min(round(rate * 2**16), 2**16 - 1)  # of the 65,536 numbers, the lowest ones
    if not num_dropped:
        return torch.ones(shape, dtype=torch.int16)
    last = num_dropped - 1 - 2**15  # highest number that is dropped
    return random_int16(shape, by_text, positions).clamp_(last, last + 1).sub_(last)
