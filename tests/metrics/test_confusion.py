"""Which label is taken for which: the matrix of scikit-learn, and one with missed and spurious entities."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix

from domainbert.metrics.diagnostics import confusion
from domainbert.metrics.table import confusion_lines

label = st.sampled_from(["β", "a", "é"])


@pytest.mark.filterwarnings("ignore")
@given(st.lists(st.tuples(label, label), min_size=1, max_size=20))
def test_it_is_that_of_scikit_learn(pairs):
    gold, predicted = zip(*pairs, strict=True)
    found = confusion([pairs])
    assert found["labels"] == sorted({*gold, *predicted})
    assert found["counts"] == confusion_matrix(gold, predicted).tolist()
    assert found["counts"] == confusion([pairs, pairs])["counts"], "the mean over the seeds"


@given(st.lists(st.lists(st.tuples(label | st.none(), label | st.none())), min_size=1, max_size=3).filter(any))
def test_rows_and_columns_add_up(runs):
    found = confusion(runs)
    counts = np.array(found["counts"])
    for number, name in enumerate(found["labels"]):
        sides = zip(*(pair for run in runs for pair in run), strict=True)
        gold, predicted = ([one or "none" for one in side].count(name) / len(runs) for side in sides)
        assert np.allclose([counts[number].sum(), counts[:, number].sum()], [gold, predicted])
    assert found["labels"].index("none") == len(found["labels"]) - 1 if "none" in found["labels"] else True


def test_tables_of_two_systems():
    a = confusion([[("a", "a"), ("a", "b"), ("b", None)], [("a", "a"), ("a", "a"), ("b", None)]])
    assert a == {"labels": ["a", "b", "none"], "counts": [[1.5, 0.5, 0], [0, 0, 1], [0, 0, 0]]}
    lines = confusion_lines({"x": {"confusion": a}, "y": {}, "z": {"confusion": confusion([[("b", "a")]])}})
    assert [line.split() for line in lines if line] == [
        ["x:", "gold", "in", "rows,", "predicted", "a", "b", "none"],
        ["a", "1.5", "0.5", "0.0"],
        ["b", "0.0", "0.0", "1.0"],
        ["none", "0.0", "0.0", "0.0"],
        ["z:", "gold", "in", "rows,", "predicted", "a", "b"],
        ["a", "0", "0"],
        ["b", "1", "0"],
    ]


def test_a_large_matrix_is_left_to_the_file():
    found = confusion([[(f"c{number:02}",) * 2 for number in range(13)]])
    assert confusion_lines({"x": {"confusion": found}}) == [
        "",
        "x: metrics.json has the confusion matrix of the 13 labels",
    ]
    assert found["counts"] == np.eye(13).tolist()


def test_a_label_that_is_called_none_is_not_taken_for_nothing():
    found = confusion([[("none", None), (None, "(none)"), ("none", "none")]])
    assert found == {"labels": ["(none)", "none", "((none))"], "counts": [[0, 0, 0], [0, 1, 1], [1, 0, 0]]}
