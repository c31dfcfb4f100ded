"""Random bits for dropout on a CPU, drawn for each text separately.

Dropout of a text is therefore independent of its row and batch: micro-batches, ranks and packing change the speed, but
not the result. A GPU draws for a whole tensor at once, because drawing for each text would dominate the time.
"""

from __future__ import annotations

import math
import weakref
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from domainbert.base.counter_random import advance_states, draw_numbers, random_bits
from domainbert.encoders.packed import pad_positions, segment_starts

Ints = NDArray[np.int64]

_LANES = 4  # 16-bit numbers in a 64-bit number


class TextDraws:
    """Random numbers for the texts in the rows of a micro-batch.

    Args:
        segment_ids: (B, S), 0 for padding, on the CPU.
        positions: (N,) flattened positions that the head reads.
        seeds: one seed for each text, row by row.
    """

    def __init__(self, segment_ids: Tensor, positions: Tensor, seeds: NDArray[np.uint64]) -> None:
        batch, length = segment_ids.shape
        self.shape, self.positions = (batch, length), positions
        self._segment_ids, self._text_seeds = segment_ids, seeds

    @cached_property
    def _segment_starts(self) -> Ints:
        """Index of the first token of each segment, padding included; computed only if there is dropout."""
        return segment_starts(self._segment_ids).numpy()

    @cached_property
    def _segment_sizes(self) -> Ints:
        return np.diff(self._segment_starts, append=self._segment_ids.numel())

    @cached_property
    def _is_text(self) -> NDArray[np.bool_]:
        return self._segment_ids.flatten().numpy()[self._segment_starts] > 0

    @cached_property
    def _segment_seeds(self) -> NDArray[np.uint64]:
        """Seed of each segment; 0 for padding."""
        if self._is_text.sum() != len(self._text_seeds):
            raise ValueError(f"{len(self._text_seeds)} seeds for {self._is_text.sum()} texts")
        seeds = np.zeros(len(self._segment_starts), dtype=np.uint64)
        seeds[self._is_text] = self._text_seeds
        return seeds

    def bits(self, shape: torch.Size, positions: Tensor | None = None) -> NDArray[np.int16]:
        """Return random bits for a tensor of this shape; the last dimension is padded to a multiple of 4.

        Supported shapes are (B, S, W) of hidden states; (N, W) of hidden states at flattened `positions` (N,), with the
        same bits as in (B, S, W); and (B, heads, S, S) of attention probabilities, with 0 between different texts.
        `positions` are by default the ones that the head reads, with or without `pad_positions`. Other shapes raise
        `ValueError`.
        """
        # All micro-batches make the same calls after the same seed, so this number depends only on the call. It comes
        # from torch's generator because activation checkpointing restores the state of that generator.
        call_number = int(torch.empty((), dtype=torch.int64).random_())
        states = random_bits(self._segment_seeds, call_number)
        padded = *shape[:-1], -(-shape[-1] // _LANES) * _LANES
        words = padded[-1] // _LANES
        positions = self.positions if positions is None else positions
        if len(shape) == 2 and shape[0] in (len(positions), len(pad_positions(positions))):
            token_positions = pad_positions(positions)[: shape[0]].numpy()
            texts = np.searchsorted(self._segment_starts, token_positions, side="right") - 1
            starts = advance_states(states[texts], (token_positions - self._segment_starts[texts]) * words)
            return draw_numbers(starts, np.full(len(token_positions), words)).view(np.int16).reshape(padded)
        if len(shape) == 3 and shape[:2] == self.shape:
            return draw_numbers(states, self._segment_sizes * words).view(np.int16).reshape(padded)
        if len(shape) == 4 and (shape[0], shape[2], shape[3]) == (*self.shape, self.shape[1]):
            return self._attention_bits(states[self._is_text], shape[1])
        raise ValueError(f"found shape {tuple(shape)}; expected {self.shape} tokens or {len(positions)} positions")

    def _attention_bits(self, states: NDArray[np.uint64], heads: int) -> NDArray[np.int16]:
        """Return random bits (B, heads, S, S), from a generator state per text; 0 between different texts."""
        batch, length = self.shape
        sizes = self._segment_sizes[self._is_text]
        widths = -(-sizes // _LANES) * _LANES
        counts = heads * sizes * widths
        text_bits = draw_numbers(states, counts // _LANES).view(np.int16)
        if len(sizes) == batch and (sizes == length).all():
            return text_bits.reshape(batch, heads, length, widths[0])  # each row is one text
        bits = np.zeros((batch, heads, length, -(-length // _LANES) * _LANES), dtype=np.int16)
        text_stops = np.cumsum(counts)
        text_starts = self._segment_starts[self._is_text]
        for start, size, width, stop, count in zip(text_starts, sizes, widths, text_stops, counts, strict=True):
            row, column = divmod(int(start), length)
            text = slice(column, column + size)
            bits[row, :, text, text] = text_bits[stop - count : stop].reshape(heads, size, width)[..., :size]
        return bits


_draws: weakref.ref[TextDraws] | None = None


def draw_by_text(draws: TextDraws | None) -> None:
    """Set the random numbers for dropout on the CPU, used while `draws` is referenced elsewhere; None unsets them."""
    global _draws
    _draws = None if draws is None else weakref.ref(draws)


def random_int16(shape: torch.Size, by_text: bool = True, positions: Tensor | None = None) -> Tensor:
    """Return random bits as int16: from the `TextDraws` set by `draw_by_text`, or else from torch's generator.

    `by_text=False` always uses torch's generator, whose numbers are equal in all micro-batches if the shapes are equal.
    """
    draws = _draws() if by_text and _draws is not None else None
    if draws is not None:
        return torch.from_numpy(draws.bits(shape, positions))[..., : shape[-1]]
    count = math.prod(shape)
    words = torch.empty(-(-count // _LANES), dtype=torch.int64).random_(-(2**63), None)
    return words.view(torch.int16)[:count].view(shape)
