"""Functions that torch's compiler leaves alone. To say so imports it, a second: import this where it is called."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from domainbert.encoders.text_dropout import random_int16


@torch.compiler.assume_constant_result
def has_flash(index: int | None) -> bool:
    """Whether torch's flash attention is built in, and GPU number `index` can run it."""
    return torch.backends.cuda.is_flash_attention_available() and torch.cuda.get_device_capability(index) >= (8, 0)


@torch.compiler.disable  # what it makes of these few operations is slower, and it cannot draw the numbers
def dropout_on_cpu(values: Tensor, rate: float, by_text: bool, positions: Tensor | None) -> Tensor:
    """See `attention.drop`."""
    kept, scale = _kept(values.shape, rate, by_text, positions), 1 / (1 - rate)
    if values.dtype.itemsize == kept.dtype.itemsize:
        # The same factors by their bits: to convert them takes longer than all else but the random numbers.
        return values * kept.mul_(_bits(scale, values.dtype)).view(values.dtype)
    return values * kept.to(values.dtype).mul_(scale)


@functools.cache
def _bits(value: float, dtype: torch.dtype) -> int:
    """The bits of a 16-bit floating-point number, as an int16."""
    return int(torch.tensor(value, dtype=dtype).view(torch.int16))


def _kept(shape: torch.Size, rate: float, by_text: bool, positions: Tensor | None) -> Tensor:
    """1 where an element is kept, else 0, as int16.

    Clamping stands for a comparison because booleans are slow to convert.
    """
    dropped = min(round(rate * 2**16), 2**16 - 1)  # of the 65,536 numbers, so many, the lowest
    if not dropped:
        return torch.ones(shape, dtype=torch.int16)
    last = dropped - 1 - 2**15
    return random_int16(shape, by_text, positions).clamp_(last, last + 1).sub_(last)
