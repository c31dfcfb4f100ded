"""The random field against all label sequences, spelled out in NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from domainbert.encoders.crf import Crf, WordGrid, scan

LABELS = ("O", "B-x", "I-x", "B-y", "I-y")
LENGTHS = (4, 1, 3)


@pytest.fixture
def crf() -> Crf:
    generator = torch.Generator().manual_seed(0)
    crf = Crf(5).double()
    for parameter in crf.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    crf.constrain(LABELS)
    return crf


@pytest.fixture
def emissions() -> torch.Tensor:
    return torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def is_iob2(path) -> bool:
    before = [None, *path[:-1]]
    return all(
        not LABELS[b].startswith("I-") or (a is not None and LABELS[a][1:] == LABELS[b][1:])
        for a, b in zip(before, path, strict=True)
    )


def all_scores(crf, emissions, length):
    """Every sequence that IOB2 allows, and its score."""
    start, end, moves = (p.detach().numpy() for p in (crf.start, crf.end, crf.transitions))
    found = {}
    for path in itertools.product(range(5), repeat=length):
        if is_iob2(path):
            steps = sum(moves[a, b] for a, b in itertools.pairwise(path))
            emitted = sum(emissions[place, label] for place, label in enumerate(path))
            found[path] = start[path[0]] + end[path[-1]] + steps + emitted
    return found


def test_partition_score_decoding_and_marginals(crf, emissions):
    lengths = torch.tensor(LENGTHS)
    partition, decoded = crf.log_partition(emissions, lengths), crf.decode(emissions, lengths)
    marginals = crf.log_marginals(emissions, lengths).exp()
    for row, length in enumerate(LENGTHS):
        scores = all_scores(crf, emissions[row].numpy(), length)
        values = np.array(list(scores.values()))
        wanted = np.log(np.exp(values).sum())
        assert float(partition[row].detach()) == pytest.approx(wanted, abs=1e-9)
        best = max(scores, key=scores.get)
        assert tuple(decoded[row, :length].tolist()) == best and not decoded[row, length:].any()
        labels = torch.zeros(3, 4, dtype=torch.int64)
        labels[row, :length] = torch.tensor(best)
        assert float(crf.score(emissions, labels, lengths)[row].detach()) == pytest.approx(scores[best], abs=1e-9)
        for place, label in itertools.product(range(length), range(5)):
            mass = sum(np.exp(value - wanted) for path, value in scores.items() if path[place] == label)
            assert float(marginals[row, place, label]) == pytest.approx(mass, abs=1e-8)


def test_long_sentences_are_decoded_beside_shorter_ones_as_alone(crf):
    """No other sequence within one change of a label, or two neighbouring ones, has a higher score."""
    lengths = torch.tensor([300, 1, 170])
    emissions = torch.randn(3, 300, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    decoded = crf.decode(emissions, lengths)
    for row, length in enumerate(lengths.tolist()):
        own, best = emissions[row : row + 1, :length], decoded[row : row + 1, :length]
        assert torch.equal(crf.decode(own, lengths[row : row + 1]), best) and is_iob2(best[0].tolist())
        others = best.repeat(25 * max(length - 1, 1), 1)
        for number, (place, labels) in enumerate(
            itertools.product(range(length - 1), itertools.product(range(5), repeat=2))
        ):
            others[number, place : place + 2] = torch.tensor(labels)
        size = torch.full((len(others),), length)
        scores = crf.score(own.expand(len(others), -1, -1), others, size)
        assert float(scores.max().detach()) <= float(crf.score(own, best, size[:1]).detach()) + 1e-9
    assert not decoded[1, 1:].any() and not decoded[2, 170:].any()


def test_the_scores_of_a_long_text_keep_their_digits(crf):
    """Sums over all words, 100,000 in single precision here, decided between labels by chance."""
    emissions = 20 * torch.rand(1, 20_000, 5, generator=torch.Generator().manual_seed(0))
    lengths = torch.tensor([20_000])
    assert torch.equal(crf.decode(emissions, lengths), crf.decode(emissions.double(), lengths))


@pytest.mark.parametrize("place_of_reset", [None, 700])
def test_blocks_that_do_not_forget_their_beginning_are_those_of_one_sequence(monkeypatch, place_of_reset):
    """A running sum, where a wrong beginning is never lost, and one that begins again; places outside repeat it."""
    monkeypatch.setattr("domainbert.encoders.crf._BLOCK", 64)
    values = np.random.default_rng(0).integers(0, 9, (1_000, 1))
    inside = values != 3
    factors = np.ones_like(values)
    factors[place_of_reset or 0] = 0 if place_of_reset else 1
    num_steps = []

    def step(state, value, factor):
        num_steps.append(len(state))
        return state * factor + value

    found, wanted = scan(step, np.array([5]), inside, values, factors), [5]
    for is_inside, value, factor in zip(inside[:, 0], values[:, 0], factors[:, 0], strict=True):
        wanted.append(wanted[-1] * factor + value if is_inside else wanted[-1])
    assert found[:, 0].tolist() == wanted and max(num_steps) == 15


def test_blocks_that_forget_their_beginning_are_computed_once(monkeypatch, crf):
    monkeypatch.setattr("domainbert.encoders.crf._BLOCK", 64)
    num_rows = []
    monkeypatch.setattr("domainbert.encoders.crf.scan", lambda step, *rest: scan(count(step, num_rows), *rest))
    emissions = torch.randn(1, 64 * 50 + 1, 5, generator=torch.Generator().manual_seed(0))
    crf.decode(emissions, torch.tensor([emissions.shape[1]]))
    assert len(num_rows) <= 4 * 64 and sum(num_rows) < 2 * 1.3 * emissions.shape[1]  # forward and back


def count(step, num_rows):
    def counted(state, *values):
        num_rows.append(len(state))
        return step(state, *values)

    return counted


def test_the_likelihood_has_the_right_gradient(crf, emissions):
    labels, lengths = torch.tensor([[1, 2, 0, 3], [0, 0, 0, 0], [3, 4, 4, 0]]), torch.tensor(LENGTHS)
    emissions.requires_grad_()

    def loss(emissions, *parameters):
        return (crf.log_partition(emissions, lengths) - crf.score(emissions, labels, lengths)).sum()

    assert float(loss(emissions).detach()) > 0
    assert torch.autograd.gradcheck(loss, (emissions, *crf.parameters()))


def test_the_marginals_have_the_right_gradient(crf, emissions):
    """A student learns through them, where the best sequence leaves a label next to no probability too."""
    lengths = torch.tensor(LENGTHS)
    emissions[0, :, 0] += 60.0
    emissions.requires_grad_()

    def marginals(emissions, *parameters):
        return crf.log_marginals(emissions, lengths)[0, 1, [0, 1, 3]]

    found = marginals(emissions)
    assert float(found[1].detach()) < -50
    assert torch.autograd.gradcheck(marginals, (emissions, *crf.parameters()))
    (gradient,) = torch.autograd.grad(found[1], emissions)
    assert float(gradient[0, 1, 1]) == pytest.approx(1.0, abs=1e-9)


def test_sentences_are_found_in_any_order():
    example = torch.tensor([2, 0, 0, 2, 0, 2])
    outputs = torch.tensor([1, -1, 1, 0, 0, -1])
    sentences = WordGrid(example, outputs)
    assert sentences.lengths.tolist() == [2, 2]  # sentence 1 has no words
    values = torch.arange(6.0)
    filled = sentences.fill(values)
    assert filled.tolist() == [[4.0, 2.0], [3.0, 0.0]]
    assert sentences.scatter(filled * 10, values).tolist() == [0.0, 1.0, 20.0, 30.0, 40.0, 5.0]
