"""Each argument of `lightning.Trainer` does what Lightning's manual says, or is refused in one sentence."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import (
    EarlyStopping,
    LearningRateMonitor,
    ModelCheckpoint,
    RichProgressBar,
    StochasticWeightAveraging,
)
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.tuner import Tuner

from domainbert.tasks.finetuning import FineTuning
from domainbert.tasks.labelled_data import LabelledData
from domainbert.training.config import OptimConfig, ScheduleConfig
from tests.library.trainer.tiny_library import DATA, OPTIM, TASK, Steps, Tiny, copied, equal, trainer, weights
from tests.refusals import refused

pytestmark = pytest.mark.usefixtures("one_thread")


def fitted(tiny: Tiny, out: Path | None = None, callbacks=(), data=None, module=None, **arguments):
    """A module and its Trainer, after `fit`."""
    module = module or tiny.module()
    run = trainer(out, callbacks, **arguments)
    run.fit(module, data or tiny.data())
    return module, run


def test_max_epochs(tiny):
    steps = Steps()
    _, run = fitted(tiny, callbacks=[steps], max_epochs=2)
    assert (run.global_step, run.current_epoch) == (10, 2)
    assert [step for step, _ in steps.micro_batches] == list(range(10))
    assert steps.losses[-1] < steps.losses[0]


def test_max_steps_ends_a_training_and_its_schedule(tiny):
    _, run = fitted(tiny, max_steps=7, max_epochs=-1)
    assert (run.global_step, run.current_epoch) == (7, 2)
    (config,) = run.lr_scheduler_configs
    assert config.scheduler.last_epoch == 7 and config.interval == "step"
    assert run.optimizers[0].param_groups[0]["lr"] == pytest.approx(1e-2 / 6)  # linear, after 1 of warm-up
    _, ended = fitted(tiny, max_steps=3, max_epochs=5)
    assert ended.global_step == 3


def test_without_an_end_is_refused(tiny):
    with refused(where="trainer.max_epochs", found="-1 and no max_steps"):
        fitted(tiny, max_epochs=-1)


@pytest.mark.parametrize("limit", [{"limit_train_batches": 0}, {"max_steps": 0}, {"max_epochs": 0}])
def test_no_training_steps(tiny, limit):
    _, run = fitted(tiny, **{"max_epochs": 1, **limit})
    assert run.global_step == 0


def test_accumulate_grad_batches_divides_the_batch_and_changes_no_result(tiny):
    whole, parts, accumulate = Steps(), Steps(), 2
    alone, _ = fitted(tiny, callbacks=[whole], module=tiny.module(dropout=0.0), max_epochs=1)
    divided = tiny.module(dropout=0.0)
    module, run = fitted(tiny, callbacks=[parts], module=divided, max_epochs=1, accumulate_grad_batches=accumulate)
    assert run.global_step == 5 and run.num_training_batches == 5 * accumulate
    assert parts.micro_batches == [(step, part) for step in range(5) for part in range(accumulate)]
    assert parts.losses == pytest.approx(whole.losses, rel=1e-4)
    for name, value in weights(alone).items():
        assert torch.allclose(value, module.state_dict()[name], atol=1e-4), name


def test_accumulate_grad_batches_that_does_not_divide_the_batch_is_refused(tiny):
    with refused(where="batch_size", found="8"):
        fitted(tiny, max_epochs=1, accumulate_grad_batches=3)


def test_gradient_clip_val(tiny):
    """Without it the norm is at most `optim.max_grad_norm`."""
    norms = {}

    class Norms(lightning.Callback):
        def on_before_zero_grad(self, trainer, module, optimizer):
            values = [p.grad.norm() for p in module.parameters() if p.grad is not None]
            if values:
                norms.setdefault(limit, []).append(float(torch.stack(values).norm()))

    for limit in (None, 0.01):
        fitted(tiny, callbacks=[Norms()], max_steps=3, gradient_clip_val=limit)
    assert max(norms[0.01]) == pytest.approx(0.01, rel=1e-3) and 0.1 < max(norms[None]) <= 1.001
    with refused(where="trainer.gradient_clip_algorithm", found="'value'"):
        fitted(tiny, max_steps=1, gradient_clip_val=0.01, gradient_clip_algorithm="value")


def test_own_optimizer_gets_clipped_gradients_and_skips_steps_that_are_not_finite(tiny):
    class HeadOnly(FineTuning):
        scale = 1.0

        def configure_optimizers(self):
            return torch.optim.SGD(self.model.head.parameters(), lr=1.0)

        def training_step(self, batch, batch_idx):
            return super().training_step(batch, batch_idx) * self.scale

    module = HeadOnly(tiny / "model", tiny.data().task, optim=OPTIM, max_length=24)
    start = weights(module)
    _, run = fitted(tiny, module=module, max_steps=1, gradient_clip_val=0.01, log_every_n_steps=1)
    trained = weights(module)
    moved = torch.stack([(trained[name] - start[name]).norm() for name in start]).norm()
    assert float(run.callback_metrics["train/grad_norm"]) > 0.01 == pytest.approx(float(moved), rel=1e-3)
    module.scale = math.nan
    fitted(tiny, module=module, max_steps=1)
    assert bool(module.step_loss.skipped) and equal(weights(module), trained)


def test_precision(tiny):
    module, _ = fitted(tiny, max_steps=2, precision="bf16-mixed")
    plain, _ = fitted(tiny, max_steps=2, precision="32-true")
    assert {value.dtype for value in module.parameters()} == {torch.float32}
    assert not equal(weights(module), weights(plain))
    for found in ("bf16-true", "64-true"):
        with refused(where="trainer.precision", found=found):
            fitted(tiny, max_steps=1, precision=found)


def test_strategy_that_divides_the_model_is_refused(tiny):
    from lightning.pytorch.strategies import FSDPStrategy

    module = tiny.module()
    module.trainer = SimpleNamespace(precision="32-true", strategy=object.__new__(FSDPStrategy))  # a CPU has none
    with refused(where="trainer.strategy", found="FSDPStrategy"):
        module.setup("fit")


@pytest.mark.parametrize(("limit", "steps"), [(2, 2), (0.6, 3)])
def test_limit_train_batches_goes_on_to_fresh_examples(tiny, limit, steps):
    noted = Steps()
    _, run = fitted(tiny, callbacks=[noted], max_epochs=2, limit_train_batches=limit)
    assert run.global_step == 2 * steps
    assert [step for step, _ in noted.micro_batches] == list(range(2 * steps))
    assert run.lr_scheduler_configs[0].scheduler.last_epoch == 2 * steps


def test_a_validation_of_fewer_rows_at_a_time_than_micro_batches(tiny):
    """`accumulate_grad_batches` belongs to the training."""
    module = tiny.pretraining()
    few, many = (trainer(accumulate_grad_batches=4).validate(module, tiny.rows(batch_size=size)) for size in (2, 16))
    assert few[0] == pytest.approx(many[0])


def test_limit_val_test_and_predict_batches(tiny):
    module, run = fitted(tiny, max_epochs=1, limit_val_batches=0)
    assert "validation/f1" not in run.callback_metrics
    data = tiny.data()
    part = trainer(limit_test_batches=2, limit_predict_batches=1)
    (scores,) = part.test(module, data, verbose=False)
    assert sum(scores[f"test/support/{kind}"] for kind in ("LOC", "ORG", "PER")) == sum(
        len(item.spans) for item in data.items("test")[:16]
    )
    assert [len(batch) for batch in part.predict(module, data)] == [8]


def test_fast_dev_run_does_one_batch_of_all(tiny):
    noted = Steps()
    module = tiny.module(schedule=ScheduleConfig(warmup_steps=100))
    run = trainer(callbacks=[noted], fast_dev_run=True)
    run.fit(module, tiny.data())
    assert run.global_step == 1 and len(noted.losses) == 1
    run.test(module, tiny.data(), verbose=False)
    assert run.global_step == 1


def test_overfit_batches_repeats_them(tiny):
    noted = Steps()
    _, run = fitted(tiny, callbacks=[noted], max_epochs=4, overfit_batches=2)
    assert [step for step, _ in noted.micro_batches] == [0, 1] * 4 and run.global_step == 8
    assert noted.losses[-1] < 0.7 * noted.losses[1]


class Validations(lightning.Callback):
    """Notes the step of each validation."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def on_validation_end(self, trainer, module) -> None:
        if not trainer.sanity_checking:
            self.steps.append(trainer.global_step)


