from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from domainbert.models import transfer
from domainbert.models.transfer import build_mixing, mean_mixing, mean_weights, mix_vectors, random_mixing
from domainbert.tokenization.surfaces import Origin

ORIGINS = [Origin("copied", (3,)), Origin("composed", (0, 1, 1)), Origin("new", ()), Origin("composed", (4,))]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_the_matrix() -> None:
    mixing = mean_mixing(ORIGINS)
    assert mixing.num_rows == 4
    assert mixing.offsets.tolist() == [0, 1, 3, 3, 4]
    assert mixing.columns.tolist() == [3, 0, 1, 4]
    assert mixing.weights.tolist() == pytest.approx([1, 1 / 3, 2 / 3, 1])
    assert mixing.random_rows.tolist() == [2]
    assert random_mixing(ORIGINS).random_rows.tolist() == [1, 2, 3]
    assert mean_weights(ORIGINS[2]) == {}


def test_rows_are_the_numpy_means_of_their_pieces() -> None:
    table = torch.randn(6, 5, generator=generator())
    mixed = mix_vectors(mean_mixing(ORIGINS), table, generator())
    assert torch.equal(mixed[0], table[3]) and torch.equal(mixed[3], table[4])
    wanted = np.mean(table.numpy().astype(np.float64)[[0, 1, 1]], axis=0).astype(np.float32)
    np.testing.assert_allclose(mixed[1].numpy(), wanted, rtol=1e-6)
    bias = mix_vectors(mean_mixing(ORIGINS), table[:, 0].contiguous(), generator())
    assert bias.shape == (4,)
    torch.testing.assert_close(bias[[0, 1, 3]], mixed[[0, 1, 3], 0])


def test_copies_are_bit_for_bit_in_any_precision() -> None:
    table = torch.tensor([[-0.0, 1e-45, 3e38], [0.1, -0.2, 65504.0]])
    everything = mean_mixing([Origin("copied", (number,)) for number in range(2)])
    assert torch.equal(mix_vectors(everything, table, generator()).view(torch.int32), table.view(torch.int32))
    for dtype in (torch.float16, torch.bfloat16):
        assert torch.equal(mix_vectors(everything, table.to(dtype), generator()), table.to(dtype))


def test_drawn_rows_have_the_mean_and_deviation_of_the_old_ones() -> None:
    table = torch.randn(50, 3, generator=generator(1)) * torch.tensor([1.0, 2.0, 0.0]) + torch.tensor([0.0, 5.0, -1.0])
    nothing = build_mixing([{}] * 20_000)
    drawn = mix_vectors(nothing, table, generator(2))
    torch.testing.assert_close(drawn.mean(dim=0), table.mean(dim=0), atol=0.05, rtol=0)
    torch.testing.assert_close(drawn.std(dim=0), table.std(dim=0, correction=0), atol=0.05, rtol=0)
    assert torch.equal(drawn, mix_vectors(nothing, table, generator(2)))
    assert not torch.equal(drawn, mix_vectors(nothing, table, generator(3)))


@settings(max_examples=30)
@given(st.lists(st.dictionaries(st.integers(0, 6), st.floats(0, 1), max_size=4), min_size=1, max_size=20))
def test_it_is_the_product_with_the_dense_matrix(rows: list[dict[int, float]]) -> None:
    table = torch.randn(7, 4, generator=generator(), dtype=torch.float64)
    dense = torch.zeros(len(rows), 7, dtype=torch.float64)
    for number, row in enumerate(rows):
        for column, weight in row.items():
            dense[number, column] = weight
    filled = torch.tensor([len(row) > 0 for row in rows])
    torch.testing.assert_close(mix_vectors(build_mixing(rows), table, generator())[filled], (dense @ table)[filled])


def test_rows_are_mixed_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many at once: the dense product, copies to the bit, and empty rows drawn."""
    numbers = np.random.default_rng(0)
    table = torch.randn(9, 4, generator=generator())
    dense = np.zeros((17, 9))
    for row in range(17):
        chosen = numbers.choice(9, size=row % 4, replace=False)
        dense[row, chosen] = numbers.dirichlet(np.ones(len(chosen))) if len(chosen) else []
    mixing = build_mixing([{int(old): row[old] for old in np.flatnonzero(row)} for row in dense])
    whole = mix_vectors(mixing, table, generator(1))
    given = dense.any(axis=1)
    np.testing.assert_allclose(whole[torch.from_numpy(given)], dense[given] @ table.numpy(), atol=1e-6)
    for size in (1, 3, 16):
        monkeypatch.setattr(transfer, "_MIXED_ROWS", size)
        assert torch.equal(mix_vectors(mixing, table, generator(1)), whole)
