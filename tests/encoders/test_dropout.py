"""Dropout on a CPU: random numbers of a step, the same when a layer is computed again, apart in each thread."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from domainbert.encoders.bert.config import BertConfig
from domainbert.encoders.config import VocabularyFacts
from domainbert.encoders.dropout import draw_from, drop
from domainbert.encoders.families import build_model
from domainbert.encoders.packed import Packed

RATE = 0.3


@pytest.fixture(autouse=True)
def own_generator() -> Iterator[None]:
    yield
    draw_from(None)


def test_the_generator_of_the_step_draws_instead_of_the_global_one() -> None:
    torch.manual_seed(3)
    state = torch.get_rng_state()
    draw_from(np.random.SFC64(1))
    first, second = (drop(torch.ones(50, 41), RATE) for _ in range(2))
    draw_from(np.random.SFC64(1))
    assert torch.equal(drop(torch.ones(50, 41), RATE), first) and not torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), state)
    draw_from(None)
    plain = drop(torch.ones(50, 41), RATE)
    assert not torch.equal(plain, first) and not torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(3)
    assert torch.equal(drop(torch.ones(50, 41), RATE), plain)


@pytest.mark.parametrize("generator", [np.random.SFC64(1), None], ids=["step", "global"])
def test_elements_are_dropped_independently_at_the_rate(generator: np.random.BitGenerator | None) -> None:
    torch.manual_seed(0)
    draw_from(generator)
    one, other = (drop(torch.ones(400, 401), RATE) for _ in range(2))
    assert set(one.unique().tolist()) == {0.0, float(torch.tensor(1 / (1 - RATE)))}
    assert float((one > 0).float().mean()) == pytest.approx(1 - RATE, abs=0.005)  # 4 deviations
    for left, right in ((one, other), (one[:, :-1], one[:, 1:]), (one[:-1], one[1:])):
        agree = float(((left > 0) == (right > 0)).float().mean())
        assert agree == pytest.approx((1 - RATE) ** 2 + RATE**2, abs=0.006)


def test_threads_have_their_own_numbers() -> None:
    def run(seed: int) -> torch.Tensor:
        draw_from(np.random.SFC64(seed))
        return torch.stack([drop(torch.ones(200, 30), 0.5) for _ in range(20)])

    alone = [run(seed) for seed in (1, 2)]
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(run, (1, 2)))
    assert all(torch.equal(one, other) for one, other in zip(alone, together, strict=True))
    assert not torch.equal(*alone)


@pytest.mark.parametrize(("own", "rate", "compiled"), [(1, 0.3, 0), (0, 0.3, 0), (1, 0.3, 1)])
def test_layers_that_are_computed_again_drop_the_same(own: bool, rate: float, compiled: bool) -> None:
    """Same loss and gradients with and without activation checkpointing; later draws are the same, too."""
    config = BertConfig(16, 3, 2, 32, max_position_embeddings=24).with_dropout(rate)
    torch.manual_seed(0)
    encoder = build_model(config, VocabularyFacts(50, 0), "masked_lm").encoder.train()
    ids = torch.randint(5, 50, (3, 24))
    segments = torch.tensor([[1] * 9 + [2] * 12 + [0] * 3, [1] * 24, [1] * 20 + [0] * 4])
    tokens = Packed(ids, torch.arange(24).expand(3, 24), segments)
    results = []
    for again in (False, True):
        encoder.activation_checkpointing = again
        if again and compiled:
            encoder.compile(backend="aot_eager", dynamic=False)
        torch.manual_seed(4)
        draw_from(np.random.SFC64(7) if own else None)
        loss = encoder(tokens).pow(3).mean()
        gradients = torch.autograd.grad(loss, list(encoder.parameters()), allow_unused=True)
        results.append([loss, *gradients, drop(torch.ones(30), 0.5)])
    for one, other in zip(*results, strict=True):
        assert one is other is None or torch.allclose(one, other, atol=1e-6 if compiled else 0.0, rtol=1e-5 * compiled)
