import numpy as np
import pytest

from domainbert.metrics import bootstrap
from domainbert.metrics.attachment import ATTACHMENT
from domainbert.metrics.bootstrap import interval, resample_parts, resample_scores
from domainbert.metrics.classification import NULL_CLASS_STATISTICS
from domainbert.metrics.counts import accuracy, macro_f1, micro_f1, weighted_f1
from domainbert.tasks.counted_scoring import mean_value
from tests.metrics.drawn_seeds import drawn_seeds

GENERATOR = np.random.default_rng(0)


def coin(probability, documents=400, generator=GENERATOR):
    """One text a document with one class, right with `probability`: (documents, 1, 3)."""
    right = generator.random(documents) < probability
    return np.stack([right, ~right, ~right], axis=-1)[:, None, :].astype(np.int64)


def test_interval_of_a_share_is_that_of_the_binomial():
    counts = coin(0.7)
    share = accuracy(counts.sum(axis=0))
    low, high = interval(resample_scores({"a": [counts]}, accuracy)["a"])
    half = 1.96 * np.sqrt(share * (1 - share) / len(counts))
    assert (low, high) == pytest.approx((share - half, share + half), abs=0.006)


def test_resampled_scores_equal_a_plain_loop(monkeypatch):
    monkeypatch.setattr(bootstrap, "_CHUNK_CELLS", 30)  # three resamples at a time
    seeds = [GENERATOR.integers(0, 5, size=(10, 2, 3)) for _ in range(3)]
    found = resample_scores({"a": seeds}, micro_f1, resamples=7, seed=5)["a"]
    generator = np.random.default_rng(5)
    drawn = np.concatenate([generator.integers(10, size=(rows, 10)) for rows in (3, 3, 1)])
    expected = [
        np.mean([micro_f1(seeds[pick][documents].sum(axis=0)) for pick in row])
        for documents, row in zip(drawn, drawn_seeds(5, seeds, 7), strict=True)
    ]
    assert found == pytest.approx(expected, abs=1e-12)


def test_rows_of_one_unit_are_drawn_together():
    units = GENERATOR.permutation(np.repeat(np.arange(10), 6))
    seeds = [GENERATOR.integers(0, 5, size=(60, 2, 3)) for _ in range(2)]
    summed = [np.stack([one[units == unit].sum(axis=0) for unit in range(10)]) for one in seeds]
    found = resample_scores({"a": seeds}, micro_f1, 50, 5, units)["a"]
    assert found == pytest.approx(resample_scores({"a": summed}, micro_f1, 50, 5)["a"], abs=1e-12)
    # numbers of units with gaps, which are no empty units
    assert np.array_equal(found, resample_scores({"a": seeds}, micro_f1, 50, 5, 3 * units + 7)["a"])
    copies = [np.repeat(coin(0.7), 5, axis=0)]  # a text five times is no further text
    wide, narrow = (
        np.ptp(interval(resample_scores({"a": copies}, accuracy, units=numbers)["a"]))
        for numbers in (np.repeat(np.arange(400), 5), None)
    )
    assert wide / narrow == pytest.approx(5**0.5, rel=0.1)


def test_seeds_widen_the_interval():
    steady = [coin(0.7)] * 3
    varied = [coin(0.6), coin(0.7), coin(0.8)]
    scores = resample_scores({"steady": steady, "varied": varied}, accuracy)
    widths = {name: np.diff(interval(values)).item() for name, values in scores.items()}
    assert widths["varied"] > 1.5 * widths["steady"]


def test_a_paired_difference_is_narrower_than_two_separate_ones():
    base = coin(0.7)
    better = base.copy()
    better[np.flatnonzero(base[:, 0, 0] == 0)[:12], 0] = [1, 0, 0]  # twelve texts more are right
    scores = resample_scores({"better": [better], "base": [base], "same": [base]}, accuracy)
    low, high = interval(scores["better"] - scores["base"])
    assert 0 < low < 0.03 < high < 0.05
    assert np.array_equal(scores["base"], scores["same"])
    assert interval(scores["better"])[0] < interval(scores["base"])[1]


def test_the_paired_interval_covers_the_truth():
    covered = 0
    for trial in range(100):
        generator = np.random.default_rng(trial)
        systems = {name: [coin(share, 200, generator)] for name, share in (("a", 0.75), ("b", 0.7))}
        scores = resample_scores(systems, accuracy, resamples=300, seed=trial)
        low, high = interval(scores["a"] - scores["b"])
        covered += low <= 0.05 <= high
    assert 88 <= covered <= 100


