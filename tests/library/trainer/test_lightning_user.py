"""What a Lightning user tries next: complete modules, any loss, any callback, any loader."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import (
    BasePredictionWriter,
    BatchSizeFinder,
    EMAWeightAveraging,
    GradientAccumulationScheduler,
    ModelCheckpoint,
    StochasticWeightAveraging,
)
from torch import Tensor
from torch.nn import functional
from torchmetrics import SumMetric

from domainbert import (
    CausalLM,
    Classification,
    EntityF1,
    FineTuning,
    LabelledData,
    MaskedLM,
    Ner,
    Packed,
    Pretraining,
    PretrainingData,
    attention_maps,
    packed_loader,
)
from domainbert.tasks.module_scores import weights_differ
from tests.forked import run_script
from tests.library.trainer.tiny_library import BERT, DATA, OPTIM, Steps, Tiny, equal, trainer, weights

pytestmark = pytest.mark.usefixtures("one_thread")
SETS = {name: DATA / f"ner-{name}.conll" for name in ("train", "validation", "test")}
LABELS = ["LOC", "ORG", "PER"]


def make_module(tiny: Tiny, kind: type[FineTuning] = FineTuning, **arguments: Any) -> FineTuning:
    """Return a module that is complete without data."""
    arguments = {"optim": OPTIM, "max_length": 24, **arguments}
    return kind.from_pretrained(tiny / "model", Ner(labels=LABELS), **arguments)


def make_data(module: Any, **arguments: Any) -> LabelledData:
    """Return data that needs the tokenizer of the module, but not the module."""
    return LabelledData(
        module.task, **SETS, **{"tokenizer": module.tokenizer, "batch_size": 8, "max_length": 24, **arguments}
    )


def test_a_module_is_complete_when_it_is_constructed(tiny: Tiny) -> None:
    module = make_module(tiny)
    assert sum(parameter.numel() for parameter in module.parameters()) > 5_000
    assert next(iter(dict(module.named_children()))) == "model"  # the summary begins with the encoder and its head
    (batch,) = packed_loader(["a b c", "b"], module.tokenizer)
    assert module(batch).shape == (len(batch["positions"]), 7)
    pretraining = Pretraining(BERT, module.tokenizer, MaskedLM())
    assert pretraining(batch).shape[-1] == module.tokenizer.vocab_size


def test_a_window_is_no_longer_than_the_tokenizer_says(tiny: Tiny) -> None:
    encoder = replace(BERT, max_position_embeddings=256)
    assert FineTuning(tiny / "vocab", Ner(labels=["law"]), init="random", encoder=encoder).max_length == 48


@pytest.mark.parametrize("kind", [FineTuning, Pretraining])
def test_an_own_training_step_returns_any_loss(tiny: Tiny, kind: type[Any]) -> None:
    """A plain tensor has Lightning's ordinary meaning: its gradient, unscaled."""

    class Own(kind):  # type: ignore[misc, valid-type]
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            return self(batch).float().square().mean()

    if kind is FineTuning:
        module: Any = make_module(tiny, Own)
        data: Any = make_data(module)
    else:
        data = tiny.rows()
        module = Own(BERT, tiny / "vocab", MaskedLM())
    before = weights(module)
    run = trainer(max_steps=2)
    run.fit(module, data)
    assert not equal(before, weights(module)) and run.global_step == 2


def test_a_training_step_that_returns_none_skips_its_batch(tiny: Tiny) -> None:
    states = []

    class Skips(FineTuning):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            states.append(weights(self))
            loss = super().training_step(batch, batch_idx)
            return None if batch_idx in (0, 2) else loss

    module = make_module(tiny, Skips)
    run = trainer(max_steps=5)
    run.fit(module, make_data(module))
    changed = [not equal(before, after) for before, after in zip(states, [*states[1:], weights(module)], strict=True)]
    assert changed == [False, True, False, True, True] and run.global_step == 5


@pytest.mark.parametrize("strategy", ["ddp_fork", pytest.param("ddp_spawn", marks=pytest.mark.slow)])
def test_a_training_in_other_processes_returns_its_weights(tiny: Tiny, strategy: str) -> None:
    module = make_module(tiny)
    before = weights(module)
    trainer(max_steps=1, strategy=strategy, devices=2).fit(module, make_data(module))
    assert before.keys() == weights(module).keys() and not equal(before, weights(module))