@pytest.mark.parametrize(
    ("arguments", "steps"),
    [
        ({}, [5, 10]),
        ({"val_check_interval": 2}, [2, 4, 7, 9]),
        ({"val_check_interval": 0.4}, [2, 4, 7, 9]),
        ({"val_check_interval": 3, "check_val_every_n_epoch": None}, [3, 6, 9]),
        ({"check_val_every_n_epoch": 2}, [10]),
    ],
)
def test_val_check_interval(tiny, arguments, steps):
    noted = Validations()
    fitted(tiny, callbacks=[noted], max_epochs=2, **arguments)
    assert noted.steps == steps


def test_model_checkpoint_keeps_the_best_and_loads_without_pickle(tiny, tmp_path):
    keeps = ModelCheckpoint(tmp_path, monitor="validation/f1", mode="max", save_top_k=1)
    module, run = fitted(tiny, callbacks=[keeps], max_epochs=3, enable_checkpointing=True)
    content = torch.load(keeps.best_model_path, weights_only=True)
    assert content["hyper_parameters"]["optim"]["lr"] == 1e-2
    assert module.hparams["model"] == str(tiny / "model"), "a checkpoint has the architecture in its place"
    best = FineTuning.load_from_checkpoint(keeps.best_model_path, weights_only=True)
    assert best.task.labels == module.task.labels and best.hparams["optim"] == module.hparams["optim"]
    (scores,) = trainer().validate(best, tiny.data(), verbose=False)
    assert scores["validation/f1"] == pytest.approx(float(keeps.best_model_score), abs=1e-6)
    (tested,) = run.test(module, tiny.data(), ckpt_path="best", verbose=False, weights_only=True)
    assert tested == trainer().test(best, tiny.data(), verbose=False)[0]


