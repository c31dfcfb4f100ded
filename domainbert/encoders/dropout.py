"""Dropout, and the random numbers of a training step.

On a CPU, `StepRandom` gives dropout a generator, which belongs to a training step: the step then does not depend on
earlier steps, on torch's global generator, or on a training in another thread. On a GPU, torch's generator of the
device draws.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from domainbert.encoders.torch_internals import without_compiler

_LANES = 4  # 16-bit numbers in a 64-bit number
_thread = threading.local()  # `generator`: of the training step that this thread computes


class StepRandom:
    """Generators that are seeded for each training step, so that resuming needs no generator state; outside of the
    steps, torch's global generators continue as if unused."""

    def __init__(self) -> None:
        self._outer_states: list[Tensor] = []  # of the global generators before the step: CPU, GPU

    def begin(self, numbers: Sequence[int], device: torch.device) -> None:
        """Seed the generators of the CPU and of the device by `numbers`, until `end`."""
        generator = np.random.SFC64([number % 2**64 for number in numbers])
        seed = generator.random_raw()
        on_gpu = device.type == "cuda"
        if not self._outer_states:  # else they are of a step that failed for lack of memory, and was repeated
            gpu_states = [torch.cuda.get_rng_state(device)] if on_gpu else []
            self._outer_states = [torch.get_rng_state(), *gpu_states]
        torch.default_generator.manual_seed(seed)  # torch.manual_seed checks all accelerators, which takes 1 ms
        if on_gpu:
            torch.cuda.manual_seed(seed)
        draw_from(generator)

    def end(self, device: torch.device) -> None:
        """Restore the generators from before the step; without effect outside of a step."""
        draw_from(None)
        if self._outer_states:
            cpu_state, *gpu_states = self._outer_states
            torch.set_rng_state(cpu_state)
            for state in gpu_states:
                torch.cuda.set_rng_state(state, device)
            self._outer_states = []


def current_generator() -> np.random.BitGenerator | None:
    """Return the generator of this thread's dropout on a CPU; None is torch's global generator."""
    return getattr(_thread, "generator", None)


def draw_from(generator: np.random.BitGenerator | None) -> None:
    """Set the generator of this thread's dropout on a CPU; None is torch's global generator."""
    _thread.generator = generator


@contextmanager
def _draw_again(generator: np.random.BitGenerator, state: Mapping[str, Any]) -> Iterator[None]:
    """Context manager: draw the numbers that followed `state` again."""
    outer, later_state = current_generator(), generator.state
    generator.state = state
    draw_from(generator)
    try:
        yield
    finally:  # torch ends a recomputation early by an exception
        generator.state = later_state
        draw_from(outer)


def checkpoint_contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Return `context_fn` of torch's `checkpoint`: contexts of the forward pass, and of its recomputation, which draws
    the same numbers."""
    generator = current_generator()
    if generator is None:  # torch restores the state of its own generators
        return nullcontext(), nullcontext()
    return nullcontext(), _draw_again(generator, generator.state)


def drop(values: Tensor, rate: float) -> Tensor:
    """Zero each element with probability `rate`, and scale the others by 1 / (1 - rate).

    On a CPU the probability is `rate`, rounded to a multiple of 1 / 65536.
    """
    if not rate or values.device.type != "cpu":
        return functional.dropout(values, rate)
    return _drop_on_cpu(values, rate)


@without_compiler  # compiled code is slower here, and the compiler cannot trace the random numbers
def _drop_on_cpu(values: Tensor, rate: float) -> Tensor:
    mask = _keep_mask(values.shape, rate)  # int16: 0 or 1
    scale = 1 / (1 - rate)
    if values.dtype.itemsize == mask.dtype.itemsize:
        # 16 bits: the mask times the bits of `scale` are the bits of the factors 0 and `scale`; a conversion is slow
        return values * mask.mul_(_bits_of_float(scale, values.dtype)).view(values.dtype)
    return values * mask.to(values.dtype).mul_(scale)


@functools.cache
def _bits_of_float(value: float, dtype: torch.dtype) -> int:
    return int(torch.tensor(value, dtype=dtype).view(torch.int16))


def _keep_mask(shape: torch.Size, rate: float) -> Tensor:
    """Return 1 for each element that dropout keeps and 0 for each that it drops, as int16. A random int16 is drawn for
    each element, and the element is dropped if this number is among the lowest `rate` * 65536 of the 65536 values."""
    num_dropped = min(round(rate * 2**16), 2**16 - 1)
    if not num_dropped:
        return torch.ones(shape, dtype=torch.int16)
    last_dropped = num_dropped - 1 - 2**15  # int16 values start at -2**15
    # min(max(x, last_dropped), last_dropped + 1) - last_dropped is 0 up to `last_dropped`, else 1; a comparison would
    # give booleans, which are slow to convert
    return _random_int16(shape).clamp_(last_dropped, last_dropped + 1).sub_(last_dropped)


def _random_int16(shape: torch.Size) -> Tensor:
    count, generator = math.prod(shape), current_generator()
    num_words = -(-count // _LANES)
    if generator is None:
        words = torch.empty(num_words, dtype=torch.int64).random_(-(2**63), None)  # any 64 bits
    else:
        words = torch.from_numpy(generator.random_raw(num_words).view(np.int64))
    return words.view(torch.int16)[:count].view(shape)
