from __future__ import annotations

import math
import random
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from domainbert.models import static_embeddings as module
from domainbert.models.static_embeddings import (
    MIN_COUNT,
    WINDOW,
    Cooccurrences,
    count_contexts,
    initialise_table,
    static_embeddings,
)


@given(st.lists(st.lists(st.integers(0, 4), max_size=12), max_size=6), st.integers(1, 20))
def test_pairs_are_those_of_two_loops(documents: list[list[int]], batch: int) -> None:
    wanted = np.zeros((5, 5), dtype=int)
    for document in documents:
        for place, one in enumerate(document):
            for other in document[place + 1 : place + 1 + WINDOW]:
                wanted[one, other] += 1
                wanted[other, one] += 1
    counted = Cooccurrences(5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BATCH_TOKENS", batch)
        for document in documents:
            counted.add(document)
    found = np.zeros((5, 5), dtype=int)
    first, second, times = counted.pairs()
    found[first, second] = times
    assert found.tolist() == wanted.tolist()
    assert (
        counted.counts.tolist()
        == np.bincount([one for document in documents for one in document], minlength=5).tolist()
    )


def test_positive_pmi_by_hand() -> None:
    first, second, times = np.array([0, 0, 1, 2]), np.array([1, 2, 0, 0]), np.array([6, 2, 6, 2])
    matrix = module._positive_pmi(first, second, times, 3).to_dense()
    context = np.array([8, 6, 2]) ** 0.75
    context /= context.sum()
    assert float(matrix[0, 1]) == pytest.approx(max(math.log(6 / 8 / context[1]), 0), rel=1e-5)
    assert float(matrix[1, 0]) == pytest.approx(math.log(1 / context[0]), rel=1e-5)
    assert float(matrix[0, 2]) == pytest.approx(max(math.log(2 / 8 / context[2]), 0), rel=1e-5)
    assert float(matrix.min()) == 0


def test_factors_are_those_of_the_exact_decomposition() -> None:
    dense = torch.rand(30, 30, generator=torch.Generator().manual_seed(0))
    left, singular, _ = torch.linalg.svd(dense)
    found = module._factors(dense.to_sparse_coo(), 6, torch.Generator().manual_seed(1))
    wanted = left[:, :6] * singular[:6].sqrt()
    torch.testing.assert_close((found @ found.T), wanted @ wanted.T, atol=1e-3, rtol=0)


def test_entries_in_the_same_contexts_are_alike() -> None:
    """Entries 0 and 1 stand between 10s, 2 and 3 between 20s; 4 is rare."""
    chance = random.Random(0)
    counted = Cooccurrences(30)
    for _ in range(400):
        kind = chance.randrange(2)
        counted.add([chance.randint(10, 14) + 10 * kind, chance.randrange(2) + 2 * kind, 14 + 10 * kind])
    counted.add([4] * (MIN_COUNT - 1))
    embeddings = static_embeddings(counted, torch.Generator().manual_seed(0))
    assert embeddings.shape[0] == 30
    like = embeddings @ embeddings.T
    assert like[0, 1] > 0.6 and like[2, 3] > 0.6
    assert like[:2, 2:4].abs().max() < 0.2
    assert not embeddings[4].any() and float(embeddings[0].norm()) == pytest.approx(1)
    assert torch.equal(embeddings, static_embeddings(counted, torch.Generator().manual_seed(0)))


def test_contexts_are_those_within_documents() -> None:
    counted = count_contexts(4, [np.array([0, 1, 0]), np.array([2, 2], np.uint16)])
    assert counted.counts.tolist() == [2, 1, 2, 0]
    assert {tuple(pair) for pair in np.stack(counted.pairs()).T.tolist()} == {
        (0, 1, 2),
        (1, 0, 2),
        (0, 0, 2),
        (2, 2, 2),
    }


@pytest.mark.parametrize("width", [3, 4, 7])
def test_rows_start_from_embeddings_as_long_as_random_ones(width: int) -> None:
    """Against a loop over the rows, for a table that is narrower, as wide and wider than the embeddings."""
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.nn.functional.normalize(torch.randn(9, 4, generator=generator) + 1, dim=1)
    embeddings[[2, 5]] = 0  # have none
    table = torch.randn(9, width, generator=generator) * 0.05
    started = table.clone()
    initialise_table(started, embeddings)
    kept, known = min(width, 4), [0, 1, 3, 4, 6, 7, 8]
    deviation = np.std([float(table[row, column]) for row in known for column in range(kept)])
    mean = sum(embeddings[row, :kept] for row in known) / len(known)
    for row in known:
        wanted = embeddings[row, :kept] - mean
        wanted *= float(deviation) * math.sqrt(kept) / float(wanted.norm())
        torch.testing.assert_close(started[row, :kept], wanted)
    assert torch.equal(started[[2, 5]], table[[2, 5]])
    assert torch.equal(started[:, kept:], table[:, kept:])


def test_a_table_stays_as_it_is_where_nothing_has_an_embedding() -> None:
    table = torch.randn(4, 3)
    before = table.clone()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        initialise_table(table, static_embeddings(count_contexts(4, []), torch.Generator()))
    assert torch.equal(table, before)


def test_embeddings_are_the_same_on_any_number_of_threads() -> None:
    """To the bit: the processes of a training, each with other threads, start from one table."""
    chance = np.random.default_rng(0)
    documents = [chance.zipf(1.3, 40) % 400 for _ in range(800)]
    found, threads = [], torch.get_num_threads()
    try:
        for number in (1, 2):
            torch.set_num_threads(number)
            found.append(static_embeddings(count_contexts(400, documents), torch.Generator().manual_seed(0)))
            assert torch.get_num_threads() == number
    finally:
        torch.set_num_threads(threads)
    assert found[0].any(dim=1).sum() > 200 and torch.equal(*found)
    assert float(found[0].sum(dim=0).min()) > -1
