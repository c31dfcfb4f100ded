"""A classifier of small and crooked data through every stage: two languages in parallel files, weighted classes,
smoothed labels, their mean over languages as the headline, and a calibrated softmax."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, log_loss
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import domainbert
from domainbert.distillation.prediction_config import HardTargets, SoftTargets
from domainbert.labelled.sets import LabelledFile
from domainbert.metrics.calibration import fit_temperature, softmax_with_temperature
from domainbert.stages.distill_task import distill_task
from domainbert.tasks.classification.config import Classification, ClassificationFormat
from domainbert.training.config import OptimConfig

LANGUAGES = ("arabic", "french")
TASK = Classification(
    ClassificationFormat(slice_keys=("language",)),
    mean_over="language",
    class_weights="balanced",
    label_smoothing=0.1,
    calibrate=True,
)
OPTIM = OptimConfig(lr=2e-3, head_lr=5e-3)


def parallel(runs: Any, folder: Path, split: str) -> list[LabelledFile]:
    """The rows of a sample in parallel files of two languages: every third row is French, with accents."""
    rows = [json.loads(line) for line in runs.labelled("classification", split).read_text().splitlines()]
    files = []
    for language in LANGUAGES:
        chosen = [row for number, row in enumerate(rows) if (number % 3 == 0) == (language == "french")]
        accent = "é" if language == "french" else "ā"
        text, label = (folder / f"{language}_{split}_{kind}.txt" for kind in ("text", "labels"))
        text.write_text("".join(f"{accent} {row['text']}\n" for row in chosen), encoding="utf-8")
        label.write_text("".join(f"{row['label']}\n" for row in chosen), encoding="utf-8")
        files.append(LabelledFile(text=text, label=label, slices={"language": language}))
    return files


def items_of(files: list[LabelledFile]) -> list[tuple[str, str, str]]:
    """Language, text and label of each text, read without our reader."""
    return [
        (file.slices["language"], text, label)
        for file in files
        for text, label in zip(
            file.text.read_text(encoding="utf-8").splitlines(), file.label.read_text().splitlines(), strict=True
        )
    ]


def means(items: list[tuple[str, str, str]], predicted: list[str]) -> dict[str, float]:
    """Macro F1 by language, by scikit-learn."""
    found = {}
    for language in LANGUAGES:
        pairs = [(item[2], one) for item, one in zip(items, predicted, strict=True) if item[0] == language]
        found[language] = f1_score(*zip(*pairs, strict=True), average="macro")
    return found


@pytest.fixture(scope="module")
def made(runs: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[LabelledFile]]]:
    folder = tmp_path_factory.mktemp("crooked")
    sets = {split: parallel(runs, folder, split) for split in ("train", "validation", "test")}
    training = {split: sets[split] for split in ("train", "validation")}
    model = runs.finetune(
        "crooked", "classification", task=TASK, seeds=(1,), max_epochs=6, micro_batch_size=4, **training
    )
    return model, sets


def test_training_validates_by_the_mean_and_fits_a_temperature(runs: Any, made: Any) -> None:
    folder, sets = made
    items = items_of(sets["validation"])
    classifier = domainbert.load_classifier(folder, "32-true")
    found = classifier.predict_texts([text for _, text, _ in items])
    result = runs.results["crooked"]
    scores = result["seeds"][0]["validation"]
    by_language = means(items, [one.label for one in found])
    assert result["validation_f1_over_language"] == pytest.approx(np.mean(list(by_language.values())), abs=1e-6)
    whole = f1_score([one[2] for one in items], [one.label for one in found], average="macro")
    assert scores["f1"] == pytest.approx(whole, abs=1e-6)
    assert json.loads((folder / "seeds.json").read_text())["metric"] == "validation/f1_over_language"

    fields = json.loads((folder / "seed-1" / "config.json").read_text())
    temperature = fields["domainbert_temperature"]
    assert temperature == pytest.approx(scores["temperature"], rel=1e-5) and temperature != 1
    probabilities = np.array([[one.scores[label] for label in classifier.labels] for one in found])
    gold = [classifier.labels.index(label) for _, _, label in items]
    probabilities /= probabilities.sum(axis=1, keepdims=True)  # they were rounded to single precision
    classes = range(len(classifier.labels))
    assert scores["nll"] == pytest.approx(log_loss(gold, probabilities, labels=classes), rel=1e-4)
    assert scores["nll"] <= scores["uncalibrated_nll"]
    classifier.task.temperature = 1.0
    plain = classifier.predict_texts([text for _, text, _ in items])
    assert [one.label for one in plain] == [one.label for one in found], "no label changes"
    logits = np.log([[one.scores[label] for label in classifier.labels] for one in plain])
    np.testing.assert_allclose(probabilities, softmax_with_temperature(logits, temperature), rtol=1e-4)
    assert fit_temperature(logits, np.array(gold)) == pytest.approx(temperature, rel=1e-3)


def test_transformers_gives_the_probabilities_before(made: Any) -> None:
    folder = made[0] / "seed-1"
    model, info = AutoModelForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    text = "Élan: attendance of girls rose."
    tokens = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")
    with torch.inference_mode():
        logits = model.eval()(**tokens).logits.numpy()
    (found,) = domainbert.load_classifier(folder, "32-true").predict_texts([text])
    wanted = softmax_with_temperature(logits, model.config.domainbert_temperature)[0]
    assert [found.scores[model.config.id2label[k]] for k in range(len(wanted))] == pytest.approx(wanted, abs=1e-5)


def test_evaluation_by_language_with_calibration(runs: Any, made: Any) -> None:
    folder, sets = made
    models = {"crooked": folder, "plain": runs / "classification-scratch"}
    out = runs.evaluate("crooked-scores", "classification", models, task=TASK, test=sets["test"])
    metrics = json.loads((out / "metrics.json").read_text())
    items = items_of(sets["test"])
    rows = [json.loads(line) for line in (out / "predictions/crooked/seed-1.jsonl").read_text().splitlines()]
    assert [(row["language"], row["text"], row["gold"]) for row in rows] == items
    by_language = means(items, [row["predicted"] for row in rows])
    system = metrics["systems"]["crooked"]
    found = {key: one["f1"] for key, one in system["slices"]["language"].items()}
    assert found == pytest.approx(by_language, abs=1e-9)
    assert system["slices"]["language"]["french"]["few"] is True
    metric = {"key": "f1_over_language", "name": "macro F1, mean over language"}
    assert metrics["metric"] == {**metric, "direction": "maximize", "percent": True}
    assert system["f1_over_language"] == pytest.approx(np.mean(list(by_language.values())), abs=1e-9)
    assert system["interval"][0] <= system["f1_over_language"] <= system["interval"][1]
    assert set(metrics["paired"][0]["slices"]["language"]) == set(LANGUAGES)

    calibration, labels = system["calibration"], sorted(rows[0]["scores"])
    probabilities = np.array([[row["scores"][label] for label in labels] for row in rows])
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    gold = [labels.index(row["gold"]) for row in rows]
    assert calibration["nll"] == pytest.approx(log_loss(gold, probabilities, labels=range(len(labels))), rel=1e-6)
    assert calibration["interval"][0] <= calibration["ece"] <= calibration["interval"][1]
    assert calibration["uncalibrated"]["nll"] != calibration["nll"]
    plain = metrics["systems"]["plain"]["calibration"]
    assert plain["temperature"] == 1 and plain["uncalibrated"]["ece"] == plain["ece"]


def test_a_student_learns_so_too(runs: Any, made: Any) -> None:
    folder, sets = made
    training = {"train": sets["train"], "validation": sets["validation"], "batch_size": 8, "max_epochs": 1}
    losses = [HardTargets(), SoftTargets()]
    out = runs.run(
        "crooked-student",
        distill_task,
        teachers=[folder / "seed-1"],
        losses=losses,
        task=TASK,
        optim=OPTIM,
        **training,
        **runs.training,
    )
    assert "domainbert_temperature" in json.loads((out / "seed-1" / "config.json").read_text())
    drawn = Classification(balanced_sampling=0.5)
    plain = {split: runs.labelled("classification", split) for split in ("train", "validation")}
    again = runs.finetune(
        "drawn", "classification", task=drawn, model=out / "seed-1", seeds=(1,), max_epochs=1, **plain
    )
    assert "domainbert_temperature" not in json.loads((again / "seed-1" / "config.json").read_text())
