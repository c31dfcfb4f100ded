"""What a user sees of a training whose numbers are not finite."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import domainbert.training.module as training_module
from domainbert.base.errors import DomainbertError, TrainingFailed
from domainbert.data.batches import GlobalOrder
from domainbert.data.prepared import open_prepared
from domainbert.models.loading import load_model, load_tensors
from domainbert.models.saving import save_model, save_with_vocabulary
from domainbert.pretraining.module import Pretraining
from domainbert.pretraining.objectives.masked_lm.config import MaskedLM
from domainbert.serving.loaders import load_tagger
from domainbert.stages.evaluate import evaluate
from domainbert.stages.export import export
from domainbert.stages.predict import predict
from domainbert.tasks.finetuning import FineTuning
from domainbert.tasks.ner.config import Ner
from domainbert.tokenization.load import load_tokenizer
from tests.refusals import refused
from tests.resuming import TRAINING, Work, pretraining
from tests.toy_corpus import corpus_readers


def spoil(module: type[Pretraining] | type[FineTuning], steps: set[int], patch: pytest.MonkeyPatch) -> None:
    """The gradient is NaN in these steps (from 0)."""
    real = module.training_step

    def step(self: Any, batch: dict[str, Any], batch_idx: int) -> Tensor:
        loss = real(self, batch, batch_idx)
        return loss * float("nan") if batch["step"] in steps else loss

    patch.setattr(module, "training_step", step)


def failed(folder: Path) -> list[dict[str, Any]]:
    status = json.loads((folder / "run.json").read_text())
    assert status["state"] == "failed" and "not finite 3 times in a row" in status["reason"]
    (file,) = folder.rglob("non_finite.json")
    found: list[dict[str, Any]] = json.loads(file.read_text())
    return found


def test_pretraining_counts_skipped_steps(runs: Any, work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = pretraining(runs / "prepare", batch_size=8, budget={"max_steps": 8})
    spoil(Pretraining, {1, 2, 5}, monkeypatch)
    assert work.run("pretrain", "out", settings) == 0
    metrics = json.loads((work / "out/run.json").read_text())["metrics"]
    assert (metrics["skipped_steps"], metrics["loss_spikes"]) == ([2, 3, 6], [])
    assert not (work / "out/non_finite.json").exists()


def test_pretraining_names_rows_and_documents(
    runs: Any, work: Work, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = pretraining(runs / "prepare", batch_size=8, budget={"max_steps": 8}, validate_every=2)
    spoil(Pretraining, {3, 4, 5}, monkeypatch)
    assert work.run("pretrain", "out", settings) == 2
    said = f"was not finite 3 times in a row (loss); {work / 'out/non_finite.json'} lists the texts of these steps"
    assert f"steps 4 to 6: loss or gradient {said}" in capsys.readouterr().err
    steps = failed(work / "out")
    order = GlobalOrder(569, 8, seed=0)
    assert [(one["step"], one["rows"]) for one in steps] == [(n, order.batch(n - 1)[1].tolist()) for n in (4, 5, 6)]
    for one in steps:
        assert one["documents"] == documents_of(runs / "prepare", one["rows"])
    assert sorted(path.name for path in (work / "out/checkpoints").glob("step-*")) == ["step-00000002", "step-00000004"]


def documents_of(prepared: Path, rows: list[int]) -> list[int]:
    """Those whose tokens stand in the rows, looked up one by one."""
    corpus = open_prepared([prepared])
    plan = corpus_readers(corpus, MaskedLM().build(load_tokenizer(corpus.tokenizer_folder)), 64)[0].plan
    ends = corpus.train.document_offsets.tolist()[1:]
    pieces = [piece for row in rows for piece in range(plan.row_offsets[row], plan.row_offsets[row + 1])]
    found = {next(n for n, end in enumerate(ends) if plan.starts[piece] < end) for piece in pieces}
    assert len(found) > 1
    return sorted(found)


def test_finetuning_names_lines(runs: Any, work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {split: str(runs.labelled("ner", split)) for split in ("train", "validation")}
    settings = TRAINING | files | {"model": str(runs / "pretrain"), "task": "Ner", "batch_size": 24, "seeds": [3]}
    spoil(FineTuning, {0, 1, 2}, monkeypatch)
    assert work.run("finetune", "out", settings) == 2
    lines = Path(files["train"]).read_text().split("\n")
    steps = failed(work / "out")
    assert [(one["step"], len(one["lines"])) for one in steps] == [(1, 24), (2, 24), (3, 24)]
    for line in (line for one in steps for line in one["lines"]):
        assert lines[line - 1] and (line == 1 or not lines[line - 2] or lines[line - 2].startswith("-DOC"))


@pytest.fixture(params=[1e38, 1e30])
def huge_updates(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a rate that no settings allow. The weights of 1e30 are finite; what they compute is not."""
    real = training_module.build_optimizer

    def build(*arguments: Any) -> torch.optim.Optimizer:
        optimizer = real(*arguments)
        for group in optimizer.param_groups:
            group["lr"] = request.param
        return optimizer

    monkeypatch.setattr(training_module, "build_optimizer", build)