def test_the_seed_fixes_the_draw():
    counts = {"a": [coin(0.7), coin(0.7)]}
    one, same, other = (resample_scores(counts, accuracy, 50, seed)["a"] for seed in (1, 1, 2))
    assert np.array_equal(one, same) and not np.array_equal(one, other)


@pytest.mark.parametrize("systems", [{}, {"a": []}, {"a": [coin(0.5, 3)], "b": [coin(0.5, 4)]}, {"a": [coin(0.5, 0)]}])
def test_systems_on_different_documents_are_an_error(systems):
    with pytest.raises(ValueError, match="same documents"):
        resample_scores(systems, accuracy)


def test_the_interval_is_that_of_the_percentiles():
    """Of the numbers from 0 to 1,000: the middle 95 %, or another share if given."""
    scores = np.random.default_rng(0).permutation(1001).astype(float)
    assert interval(scores) == pytest.approx((25.0, 975.0), abs=1e-9)
    assert interval(scores, confidence=0.5) == pytest.approx((250.0, 750.0), abs=1e-9)


def mean_or_zero(sums):
    return sums[..., 0, 0] / np.maximum(sums[..., 0, 1], 1)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("statistic", [mean_value, mean_or_zero])
def test_the_score_of_a_part_without_rows_in_a_draw_is_undefined(statistic):
    """A mean is 0 / 0 there, and F1 would be 0; in the only draw of `trainer.test`, the part may have no row at all."""
    counts = np.stack([np.arange(4.0), np.ones(4)], axis=-1)[:, None]
    parts = [np.array([row]) for row in range(4)]
    draws = resample_parts({"a": [counts]}, parts, statistic, 20, 0)["a"]
    drawn = np.random.default_rng(0).integers(4, size=(20, 4))
    wanted = [[counts[row, 0, 0] if row in draw else np.nan for row in range(4)] for draw in drawn]
    np.testing.assert_array_equal(draws, wanted)
    assert np.isnan(draws).any(axis=0).all() and all(map(np.isnan, interval(draws[np.isnan(draws)])))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "statistic", [micro_f1, macro_f1, weighted_f1, *map(NULL_CLASS_STATISTICS.get, ("micro_f1", "macro_f1"))]
)
def test_a_draw_without_any_label_is_left_out(statistic):
    """A perfect model on one entity in 20 sentences had the interval 0 to 1; the point score of no entity stays 0."""
    counts = np.zeros((20, 3, 3), dtype=np.int64)
    counts[7, 0, 0] = counts[:, 2, 0] = 1  # row 2: all labels, which F1 without a null class does not read
    if statistic not in NULL_CLASS_STATISTICS.values():
        counts = counts[:, :2]
    drawn = resample_scores({"a": [counts]}, statistic, 400)["a"]
    assert 90 < np.isnan(drawn).sum() < 200, "0.95 ** 20 of the draws, 143"
    assert interval(drawn) == (1.0, 1.0)
    assert statistic(np.zeros((3, 3))) == 0


def test_a_label_that_a_draw_lacks_counts_as_it_does_in_a_score():
    """Macro F1 of a draw without label 0 is the F1 of label 1; one predicted but absent label counts 0."""
    counts = np.array([[[1, 0, 0], [0, 0, 0]], [[0, 1, 0], [1, 0, 0]], [[0, 0, 0], [0, 0, 0]]])
    drawn = resample_scores({"a": [counts]}, macro_f1, 50, 1)["a"]
    texts = np.random.default_rng(1).integers(3, size=(50, 3))
    wanted = [macro_f1(counts[row].sum(axis=0)) if set(row) != {2} else np.nan for row in texts]
    np.testing.assert_allclose(drawn, wanted)
    assert {0.5, 1.0} < set(drawn[~np.isnan(drawn)].round(3)) and np.isnan(drawn).any()


def test_trees_without_words_in_a_draw_have_no_score():
    counts = np.array([[[2, 2, 2], [2, 2, 2], [1, 1, 1]], [[1, 1, 1], [0, 0, 0], [1, 1, 1]]])
    drawn = resample_scores({"a": [counts]}, ATTACHMENT["las_no_punctuation"], 40)["a"]
    assert interval(drawn) == (1.0, 1.0) and np.isnan(drawn).any(), "a sentence of punctuation alone"
    assert ATTACHMENT["las_no_punctuation"](counts[1]) == 0
