"""Scores as torchmetrics: their input, their errors, and the same numbers on two ranks as on one."""

from __future__ import annotations

import math
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from seqeval.metrics import classification_report
from seqeval.scheme import IOB2
from torch import distributed, multiprocessing

from domainbert.base.errors import DomainbertError
from domainbert.metrics.entity_modules import EntityF1, LikelyEntityF1
from domainbert.metrics.modules import (
    AnswerScores,
    AttachmentScores,
    ClassificationScores,
    LabelScores,
    MultiLabelScores,
    RegressionScores,
    RowScores,
)
from domainbert.tasks.classification.scoring import calibrated_scores

PREDICTED = [["B-law", "I-law", "O", "B-court"], ["O", "B-court"], ["B-law", "O"], ["B-person"]]
GOLD = [["B-law", "I-law", "I-law", "B-court"], ["B-court", "B-court"], ["B-law", "O"], ["O"]]
LIKELY = [  # entities, each with its score
    [((0, 2, "law"), 0.9), ((3, 4, "court"), 0.3)],
    [((1, 2, "court"), 0.3), ((0, 1, "law"), 0.249)],
    [((0, 1, "law"), 0.26)],
    [((0, 1, "person"), 0.2)],
]
GOLD_SPANS = [[(0, 2, "law"), (3, 4, "law")], [(1, 2, "court")], [(0, 1, "law")], []]
CASES: dict[str, tuple[Any, Any, Any]] = {  # metric, predictions, gold
    "entities": (EntityF1(per_type=True, lenient=True), PREDICTED, GOLD),
    "likely entities": (LikelyEntityF1(["court", "law", "person"]), LIKELY, GOLD_SPANS),
    "classes": (ClassificationScores(["a", "b"]), ["a", "a", "b", "b"], ["a", "b", "b", "b"]),
    "labels": (LabelScores(["O", "b"], "O"), [1, 0, 0, 1], [1, 1, 0, 0]),
    "labels without a null class": (LabelScores(["a", "b"]), [1, 0, 0, 1], [1, 1, 0, 0]),
    "multi-label": (MultiLabelScores(["a"]), [[0.9], [0.4], [0.2], [0.7]], [[1], [1], [0], [0]]),
    "trees": (
        AttachmentScores(),
        [[(2, "x"), (0, "root")]] * 4,
        [[(2, "y"), (0, "root")], [(0, "root"), (1, "x")]] * 2,
    ),
    "answers": (AnswerScores(), ["the law", "x", "a b", ""], [["law"], ["y"], ["b"], ["z", "w"]]),
    "regression": (RegressionScores(), [1.0, 2.0, 2.5, 4.0], torch.tensor([1.0, 3.0, 2.0, 5.0])),
}
UNDEFINED = {"pearson", "spearman", "rmse", "mae", "r2"}  # without items; a share of correct items is then 0
THRESHOLDS = {"threshold": 0.5, "min_score": 0.0}


def scores_of(name: str, places: slice) -> dict[str, float]:
    metric, predicted, gold = CASES[name]
    metric.reset()
    for place in range(4)[places]:
        metric.update(predicted[place : place + 1], gold[place : place + 1])
    return {key: float(value) for key, value in metric.compute().items()}


