"""Weights of classes, smoothed labels and drawn classes: torch's definitions, whatever the micro-batches and ranks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight
from torch.nn import functional

from domainbert.base.errors import Problems
from domainbert.data.batches import LabelledBatches, LabelledTrainBatches, Share, SharesOrder
from domainbert.encoders.packed import Packed
from domainbert.settings.reader import read_settings
from domainbert.settings.yaml_files import to_node
from domainbert.tasks.classification.config import Classification
from domainbert.tasks.classification.files import ClassFile, LabelledText
from domainbert.tasks.classification.task import ClassificationTask
from domainbert.tasks.decoding import mean_over_windows
from domainbert.tasks.multi_label.config import MultiLabel
from domainbert.tasks.multi_label.files import LabelledText as TextWithLabels
from domainbert.tasks.multi_label.files import MultiLabelFile
from domainbert.tasks.task import read_task, task_from_training_set
from tests.refusals import refused

LABELS = ["dove"] * 14 + ["hawk"] * 7 + ["neutral"] * 3
TEXTS = [
    LabelledText(" ".join("abcdefgh"[k % 8] for k in range(number, number + 2 + 3 * (number % 7))), label, number + 1)
    for number, label in enumerate(LABELS)
]
FILE = ClassFile(Path("train.jsonl"), TEXTS, "jsonl")
WEIGHTS = {"hawk": 3.0, "neutral": 0.5}


def task_with(**settings: Any) -> ClassificationTask:
    return task_from_training_set(Classification(**settings), FILE)


def whole_batch(task: Any, texts: Any, tokenizer: Any) -> dict[str, torch.Tensor]:
    examples = task.encode(texts, tokenizer, 10)
    batch = LabelledBatches(examples, tokenizer, 100_000, Share())[0]
    return {name: torch.from_numpy(value) for name, value in batch.items()}


def test_balanced_weights_are_those_of_scikit_learn() -> None:
    wanted = compute_class_weight("balanced", classes=np.array(["dove", "hawk", "neutral"]), y=LABELS)
    assert task_with(class_weights="balanced").weights == pytest.approx(wanted, abs=1e-12)
    assert task_with().weights is None
    by_name = task_with(class_weights=WEIGHTS).weights
    assert by_name is not None
    mean = (14 * 1 + 7 * 3 + 3 * 0.5) / 24
    assert by_name == pytest.approx([1 / mean, 3 / mean, 0.5 / mean]), "the mean over the texts is 1"


@pytest.mark.parametrize("weights", [None, "balanced", WEIGHTS])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_of_the_whole_set_is_that_of_torch(tokenizer: Any, weights: Any, smoothing: float) -> None:
    task = task_with(class_weights=weights, label_smoothing=smoothing)
    batch = whole_batch(task, TEXTS, tokenizer)
    logits = torch.randn(len(batch["positions"]), 3, generator=torch.Generator().manual_seed(0))
    loss = task.loss(logits, batch) / len(TEXTS)
    given = {"dove": 1.0, **WEIGHTS} if isinstance(weights, dict) else None
    vector = task.weights if given is None else [given[label] for label in task.labels]
    torch_loss = torch.nn.CrossEntropyLoss(
        weight=None if vector is None else torch.tensor(vector), label_smoothing=smoothing
    )
    means, gold = mean_over_windows(logits, batch), task.targets(batch)
    assert float(loss) == pytest.approx(float(torch_loss(means, gold)), rel=1e-6)


def test_micro_batches_and_ranks_change_nothing(tokenizer: Any, make_model: Callable[..., Any]) -> None:
    model = make_model("sequence", 3).eval()
    task = task_with(class_weights="balanced", label_smoothing=0.1)
    examples = task.encode(TEXTS, tokenizer, 10)
    order = task.training_hooks.order(task, TEXTS, 24, 0)

    def gradient(world_size: int, accumulation: int) -> torch.Tensor:
        model.zero_grad()
        for rank in range(world_size):
            batches = LabelledTrainBatches(examples, tokenizer, order, Share(rank, world_size, accumulation), range(1))
            for index in range(accumulation):
                batch = {name: torch.from_numpy(np.asarray(value)) for name, value in batches[index].items()}
                logits = model(Packed.of(batch), batch["positions"])
                (task.loss(logits, batch) / batch[task.loss_divisor]).backward()
        found = model.head.classifier.weight.grad
        assert found is not None
        return found.clone()

    whole = gradient(1, 1)
    for world_size, micro_batch_size in ((1, 1), (1, 3), (1, 8), (2, 3)):
        found = gradient(world_size, 24 // world_size // micro_batch_size)
        torch.testing.assert_close(found, whole, rtol=1e-5, atol=1e-7)
    assert float((gradient(1, 1) - whole).abs().max()) == 0
    task.weights = None
    assert float((gradient(1, 1) - whole).abs().max()) > 1e-3


def test_texts_without_a_class_have_no_loss(tokenizer: Any) -> None:
    task = task_with(class_weights="balanced", label_smoothing=0.1)
    examples = task.encode_contents(["a b c", "b"], tokenizer, 10)
    arrays = LabelledBatches(examples, tokenizer, 1000, Share())[0]
    batch = {name: torch.from_numpy(value) for name, value in arrays.items()}
    assert float(task.loss(torch.randn(len(batch["positions"]), 3), batch)) == 0


def test_drawn_classes() -> None:
    task = task_with(balanced_sampling=True)
    order = task.training_hooks.order(task, TEXTS, 8, 0)
    assert isinstance(order, SharesOrder)
    items = np.concatenate([order.batch(step)[1] for step in range(3)])
    assert np.bincount([task.labels.index(LABELS[item]) for item in items]).tolist() == [8, 8, 8]
    order = ClassificationTask.training_hooks.order(task_with(balanced_sampling=0.5), TEXTS, 8, 0)
    items = np.concatenate([order.batch(step)[1] for step in range(3)])
    assert np.bincount([task.labels.index(LABELS[item]) for item in items]).tolist() == [11, 8, 5]
    assert not isinstance(ClassificationTask.training_hooks.order(task_with(), TEXTS, 8, 0), SharesOrder)


@pytest.mark.parametrize(
    "given", [{"class_weights": {"dov": 2}}, {"balanced_sampling": True}, {"balanced_sampling": 0.5}]
)
def test_settings_that_are_valid(given: dict[str, Any]) -> None:
    problems = Problems("task")
    settings = read_settings(Classification, to_node(given, "task"), problems)
    assert problems.errors == [] and settings.instance is not None
    assert type(settings.instance.balanced_sampling) in (bool, float)


@pytest.mark.parametrize(
    ("given", "where", "problem", "expected"),
    [
        ({"class_weights": {"dove": 0}}, "...class_weights...", "found 0", "a number above 0..."),
        ({"class_weights": "even"}, "...class_weights", "found 'even'", "...'balanced'..."),
        (
            {"class_weights": "balanced", "balanced_sampling": True},
            "...balanced_sampling",
            "found with class_weights...",
            "...",
        ),
        ({"balanced_sampling": 1.5}, "...balanced_sampling", "found 1.5", "..."),
        ({"balanced_sampling": 1}, "...balanced_sampling", "found 1", "..."),
        ({"label_smoothing": 1.0}, "...label_smoothing", "found 1.0", "..."),
        (
            {"mean_over": "language"},
            "...mean_over",
            "found 'language'",
            "a key of format.slice_keys, which has none...",
        ),
    ],
)
def test_settings_that_are_wrong(given: dict[str, Any], where: str, problem: str, expected: str) -> None:
    problems = Problems("task")
    read_settings(Classification, to_node(given, "task"), problems)
    with refused(where=where, problem=problem, expected=expected) as caught:
        problems.raise_if_any()
    assert len(caught.value.errors) == 1


def test_a_weight_for_a_class_that_training_lacks() -> None:
    config = Classification(class_weights={"dov": 2.0})
    with refused(where="class_weights", found="'dov'", expected="labels of the training set: 'dove..."):
        config.check_labels(["hawk", "dove"])


@pytest.mark.parametrize("config", [Classification(class_weights={"dov": 2.0}), MultiLabel(pos_weight={"dov": 2.0})])
def test_it_is_told_when_the_training_set_is_read_and_no_recipe_was(tmp_path: Path, config: Any) -> None:
    file, label = tmp_path / "train.jsonl", (lambda one: [one]) if isinstance(config, MultiLabel) else str
    key = config.format.label_key
    file.write_text("".join(json.dumps({"text": "a", key: label(one)}) + "\n" for one in ("dove", "hawk")))
    with refused(where="..._weight...", found="'dov'"):
        read_task(config, file, file)


def test_positive_weights_of_labels(tokenizer: Any) -> None:
    texts = [
        TextWithLabels("a b", ("x",), 1),
        TextWithLabels(" ".join("abcdefgh" * 3), ("x", "y"), 2),
        TextWithLabels("c", (), 3),
        TextWithLabels("d", ("x",), 4),
    ]
    file = MultiLabelFile(Path("train.jsonl"), texts, "jsonl")
    task = task_from_training_set(MultiLabel(pos_weight="balanced"), file)
    assert task.pos_weight == pytest.approx([1 / 3, 3])
    batch = whole_batch(task, texts, tokenizer)
    logits = torch.randn(len(batch["positions"]), 2, generator=torch.Generator().manual_seed(0))
    means, gold = mean_over_windows(logits, batch), task.targets(batch).float()
    wanted = functional.binary_cross_entropy_with_logits(means, gold, pos_weight=torch.tensor([1 / 3, 3.0]))
    assert float(task.loss(logits, batch) / 4) == pytest.approx(float(wanted), rel=1e-6)
    with refused(where="pos_weight", found="'balanced', but every text of train.jsonl has the..."):
        task_from_training_set(MultiLabel(pos_weight="balanced"), MultiLabelFile(file.path, texts[:2], "jsonl"))
    with refused(where="pos_weight", found="'z'"):
        MultiLabel(pos_weight={"z": 2.0}).check_labels(["x", "y"])


@pytest.mark.parametrize(("sampling", "shares"), [(True, [12, 0, 12]), (0.5, [15, 0, 9])])
def test_classes_without_a_text_are_not_drawn(sampling: bool | float, shares: list[int]) -> None:
    """`labels` may have a class that training has not; its power 0 ** 0 is 1, a share of no text."""
    task = ClassificationTask(("dove", "eagle", "hawk"), Classification(balanced_sampling=sampling))
    texts = [LabelledText("a", label, line) for line, label in enumerate(["dove"] * 18 + ["hawk"] * 6, 1)]
    order = task.training_hooks.order(task, texts, 8, 0)
    items = np.concatenate([order.batch(step)[1] for step in range(3)])
    assert np.bincount([task.target(texts[item]) for item in items], minlength=3).tolist() == shares
