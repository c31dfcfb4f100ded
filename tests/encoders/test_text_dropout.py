"""Dropout on the CPU as a function of the text: wherever it stands, whatever stands beside it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from domainbert.base.counter_random import GOLDEN, random_bits
from domainbert.encoders.packed import (
    TextDraws,
    advance_states,
    continue_bits,
    draw_by_text,
    draw_numbers,
    drop,
    random_int16,
)

HEADS, WIDTH, RATE = 3, 10, 0.3


@pytest.fixture(autouse=True)
def drawn_anew():
    yield
    draw_by_text(None)


def layout(rows: list[list[int]], length: int) -> torch.Tensor:
    """Segment ids (R, S) of texts of these lengths; 0 behind them."""
    ids = torch.zeros(len(rows), length, dtype=torch.int64)
    for row, sizes in enumerate(rows):
        ids[row, : sum(sizes)] = torch.repeat_interleave(torch.arange(1, len(sizes) + 1), torch.tensor(sizes))
    return ids


def kept(rows: list[list[int]], length: int, seeds: list[int], reads: list[int], call: int = 0) -> list[list]:
    """For each text the factors of its hidden states, of attention within it, and of what the head reads of it."""
    segment_ids = layout(rows, length)
    starts = [row * length + sum(sizes[:n]) for row, sizes in enumerate(rows) for n in range(len(sizes))]
    sizes = [size for row in rows for size in row]
    positions = [start + n for start, count in zip(starts, reads, strict=True) for n in range(count)]
    draws = TextDraws(segment_ids, torch.tensor(positions), seeds)
    torch.manual_seed(call)
    draw_by_text(draws)
    shapes = (len(rows), length, WIDTH), (len(rows), HEADS, length, length), (len(positions), WIDTH)
    hidden, attention, read = (drop(torch.ones(shape), RATE) for shape in shapes)
    found, first = [], 0
    for start, size, count in zip(starts, sizes, reads, strict=True):
        row, begin = divmod(start, length)
        here = slice(begin, begin + size)
        found.append([hidden[row, here], attention[row, :, here, here], read[first : first + count]])
        first += count
    return found


def test_a_text_drops_the_same_wherever_it_stands():
    """Alone in a short row, full rows, at odd places in a long one with padding behind."""
    sizes, seeds, reads = [8, 5, 3, 11, 1], [11, 22, 33, 44, 2**63 + 5], [8, 1, 2, 5, 1]
    packed = kept([[8, 5, 3], [11, 1]], 17, seeds, reads)
    other_order = [4, 2, 0, 3, 1]
    elsewhere = kept([[1, 3], [8], [11, 5]], 16, [seeds[i] for i in other_order], [reads[i] for i in other_order])
    for place, number in enumerate(other_order):
        (alone,) = kept([[sizes[number]]], sizes[number], [seeds[number]], [reads[number]])
        for one, other, single in zip(packed[number], elsewhere[place], alone, strict=True):
            assert torch.equal(one, other) and torch.equal(one, single)
    both_full, one_full = (kept([[8], [size]], 8, [11, 22], [8, 1]) for size in (8, 5))
    for text, wanted in ((both_full[0], packed[0]), (one_full[0], packed[0]), (one_full[1], packed[1])):
        assert all(map(torch.equal, text, wanted))
    values = torch.cat([part.flatten() for text in packed for part in text])
    assert {0.0, float(torch.tensor(1 / (1 - RATE)))} == set(values.tolist())


def test_texts_calls_and_steps_differ():
    """Two texts, two layers of one step, and two steps share no numbers; the rate is that asked for."""
    first = kept([[64, 64]], 128, [1, 2], [1, 1])[0][0]
    second = kept([[64, 64]], 128, [1, 2], [1, 1])[1][0]
    later = kept([[64, 64]], 128, [1, 2], [1, 1], call=1)[0][0]
    draws = TextDraws(layout([[64, 64]], 128), torch.tensor([0]), [1, 2])
    draw_by_text(draws)
    torch.manual_seed(0)
    layers = [drop(torch.ones(1, 128, WIDTH), RATE)[0, :64] for _ in range(2)]
    assert torch.equal(layers[0], first)
    for one, other in ((first, second), (first, later), (layers[0], layers[1])):
        agree = float(((one > 0) == (other > 0)).float().mean())
        assert agree == pytest.approx((1 - RATE) ** 2 + RATE**2, abs=0.06)  # 640 independent pairs: 3 deviations
    large = kept([[256]], 256, [7], [1])[0][1]
    assert float((large > 0).float().mean()) == pytest.approx(1 - RATE, abs=0.005)


def test_it_ends_with_who_asked_for_it():
    draws = TextDraws(layout([[4]], 4), torch.tensor([0]), [1])
    draw_by_text(draws)
    with pytest.raises(
        ValueError, match=r"found an input of shape \(2, 4, 8\); expected \(1, 4, width\) .*or \(1, width\)"
    ):
        random_int16(torch.Size([2, 4, 8]))
    with pytest.raises(ValueError, match=r"found an input of shape \(5, 8\); expected"):
        random_int16(torch.Size([5, 8]))
    filled = random_int16(torch.Size([64, 8]))  # one read, filled up with the first token, which is that read
    assert torch.equal(filled, filled[:1].expand(64, 8)) and len(filled.unique()) > 1
    del draws
    assert random_int16(torch.Size([2, 4, 8])).shape == (2, 4, 8)
    with pytest.raises(ValueError, match="seeds: found 1 for 2 texts; expected one seed for each"):
        TextDraws(layout([[2, 2]], 4), torch.tensor([0]), [1]).bits(torch.Size([1, 4, 8]))


def test_generators_one_after_the_other():
    """As their numbers one by one; the skipped numbers are the first."""
    states = random_bits(np.arange(4), 7)
    counts = np.array([5, 0, 1, 3])
    found = np.split(draw_numbers(states, counts), np.cumsum(counts)[:-1])
    assert draw_numbers(np.array([GOLDEN]), np.array([6])).tolist() == random_bits(np.arange(6)).tolist()
    for state, count, one in zip(states, counts, found, strict=True):
        alone = [draw_numbers(advance_states(np.array([state]), np.array([n])), np.array([1]))[0] for n in range(count)]
        assert one.tolist() == alone
    assert len(set(np.concatenate(found).tolist())) == 9


def test_further_counters_of_random_bits():
    counters = np.array([0, 5, 2**63 + 5], dtype=np.uint64)
    bits = random_bits(7, counters)
    assert continue_bits(random_bits(7), counters).tolist() == bits.tolist()
    assert continue_bits(bits, 2**63 - 1, 3).tolist() == random_bits(7, counters, 2**63 - 1, 3).tolist()
    assert continue_bits(GOLDEN, 4).tolist() == [random_bits(4)]
    assert bits.tolist() == random_bits(7, counters).tolist()  # not changed in place
