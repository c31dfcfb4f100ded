"""A fit has its own random numbers: global generators, earlier draws and other threads do not matter."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import lightning
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from domainbert import FineTuning, MaskedLM, Pretraining
from domainbert.tasks.labelled_data import LabelledData
from tests.library.trainer.tiny_library import OPTIM, Tiny, equal, trainer, weights

pytestmark = pytest.mark.usefixtures("one_thread")
Kind = Callable[[Tiny], tuple[Any, Any]]


def fine_tuning(tiny: Tiny) -> tuple[FineTuning, LabelledData]:
    """Return a module with a new head and dropout, and its data."""
    return tiny.module(dropout=0.3), tiny.data()


def pretraining(tiny: Tiny) -> tuple[Pretraining, Any]:
    """Return a module with new weights and dropout, and its data."""
    return tiny.pretraining(dropout=0.3, objective=MaskedLM()), tiny.rows()


KINDS = [fine_tuning, pretraining]


def draws() -> list[Any]:
    """Return the next numbers of all global generators."""
    return [torch.rand(3).tolist(), torch.randperm(9).tolist(), np.random.rand(3).tolist(), random.random()]


def seed_all() -> None:
    torch.manual_seed(5)
    np.random.seed(5)
    random.seed(5)


def fit(tiny: Tiny, kind: Kind, **arguments: Any) -> dict[str, Tensor]:
    module, data = kind(tiny)
    trainer(**{"max_steps": 6, **arguments}).fit(module, data)
    return weights(module)


@pytest.mark.parametrize(("kind", "accumulate"), [(fine_tuning, 2), (pretraining, 1)])
def test_a_fit_leaves_the_global_generators_alone(tiny: Tiny, kind: Kind, accumulate: int) -> None:
    seed_all()
    expected = draws()
    seed_all()
    first = fit(tiny, kind, accumulate_grad_batches=accumulate)
    assert draws() == expected
    assert equal(fit(tiny, kind, accumulate_grad_batches=accumulate), first)  # whatever was drawn before


class Fails(lightning.Callback):
    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """End the training within a step, as the pruning of a search may."""
        if trainer.global_step == 2:
            raise RuntimeError("pruned")


def test_an_exception_within_a_step_leaves_them_alone(tiny: Tiny) -> None:
    seed_all()
    expected = draws()
    seed_all()
    with pytest.raises(RuntimeError, match="pruned"):
        fit(tiny, fine_tuning, callbacks=[Fails()])
    assert draws() == expected
    plain = nn.Dropout(0.5)(torch.ones(20))
    assert not torch.equal(nn.Dropout(0.5)(torch.ones(20)), plain)


@pytest.mark.parametrize("kind", KINDS)
def test_fits_in_two_threads(tiny: Tiny, kind: Kind) -> None:
    """Also while the other thread builds its module and draws new weights."""
    alone = fit(tiny, kind)
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda _: fit(tiny, kind), range(3)))
    assert all(equal(alone, other) for other in results)


class OwnNumbers(FineTuning):
    """A subclass that draws from the global generator."""

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """Return the loss, scaled at random."""
        return super().training_step(batch, batch_idx) * torch.rand(()).add(0.5)


def test_random_numbers_of_a_subclass_belong_to_the_step_too(tiny: Tiny) -> None:
    results = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        module = OwnNumbers(tiny / "model", tiny.data().task, optim=OPTIM, max_length=24)
        trainer(max_steps=3).fit(module, tiny.data())
        results.append(weights(module))
    assert equal(*results)
