"""Averages of the weights: their closed forms in NumPy, the validated weights, and the final weights."""

from __future__ import annotations

from dataclasses import replace

import lightning
import numpy as np
import pytest

from domainbert.data.batches import GlobalOrder
from domainbert.metrics.headline import LOSS
from domainbert.pretraining.batches import TrainRows, ValidationRows
from domainbert.training.averaging import Averaging, averaging_coefficient
from domainbert.training.callbacks import KeepBest
from domainbert.training.config import AveragingConfig, OptimConfig
from domainbert.training.fit import fit
from domainbert.training.steps import Phase, Steps
from tests.ready_made import ReadyBatches
from tests.tiny_training import cpu_training, masked_lm_module

STEPS, EVERY = 8, 2
EMA, LAST = AveragingConfig("ema", decay=0.7), AveragingConfig("last", fraction=0.5)


def weights_of_average(config: AveragingConfig, step: int) -> np.ndarray | None:
    """How much the weights after each of the steps until this one count; None while there is no average."""
    if config.name == "ema":
        shares = (1 - config.decay) * config.decay ** np.arange(step)[::-1]
        return shares / (1 - config.decay**step)
    first = STEPS // 2 + 1
    return None if step < first else (np.arange(1, step + 1) >= first) / (step - first + 1)


class Weights(lightning.Callback):
    """Record the weights after every step and at every validation."""

    def __init__(self) -> None:
        self.after: list[dict[str, np.ndarray]] = []
        self.validated: dict[int, dict[str, np.ndarray]] = {}

    def on_train_batch_end(self, trainer, module, *_) -> None:
        if trainer.global_step > len(self.after):
            self.after.append(copied(module))

    def on_validation_epoch_end(self, trainer, module) -> None:
        self.validated[trainer.global_step] = copied(module)


def copied(module) -> dict[str, np.ndarray]:
    return {name: one.detach().double().numpy().copy() for name, one in module.named_parameters()}


@pytest.fixture
def train(reader, make_model, tmp_path_factory):
    """Train in micro-batches, some layers frozen perhaps; gives the module, the weights noted, and what was kept."""

    def run(config: AveragingConfig | None, best: KeepBest | None = None, frozen: tuple[str, ...] = ()):
        module = masked_lm_module(reader, make_model("masked_lm"), OptimConfig(lr=5e-2))
        for name, parameter in module.model.named_parameters():
            parameter.requires_grad_(not name.startswith(frozen or ("none",)))
        order, noted = GlobalOrder(reader.plan.num_rows, 8, seed=0), Weights()
        data = ReadyBatches(
            lambda share, steps: TrainRows(reader, order, share, steps),
            [lambda share: ValidationRows(reader, 8, share)],
            STEPS,
        )
        watch = [noted] + ([] if config is None else [Averaging(config, STEPS)])
        steps = Steps((Phase(range(STEPS), 8, reader.plan.num_rows),), EVERY)
        fitted = fit("tiny", module, data, steps, cpu_training(4), tmp_path_factory.mktemp("run"), best, watch=watch)
        return module, noted, fitted

    return run


@pytest.mark.parametrize("config", [EMA, LAST], ids=["ema", "last"])
def test_the_average_is_validated_and_kept_and_training_goes_on_from_the_last_weights(train, config):
    _, plain, _ = train(None)
    module, noted, _ = train(config)
    for wanted, found in zip(plain.after, noted.after, strict=True):
        assert all(np.array_equal(wanted[name], found[name]) for name in wanted), "the path is the same without it"
    assert list(noted.validated) == [2, 4, 6, 8]
    for step, validated in noted.validated.items():
        shares = weights_of_average(config, step)
        for name, found in validated.items():
            after = np.stack([one[name] for one in noted.after[:step]])
            wanted = after[-1] if shares is None else np.tensordot(shares, after, axes=1)
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6, err_msg=f"{name} after step {step}")
    assert all(np.array_equal(value, noted.validated[STEPS][name]) for name, value in copied(module).items())
    assert weights_of_average(LAST, 4) is None and weights_of_average(LAST, 6) is not None


def test_the_best_weights_are_those_that_were_validated(train):
    highest = KeepBest(replace(LOSS, direction="maximize"), None)  # the highest loss is in the first validation
    module, noted, fitted = train(EMA, highest)
    step = fitted.validation["step"]
    assert step == 2
    assert all(np.array_equal(value, noted.validated[step][name]) for name, value in copied(module).items())
    assert not np.array_equal(noted.validated[2]["model.head.dense.weight"], noted.after[1]["model.head.dense.weight"])


def test_weights_that_do_not_learn_stay(train):
    frozen = ("encoder.embeddings.", "encoder.layers.0.")
    module, noted, _ = train(EMA, frozen=frozen)
    still = [name for name, one in module.named_parameters() if not one.requires_grad]
    assert still and all(np.array_equal(copied(module)[name], noted.after[0][name]) for name in still)


def test_shares():
    ema, last = AveragingConfig("ema", decay=0.9), AveragingConfig("last", fraction=0.25)
    assert averaging_coefficient(ema, 1) == 1.0 and averaging_coefficient(ema, 2) == pytest.approx(0.1 / 0.19)
    assert averaging_coefficient(AveragingConfig("ema", decay=0.0), 7) == 1.0
    assert [averaging_coefficient(last, step) for step in (1, 2, 3)] == [1.0, 1 / 2, 1 / 3]
    steps = {"ema": range(3), "last": [6, 7], "tiny": [2]}
    callbacks = {"ema": Averaging(ema, 3), "last": Averaging(last, 8)}
    callbacks["tiny"] = Averaging(replace(last, fraction=1e-9), 3)
    for name, wanted in steps.items():
        assert [step for step in range(8) if callbacks[name].should_update(step)][: len(wanted)] == list(wanted)
        assert not callbacks[name].should_update(epoch_idx=5)