def test_validate_fit_validate_fit(tiny: Tiny) -> None:
    module = make_module(tiny)
    data = make_data(module)
    run = trainer(max_steps=2)
    run.validate(module, data, verbose=False)
    run.fit(module, data)
    trained = weights(module)
    (scores,) = trainer().validate(module, data, verbose=False)
    assert equal(trained, weights(module)) and 0 <= scores["validation/f1"] <= 1
    trainer(max_steps=2).fit(module, data)
    assert not equal(trained, weights(module))


def test_a_validation_after_one_that_stopped_within_begins_anew(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """It scores the slices of the second set."""
    task = Classification({"slice_keys": ["language"]}, labels=("a", "b"), mean_over="language")  # type: ignore[arg-type]
    rows = [{"text": f"rates {number}", "label": "ab"[number % 2]} for number in range(6)]
    sets = [[row | {"language": language} for row in rows] for language in ("de", "fr")]
    german, french = (LabelledData(task, validation=rows, tokenizer=tiny / "vocab", max_length=24) for rows in sets)
    stopped, fresh = (FineTuning(tiny / "model", task, max_length=24) for _ in range(2))
    with monkeypatch.context() as patch:
        patch.setattr(stopped.task, "update", raise_interrupt)
        with pytest.raises(InterruptedError):
            trainer().validate(stopped, german, verbose=False)
    (expected,) = trainer().validate(fresh, french, verbose=False)
    assert trainer().validate(stopped, french, verbose=False) == [expected]
    assert expected["validation/f1_over_language"] == pytest.approx(expected["validation/f1"])


def raise_interrupt(*_: Any) -> None:
    raise InterruptedError


def test_a_validation_leaves_the_metrics_of_a_subclass_alone(tiny: Tiny) -> None:
    class Counts(FineTuning):
        def __init__(self, *arguments: Any, **changes: Any) -> None:
            super().__init__(*arguments, **changes)
            self.steps = SumMetric()

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            self.steps.update(1)
            return super().training_step(batch, batch_idx)

    module = make_module(tiny, Counts)
    trainer(max_steps=4, val_check_interval=2).fit(module, make_data(module))
    assert int(module.steps.compute()) == 4


@pytest.mark.parametrize("head", ["linear", "crf"])
def test_exponential_averages_leave_other_buffers_alone(tiny: Tiny, head: Any) -> None:
    """With a decay of 0 the average is the last step: the same scores. With another, the average is validated."""
    scores = []
    for callbacks in ([], [EMAWeightAveraging(decay=0.0)], [EMAWeightAveraging(decay=0.9)]):
        module = FineTuning(tiny / "model", Ner(labels=LABELS, head=head), optim=OPTIM, max_length=24)
        run = trainer(callbacks=callbacks, max_epochs=2)
        run.fit(module, make_data(module))
        scores.append(float(run.callback_metrics["validation/loss"]))
        assert not weights_differ(module.model, module.validated_weights)
    assert scores[0] == pytest.approx(scores[1], rel=1e-5) and abs(scores[0] - scores[2]) > 1e-3


def test_an_average_after_the_last_validation_has_no_score_before_it_is_validated(tiny: Tiny, tmp_path: Path) -> None:
    module = make_module(tiny)
    data = make_data(module)
    callback = StochasticWeightAveraging(swa_lrs=1e-3, swa_epoch_start=2)
    trainer(callbacks=[callback], max_epochs=4).fit(module, data)
    module.save_pretrained(tmp_path / "before")
    trainer().validate(module, data, verbose=False)
    module.save_pretrained(tmp_path / "after")
    has_score = {
        name: "validation entity F1" in (tmp_path / name / "README.md").read_text() for name in ("before", "after")
    }
    assert has_score == {"before": False, "after": True}


def test_a_training_with_fewer_embeddings_is_saved_and_resumed_bit_by_bit(tiny: Tiny, tmp_path: Path) -> None:
    """A checkpoint has the moments of all entries, and does not change the optimizer that it is made from."""

    def reduced() -> tuple[FineTuning, LabelledData]:
        module = make_module(tiny, dropout=0.0)
        data = make_data(module)
        module.exclude_unused_embeddings(torch.from_numpy(data.entry_ids))
        return module, data

    module, data = reduced()
    keeps = ModelCheckpoint(tmp_path, every_n_train_steps=2, save_top_k=-1, filename="{step}")
    trainer(tmp_path, callbacks=[keeps], enable_checkpointing=True, max_steps=6).fit(module, data)
    again, data = reduced()
    trainer(max_steps=6).fit(again, data, ckpt_path=str(tmp_path / "step=4.ckpt"), weights_only=True)
    assert equal(weights(module), weights(again))
    (state,) = torch.load(tmp_path / "step=4.ckpt", weights_only=True)["optimizer_states"]
    assert module.tokenizer.vocab_size in {len(value["exp_avg"]) for value in state["state"].values()}


def test_the_batch_size_finder_sets_the_batch_size_that_trains(tiny: Tiny) -> None:
    module = make_module(tiny)
    data = make_data(module, batch_size=4)
    steps = Steps()
    run = trainer(callbacks=[BatchSizeFinder(max_trials=2, steps_per_trial=1, init_val=4), steps], max_epochs=1)
    run.fit(module, data)
    assert data.batch_size == 8 and run.global_step == 5


def test_accumulation_may_change_between_epochs(tiny: Tiny) -> None:
    """`batch_size` is a step; the scheduler divides it, and an epoch stays one pass."""
    module = make_module(tiny)
    steps = Steps()
    run = trainer(callbacks=[GradientAccumulationScheduler({0: 1, 1: 2}), steps], max_epochs=2)
    run.fit(module, make_data(module))
    assert run.global_step == 10


def test_a_resumed_training_has_the_accumulation_of_its_epoch(tiny: Tiny, tmp_path: Path) -> None:
    def fit(**arguments: Any) -> Any:
        module, callbacks = make_module(tiny), [GradientAccumulationScheduler({0: 1, 1: 2}), *arguments.pop("also", [])]
        run = trainer(tmp_path, callbacks=callbacks, max_epochs=3, enable_checkpointing=True)
        run.fit(module, make_data(module), **arguments)
        return run.global_step, weights(module)

    steps, whole = fit(also=[ModelCheckpoint(tmp_path, save_top_k=-1, every_n_epochs=1, filename="{step}")])
    resumed_steps, resumed = fit(ckpt_path=tmp_path / "step=5.ckpt", weights_only=True)
    assert steps == resumed_steps == 15 and equal(whole, resumed)


@pytest.mark.parametrize("limits", [{"limit_train_batches": 3}, {"overfit_batches": 1}])
def test_a_limit_ends_with_a_whole_step(tiny: Tiny, limits: dict[str, Any]) -> None:
    """Half a step has half the loss, as the loss is divided by the count of the whole step."""
    losses: list[list[Tensor]] = [[], []]

    class Losses(lightning.Callback):
        def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
            if trainer.global_step > len(losses[trainer.accumulate_grad_batches - 1]):
                losses[trainer.accumulate_grad_batches - 1].append(module.step_loss.total)

    for accumulation, limit in ((1, {name: -(-number // 2) for name, number in limits.items()}), (2, limits)):
        module, callbacks = make_module(tiny, dropout=0.0), [Losses()]
        run = trainer(callbacks=callbacks, max_epochs=2, accumulate_grad_batches=accumulation, **limit)
        run.fit(module, make_data(module))
    assert len(losses[0]) == len(losses[1])
    torch.testing.assert_close(torch.stack(losses[1]), torch.stack(losses[0]), rtol=1e-4, atol=1e-5)


def test_validation_may_be_timed(tiny: Tiny) -> None:
    module = make_module(tiny)
    run = trainer(max_steps=2, val_check_interval="00:00:00:01")
    run.fit(module, make_data(module))
    assert run.global_step == 2


def test_a_fit_after_an_exception_within_a_step_has_the_loss_of_its_own_step(tiny: Tiny) -> None:
    class Fails(lightning.Callback):
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            raise RuntimeError("within a step")

    def first_loss(module: Any, **arguments: Any) -> Tensor:
        trainer(max_steps=1, accumulate_grad_batches=2, **arguments).fit(module, make_data(module))
        return module.step_loss.total

    module = make_module(tiny)
    with pytest.raises(RuntimeError, match="within a step"):
        first_loss(module, callbacks=[Fails()])
    assert torch.equal(first_loss(module), first_loss(make_module(tiny)))


def test_the_batch_size_of_a_corpus_may_change_between_two_fits(tiny: Tiny) -> None:
    """As `BatchSizeFinder` changes it; the trials have the same number of steps."""
    rows: list[int] = []

    class Rows(Pretraining):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            rows.append(len(batch["input_ids"]))
            return super().training_step(batch, batch_idx)

    data = tiny.rows()
    for data.batch_size in (2, 4):
        trainer(max_steps=1).fit(Rows(BERT, tiny / "vocab"), data)
    assert rows == [2, 4]


def test_pretraining_data_from_a_checkpoint_have_their_objective(tiny: Tiny, tmp_path: Path) -> None:
    objective = CausalLM()
    run = trainer(max_steps=1)
    run.fit(tiny.pretraining(objective=objective), tiny.rows(objective=objective))
    run.save_checkpoint(tmp_path / "x.ckpt")
    assert PretrainingData.load_from_checkpoint(tmp_path / "x.ckpt", weights_only=True).objective_config == objective


def test_a_checkpoint_needs_nothing_else(tiny: Tiny, tmp_path: Path) -> None:
    """Another process in an empty folder, without the folder of the model: test, predict and continue."""
    module = make_module(tiny)
    run = trainer(tmp_path, callbacks=[ModelCheckpoint(tmp_path)], enable_checkpointing=True, max_epochs=1)
    run.fit(module, make_data(module))
    (checkpoint,) = tmp_path.glob("*.ckpt")
    script = (
        "import sys; from domainbert import FineTuning\n"
        "module = FineTuning.load_from_checkpoint(sys.argv[1], weights_only=True)\n"
        "print(module.task.labels, sum(p.numel() for p in module.parameters()))"
    )
    (tmp_path / "empty").mkdir()
    moved = checkpoint.rename(tmp_path / "empty" / "x.ckpt")
    hidden = (tiny / "model").rename(tiny / "hidden")
    try:
        said = run_script(script, moved.parent, moved.name, reimport=True)
    finally:
        hidden.rename(tiny / "model")
    assert str(sum(parameter.numel() for parameter in module.parameters())) in said


def test_the_loss_is_in_callback_metrics_after_each_step(tiny: Tiny) -> None:
    names = []

    class Metrics(lightning.Callback):
        def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
            names.append({*trainer.callback_metrics, *trainer.progress_bar_metrics})

    module = make_module(tiny)
    trainer(callbacks=[Metrics()], max_steps=2).fit(module, make_data(module))
    assert all("train/loss" in step for step in names)


def test_a_plain_loader_of_packed_batches_trains_a_module(tiny: Tiny) -> None:
    module = make_module(tiny)
    before = weights(module)
    batches = [dict(batch) for batch in make_data(module).train_dataloader()]
    run = trainer(max_steps=3)
    run.fit(module, torch.utils.data.DataLoader(batches, batch_size=None))
    assert run.global_step == 3 and not equal(before, weights(module))


def test_labelled_data_feeds_any_module_and_can_be_pickled(tiny: Tiny) -> None:
    class Plain(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.tagger = make_module(tiny).model

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            logits = self.tagger(Packed.of(batch), batch["positions"])
            return functional.cross_entropy(logits, batch["targets"])

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), 1e-2)

    data = pickle.loads(pickle.dumps(make_data(make_module(tiny))))
    steps = trainer(max_epochs=1)
    steps.fit(Plain(), data)
    assert steps.global_step == 5


def test_every_step_gets_packed_batches_with_the_numbers_of_their_items(tiny: Tiny) -> None:
    seen: dict[str, list[int]] = {}

    class Own(FineTuning):
        def test_step(self, batch: Any, batch_idx: int) -> Any:
            assert self(batch).shape[0] == len(batch["positions"])
            seen.setdefault("test", []).extend(batch["items"].tolist())
            return super().test_step(batch, batch_idx)

    class Writer(BasePredictionWriter):
        def write_on_batch_end(self, trainer: Any, module: Any, prediction: Any, indices: Any, *_: Any) -> None:
            seen.setdefault("predict", []).extend(indices)

    module = make_module(tiny, Own)
    data = make_data(module)
    trainer().test(module, data, verbose=False)
    trainer(callbacks=[Writer("batch")]).predict(module, data)
    assert sorted(set(seen["test"])) == sorted(set(seen["predict"])) == list(range(24))


def test_one_metric_has_one_name(tiny: Tiny) -> None:
    module = make_module(tiny)
    (scores,) = trainer().test(module, make_data(module), verbose=False)
    metric = EntityF1(per_type=True)
    metric.update([["B-LOC"]], [["B-LOC"]])
    assert {f"test/{name}" for name in metric.compute() if "LOC" in name} <= scores.keys()
    assert "test/f1" in scores


def test_attention_maps_of_a_module_are_those_of_its_folder(tiny: Tiny, tmp_path: Path) -> None:
    """Also of a module in training, without its dropout."""
    module = make_module(tiny)
    module.save_pretrained(tmp_path / "model")
    module.train()
    maps = [attention_maps(model, "The court.").probabilities for model in (module.predictor, tmp_path / "model")]
    assert (maps[0] == maps[1]).all() and module.model.encoder.training
