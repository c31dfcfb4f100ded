"""The headline of a validation as the mean over slices, in whatever batches it is read: equal to scikit-learn's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr
from sklearn.metrics import f1_score

from domainbert.data.batches import LabelledBatches, Share
from domainbert.data.packing import collate
from domainbert.tasks.classification.config import Classification, ClassificationFormat
from domainbert.tasks.classification.files import LabelledText
from domainbert.tasks.classification.task import ClassificationTask
from domainbert.tasks.multi_label.config import MultiLabel, MultiLabelFormat
from domainbert.tasks.multi_label.files import LabelledText as TextWithLabels
from domainbert.tasks.multi_label.task import MultiLabelTask
from domainbert.tasks.regression.config import Regression, RegressionFormat
from domainbert.tasks.regression.files import NumberedText
from domainbert.tasks.regression.task import RegressionTask
from domainbert.tasks.slices import SlicedMetric, slice_values

LABELS = ("dove", "hawk", "neutral")
GENERATOR = np.random.default_rng(0)
TEXTS = [" ".join(GENERATOR.choice(list("abcdefgh"), size=size)) for size in GENERATOR.integers(1, 30, size=60)]
LANGUAGES = GENERATOR.choice(["arabic", "french"], p=[0.8, 0.2], size=60).tolist()


def scored(task: Any, items: list[Any], tokenizer: Any, scores: np.ndarray) -> dict[str, float]:
    """The scores of a validation in batches of 60 tokens, where each window of a text has the logits of the text."""
    examples = task.encode(items, tokenizer, 10)
    metric, slices = task.metric(), SlicedMetric(task, slice_values(task, items))
    batches = LabelledBatches(examples, tokenizer, 60, Share())
    assert len(batches) > 5 and any(len(example.windows) > 1 for example in examples)
    for number in range(len(batches)):
        batch = {name: torch.from_numpy(value) for name, value in batches[number].items()}
        logits = torch.from_numpy(scores[batch["items"][batch["example"]].numpy()]).float()
        here = [items[item] for item in batch["items"].tolist()]
        task.update(metric, logits, batch, here)
        slices.update(logits, batch, here)
    whole = metric.compute()
    first = {**whole, **slices.compute(whole)}
    return {name: float(value) for name, value in first.items()}


def test_macro_f1_of_classes(tokenizer: Any) -> None:
    gold = GENERATOR.choice(LABELS, size=60).tolist()
    items = [
        LabelledText(text, label, number, slices={"language": language})
        for number, (text, label, language) in enumerate(zip(TEXTS, gold, LANGUAGES, strict=True), 1)
    ]
    config = Classification(ClassificationFormat(slice_keys=("language",)), mean_over="language", calibrate=True)
    task = ClassificationTask(LABELS, config)
    task.headline = config.headline
    logits = GENERATOR.normal(size=(60, 3)) + 2 * np.array([[label == one for one in LABELS] for label in gold])
    found = scored(task, items, tokenizer, logits)
    predicted = np.array(LABELS)[logits.argmax(axis=1)]
    wanted = []
    for language in ("arabic", "french"):
        here = np.array(LANGUAGES) == language
        wanted.append(f1_score(np.array(gold)[here], predicted[here], average="macro"))
    assert found["f1_over_language"] == pytest.approx(np.mean(wanted), abs=1e-12)
    assert found["f1"] == pytest.approx(f1_score(gold, predicted, average="macro"), abs=1e-12)
    assert abs(found["f1_over_language"] - found["f1"]) > 1e-3 and found["temperature"] > 0


def test_micro_f1_of_labels_at_the_one_threshold(tokenizer: Any) -> None:
    holds = GENERATOR.random((60, 3)) < 0.4
    items = [
        TextWithLabels(text, tuple(np.array(LABELS)[row]), number, slices={"language": language})
        for number, (text, row, language) in enumerate(zip(TEXTS, holds, LANGUAGES, strict=True), 1)
    ]
    config = MultiLabel(MultiLabelFormat(slice_keys=("language",)), mean_over="language")
    task = MultiLabelTask(LABELS)
    task.headline = config.headline
    logits = GENERATOR.normal(size=(60, 3)) + 2 * holds - 2
    found = scored(task, items, tokenizer, logits)
    reached = 1 / (1 + np.exp(-logits.astype(np.float32))) >= found["threshold"]
    wanted = []
    for language in ("arabic", "french"):
        here = np.array(LANGUAGES) == language
        wanted.append(f1_score(holds[here], reached[here], average="micro"))
    assert found["threshold"] != 0.5
    assert found["f1_over_language"] == pytest.approx(np.mean(wanted), abs=1e-12)


def test_correlation_of_numbers(tokenizer: Any) -> None:
    gold = GENERATOR.normal(size=60)
    items = [
        NumberedText(text, float(number), line, slices={"language": language})
        for line, (text, number, language) in enumerate(zip(TEXTS, gold, LANGUAGES, strict=True), 1)
    ]
    config = Regression(RegressionFormat(slice_keys=("language",)), mean_over="language")
    task = RegressionTask(["value"])
    task.headline = config.headline
    outputs = gold + GENERATOR.normal(size=60) + (np.array(LANGUAGES) == "arabic")
    found = scored(task, items, tokenizer, outputs[:, None])
    wanted = [
        pearsonr(gold[here], outputs[here]).statistic
        for here in (np.array(LANGUAGES) == language for language in ("arabic", "french"))
    ]
    assert found["pearson_over_language"] == pytest.approx(np.mean(wanted), abs=1e-6)
    assert abs(found["pearson_over_language"] - found["pearson"]) > 1e-3


@pytest.mark.parametrize("kind", ["numbers", "calibrated"])
def test_a_slice_that_no_batch_has_is_left_out(tokenizer: Any, kind: str) -> None:
    """As in Lightning's sanity check, which reads two batches."""
    if kind == "numbers":
        config: Any = Regression(RegressionFormat(slice_keys=("language",)), mean_over="language")
        task: Any = RegressionTask(["value"])
        items = [NumberedText(f"a {i}", float(i), i, slices={"language": "ab"[i == 5]}) for i in range(6)]
        logits, expected = torch.arange(5.0)[:, None] + 1, 1.0
    else:
        format = ClassificationFormat(slice_keys=("language",))
        config = Classification(format, mean_over="language", calibrate=True)
        task = ClassificationTask(LABELS, config)
        items = [LabelledText(f"a {i}", LABELS[i % 2], i, slices={"language": "ab"[i == 5]}) for i in range(6)]
        logits, expected = torch.eye(3)[[0, 1, 0, 1, 1]], 0.8  # both classes: 2 right, 1 wrong or missed
    task.headline = config.headline
    metric, slices = task.metric(), SlicedMetric(task, slice_values(task, items))
    # the one text of the second slice is wrong, or has no correlation
    for numbers, mean in ((range(5), expected), (range(6), expected / 2)):
        examples = task.encode([items[number] for number in numbers], tokenizer, 10)
        batch = {name: torch.from_numpy(value) for name, value in collate(examples, numbers, tokenizer).items()}
        outputs = torch.cat([logits, logits[:1]])[batch["items"][batch["example"]]]
        here = [items[number] for number in numbers]
        task.update(metric, outputs, batch, here)
        slices.update(outputs, batch, here)
        assert slices.compute(metric.compute()) == {config.headline.key: pytest.approx(mean)}


def test_without_a_mean_there_are_no_slices(tokenizer: Any) -> None:
    items = [LabelledText(text, "dove", 1) for text in TEXTS]
    task = ClassificationTask(LABELS)
    assert list(scored(task, items, tokenizer, np.zeros((60, 3)))) == ["f1", "accuracy"]