def test_a_pretraining_that_diverged_is_not_saved(
    runs: Any, work: Work, capsys: pytest.CaptureFixture[str], huge_updates: None
) -> None:
    """It is too short for three skipped steps in a row."""
    changes = {"batch_size": 8, "budget": {"max_steps": 2}, "schedule": {"warmup_steps": 0}}
    assert work.run("pretrain", "out", pretraining(runs / "prepare", **changes)) == 2
    said = capsys.readouterr().err
    assert "the validation loss after step 2 is nan, so the training diverged and its model is not saved" in said
    assert "try a lower optim.lr or more schedule.warmup_steps; logs/metrics.jsonl shows where" in said
    assert json.loads((work / "out/run.json").read_text())["state"] == "failed"
    assert (work / "out/logs/metrics.jsonl").exists()
    assert not (work / "out/model.safetensors").exists()


@pytest.mark.parametrize("huge_updates", [1e30], indirect=True)
def test_a_fine_tuning_that_diverged_is_not_saved(
    runs: Any, work: Work, capsys: pytest.CaptureFixture[str], huge_updates: None
) -> None:
    """In its only step, so that no loss of a step is affected."""
    files = {split: str(runs.labelled("ner", split)) for split in ("train", "validation")}
    settings = TRAINING | files | {"model": str(runs / "pretrain"), "task": "Ner", "batch_size": 4096, "seeds": [3]}
    settings |= {"schedule": {"warmup_fraction": 0.0}, "max_epochs": 1}
    assert work.run("finetune", "out", settings) == 2
    assert "seed 3: the logits after step 1 are not finite, so the training diverged" in capsys.readouterr().err
    assert not list((work / "out").rglob("model.safetensors"))


def test_weights_that_are_not_finite_are_named_and_not_saved(runs: Any, work: Work) -> None:
    model, folder, _ = load_model(runs / "pretrain", "masked_lm")
    with torch.no_grad():
        model.encoder.layers[1].feed_forward.expand.weight[3, :2] = float("nan")
    with pytest.raises(TrainingFailed) as caught:
        save_model(work / "new", model, folder.config, folder.tokenizer(), "masked_lm", "card")
    assert str(caught.value).startswith(
        f"{work / 'new'}: 2 of 8,192 values of bert.encoder.layer.1.intermediate.dense.weight are NaN or infinite, so "
        "the training diverged and its model is not saved"
    )
    tensors = load_tensors(runs / "pretrain", folder.config)
    tensors["bert.embeddings.word_embeddings.weight"][7, 0] = float("inf")
    with refused(problem="1 of 65,536 values of ...word_embeddings.weight are NaN or infinite, so..."):
        save_with_vocabulary(work / "new", folder, tensors, folder.tokenizer(), "card")
    assert not (work / "new").exists()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_folders_whose_weights_are_not_finite_are_refused(runs: Any, work: Work, value: float) -> None:
    folder = work / "ner"
    shutil.copytree(runs / "ner-pretrained/seed-1", folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["classifier.bias"][1] = value
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    said = (
        f"{folder / 'model.safetensors'}: 1 of 11 values of classifier.bias are NaN or infinite; expected the weights"
    )
    pytest.importorskip("onnx")  # for export
    (work / "text.txt").write_text("A text.\n")
    out = work / "out"
    out.mkdir()
    for read in (
        lambda: load_tagger(folder, "32-true"),
        lambda: load_model(folder, "tokens"),
        lambda: evaluate(out, models={"a": folder}, task=Ner(), test=runs.labelled("ner", "test")),
        lambda: predict(out, model=folder, input=work / "text.txt"),
        lambda: export(out, model=folder),
    ):
        with pytest.raises(DomainbertError) as caught:
            read()
        assert str(caught.value).startswith(said)
