"""Slices of a test set: scores and intervals of each in the same draws, and their mean as the headline."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import f1_score

from domainbert.metrics.bootstrap import resample_parts, score_once
from domainbert.metrics.classification import count_classes
from domainbert.metrics.regression import Spearman, regression_terms
from domainbert.metrics.summary import Resampling, Slices, has_few_units
from tests.metrics.drawn_seeds import drawn_seeds
from tests.metrics.scored import classes

LABELS = ["negative", "neutral", "positive"]
GENERATOR = np.random.default_rng(0)
LANGUAGES = GENERATOR.choice(["arabic", "english", "french"], p=[0.5, 0.44, 0.06], size=300).tolist()
GOLD = GENERATOR.choice(LABELS, size=300).tolist()


def answers(share: float, seed: int) -> list[str]:
    generator = np.random.default_rng(seed)
    return [gold if generator.random() < share else generator.choice(LABELS) for gold in GOLD]


SYSTEMS = {"good": {f"seed-{seed}": answers(0.7, seed) for seed in (1, 2)}, "poor": {"seed-1": answers(0.3, 9)}}


def macro(predicted: list[str], numbers: np.ndarray) -> float:
    gold = [GOLD[k] for k in numbers]
    return float(f1_score(gold, [predicted[k] for k in numbers], average="macro"))


def test_slices_and_their_mean() -> None:
    scoring = classes(GOLD, SYSTEMS, LABELS, LANGUAGES, mean=True)
    found = scoring.summary(Resampling(50, 3))
    rows = {value: np.flatnonzero(np.array(LANGUAGES) == value) for value in ("arabic", "english", "french")}
    by_seed = {
        seed: {value: macro(one, numbers) for value, numbers in rows.items()} for seed, one in SYSTEMS["good"].items()
    }
    good = found["systems"]["good"]
    for value, numbers in rows.items():
        part = good["slices"]["language"][value]
        assert part["count"] == len(numbers) and ("few" in part) == (len(numbers) < 30)
        assert part["f1"] == pytest.approx(np.mean([one[value] for one in by_seed.values()]), abs=1e-12)
    assert "few" in good["slices"]["language"]["french"]
    means = {seed: np.mean(list(one.values())) for seed, one in by_seed.items()}
    assert good["f1_over_language_by_seed"] == pytest.approx(means, abs=1e-12)
    assert good["f1_over_language"] == pytest.approx(np.mean(list(means.values())), abs=1e-12)

    # the bootstrap by hand: documents first, then the seeds of each system
    drawn = np.random.default_rng(3).integers(300, size=(50, 300))
    languages = np.array(LANGUAGES)[drawn]
    scores = {}
    for name, runs in SYSTEMS.items():
        of_seeds = np.array(
            [
                [[macro(one, row[which == value]) for value in rows] for one in runs.values()]
                for row, which in zip(drawn, languages, strict=True)
            ]
        )  # (resamples, seeds, languages)
        picks = drawn_seeds(3, [count_classes(GOLD, one, LABELS) for one in runs.values()], 50)
        scores[name] = np.take_along_axis(of_seeds, picks[..., None], axis=1).mean(axis=1)
    for place, value in enumerate(rows):
        wanted = np.percentile(scores["good"][:, place], [2.5, 97.5])
        assert good["slices"]["language"][value]["interval"] == pytest.approx(wanted.tolist(), abs=1e-12)
    mean = scores["good"].mean(axis=1)
    assert good["interval"] == pytest.approx(np.percentile(mean, [2.5, 97.5]).tolist(), abs=1e-12)
    (pair,) = found["paired"]
    difference = mean - scores["poor"].mean(axis=1)
    assert pair["interval"] == pytest.approx(np.percentile(difference, [2.5, 97.5]).tolist(), abs=1e-12)
    assert pair["difference"] == good["f1_over_language"] - found["systems"]["poor"]["f1_over_language"]
    arabic = pair["slices"]["language"]["arabic"]
    difference = scores["good"][:, 0] - scores["poor"][:, 0]
    assert arabic["interval"] == pytest.approx(np.percentile(difference, [2.5, 97.5]).tolist(), abs=1e-12)

    text = "\n".join(scoring.lines(found))
    assert "by language" in text and "french (few)" in text and "macro F1, mean over language" in text
    (line,) = [line for line in text.splitlines() if line.startswith("arabic ")]
    assert (
        f"{100 * arabic['difference']:+.2f}" in line
        and f"{100 * good['slices']['language']['arabic']['f1']:.2f}" in line
    )


def test_without_slices_nothing_changes() -> None:
    plain = classes(GOLD, SYSTEMS, LABELS).summary(Resampling(200, 3))
    sliced = classes(GOLD, SYSTEMS, LABELS, LANGUAGES).summary(Resampling(200, 3))
    for name in SYSTEMS:
        assert "slices" not in plain["systems"][name]
        del sliced["systems"][name]["slices"]
        assert sliced["systems"][name] == plain["systems"][name]


def test_ranks_are_those_within_a_slice() -> None:
    generator = np.random.default_rng(5)
    gold = generator.integers(8, size=60).astype(float)
    predicted = gold + generator.integers(-4, 5, size=60)
    counts, parts = regression_terms(gold, predicted), [np.arange(0, 60, 3), np.array([1, 2])]
    assert score_once(Spearman(), counts[parts[0]]) == pytest.approx(
        spearmanr(gold[parts[0]], predicted[parts[0]]).statistic, abs=1e-12
    )
    found = resample_parts({"a": [counts]}, parts, Spearman(), 50, 7)["a"]
    drawn = np.random.default_rng(7).integers(60, size=(50, 60))
    for row, scores in zip(drawn, found, strict=True):
        here = row[np.isin(row, parts[0])]
        assert scores[0] == pytest.approx(spearmanr(gold[here], predicted[here]).statistic, abs=1e-12)
        assert np.isfinite(scores[1]) == np.isin(row, parts[1]).any()
    assert np.isnan(found[:, 1]).any() and (found[:, 1] == 0).any()


def test_a_resample_without_a_text_of_a_slice_says_nothing_of_it() -> None:
    """All is right, so all scores are 1, whatever is drawn."""
    languages = ["en"] * 100 + ["fr"] * 97 + ["de"] * 3
    systems = {name: {"seed-1": GOLD[:200]} for name in ("one", "other")}
    found = classes(GOLD[:200], systems, LABELS, languages, mean=True).summary(Resampling(500, 0))
    one, (pair,) = found["systems"]["one"], found["paired"]
    assert one["interval"] == [1, 1] and pair["slices"]["language"]["de"]["interval"] == [0, 0]
    assert [part["interval"][1] for part in one["slices"]["language"].values()] == [1, 1, 1]
    assert np.isfinite(found["draws"]["one"]).all()


def test_a_slice_of_many_items_in_few_texts_is_marked() -> None:
    """A pair of entities says little that others of its text do not say."""
    slices = Slices.from_values({"l": ["a"] * 100 + ["b"] * 200}, "f1")
    units = [*(number // 4 for number in range(100)), *range(25, 225)]
    assert {value: has_few_units(rows, units) for value, rows in slices.rows["l"].items()} == {"a": True, "b": False}