def one_rank(rank: int, folder: str) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    distributed.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)
    found = {name: scores_of(name, slice(3, 4) if rank else slice(0, 3)) for name in CASES}
    found["nothing"] = scores_of("entities", slice(4) if rank else slice(0))
    torch.save(found, f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_two_ranks_have_the_scores_of_one(tmp_path: Path) -> None:
    multiprocessing.start_processes(one_rank, (str(tmp_path),), nprocs=2, start_method="fork")
    whole = {name: scores_of(name, slice(4)) for name in CASES}
    for rank in range(2):
        found = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        assert found.pop("nothing") == whole["entities"], "a rank without sentences"
        assert found == whole
    assert whole["entities"]["f1"] == pytest.approx(2 * 3 / (5 + 5))
    # at 0.25 three of four entities are right, and the lower scores are wrong; at 0.3 one more is missed
    assert whole["likely entities"] == {
        "min_score": 0.25, "precision": 0.75, "recall": 0.75, "f1": 0.75, "macro_f1": pytest.approx((0.8 + 2 / 3) / 2)
    }  # fmt: skip
    assert whole["classes"]["accuracy"] == 0.75 and whole["answers"]["exact"] == 0.5


@pytest.mark.parametrize("name", CASES)
def test_states_are_merged_pickled_copied_and_reset(name: str) -> None:
    whole = scores_of(name, slice(4))
    original, predicted, gold = CASES[name]

    def update(metric: Any, items: slice) -> None:
        metric.update(predicted[items], gold[items])

    def scores(metric: Any) -> dict[str, float]:
        return {key: float(value) for key, value in metric.compute().items()}

    copies = original.clone(), pickle.loads(pickle.dumps(original))
    first, second = copies
    assert scores(first) == scores(second) == whole
    for metric in copies:
        metric.reset()
        with pytest.warns(UserWarning, match="was called before the ``update`` method"):
            empty = scores(metric)
        assert empty.keys() <= whole.keys() and empty == pytest.approx(
            {key: math.nan if key in UNDEFINED else THRESHOLDS.get(key, 0.0) for key in empty}, nan_ok=True
        )
    update(first, slice(2))
    assert scores(first) == scores_of(name, slice(2))  # computed before the merge
    update(second, slice(2, 4))
    first.merge_state(second)
    assert scores(first) == whole
    assert scores(second) == scores_of(name, slice(2, 4))  # the merged metric stays as it was
    first.reset()
    update(first, slice(3))
    batch = {key: float(value) for key, value in first(predicted[3:], gold[3:]).items()}  # `forward`
    assert (batch, scores(first)) == (scores_of(name, slice(3, 4)), whole)


@pytest.mark.filterwarnings("ignore")  # of NumPy and torchmetrics
def test_calibrated_scores_of_no_texts_are_those_of_other_metrics() -> None:
    metric = pickle.loads(pickle.dumps(RowScores(calibrated_scores, 3)))
    found = {key: float(value) for key, value in metric.compute().items()}
    assert (found["f1"], found["accuracy"]) == (0.0, 0.0) and math.isnan(found["ece"])


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_entities_by_type_are_those_of_seqeval() -> None:
    metric = EntityF1(per_type=True)
    metric.update(PREDICTED, GOLD)
    found = metric.compute()
    theirs = classification_report(GOLD, PREDICTED, mode="strict", scheme=IOB2, output_dict=True, zero_division=0)
    for kind in ("court", "law", "person"):
        for ours, name in (("precision", "precision"), ("recall", "recall"), ("f1", "f1-score")):
            assert float(found[f"{ours}/{kind}"]) == pytest.approx(theirs[kind][name])
    assert float(found["macro_f1"]) == pytest.approx(theirs["macro avg"]["f1-score"])


def test_of_equal_scores_the_lowest_min_score_is_taken_and_none_above_a_half() -> None:
    metric = LikelyEntityF1(["a"])
    metric.update([[((0, 1, "a"), 0.7), ((2, 3, "a"), 0.8)]], [[(2, 3, "a")]])  # 0.75 would be best
    assert {name: float(score) for name, score in metric.compute().items() if name in ("f1", "min_score")} == {
        "f1": pytest.approx(2 / 3), "min_score": 0.0
    }  # fmt: skip
    metric.reset()
    metric.update([[((0, 1, "a"), 0.45), ((2, 3, "a"), 0.5)]], [[(2, 3, "a")]])
    found = metric.compute()
    assert (float(found["f1"]), float(found["min_score"])) == (1.0, 0.5)


def test_tags_of_any_scheme_and_spans_are_the_same_input() -> None:
    for gold in ([["I-a", "I-a", "O", "I-b"]], [["B-a", "E-a", "O", "S-b"]], [[(3, 4, "b"), (0, 2, "a")]]):
        metric = EntityF1()
        metric.update([["B-a", "L-a", "O", "U-b"]], gold)
        assert {float(score) for score in metric.compute().values()} == {1.0}


def test_arrays_and_lists_are_the_same_input_as_tuples() -> None:
    tags, arcs = EntityF1(), AttachmentScores()
    tags.update([np.array(["B-a", "I-a", "O"])], [np.array(["B-a", "I-a", "O"])])
    arcs.update([[[2, "det"], [0, "root"]]], [[(2, "det"), (0, "root")]])
    assert float(tags.compute()["f1"]) == float(arcs.compute()["las"]) == 1.0


def test_a_null_class_is_one_of_the_labels() -> None:
    with pytest.raises(DomainbertError, match="null_class: found 'o'; expected one of O, b"):
        LabelScores(["O", "b"], "o")


@pytest.mark.parametrize(
    ("metric", "predicted", "gold", "message"),
    [
        (EntityF1(), [["O"]], [["O"], ["O"]], "predicted: found length 1; expected 2, as in gold"),
        (EntityF1(), [["O", "O"]], [["O"]], r"predicted\[0\]: length 2; expected 1, as in gold"),
        (AnswerScores(), ["1997"], ["1997"], "gold: found '1997'; expected a list of answers for each question"),
        (AnswerScores(), ["a"], [{"text": ["a"]}], "gold: found .*; expected a list of answers for each question"),
        (EntityF1(), [["X-a"]], [["O"]], "unknown tag 'X-a'; expected O, B-TYPE or I-TYPE"),
        (ClassificationScores(["a", "b"]), ["c"], ["a"], "found the class 'c'; expected one of the labels a, b"),
        (ClassificationScores(["a", "b"]), ["a"], ["a", "b"], "predicted: found length 1; expected 2, as in gold"),
        (LabelScores(["O", "b"], "O"), [1, 1], [-1, 1], "found the class id -1; expected an index of the 2 labels"),
        (LabelScores(["O", "b"], "O"), [1, 2], [1, 1], "found the class id 2; expected an index of the 2 labels"),
        (ClassificationScores(["a", "b"]), [0.9, 0.2], [1, 0], "found the class id 0.9; expected an index of the 2"),
    ],
)
def test_input_that_does_not_fit_is_one_sentence(metric: Any, predicted: Any, gold: Any, message: str) -> None:
    with pytest.raises(DomainbertError, match=message):
        metric.update(predicted, gold)


def test_a_column_of_names_is_a_list_of_names() -> None:
    metric = ClassificationScores(["a", "b"])
    metric.update(np.array(["a", "b", "b"], dtype=object), np.array([0, 1, 0], dtype=object))
    assert float(metric.compute()["accuracy"]) == pytest.approx(2 / 3)


def test_questions_without_an_answer_are_scored_at_the_best_threshold() -> None:
    metric = AnswerScores()
    metric.update(["x", "y", "z"], [["x"], [], ["w"]], margins=np.array([-3.0, 2.0, 4.0]))
    found = {name: float(score) for name, score in metric.compute().items()}
    assert found == {"f1": pytest.approx(2 / 3), "exact": pytest.approx(2 / 3), "threshold": -0.5}
