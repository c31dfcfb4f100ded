from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from domainbert.data.batches import LabelledBatches, Share
from domainbert.metrics.summary import Resampling
from domainbert.tasks.classification.config import Classification
from domainbert.tasks.classification.files import ClassFile, LabelledText
from domainbert.tasks.classification.scoring import ClassScoring
from domainbert.tasks.classification.task import ClassificationTask
from domainbert.tasks.decoding import mean_over_windows, output_logits
from domainbert.tasks.task import read_task
from tests.refusals import refused

TEXTS = [
    LabelledText("a b c", "dove", 1),
    LabelledText(" ".join("abcdefgh" * 3), "hawk", 2),
    LabelledText("", "neutral", 3),
    LabelledText(" ".join("hgfedcba" * 2), "dove", 4),
]
TASK = ClassificationTask(("dove", "hawk", "neutral"))
GOLD = np.asarray([0, 1, 2, 0])


def one_batch(tokenizer):
    examples = TASK.encode(TEXTS, tokenizer, 10)
    assert [len(example.windows) for example in examples] == [1, 5, 1, 3]
    batch = LabelledBatches(examples, tokenizer, 10_000, Share())[0]
    return {name: torch.from_numpy(value) for name, value in batch.items()}


def test_the_windows_of_a_text_are_averaged(tokenizer):
    batch = one_batch(tokenizer)
    logits = np.random.default_rng(0).normal(size=(10, 3)).astype(np.float32)
    owners = batch["items"].numpy()[batch["example"].numpy()]
    wanted = np.stack([logits[owners == text].mean(axis=0) for text in range(4)])
    found = mean_over_windows(torch.from_numpy(logits), batch).numpy()
    np.testing.assert_allclose(found, wanted[batch["items"].numpy()], atol=1e-6)

    log_probabilities = wanted - np.log(np.exp(wanted).sum(axis=1, keepdims=True))
    loss = TASK.loss(torch.from_numpy(logits), batch) / 40
    assert float(loss) == pytest.approx(-log_probabilities[np.arange(4), GOLD].sum() / 40, rel=1e-6)

    metric = TASK.metric()
    TASK.update(metric, torch.from_numpy(logits), batch, [TEXTS[item] for item in batch["items"].tolist()])
    scores = metric.compute()
    assert float(scores["accuracy"]) == (wanted.argmax(axis=1) == GOLD).mean()
    half = mean_over_windows(torch.from_numpy(logits).bfloat16(), batch)
    assert half.dtype == torch.float32, "averaged in fp32, whatever the model computed in"


def test_files_give_the_labels_of_training(tmp_path, capsys):
    train, validation = tmp_path / "train.jsonl", tmp_path / "validation.jsonl"
    train.write_text("".join(json.dumps({"text": f"text {i}", "label": "ab"[i % 2]}) + "\n" for i in range(4)))
    validation.write_text(json.dumps({"text": "text", "label": "c"}) + "\n")
    task = read_task(Classification(), train, train)[2]
    assert task.labels == ("a", "b") and task.head == "sequence"
    assert "train.jsonl" in capsys.readouterr().out
    with refused(file="validation.jsonl", line=1, problem="label 'c' ... was not in training"):
        read_task(Classification(), train, validation)


def test_calibration_counts_what_is_very_improbable() -> None:
    """Where validation has no mistake, the temperature falls to 1/20; one of a hundred texts is then wrong for sure."""
    task = ClassificationTask(("dove", "hawk"), Classification(calibrate=True))
    task.temperature = 0.05
    logits = torch.tensor([[6.0, 0.0]]).expand(100, 2)
    found = task.decode(logits, {"example": torch.arange(100), "items": torch.arange(100)})
    texts = [LabelledText("a", "hawk" if number == 0 else "dove", number + 1) for number in range(100)]
    scoring = ClassScoring(task.learning, ClassFile(Path("a.jsonl"), texts, "jsonl"))
    scoring.labels, scoring.predictions = {"dove", "hawk"}, {"a": {"1": found}}
    scoring.temperatures = {"a": {"1": task.temperature}}
    calibration = scoring.summary(Resampling(100, 0))["systems"]["a"]["calibration"]
    assert calibration["nll"] == pytest.approx(120 / 100, rel=1e-9)
    assert calibration["uncalibrated"]["nll"] == pytest.approx(6 / 100 + np.log1p(np.exp(-6)), rel=1e-9)


def test_outputs_that_no_window_decides_have_logits_of_zero() -> None:
    logits, index = torch.tensor([[9.0, 9.0], [1.0, 2.0], [3.0, 6.0], [5.0, 5.0]]), torch.tensor([-1, 1, 1, 0])
    assert output_logits(logits, index, 4).tolist() == [[5.0, 5.0], [2.0, 4.0], [0.0, 0.0], [0.0, 0.0]]
    assert output_logits(logits[:1], index[:1], 2).tolist() == [[0.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize(("f1", "accuracy", "warned"), [(0.42, 0.9, True), (0.43, 0.9, False), (0.43, 0.5, True)])
def test_a_model_that_is_no_better_than_one_class_for_all_is_a_warning(
    f1: float, accuracy: float, warned: bool
) -> None:
    """Predicting "dove" for each of three texts has macro F1 (4/5 + 0) / 2 and accuracy 2/3."""
    items = [LabelledText("a", label, 1) for label in ("dove", "dove", "hawk")]
    task = ClassificationTask(("dove", "hawk"), Classification())
    warnings = task.training_hooks.warnings(task, items, {"f1": f1, "accuracy": accuracy})
    assert len(warnings) == warned and all("macro F1 40.0" in one or "40.0 and 66.7" in one for one in warnings)
