from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace

import lightning
import pytest
import torch
from torch.utils.data import DataLoader

from domainbert.base.errors import TrainingFailed
from domainbert.metrics.headline import Headline
from domainbert.training import callbacks
from domainbert.training.callbacks import History, KeepBest, ProgressLines, Throughput
from domainbert.training.trainer import build_trainer
from tests.refusals import refused
from tests.tiny_training import cpu_training

F1 = Headline("f1", "macro F1")


class Scored(lightning.LightningModule):
    """Its only weight counts optimiser steps; validation gives the next of some scores."""

    def __init__(self, scores) -> None:
        super().__init__()
        self.steps = torch.nn.Parameter(torch.zeros(()))
        self.scores, self.step_loss = iter(scores), SimpleNamespace(total=torch.tensor(0.5))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1.0)

    def training_step(self, batch, batch_idx):
        return -self.steps * batch["weight"]

    def validation_step(self, batch, batch_idx):
        pass

    def on_validation_epoch_end(self):
        self.log("validation/f1", next(self.scores))


def fit(tmp_path, module, callback_list, num_steps=12, every=2, accumulation=1):
    """Trains one step after another; the micro-batches of a step weigh 1 together, and it has 100 tokens."""
    trainer = build_trainer(cpu_training(4 // accumulation), tmp_path, num_steps, 4, every, callback_list)
    parts = range(num_steps * accumulation)
    batches = [{"weight": torch.ones(()), "num_tokens": 100, "step": part // accumulation} for part in parts]
    train, validation = (DataLoader(data, batch_size=None) for data in (batches, [{"weight": torch.ones(())}]))
    trainer.fit(module, train, validation)
    return trainer


SCORES = [0.1, 0.5, 0.4, 0.5, 0.3, 0.2]


def test_the_best_weights_are_kept_and_of_equal_ones_the_first(tmp_path):
    module, best, history = Scored(SCORES), KeepBest(F1, patience=None), History()
    trainer = fit(tmp_path, module, [best, history])
    assert trainer.global_step == 12 and module.steps.item() == 12
    assert (best.best, best.best_step) == (pytest.approx(0.5), 4)
    assert [row["step"] for row in history.rows] == [2, 4, 6, 8, 10, 12]
    assert [row["f1"] for row in history.rows] == pytest.approx(SCORES)
    best.restore(module)
    assert module.steps.item() == 4


def test_a_metric_that_is_never_finite_or_not_measured_is_told(tmp_path):
    best = KeepBest(replace(F1, direction="minimize"), patience=2)
    trainer = fit(tmp_path, module := Scored([float("nan")] * 6), [best, History()])
    assert trainer.global_step == 4
    with pytest.raises(
        TrainingFailed, match="validation/f1 was NaN or infinite in all validations, so the training diverged"
    ):
        best.restore(module)
    with refused(where="validation/mae", problem="not logged by the validation", expected="one of..."):
        fit(tmp_path, Scored(SCORES), [KeepBest(Headline("mae", "MAE"), None)])


def test_the_lowest_is_the_best_where_lower_is_better(tmp_path):
    module, best = Scored([0.5, 0.3, 0.3, 0.4, 0.4, 0.2]), KeepBest(replace(F1, direction="minimize"), 3)
    assert fit(tmp_path, module, [best]).global_step == 10, "stopped three validations after the best"
    assert (best.best, best.best_step) == (pytest.approx(0.3), 4)


@pytest.mark.parametrize(("patience", "last"), [(1, 6), (2, 8), (3, 10), (4, 12), (9, 12)])
def test_patience_counts_validations_since_the_best(tmp_path, patience, last):
    module, best = Scored(SCORES), KeepBest(F1, patience)
    assert fit(tmp_path, module, [best]).global_step == last
    best.restore(module)
    assert module.steps.item() == 4


@pytest.mark.parametrize("accumulation", [1, 4])
def test_throughput_counts_global_batches_after_the_first_five_steps_and_no_validation(
    tmp_path, monkeypatch, accumulation
):
    now = [0.0]
    monkeypatch.setattr(callbacks.time, "perf_counter", lambda: now[0])

    class Slow(Scored):
        """A micro-batch takes 1 s, a validation 1,000 s."""

        def training_step(self, batch, batch_idx):
            now[0] += 1.0
            return super().training_step(batch, batch_idx)

        def validation_step(self, batch, batch_idx):
            now[0] += 1_000.0

    throughput = Throughput(flops_per_token={0: 30.0}, peak_flops=6_000.0)
    trainer = fit(tmp_path, Slow(SCORES), [throughput], accumulation=accumulation)
    assert trainer.global_step == 12
    assert throughput.tokens == 7 * 100 and throughput.seconds == 7.0 * accumulation
    assert throughput.tokens_per_second == 100 / accumulation
    assert throughput.model_flop_utilisation == pytest.approx(0.5 / accumulation)
    assert float(trainer.callback_metrics["throughput/tokens_per_second"]) == pytest.approx(100 / accumulation)
    throughput.num_devices = 4  # their tokens are counted together
    assert throughput.model_flop_utilisation == pytest.approx(0.125 / accumulation)


def test_each_phase_has_its_arithmetic_and_its_first_steps_do_not_count(tmp_path, monkeypatch):
    """12 steps of a second: 5 of the first phase's 7 and 5 of the second do not count, of the latter there are 5."""
    now = itertools.count()
    monkeypatch.setattr(callbacks.time, "perf_counter", lambda: float(next(now)))
    throughput = Throughput({0: 30.0, 7: 90.0}, peak_flops=6_000.0)
    fit(tmp_path, Scored(SCORES), [throughput], num_steps=13, every=13)
    assert (throughput.tokens, throughput.flops, throughput.seconds) == (3 * 100, 2 * 3_000.0 + 9_000.0, 3.0)
    assert throughput.model_flop_utilisation == pytest.approx(5_000 / 6_000)
    other = Throughput({0: 30.0, 7: 90.0}, peak_flops=6_000.0)
    other.load_state_dict(throughput.state_dict())
    assert other.model_flop_utilisation == throughput.model_flop_utilisation


def test_a_short_training_has_no_rate():
    none = Throughput({0: 1.0}, 1.0)
    assert none.tokens_per_second == 0.0 and none.model_flop_utilisation == 0.0


@pytest.mark.parametrize("accumulation", [1, 2])
def test_progress_advances_by_optimiser_steps(tmp_path, monkeypatch, accumulation):
    lines = SimpleNamespace(advanced=[], closed=0, label=None)

    class Recorder:
        def __init__(self, label, total, unit, start) -> None:
            lines.label = (label, total, unit, start)

        def advance(self, count, describe) -> None:
            lines.advanced.append((count, describe()))

        def close(self) -> None:
            lines.closed += 1

    monkeypatch.setattr(callbacks, "Progress", Recorder)
    fit(
        tmp_path,
        Scored([0.25, 0.75]),
        [ProgressLines("pretrain", 4, headline=F1)],
        num_steps=4,
        accumulation=accumulation,
    )
    assert lines.label == ("pretrain", 4, "steps", 0) and lines.closed == 1
    assert [count for count, _ in lines.advanced] == [1, 1, 1, 1]
    assert lines.advanced[2][1] == "loss 0.500, validation macro F1 0.2500"
    lines.advanced.clear()
    fit(tmp_path, Scored([0.25, 0.75]), [ProgressLines("pretrain", 4, [0, 3], F1)], 4, accumulation=accumulation)
    assert [text for _, text in lines.advanced[2:]] == [
        f"phase {phase} of 2, loss 0.500, validation macro F1 0.2500" for phase in (1, 2)
    ]


def test_a_state_of_an_older_version_is_left_out_as_a_whole() -> None:
    """Half of it would make a wrong rate."""
    throughput = Throughput({0: 6.0}, 1e9)
    throughput.load_state_dict({"tokens": 9, "seconds": 2.0})
    assert (throughput.tokens, throughput.seconds, throughput.flops) == (0, 0.0, 0.0)
    throughput.load_state_dict({"tokens": 9, "seconds": 2.0, "flops": 54.0})
    assert (throughput.tokens, throughput.seconds, throughput.flops) == (9, 2.0, 54.0)
