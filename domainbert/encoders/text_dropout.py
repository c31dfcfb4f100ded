"""Random bits of dropout on a CPU: drawn for each text by itself.

A text then drops the same elements wherever it stands: micro-batches, ranks and packing change the speed, never the
result. A GPU draws for a whole tensor at once instead; text by text would take more time there than all else.
"""

from __future__ import annotations

import math
import weakref
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from domainbert.base.counter_random import random_bits, skipped, streams
from domainbert.encoders.packed import filled_up, segment_starts

Ints = NDArray[np.int64]

_LANES = 4  # 16-bit numbers in one of 64 bits


class TextDraws:
    """The texts in the rows of a micro-batch, each with its own random numbers.

    Args:
        segment_ids: (B, S), 0 for padding, on the CPU.
        positions: (N,) flattened positions that the head reads.
        seeds: random numbers, one for each text, row by row.
    """

    def __init__(self, segment_ids: Tensor, positions: Tensor, seeds: NDArray[np.uint64]) -> None:
        batch, length = segment_ids.shape
        self.shape, self.positions = (batch, length), positions
        self._segment_ids, self._given = segment_ids, seeds

    @cached_property
    def _first(self) -> Ints:
        """First place of each segment, padding too, in the flattened tokens. Nothing asks for it without dropout."""
        return segment_starts(self._segment_ids).numpy()

    @cached_property
    def _sizes(self) -> Ints:
        return np.diff(self._first, append=self._segment_ids.numel())

    @cached_property
    def _real(self) -> NDArray[np.bool_]:
        return self._segment_ids.flatten().numpy()[self._first] > 0

    @cached_property
    def _seeds(self) -> NDArray[np.uint64]:
        """The seed of each segment; 0 for padding."""
        if self._real.sum() != len(self._given):
            raise ValueError(f"{len(self._given)} seeds for {self._real.sum()} texts")
        seeds = np.zeros(len(self._first), dtype=np.uint64)
        seeds[self._real] = self._given
        return seeds

    def bits(self, shape: torch.Size, positions: Tensor | None = None) -> NDArray[np.int16]:
        """Random bits for a tensor of this shape; `ValueError` if it is not one of these texts.

        That is (B, S, W) of hidden states, (N, W) of those at flattened `positions` (N,), which have the bits that they
        have among all, or (B, heads, S, S) of attention probabilities, of which those between two texts are 0. Where no
        positions are given, they are what the head reads, perhaps `filled_up`. The last dimension is filled up to a
        multiple of 4.
        """
        # All micro-batches make the same calls after the same seed, so this number tells the calls apart, and nothing
        # else. It comes from torch's own generator because a layer that is computed again has that one wound back.
        call = int(torch.empty((), dtype=torch.int64).random_())
        states = random_bits(self._seeds, call)
        wide = *shape[:-1], -(-shape[-1] // _LANES) * _LANES
        words = wide[-1] // _LANES
        places = self.positions if positions is None else positions
        if len(shape) == 2 and shape[0] in (len(places), len(filled_up(places))):
            read = filled_up(places)[: shape[0]].numpy()
            texts = np.searchsorted(self._first, read, side="right") - 1
            begun = skipped(states[texts], (read - self._first[texts]) * words)
            return streams(begun, np.full(len(read), words)).view(np.int16).reshape(wide)
        if len(shape) == 3 and shape[:2] == self.shape:
            return streams(states, self._sizes * words).view(np.int16).reshape(wide)
        if len(shape) == 4 and (shape[0], shape[2], shape[3]) == (*self.shape, self.shape[1]):
            return self._squares(states[self._real], shape[1])
        raise ValueError(f"a tensor of shape {tuple(shape)} is none of {self.shape} tokens or {len(places)} reads")

    def _squares(self, states: NDArray[np.uint64], heads: int) -> NDArray[np.int16]:
        batch, length = self.shape
        sizes = self._sizes[self._real]
        widths = -(-sizes // _LANES) * _LANES
        counts = heads * sizes * widths
        drawn = streams(states, counts // _LANES).view(np.int16)
        if len(sizes) == batch and (sizes == length).all():
            return drawn.reshape(batch, heads, length, widths[0])  # each row is one text
        bits = np.zeros((batch, heads, length, -(-length // _LANES) * _LANES), dtype=np.int16)
        stops = np.cumsum(counts)
        for start, size, width, stop, count in zip(self._first[self._real], sizes, widths, stops, counts, strict=True):
            row, first = divmod(int(start), length)
            here = slice(first, first + size)
            bits[row, :, here, here] = drawn[stop - count : stop].reshape(heads, size, width)[..., :size]
        return bits


_draws: weakref.ref[TextDraws] | None = None


def draw_by_text(draws: TextDraws | None) -> None:
    """Let dropout on the CPU draw by these texts from now on, as long as someone keeps them; None ends that."""
    global _draws
    _draws = None if draws is None else weakref.ref(draws)


def random_int16(shape: torch.Size, by_text: bool = True, positions: Tensor | None = None) -> Tensor:
    """Random bits as int16 of any shape: by text, where `draw_by_text` has said which; see `TextDraws.bits`.

    A random number of 64 bits serves four elements. What belongs to no text (`by_text` off) has those of torch's
    generator, which are the same in all micro-batches: as long as its shape is.
    """
    draws = _draws() if by_text and _draws is not None else None
    if draws is not None:
        return torch.from_numpy(draws.bits(shape, positions))[..., : shape[-1]]
    count = math.prod(shape)
    words = torch.empty(-(-count // _LANES), dtype=torch.int64).random_(-(2**63), None)
    return words.view(torch.int16)[:count].view(shape)
