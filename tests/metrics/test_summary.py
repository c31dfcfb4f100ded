"""What `evaluate` writes, against scikit-learn and counts by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, precision_recall_fscore_support

from domainbert.metrics.bootstrap import interval, resample_scores
from domainbert.metrics.counts import accuracy, macro_f1, micro_f1, weighted_f1
from domainbert.metrics.summary import Resampling
from tests.metrics.scored import classes, entities

LABELS = ("x", "y", "z")
RESAMPLING = Resampling(50, 3)


def texts_of(right: float, seed: int, gold):
    generator = np.random.default_rng(seed)
    return [label if generator.random() < right else str(generator.choice(LABELS)) for label in gold]


def test_classes():
    generator = np.random.default_rng(0)
    gold = generator.choice(LABELS, 60, p=[0.6, 0.3, 0.1]).tolist()
    systems = {
        "a": {"seed-1": texts_of(0.8, 1, gold), "seed-2": texts_of(0.5, 2, gold)},
        "b": {"only": texts_of(0.4, 3, gold)},
    }
    found = classes(gold, systems, LABELS).summary(RESAMPLING)
    for name, runs in systems.items():
        theirs = [precision_recall_fscore_support(gold, one, labels=LABELS, zero_division=0) for one in runs.values()]
        mean, summary = np.mean(theirs, axis=0), found["systems"][name]
        for row, key in enumerate(("precision", "recall", "f1")):
            assert summary[key] == pytest.approx(mean[row].mean())
            assert [summary["per_class"][label][key] for label in LABELS] == pytest.approx(mean[row].tolist())
        assert [summary["per_class"][label]["support"] for label in LABELS] == [gold.count(label) for label in LABELS]
        assert summary["accuracy"] == pytest.approx(np.mean([accuracy_score(gold, one) for one in runs.values()]))
        wanted = {seed: theirs[number][2].mean() for number, seed in enumerate(runs)}
        assert summary["seeds"] == len(runs) and summary["f1_by_seed"] == pytest.approx(wanted)
    counts = {name: [by_hand(gold, one) for one in runs.values()] for name, runs in systems.items()}
    (pair,) = found["paired"]
    assert (pair["a"], pair["b"]) == ("a", "b")
    for prefix, key, statistic in (("", "f1", macro_f1), ("accuracy_", "accuracy", accuracy)):
        drawn = resample_scores(counts, statistic, 50, 3)
        for name in systems:
            assert found["systems"][name][f"{prefix}interval"] == pytest.approx(interval(drawn[name]))
        assert pair[f"{prefix}interval"] == pytest.approx(interval(drawn["a"] - drawn["b"]))
        assert pair[f"{prefix}difference"] == found["systems"]["a"][key] - found["systems"]["b"][key]


def by_hand(gold, predicted):
    counts = np.zeros((len(gold), 3, 3), dtype=np.int64)
    for text, (wanted, said) in enumerate(zip(gold, predicted, strict=True)):
        if wanted == said:
            counts[text, LABELS.index(wanted), 0] = 1
        else:
            counts[text, LABELS.index(said), 1] = counts[text, LABELS.index(wanted), 2] = 1
    return counts


def test_entities_are_resampled_by_document():
    documents = [0, 0, 0, 1, 1, 2]
    gold = [[(0, 2, "p"), (3, 4, "q")], [(1, 3, "p")], [], [(0, 1, "q")], [(2, 5, "p")], [(0, 2, "q")]]
    one = [[(0, 2, "p"), (3, 5, "q")], [(1, 3, "p")], [(0, 1, "q")], [(0, 1, "q")], [], [(0, 2, "q")]]
    other = [[(0, 2, "q")], [(1, 3, "p")], [], [], [(2, 5, "p")], [(0, 2, "q")]]
    found = entities(gold, {"s": {"1": one, "2": other}}, documents).summary(RESAMPLING)["systems"]["s"]
    # one: p 2 right, 0 wrong, 1 missed; q 2 right, 2 wrong, 1 missed. other: p 2, 0, 1; q 1, 1, 2.
    assert found["per_type"]["p"] == pytest.approx({"precision": 1.0, "recall": 2 / 3, "f1": 0.8, "support": 3})
    assert found["per_type"]["q"]["support"] == 3
    assert found["per_type"]["q"]["f1"] == pytest.approx((4 / 7 + 2 / 5) / 2)
    assert found["f1_by_seed"] == pytest.approx({"1": 8 / 12, "2": 6 / 10})
    assert found["f1"] == pytest.approx((8 / 12 + 6 / 10) / 2)
    assert found["precision"] == pytest.approx((4 / 6 + 3 / 4) / 2) and found["recall"] == pytest.approx(7 / 12)
    assert found["macro_f1"] == pytest.approx((0.8 + 4 / 7 + 0.8 + 2 / 5) / 4)
    assert "by_novelty" not in found
    by_document = [
        np.array([[[2, 0, 0], [0, 2, 1]], [[0, 0, 1], [1, 0, 0]], [[0, 0, 0], [1, 0, 0]]]),
        np.array([[[1, 0, 1], [0, 1, 1]], [[1, 0, 0], [0, 0, 1]], [[0, 0, 0], [1, 0, 0]]]),
    ]
    drawn = resample_scores({"s": by_document}, micro_f1, 50, 3)["s"]
    assert found["interval"] == pytest.approx(interval(drawn)) and found["interval"][0] < found["interval"][1]


def test_scores_of_many_counts_are_those_of_each():
    """As resampling asks for them: (resamples, seeds, labels, 3), some labels absent from some."""
    counts = np.random.default_rng(0).integers(0, 3, size=(7, 2, 4, 3))
    counts[0, 0] = 0
    for statistic in (macro_f1, micro_f1, weighted_f1, accuracy):
        each = [[float(statistic(counts[row, seed])) for seed in range(2)] for row in range(7)]
        np.testing.assert_allclose(statistic(counts), each)
    f1s = [2 * tp / (2 * tp + fp + fn) for tp, fp, fn in counts[1, 1] if tp + fp + fn]
    assert float(macro_f1(counts[1, 1])) == pytest.approx(np.mean(f1s))


def test_undefined_draws_are_not_in_an_interval_or_in_json():
    """One entity in ten sentences: a third of the draws have none, unless a model predicts one in each sentence."""
    gold = [[(0, 1, "p")], *[[]] * 9]
    spurious = [[(0, 1, "p")], *[[(1, 2, "p")]] * 9]
    found = entities(gold, {"right": {"1": gold}, "eager": {"1": spurious}}).summary(RESAMPLING)
    right, eager = found["systems"]["right"], found["systems"]["eager"]
    assert (right["f1"], right["interval"]) == (1.0, [1.0, 1.0]) and eager["interval"][0] == 0
    assert found["paired"][0]["interval"][1] < 1, "of the draws in which both have a score"
    assert set(found["draws"]["right"]) == {None, 1.0} and None not in found["draws"]["eager"]
    json.dumps(found, allow_nan=False)