def test_ckpt_path_goes_on_bit_by_bit_whatever_the_new_module_has_drawn(tiny, tmp_path):
    accumulate, every, at = 2, 7, 7
    how = {"max_epochs": 2, "accumulate_grad_batches": accumulate, "enable_checkpointing": True}
    keeps = ModelCheckpoint(tmp_path, every_n_train_steps=every, save_top_k=-1, filename="{step}")
    whole, _ = fitted(tiny, callbacks=[keeps, first := Steps()], **how)
    again, second = tiny.module(seed=7), Steps()  # all that matters is in the checkpoint, but for order and dropout
    again.seed = 1
    run = trainer(tmp_path, [second], **how)
    run.fit(again, tiny.data(seed=1), ckpt_path=str(tmp_path / f"step={at}.ckpt"), weights_only=True)
    assert second.micro_batches == first.micro_batches[at * accumulate :] and run.global_step == 10
    assert second.losses == first.losses[at:]
    assert equal(weights(whole), weights(again))


KEEP_ALL = {"filename": "{step}", "save_top_k": -1, "enable_version_counter": False}
EACH_STEP = {**KEEP_ALL, "every_n_train_steps": 1}
EACH_EPOCH = {**KEEP_ALL, "save_on_train_epoch_end": True}


@pytest.mark.parametrize(
    ("arguments", "saves", "steps"),
    [
        ({"max_epochs": 3}, EACH_STEP, (5, 10)),  # the last step of two epochs
        ({"max_epochs": 3, "accumulate_grad_batches": 2}, EACH_STEP, (5, 5)),  # then within the first step of an epoch
        ({"max_epochs": 3, "max_steps": 15}, EACH_EPOCH, (5, 10)),
    ],
)
def test_two_resumes_equal_an_uninterrupted_training(tiny, tmp_path, arguments, saves, steps):
    def fit(name: str, checkpoint: Path | None):
        keeps = ModelCheckpoint(tmp_path / name, **saves)
        run = trainer(tmp_path, [keeps, recorded := Steps()], enable_checkpointing=True, **arguments)
        run.fit(module := tiny.module(), tiny.data(), ckpt_path=checkpoint, weights_only=True)
        return module, run, recorded

    def counters(name: str):
        loops = torch.load(tmp_path / name / "step=15.ckpt", weights_only=True)["loops"]["fit_loop"]
        names = ("epoch_progress", "epoch_loop.batch_progress", "epoch_loop.state_dict")
        return [loops[name] for name in names]

    whole, _, first = fit("0", None)
    for count, step in enumerate(steps):
        module, run, resumed = fit(f"{count + 1}", tmp_path / f"{count}" / f"step={step}.ckpt")
        assert (run.global_step, run.current_epoch) == (15, 3) and resumed.losses == first.losses[step:]
        assert equal(weights(whole), weights(module))
        assert counters(f"{count + 1}") == counters("0")


