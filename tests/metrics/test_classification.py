import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, precision_recall_fscore_support

from domainbert.metrics.classification import count_classes
from domainbert.metrics.counts import accuracy, macro_f1
from domainbert.metrics.modules import ClassificationScores
from domainbert.metrics.summary import Resampling
from tests.metrics.scored import classes

LABELS = ["a", "b", "c", "d"]
label = st.sampled_from(LABELS)


@pytest.mark.filterwarnings("ignore")
@given(st.lists(st.tuples(label, label), min_size=1, max_size=20))
def test_scores_are_those_of_scikit_learn(pairs):
    # Given no labels, scikit-learn averages over those that occur in gold or prediction, as we do.
    gold, predicted = zip(*pairs, strict=True)
    counts = count_classes(gold, predicted, LABELS).sum(axis=0)
    assert macro_f1(counts) == pytest.approx(f1_score(gold, predicted, average="macro", zero_division=0), abs=1e-12)
    assert accuracy(counts) == pytest.approx(accuracy_score(gold, predicted), abs=1e-12)
    metric = ClassificationScores(LABELS)
    for one, other in pairs[:-1]:
        metric.update(torch.tensor([LABELS.index(other)]), [LABELS.index(one)])
    metric.update([pairs[-1][1]], [pairs[-1][0]])
    assert metric.compute()["f1"] == macro_f1(counts) and metric.compute()["accuracy"] == accuracy(counts)


@pytest.mark.filterwarnings("ignore")
@given(st.lists(st.tuples(label, label), min_size=1, max_size=20))
def test_all_scores_of_a_classifier_are_those_of_scikit_learn(pairs):
    gold, predicted = zip(*pairs, strict=True)
    one = classes(gold, {"x": {"seed-1": predicted}}, LABELS).summary(Resampling(100, 0))["systems"]["x"]

    def theirs(average, **labels):
        return precision_recall_fscore_support(gold, predicted, average=average, zero_division=0, **labels)

    for column, values in zip(("precision", "recall", "f1", "support"), theirs(None, labels=LABELS), strict=True):
        assert [one["per_class"][label][column] for label in LABELS] == pytest.approx(list(values), abs=1e-12)
    assert [one[key] for key in ("precision", "recall", "f1")] == pytest.approx(theirs("macro")[:3], abs=1e-12)
    assert one["micro_f1"] == pytest.approx(theirs("micro")[2], abs=1e-12)
    assert one["weighted_f1"] == pytest.approx(theirs("weighted")[2], abs=1e-12)


def test_the_printed_tables_name_what_they_show():
    gold = ["a", "a", "a", "b"]
    runs = {"good": {"1": ["a", "a", "a", "b"], "2": ["a", "a", "b", "b"]}, "poor": {"": ["b", "b", "a", "d"]}}
    scoring = classes(gold, runs, LABELS)
    lines = scoring.lines(scoring.summary(Resampling(100, 0)))
    cells = [line.split() for line in lines]
    assert lines[0].endswith("macro precision  macro recall  weighted F1  seeds")
    by_class = next(number for number, line in enumerate(lines) if line.startswith("by class"))
    assert cells[by_class][2:] == [
        "support",
        *(word for name in ("good", "poor") for score in ("precision", "recall", "F1") for word in (name, score)),
    ]
    # good: recall of a is 1 and 2/3, precision of b is 1 and 1/2; poor: a is right once in three, b never
    assert cells[by_class + 1] == ["a", "3", "100.00", "83.33", "90.00", "100.00", "33.33", "50.00"]
    assert cells[by_class + 2] == ["b", "1", "75.00", "100.00", "83.33", "0.00", "0.00", "0.00"]


def test_a_class_that_occurs_nowhere_does_not_lower_the_mean():
    counts = count_classes(["a", "b"], ["a", "b"], LABELS).sum(axis=0)
    assert macro_f1(counts) == 1
    assert macro_f1(np.zeros((4, 3))) == 0


def test_wrong_input_is_an_error():
    with pytest.raises(ValueError, match="predicted: found length 1; expected 2"):
        count_classes(["a", "b"], ["a"], LABELS)
    with pytest.raises(ValueError, match=r"expected also \['z'\]"):
        count_classes(["a"], ["z"], LABELS)
