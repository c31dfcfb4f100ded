from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from domainbert.models.transfer import similarity_mixing, sparsemax
from domainbert.tokenization.surfaces import Origin


def test_sparsemax_by_hand() -> None:
    scores = torch.tensor([[0.5, 0.1, -1.0], [3.0, 1.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.6, 0.5]])
    wanted = [[0.7, 0.3, 0.0], [1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3], [0.6333333, 0.2333333, 0.1333333]]
    torch.testing.assert_close(sparsemax(scores), torch.tensor(wanted))


@settings(max_examples=40)
@given(st.lists(st.floats(-2, 2), min_size=1, max_size=12))
def test_sparsemax_is_the_nearest_point_of_the_simplex(values: list[float]) -> None:
    scores = torch.tensor([values], dtype=torch.float64)
    found = sparsemax(scores)[0]
    assert found.min() >= 0 and float(found.sum()) == pytest.approx(1)
    # optimal if and only if the gradient, found - scores, is least where there is weight
    gradient = found - scores[0]
    assert float(gradient[found > 0].max() - gradient.min()) == pytest.approx(0, abs=1e-9)


def test_new_entries_are_mixed_from_the_shared_ones_that_are_like_them() -> None:
    origins = [
        Origin("copied", (10,)),
        Origin("copied", (11,)),
        Origin("composed", (7, 8)),
        Origin("composed", (7, 9)),
        Origin("new", ()),
        Origin("copied", (10,)),  # of a cased vocabulary: the same old entry
        Origin("copied", (12,)),  # too rare for a static embedding
        Origin("new", ()),
    ]
    half = 0.5**0.5
    embeddings = torch.tensor(
        [[1.0, 0.0], [0.0, 1.0], [half, half], [0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    )
    mixing = similarity_mixing(origins, embeddings)
    rows = [
        dict(zip(mixing.columns[a:b].tolist(), mixing.weights[a:b].tolist(), strict=True))
        for a, b in zip(mixing.offsets[:-1], mixing.offsets[1:], strict=True)
    ]
    assert rows[:2] == [{10: 1.0}, {11: 1.0}] and rows[5:7] == [{10: 1.0}, {12: 1.0}]
    assert rows[2] == pytest.approx({10: 2 / 3, 11: 1 / 3}), "two shared entries are copies of 10"
    assert rows[3] == {7: 0.5, 9: 0.5}, "without a static embedding: the mean of its pieces"
    assert rows[4] == {11: 1.0}
    assert rows[7] == {}


def test_without_a_shared_entry_pieces_are_left() -> None:
    mixing = similarity_mixing([Origin("composed", (1, 2)), Origin("new", ())], torch.eye(2))
    assert (mixing.columns.tolist(), mixing.random_rows.tolist()) == ([1, 2], [1])