@pytest.mark.parametrize(("accumulate", "then", "validate", "at"), [(2, 1, 6, 3), (2, 4, 3, 1)])
def test_ckpt_path_with_another_accumulate_grad_batches(tiny, tmp_path, accumulate, then, validate, at):
    """Also if the checkpoint was written in the middle of an optimizer step: micro-batch 3 of 2 per step."""
    keeps = ModelCheckpoint(tmp_path, save_top_k=-1, filename="{step}")
    how = {"max_epochs": 2, "enable_checkpointing": True, "accumulate_grad_batches": accumulate}
    module = tiny.module(dropout=0.0)
    whole, _ = fitted(tiny, callbacks=[keeps, first := Steps()], module=module, val_check_interval=validate, **how)
    how["accumulate_grad_batches"] = then
    run = trainer(tmp_path, [second := Steps()], **how)
    again = tiny.module(dropout=0.0)
    run.fit(again, tiny.data(), ckpt_path=str(tmp_path / f"step={at}.ckpt"), weights_only=True)
    assert second.micro_batches == [(step, part) for step in range(at, 10) for part in range(then)]
    assert run.global_step == 10 and second.losses == pytest.approx(first.losses[at:], rel=1e-4)
    for name, value in weights(whole).items():
        assert torch.allclose(value, again.state_dict()[name], atol=1e-4), name


def test_ckpt_path_with_other_labels_is_refused(tiny, tmp_path):
    keeps = ModelCheckpoint(tmp_path, filename="one")
    fitted(tiny, callbacks=[keeps], max_steps=1, enable_checkpointing=True)
    lines = (DATA / "ner-train.conll").read_text().replace("LOC", "PLACE")
    (tmp_path / "other.conll").write_text(lines)
    data = tiny.data(train=tmp_path / "other.conll", validation=None)
    module = tiny.module(task=data.task)
    with refused(where="ckpt_path", found="'O', 'B-LOC', ..."):
        trainer(max_steps=2).fit(module, data, ckpt_path=str(tmp_path / "one.ckpt"))


def swap_entries(tokenizer: str) -> str:
    """A tokenizer.json of the same size, in which two entries have each other's id."""
    content = json.loads(tokenizer)
    vocabulary = content["model"]["vocab"]
    *_, first, last = vocabulary
    vocabulary[first], vocabulary[last] = vocabulary[last], vocabulary[first]
    return json.dumps(content)


def test_ckpt_path_with_another_tokenizer_of_equal_size_is_refused(tiny, tmp_path):
    """All checkpoints contain their tokenizer."""
    folder = copied(tiny / "model", tmp_path / "model")
    run = trainer(tmp_path, max_steps=1)
    run.fit(tiny.module(model=folder), tiny.data())
    run.save_checkpoint(tmp_path / "one.ckpt")
    file = folder / "tokenizer.json"
    file.write_text(swap_entries(file.read_text()))
    loaded = FineTuning.load_from_checkpoint(tmp_path / "one.ckpt", weights_only=True)
    assert loaded.tokenizer.fingerprint == tiny.module().tokenizer.fingerprint
    with refused(where="ckpt_path", problem="the tokenizer of the module has changed since..."):
        trainer(max_steps=2).fit(
            tiny.module(model=folder), tiny.data(tokenizer=folder), ckpt_path=str(tmp_path / "one.ckpt")
        )

    run = trainer(tmp_path, max_steps=1)
    run.fit(tiny.pretraining(), tiny.rows())
    run.save_checkpoint(tmp_path / "one.ckpt")
    content = torch.load(tmp_path / "one.ckpt", weights_only=True)
    content["tokenizer_fingerprint"] = "of another"
    torch.save(content, tmp_path / "one.ckpt")
    with refused(where="ckpt_path", problem="the tokenizer of the module has changed since..."):
        trainer(max_steps=2).fit(tiny.pretraining(), tiny.rows(), ckpt_path=str(tmp_path / "one.ckpt"))


