"""Packed rows, the input of every encoder, and dropout of their texts.

On a CPU dropout draws random numbers for each text separately. Dropout of a text is therefore independent of its row
and batch: micro-batches, ranks and packing change the speed, but not the result. A GPU draws for a whole tensor at
once, because drawing for each text would dominate the time.
"""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from domainbert.base.counter_random import GOLDEN, MIXING_ROUNDS, UInts
from domainbert.encoders.torch_internals import without_compiler

_MULTIPLE = 64  # of positions that the head reads, see `pad_positions`
_LANES = 4  # 16-bit numbers in a 64-bit number
_BLOCK_LENGTH = 1 << 13  # numbers; 64 KiB


class Packed(NamedTuple):
    """Rows of several concatenated texts; all tensors except `boundaries` are (B, S).

    >>> from domainbert import Packed, load_encoder, load_tokenizer, packed_loader
    >>> encoder = load_encoder("model")[0].encoder
    >>> (batch,) = packed_loader(["The court of law."], load_tokenizer("model"))
    >>> encoder(Packed.of(batch)).shape[-1] == encoder.hidden_size
    True

    Attributes:
        input_ids: ids of vocabulary entries.
        position_ids: position of a token in its text, from 0.
        segment_ids: number of the text in its row, from 1; 0 is padding. Attention does not cross segments.
        token_type_ids: index of the text in a pair; None is 0 for every token.
        boundaries: (N + 1,) from `layers.segment_boundaries`, optional; they allow faster attention on a GPU.
    """

    input_ids: Tensor
    position_ids: Tensor
    segment_ids: Tensor
    token_type_ids: Tensor | None = None
    boundaries: Tensor | None = None

    @classmethod
    def of(cls, batch: Mapping[str, Any]) -> Packed:
        """Return the fields of a batch, which may have further keys; optional fields may be missing."""
        return cls(**{name: batch[name] for name in cls._fields if name in batch})


def select(states: Tensor, positions: Tensor | None) -> Tensor:
    """Return the states at `positions` (N,) of the flattened tokens: (B, S, W) -> (N, W); unchanged for None."""
    return states if positions is None else states.flatten(0, 1).index_select(0, positions)


def pad_positions(positions: Tensor) -> Tensor:
    """Return positions (N,), padded with 0, the first token, to a multiple of 64, for training on a CPU.

    N varies between steps, and oneDNN compiles matrix products for each shape: a dozen per step, which takes
    milliseconds and fragments the heap, so that memory grows for hundreds of steps.
    """
    return functional.pad(positions, (0, -len(positions) % _MULTIPLE))


def segment_starts(segment_ids: Tensor) -> Tensor:
    """Return the index of the first token of each segment in the flattened (B * S) tokens: (segments,).

    Padding is a segment of its row.
    """
    begins = torch.ones_like(segment_ids, dtype=torch.bool)
    begins[:, 1:] = segment_ids[:, 1:] != segment_ids[:, :-1]
    return begins.flatten().nonzero().flatten()


def text_ids(segment_ids: Tensor) -> Tensor:
    """Return the id of the text of each token, unique in the batch: (B, S) -> (B, S).

    Ids are below B * (S + 1); padding is a text of its row.
    """
    rows, length = segment_ids.shape
    return segment_ids + torch.arange(rows, device=segment_ids.device).unsqueeze(-1) * (length + 1)


def drop(values: Tensor, rate: float, *, by_text: bool = True, positions: Tensor | None = None) -> Tensor:
    """Zero each element with probability `rate`, and scale the others by 1 / (1 - rate).

    On a CPU the probability is `rate`, rounded to a multiple of 1 / 65536. `by_text=False` is for values that belong to
    no text, such as distance embeddings, and have the same shape in all micro-batches. `positions` (N,) are the
    positions of values (N, W) in the flattened tokens; values of other shapes need none.
    """
    if not rate or values.device.type != "cpu":
        return functional.dropout(values, rate)
    return _drop_on_cpu(values, rate, by_text, positions)


@without_compiler  # compiled code is slower here, and the compiler cannot trace the random numbers
def _drop_on_cpu(values: Tensor, rate: float, by_text: bool, positions: Tensor | None) -> Tensor:
    mask = _keep_mask(values.shape, rate, by_text, positions)  # int16: 0 or 1
    scale = 1 / (1 - rate)
    if values.dtype.itemsize == mask.dtype.itemsize:
        # 16 bits: the mask times the bits of `scale` are the bits of the factors 0 and `scale`; a conversion is slow
        return values * mask.mul_(_bits_of_float(scale, values.dtype)).view(values.dtype)
    return values * mask.to(values.dtype).mul_(scale)


