"""Failed trainings are reported when they happen, in their output, and at the end of a recipe."""

from __future__ import annotations

import json

import numpy as np
import pytest

from domainbert.labelled.entities import Sentence
from domainbert.metrics.classification import count_classes
from domainbert.metrics.counts import accuracy, macro_f1
from domainbert.pretraining.config import MaskingConfig
from domainbert.pretraining.objectives.masked_lm import objective as masked_lm
from domainbert.stages import warnings
from domainbert.tasks.classification.files import LabelledText
from domainbert.tasks.classification.task import ClassificationTask
from domainbert.tasks.ner.task import NerTask
from domainbert.training.config import OptimConfig

TASK = ClassificationTask(("a", "b"))
STANDSTILL = OptimConfig(lr=1e-12, head_lr=1e-12)
MASKINGS = [MaskingConfig(), MaskingConfig(mask_share=0.5, random_share=0.5), MaskingConfig(random_share=0.0)]


def scores(gold: list[str], predicted: list[str]) -> dict[str, float]:
    counts = count_classes(gold, predicted, sorted({*gold, *predicted})).sum(axis=0)
    return {"f1": float(macro_f1(counts)), "accuracy": float(accuracy(counts))}


@pytest.mark.parametrize("gold", ["aab", "aaaab", "abc" * 5, "a" * 95 + "b" * 5, "aabbccddd"])
def test_whatever_one_class_is_always_given_it_is_told(gold: str) -> None:
    items = [LabelledText("text", label, 1) for label in gold]
    for label in sorted(set(gold)):
        (warning,) = TASK.training_hooks.warnings(TASK, items, scores(list(gold), [label] * len(gold)))
        assert "one class for every text gets" in warning and "optim.lr" in warning
    assert TASK.training_hooks.warnings(TASK, items, scores(list(gold), list(gold))) == []


def test_a_classifier_that_has_learnt_something_is_left_alone() -> None:
    """Of 5 rare texts in 100 it finds 4, with 6 false alarms: less accurate than always the other class, and useful."""
    gold = ["a"] * 95 + ["b"] * 5
    predicted = ["a"] * 89 + ["b"] * 6 + ["b"] * 4 + ["a"]
    items = [LabelledText("text", label, 1) for label in gold]
    assert scores(gold, predicted)["accuracy"] < 0.95
    assert TASK.training_hooks.warnings(TASK, items, scores(gold, predicted)) == []
    nearly = ["a"] * 90 + ["b"] * 6 + ["a"] * 4
    assert len(TASK.training_hooks.warnings(TASK, items, scores(gold, nearly))) == 1
    assert TASK.training_hooks.warnings(TASK, items[:95], scores(gold[:95], gold[:95])) == [], "there is one class only"


def test_a_tagger_that_finds_nothing() -> None:
    items = [Sentence(["A", "loan"], ["O", "B-x"], 1, 0), Sentence(["no"], ["O"], 4, 1)]
    task = NerTask(["O", "B-x", "I-x"])
    (warning,) = task.training_hooks.warnings(task, items, {"f1": 0.0, "precision": 0.0})
    assert warning.startswith("the model finds no entity of the validation set, which has 1; try another optim.lr")
    assert (
        task.training_hooks.warnings(task, items, {"f1": 0.1})
        == []
        == task.training_hooks.warnings(task, items[1:], {"f1": 0.0})
    )


@pytest.mark.parametrize("masking", MASKINGS)
def test_the_loss_without_context_is_that_of_the_best_guess(
    masking: MaskingConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Computed over all pairs of a true entry and the entry shown in its place, including the mask."""
    monkeypatch.setattr(masked_lm, "_MARGIN", -10.0)
    rng = np.random.default_rng(0)
    guess, truth = (rng.dirichlet(np.full(50, 0.2)) + 1e-4 for _ in range(2))
    guess, truth = guess / guess.sum(), truth / truth.sum()
    kept = 1 - masking.mask_share - masking.random_share

    def joint(shares: np.ndarray) -> np.ndarray:
        """(V, V + 1): an entry, and the one that is seen; the last is [MASK]."""
        table = np.outer(shares, np.full(50, masking.random_share / 50)) + np.diag(kept * shares)
        return np.hstack([table, masking.mask_share * shares[:, None]])

    table = joint(guess)
    chosen = table / np.where(table.sum(axis=0) > 0, table.sum(axis=0), 1)
    where = joint(truth) > 0
    expected = -(joint(truth)[where] * np.log(chosen[where])).sum()
    assert masked_lm._context_free_loss(guess, truth, masking) == pytest.approx(expected, abs=1e-9)


def test_masking_that_shows_nothing_leaves_a_margin() -> None:
    even = np.full(8, 1 / 8)
    hidden = MaskingConfig(mask_share=1.0, random_share=0.0)
    assert masked_lm._context_free_loss(even, even, hidden) == pytest.approx(np.log(8) - 0.3)


def test_a_pretraining_that_reads_no_context(runs, capsys) -> None:
    folder = runs.pretrain("reads-nothing", max_steps=2, optim=STANDSTILL)
    result = runs.results["reads-nothing"]
    (warning,) = result["warnings"]
    entropy = result["validation"]["unigram_entropy"]
    assert 0.3 <= entropy - result["loss_without_context"] < 1.0
    assert (
        f"the validation loss is {result['validation']['loss']:.4f}, but {result['loss_without_context']:.4f}"
        in warning
    )
    assert f"warning: {warning}" in capsys.readouterr().out
    assert f"| warning | {warning} |" in (folder / "README.md").read_text()


def test_a_fine_tuning_that_stands_still(runs, capsys) -> None:
    changes = {"seeds": (1, 2), "max_epochs": 1, "optim": STANDSTILL}
    folder = runs.finetune("classes-at-a-standstill", "classification", **changes)
    reported = runs.results["classes-at-a-standstill"]["warnings"]
    assert [warning[:7] for warning in reported] == ["seed 1:", "seed 2:"]
    assert capsys.readouterr().out.count("warning: macro F1 ") == 2
    saved = json.loads((folder / "seed-2/training.json").read_text())["warnings"]
    assert saved == [reported[1].removeprefix("seed 2: ")]
    assert f"| warning | {saved[0]} |" in (folder / "seed-2/README.md").read_text()


def test_a_distillation_whose_loss_does_not_fall() -> None:
    for losses in ([2.0, 1.5], [2.0]):
        assert warnings.distillation_warnings([{"loss": loss} for loss in losses]) == []
    (warning,) = warnings.distillation_warnings([{"loss": 2.0}, {"loss": 1.5}, {"loss": 2.0}])
    assert warning.startswith("the validation loss has not fallen: 2.0000 at first, 2.0000 at last; try more steps")