def test_early_stopping(tiny):
    stops = EarlyStopping("validation/loss", patience=1, mode="min", min_delta=10.0)
    _, run = fitted(tiny, callbacks=[stops], max_epochs=5)
    assert run.current_epoch == 2 and math.isfinite(stops.best_score)


def test_learning_rate_monitor(tiny, tmp_path):
    monitor, logger = LearningRateMonitor("step"), CSVLogger(tmp_path)
    fitted(tiny, callbacks=[monitor], max_epochs=1, logger=logger, log_every_n_steps=1)
    rates = [one for values in monitor.lrs.values() for one in values]
    assert len(monitor.lrs) == 4 and max(rates) == pytest.approx(3e-2) and len(rates) == 20
    assert "train/loss" in (Path(logger.log_dir) / "metrics.csv").read_text()
    assert "class_path" in (Path(logger.log_dir) / "hparams.yaml").read_text()


def test_rich_progress_bar(tiny, capsys):
    fitted(tiny, callbacks=[RichProgressBar()], max_epochs=1, enable_progress_bar=True)
    assert "Epoch 0/0" in capsys.readouterr().out


def test_stochastic_weight_averaging(tiny):
    """Its weights are the mean of those after the last epochs, whatever the vocabulary of the data."""
    seen = []

    class Ends(lightning.Callback):
        def on_train_epoch_start(self, trainer, module):
            seen.append({name: value.detach().clone() for name, value in module.named_parameters()})

    averaging = StochasticWeightAveraging(swa_lrs=1e-3, swa_epoch_start=2, annealing_epochs=1)
    last = {}

    class Last(lightning.Callback):
        def on_train_end(self, trainer, module):
            last.update({name: value.detach().clone() for name, value in module.named_parameters()})

    fitted(tiny, callbacks=[Ends(), averaging, Last()], max_epochs=4)
    for name, value in last.items():
        wanted = torch.stack([one[name] for one in seen[1:]]).mean(dim=0)
        assert torch.allclose(value, wanted, atol=1e-6), name


def test_learning_rate_finder_sets_the_rate_and_leaves_the_weights(tiny, tmp_path):
    module, data = tiny.module(optim=OptimConfig(lr=1e-4)), tiny.data()
    run = trainer(tmp_path, max_epochs=4, enable_checkpointing=True)
    found = Tuner(run).lr_find(module, datamodule=data, num_training=20, max_lr=1.0)
    assert len(found.results["lr"]) >= 10 and module.lr == found.suggestion() != 1e-4
    assert module.hparams["optim"]["lr"] == module.lr
    run.fit(module, data)
    plain, _ = fitted(tiny, module=tiny.module(optim=OptimConfig(lr=module.lr)), max_epochs=4)
    assert equal(weights(module), weights(plain))


def test_num_workers_change_nothing(tiny):
    plain, _ = fitted(tiny, max_epochs=2)
    other, _ = fitted(tiny, max_epochs=2, data=tiny.data(num_workers=1))
    assert equal(weights(plain), weights(other))


def test_a_second_fit_goes_on_with_the_weights(tiny):
    module, _ = fitted(tiny, max_epochs=2)
    first = weights(module)
    _, run = fitted(tiny, module=module, max_epochs=1)
    assert not equal(first, weights(module)) and float(run.callback_metrics["validation/f1"]) >= 0.0


def test_reload_dataloaders_every_n_epochs(tiny):
    noted = Steps()
    fitted(tiny, callbacks=[noted], max_epochs=2, reload_dataloaders_every_n_epochs=1)
    assert [step for step, _ in noted.micro_batches] == list(range(10))


def test_data_without_a_validation_set_trains(tiny):
    data = LabelledData(TASK, DATA / "ner-train.conll", tokenizer=tiny / "model", batch_size=8, max_length=24)
    _, run = fitted(tiny, data=data, max_epochs=1)
    assert run.global_step == 5 and not [name for name in run.callback_metrics if name.startswith("validation/")]
