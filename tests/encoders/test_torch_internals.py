"""Random numbers of an own generator, for all operators of a thread."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from domainbert.encoders.torch_internals import SeededDraws


def draw() -> list[Tensor]:
    """Return weights of layers, and results of factories and of in-place operators."""
    layers = [nn.Linear(5, 7), nn.Embedding(5, 3), nn.Bilinear(3, 4, 5), nn.LSTM(3, 4)]
    inits = [nn.init.trunc_normal_, nn.init.xavier_uniform_, nn.init.orthogonal_, Tensor.exponential_]
    factories = [torch.randn(5), torch.rand(4), torch.randint(5, (30,)), torch.randint(2, 9, (30,)), torch.randperm(9)]
    drawn = [torch.bernoulli(torch.full((30,), 0.5)), torch.normal(0.0, 1.0, (3,)), torch.ones(20).random_(0, 9)]
    drawn += [nn.functional.dropout(torch.ones(30)), torch.multinomial(torch.ones(9), 5)]
    return [*nn.ModuleList(layers).parameters(), *(init(torch.empty(6, 4)) for init in inits), *factories, *drawn]


def test_operators_draw_from_an_own_generator_the_numbers_of_the_global_one() -> None:
    torch.manual_seed(4)
    expected, state = draw(), torch.get_rng_state()
    with SeededDraws(4):
        drawn = draw()
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(one, other) for one, other in zip(drawn, expected, strict=True))
