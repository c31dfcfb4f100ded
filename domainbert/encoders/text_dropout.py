"""Random bits of dropout on a CPU: drawn for each text by itself.

A text then drops the same elements wherever it stands: micro-batches, ranks and packing change the speed, never the
result. A GPU draws for a whole tensor at once instead; text by text would take more time there than all else.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence

import torch
from torch import Tensor

from domainbert.encoders.packed import segment_starts

_DIFFERENT = (1 << 32) - 1  # torch seeds its generator with 32 bits


class TextDraws:
    """The texts in the rows of a micro-batch, each with its own random numbers.

    Args:
        segment_ids: (B, S), 0 for padding, on the CPU.
        positions: (N,) flattened positions that the head reads, text after text.
        seeds: random numbers, one for each text, row by row.
    """

    def __init__(self, segment_ids: Tensor, positions: Tensor, seeds: Sequence[int]) -> None:
        batch, length = segment_ids.shape
        self.shape = batch, length
        first = segment_starts(segment_ids)
        last = torch.cat([first[1:], first.new_tensor([batch * length])])
        real = segment_ids.flatten()[first] > 0
        starts, stops = first[real], last[real]
        if len(starts) != len(seeds):
            raise ValueError(f"{len(seeds)} seeds for {len(starts)} texts")
        self.num_reads = len(positions)
        rows = starts // length
        places = (rows, starts - rows * length, stops - rows * length)
        reads = torch.bincount(torch.searchsorted(starts, positions, right=True) - 1, minlength=len(starts))
        self._texts = list(zip(seeds, *(part.tolist() for part in (*places, reads)), strict=True))

    def fill(self, bits: Tensor) -> None:
        """Put random bits where a tensor has elements of texts; the rest stays as it is.

        The bits are int16 and contiguous: (B, S, W) of hidden states, (B, heads, S, W) of attention probabilities, of
        which only those within a text are filled, or (N, W) of what the head reads; W is a multiple of 4.
        """
        # All micro-batches make the same calls after the same seed, so this number tells the calls apart, and nothing
        # else. It comes from torch's own generator because a layer that is computed again has that one wound back.
        call = int(torch.empty((), dtype=torch.int64).random_(_DIFFERENT + 1))
        generator, words = torch.Generator(), bits.view(torch.int64)
        start = 0
        for seed, row, first, end, reads in self._texts:
            generator.manual_seed((seed ^ call) & _DIFFERENT)
            if bits.ndim == 2:
                _draw(words[start : start + reads], generator)
                start += reads
            elif bits.ndim == 3:
                _draw(words[row, first:end], generator)
            else:
                _draw_square(bits[row], first, end, generator)

    def describes(self, shape: torch.Size) -> bool:
        """Whether a tensor of this shape holds hidden states, attention probabilities or head inputs of these texts."""
        batch, length = self.shape
        of_rows = len(shape) in (3, 4) and shape[0] == batch and shape[-2] == length
        return of_rows or (len(shape) == 2 and shape[0] == self.num_reads)


_draws: weakref.ref[TextDraws] | None = None


def draw_by_text(draws: TextDraws | None) -> None:
    """Let dropout on the CPU draw by these texts from now on, as long as someone keeps them; None ends that."""
    global _draws
    _draws = None if draws is None else weakref.ref(draws)


def random_int16(shape: torch.Size, by_text: bool = True) -> Tensor:
    """Random bits as int16 of any shape: by text, where `draw_by_text` has said which.

    A random number of 64 bits serves four elements: on a CPU, torch draws numbers one after the other in one thread.
    What belongs to no text (`by_text` off) has those of torch's generator, which are the same in all micro-batches: as
    long as its shape is. `ValueError` if a shape by text is not that of a tensor of these texts.
    """
    draws = _draws() if by_text and _draws is not None else None
    if draws is None:
        count = math.prod(shape)
        words = torch.empty(-(-count // 4), dtype=torch.int64)
        return _draw(words, None).view(torch.int16)[:count].view(shape)
    if not draws.describes(shape):
        raise ValueError(f"a tensor of shape {tuple(shape)} is none of {draws.shape} tokens or {draws.num_reads} reads")
    bits = torch.zeros(*shape[:-1], -(-shape[-1] // 4) * 4, dtype=torch.int16)
    draws.fill(bits)
    return bits[..., : shape[-1]]


def _draw(words: Tensor, generator: torch.Generator | None) -> Tensor:
    return words.random_(-(2**63), None, generator=generator)


def _draw_square(bits: Tensor, first: int, end: int, generator: torch.Generator) -> None:
    """Fill the part of (heads, S, W) bits in which one text looks at itself."""
    heads, length, width = bits.shape
    if first == 0 and end == length == width:
        _draw(bits.view(torch.int64), generator)
        return
    size = end - first
    drawn = _draw(torch.empty(heads, size, -(-size // 4), dtype=torch.int64), generator)
    bits[:, first:end, first:end] = drawn.view(torch.int16)[..., :size]