@functools.cache
def _bits_of_float(value: float, dtype: torch.dtype) -> int:
    """Return the bits of `value` as a 16-bit floating-point number of type `dtype`, read as an int16."""
    return int(torch.tensor(value, dtype=dtype).view(torch.int16))


def _keep_mask(shape: torch.Size, rate: float, by_text: bool, positions: Tensor | None) -> Tensor:
    """Return 1 for each element that dropout keeps and 0 for each that it drops, as int16.

    A random int16 is an element to drop if it is among the lowest `rate` * 65536 of the 65536 values.
    """
    num_dropped = min(round(rate * 2**16), 2**16 - 1)
    if not num_dropped:
        return torch.ones(shape, dtype=torch.int16)
    last_dropped = num_dropped - 1 - 2**15  # int16 values start at -2**15
    # clamping instead of a comparison, because booleans are slow to convert
    return random_int16(shape, by_text, positions).clamp_(last_dropped, last_dropped + 1).sub_(last_dropped)


class TextDraws:
    """Random numbers for the texts in the rows of a micro-batch.

    Args:
        segment_ids: (B, S), 0 for padding, on the CPU.
        positions: (N,) flattened positions that the head reads.
        seeds: one seed for each text, row by row.
    """

    def __init__(self, segment_ids: Tensor, positions: Tensor, seeds: UInts) -> None:
        batch, length = segment_ids.shape
        self.shape, self.positions = (batch, length), positions
        self._segment_ids, self._text_seeds = segment_ids, seeds

    @functools.cached_property
    def _segment_starts(self) -> NDArray[np.int64]:
        """Index of the first token of each segment, padding included; computed only if there is dropout."""
        return segment_starts(self._segment_ids).numpy()

    @functools.cached_property
    def _segment_sizes(self) -> NDArray[np.int64]:
        return np.diff(self._segment_starts, append=self._segment_ids.numel())

    @functools.cached_property
    def _is_text(self) -> NDArray[np.bool_]:
        return self._segment_ids.flatten().numpy()[self._segment_starts] > 0

    @functools.cached_property
    def _segment_states(self) -> UInts:
        """State of the random generator of each segment, from the seed of its text; padding has the seed 0."""
        if self._is_text.sum() != len(self._text_seeds):
            count = self._is_text.sum()
            raise ValueError(f"seeds: found {len(self._text_seeds)} for {count} texts; expected one seed for each text")
        seeds = np.zeros(len(self._segment_starts), dtype=np.uint64)
        seeds[self._is_text] = self._text_seeds
        return continue_bits(GOLDEN, seeds)

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
        states = continue_bits(self._segment_states, call_number)
        words = -(-shape[-1] // _LANES)  # 64-bit numbers for the last dimension
        positions = self.positions if positions is None else positions
        batch, length = self.shape
        if len(shape) == 4 and shape == (batch, shape[1], length, length):  # attention probabilities
            return self._attention_bits(states[self._is_text], shape[1])
        if len(shape) == 3 and shape[:2] == self.shape:  # hidden states
            numbers = draw_numbers(states, self._segment_sizes * words)
        elif len(shape) == 2 and shape[0] in (len(positions), len(pad_positions(positions))):  # states at positions
            # in the sequence of a segment, the numbers of a token come after the numbers of earlier tokens
            tokens = pad_positions(positions)[: shape[0]].numpy()
            segments = np.searchsorted(self._segment_starts, tokens, side="right") - 1
            token_states = advance_states(states[segments], (tokens - self._segment_starts[segments]) * words)
            numbers = draw_numbers(token_states, np.full(len(tokens), words))
        else:
            raise ValueError(
                f"dropout: found an input of shape {tuple(shape)}; expected ({batch}, {length}, width) "
                f"for the rows of the batch, or ({len(positions)}, width) for its positions"
            )
        return numbers.view(np.int16).reshape(*shape[:-1], words * _LANES)

    def _attention_bits(self, states: UInts, heads: int) -> NDArray[np.int16]:
        """Return random bits (B, heads, S, S), from a generator state per text; 0 between different texts."""
        batch, length = self.shape
        sizes = self._segment_sizes[self._is_text]
        widths = -(-sizes // _LANES) * _LANES  # sizes rounded up
        counts = heads * sizes * widths
        text_bits = draw_numbers(states, counts // _LANES).view(np.int16)
        if len(sizes) == batch and (sizes == length).all():
            return text_bits.reshape(batch, heads, length, widths[0])  # each row is one text
        bits = np.zeros((batch, heads, length, -(-length // _LANES) * _LANES), dtype=np.int16)
        first_tokens = self._segment_starts[self._is_text]
        bits_by_text = np.split(text_bits, np.cumsum(counts)[:-1])
        for first, size, width, own_bits in zip(first_tokens, sizes, widths, bits_by_text, strict=True):
            row, column = divmod(int(first), length)
            text = slice(column, column + size)  # columns of the text in its row
            bits[row, :, text, text] = own_bits.reshape(heads, size, width)[..., :size]
        return bits


_draws_reference: weakref.ref[TextDraws] | None = None


def draw_by_text(draws: TextDraws | None) -> None:
    """Set the random numbers for dropout on the CPU, used while `draws` is referenced elsewhere; None unsets them."""
    global _draws_reference
    _draws_reference = None if draws is None else weakref.ref(draws)


def random_int16(shape: torch.Size, by_text: bool = True, positions: Tensor | None = None) -> Tensor:
    """Return random bits as int16: from the `TextDraws` set by `draw_by_text`, or else from torch's generator.

    `by_text=False` always uses torch's generator, whose numbers are equal in all micro-batches if the shapes are equal.
    """
    draws = _draws_reference() if by_text and _draws_reference is not None else None
    if draws is not None:
        return torch.from_numpy(draws.bits(shape, positions))[..., : shape[-1]]  # without the padding of `bits`
    count = math.prod(shape)
    words = torch.empty(-(-count // _LANES), dtype=torch.int64).random_(-(2**63), None)  # any 64 bits
    return words.view(torch.int16)[:count].view(shape)


def continue_bits(bits: UInts, *counters: UInts | int) -> UInts:
    """Return `random_bits(*first, *counters)` for `bits = random_bits(*first)`, as an array of one dimension.

    With `bits = GOLDEN` the result is `random_bits(*counters)`.
    """
    for counter in counters:
        bits = advance_states(bits, np.atleast_1d(counter).astype(np.uint64) + np.uint64(1))
        _mix_in_place(bits)
    return bits


def advance_states(states: UInts, counts: NDArray[np.integer]) -> UInts:
    """Return the states of generators (see `draw_numbers`) after generator i has drawn `counts[i]` numbers."""
    return states + counts.astype(np.uint64) * GOLDEN


def draw_numbers(states: UInts, counts: NDArray[np.integer]) -> UInts:
    """Return the next `counts[i]` random numbers of each generator i, concatenated: (sum of `counts`,).

    `states[i]` is the state of generator i. Number n of the generator with state s is `s + (n + 1) * GOLDEN`, mixed:
    SplitMix64 as published, and equal to `random_bits(n)` if s is `GOLDEN`.
    """
    numbers = np.empty(int(counts.sum()), dtype=np.uint64)
    longest = int(counts.max(initial=0))
    steps = np.arange(1, longest + 1, dtype=np.uint64) * GOLDEN
    if len(numbers) == longest * len(counts):  # all counts are equal
        np.add(states[:, None], steps, out=numbers.reshape(len(counts), longest))
    else:
        for state, count, stop in zip(states, counts.tolist(), np.cumsum(counts).tolist(), strict=True):
            np.add(steps[:count], state, out=numbers[stop - count : stop])
    _mix_in_place(numbers)
    return numbers


def _mix_in_place(values: UInts) -> None:
    """Mix each number as SplitMix64 does, in blocks that stay in the processor's cache: this takes 1/3 of the time."""
    shifted = np.empty(min(len(values), _BLOCK_LENGTH), dtype=np.uint64)
    for start in range(0, len(values), _BLOCK_LENGTH):
        block = values[start : start + _BLOCK_LENGTH]
        for shift, factor in MIXING_ROUNDS:
            block ^= np.right_shift(block, shift, out=shifted[: len(block)])
            if factor > 1:  # the last round only shifts
                block *= factor
