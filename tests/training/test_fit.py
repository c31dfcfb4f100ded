from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from domainbert.data.batches import GlobalOrder
from domainbert.metrics.headline import LOSS
from domainbert.pretraining.batches import TrainRows, ValidationRows
from domainbert.training.callbacks import KeepBest
from domainbert.training.config import Budget, CorpusTraining, OptimConfig
from domainbert.training.fit import fit
from domainbert.training.steps import Phase, Steps
from tests.ready_made import ReadyBatches
from tests.tiny_training import cpu_training, masked_lm_module


def test_steps_of_epochs_validate_after_each() -> None:
    assert Steps.of_epochs(3, 8, 20) == Steps((Phase(range(9), 8, 20),), validate_every=3, num_epochs=3)
    assert Steps.of_epochs(3, 10, 20) == Steps((Phase(range(6), 10, 20),), validate_every=2, num_epochs=3)
    assert str(Steps.of_epochs(4, 32, 200)) == "28 steps of 32, 4 epochs of 200"


def test_steps_of_a_budget_validate_at_most_ten_times_unless_told() -> None:
    long, short = (CorpusTraining(budget=one, batch_size=8) for one in (Budget(max_epochs=2.5), Budget(max_steps=9)))
    steps = Steps.of_budget(long, num_rows=[100], num_tokens=[1234])
    assert steps == Steps((Phase(range(32), 8, 100),), validate_every=4)
    assert Steps.of_budget(short, [100], [1234]).validate_every == 1
    often = replace(short, validate_every=4)
    assert Steps.of_budget(often, [100], [1234], True) == Steps((Phase(range(9), 8, 100),), 4, validate_first=True)


@pytest.mark.parametrize("keeps_best", [False, True])
def test_the_kept_validation_is_that_of_the_weights_that_stay(reader, make_model, tmp_path, capsys, keeps_best) -> None:
    module = masked_lm_module(reader, make_model("masked_lm"), OptimConfig(lr=5e-2))
    order, at = GlobalOrder(reader.plan.num_rows, 8, seed=0), {}
    data = ReadyBatches(
        lambda share, steps: TrainRows(reader, order, share, steps),
        [lambda share: ValidationRows(reader, 8, share)],
        6,
    )
    noted = module.on_validation_epoch_end

    def note() -> None:
        noted()
        at[module.global_step] = {name: tensor.clone() for name, tensor in module.model.state_dict().items()}

    module.on_validation_epoch_end = note
    steps = Steps((Phase(range(6), 8, reader.plan.num_rows),), validate_every=2, validate_first=True)
    highest = KeepBest(replace(LOSS, direction="maximize"), None) if keeps_best else None
    fitted = fit("tiny", module, data, steps, cpu_training(4), tmp_path, highest)
    assert [row["step"] for row in fitted.history] == [0, 2, 4, 6] and fitted.micro_batch_size == 4
    losses = [row["loss"] for row in fitted.history]
    assert losses[0] == max(losses) > losses[-1], "the untrained model has the highest loss"
    assert fitted.validation == fitted.history[0 if keeps_best else -1]
    kept = at[fitted.validation["step"]]
    assert all(torch.equal(tensor, kept[name]) for name, tensor in module.model.state_dict().items())
    assert set(fitted.facts) == {"validation", "history", "skipped_steps", "loss_spikes"}
    assert f"6 steps of 8, {48 / reader.plan.num_rows:.2f} epochs of {reader.plan.num_rows};" in capsys.readouterr().out
