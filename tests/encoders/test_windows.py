"""Attention within a window, block by block."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from domainbert.encoders.layers import Segments, attend, choose_kernel, segment_mask
from domainbert.encoders.packed import Packed
from domainbert.encoders.windows import attend_in_blocks, block_mask, blocks_are_faster


@st.composite
def packed(draw):
    """Segment ids of rows of one length: texts of all sizes, with and without padding."""
    rows, length = draw(st.integers(1, 3)), draw(st.integers(1, 150))
    ids = torch.zeros(rows, length, dtype=torch.int64)
    for row in ids:
        end, number = 0, 0
        while end < length and draw(st.booleans()):
            size, number = draw(st.integers(1, length - end)), number + 1
            row[end : end + size] = number
            end += size
    return ids


@settings(max_examples=40)
@given(
    packed(),
    st.sampled_from([0, 1, 5, 31, 32, 33, 70]),
    st.integers(0, 2**31),
    st.sampled_from([None, 0.3]),
)
def test_blocks_give_what_masks_give(segment_ids, window, seed, scale):
    """Outputs and gradients, whatever the lengths; padding apart, which nobody reads."""
    rows, length = segment_ids.shape
    generator = torch.Generator().manual_seed(seed)
    heads = [torch.randn(rows, 2, length, 4, generator=generator).requires_grad_() for _ in range(3)]
    by_mask = Segments(segment_mask(segment_ids), None, segment_mask(segment_ids, window))
    wanted = attend(*heads, by_mask, window=window, scale=scale)
    found = attend_in_blocks(*heads, block_mask(segment_ids, window), scale)
    torch.testing.assert_close(found, wanted, atol=1e-6, rtol=1e-5)
    direction = torch.randn(found.shape, generator=generator)
    gradients = [torch.autograd.grad((mixed * direction).sum(), heads) for mixed in (found, wanted)]
    torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-4)


def test_nothing_outside_of_the_blocks_is_computed():
    """Work and memory grow with the number of tokens, however these are put into rows."""
    segment_ids = torch.ones(1, 4096, dtype=torch.int64)
    assert block_mask(segment_ids, 64).shape == block_mask(segment_ids.view(8, 512), 64).shape == (64, 64, 192)
    assert block_mask(segment_ids, 4).shape == (128, 32, 40)
    assert block_mask(segment_ids[:, :70], 64).shape == (2, 64, 192)


@pytest.mark.parametrize(
    ("length", "rate", "biased", "in_blocks"),
    [(384, 0.0, False, True), (383, 0.0, False, False), (384, 0.1, False, False), (384, 0.0, True, False)],
)
def test_blocks_are_chosen_where_they_are_faster_and_can_be(length, rate, biased, in_blocks):
    ids = torch.ones(1, length, dtype=torch.int64)
    segments = choose_kernel(Packed(ids, ids, ids), 64, rate, biased=biased, window=64)
    assert segments.window_mask.shape == ((6, 64, 192) if in_blocks else (1, 1, length, length))
    assert segments.mask.shape == (1, 1, length, length) and blocks_are_faster(length, 64) == (length >= 384)
    assert choose_kernel(Packed(ids, ids, ids), 64, rate, biased=biased).window_mask is None


def test_a_window_is_closed_on_both_sides():
    near = segment_mask(torch.tensor([[1, 1, 1, 1, 2, 0]]), 1)[0, 0]
    assert (near == 0).int().tolist() == [
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [0, 1, 1, 1, 0, 0],
        [0, 0, 1, 1, 0, 0],
        [0, 0, 0, 0, 1, 0],
        [0, 0, 0, 0, 0, 1],
    ]


def test_blocks_are_compiled():
    """As a whole, with the gradient that is written out here."""
    segment_ids = torch.arange(96)[None] // 40 + 1
    heads = [torch.randn(1, 2, 96, 4, generator=torch.Generator().manual_seed(n)).requires_grad_() for n in range(3)]
    mask = block_mask(segment_ids, 8)
    compiled = torch.compile(attend_in_blocks, backend="aot_eager", dynamic=False, fullgraph=True)
    for found, wanted in zip(
        *[
            [mixed, *torch.autograd.grad(mixed.square().sum(), heads)]
            for mixed in (compiled(*heads, mask, None), attend_in_blocks(*heads, mask, 1 / math.sqrt(4)))
        ],
        strict=True,
    ):
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
