import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score

from domainbert.metrics.classification import ClassificationF1, count_classes
from domainbert.metrics.counts import accuracy, macro_f1

LABELS = ["a", "b", "c", "d"]
label = st.sampled_from(LABELS)


@pytest.mark.filterwarnings("ignore")
@given(st.lists(st.tuples(label, label), min_size=1, max_size=20))
@settings(max_examples=150, deadline=None)
def test_scores_are_those_of_scikit_learn(pairs):
    # Given no labels, scikit-learn averages over those that occur in gold or prediction, as we do.
    gold, predicted = zip(*pairs, strict=True)
    counts = count_classes(gold, predicted, LABELS).sum(axis=0)
    assert macro_f1(counts) == pytest.approx(f1_score(gold, predicted, average="macro", zero_division=0), abs=1e-12)
    assert accuracy(counts) == pytest.approx(accuracy_score(gold, predicted), abs=1e-12)
    metric = ClassificationF1(len(LABELS))
    for one, other in pairs:
        metric.update(torch.tensor([LABELS.index(one)]), torch.tensor([LABELS.index(other)]))
    assert metric.compute()["f1"] == macro_f1(counts) and metric.compute()["accuracy"] == accuracy(counts)


def test_a_class_that_occurs_nowhere_does_not_lower_the_mean():
    counts = count_classes(["a", "b"], ["a", "b"], LABELS).sum(axis=0)
    assert macro_f1(counts) == 1
    assert macro_f1(np.zeros((4, 3))) == 0


def test_wrong_input_is_an_error():
    with pytest.raises(ValueError, match="2 gold labels but 1 predictions"):
        count_classes(["a", "b"], ["a"], LABELS)
    with pytest.raises(ValueError, match=r"\['z'\] are not among"):
        count_classes(["a"], ["z"], LABELS)
