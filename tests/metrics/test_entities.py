import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics import f1_score, precision_score, recall_score
from seqeval.scheme import IOB2

from domainbert.labelled.tag_schemes import spans_from_tags, to_iob2
from domainbert.metrics.counts import f1_of_sets, macro_f1, scores
from domainbert.metrics.entities import count_entities, count_lenient, lenient_and_partial
from domainbert.metrics.entity_modules import EntityF1
from tests.refusals import refused

TYPES = ["a", "b", "c"]
TAGS = ["O", *(f"{prefix}-{kind}" for prefix in "BI" for kind in TYPES)]


@st.composite
def raw_tags(draw):
    """Gold and predicted tags of a few sentences, as a model without constraints gives them."""
    lengths = draw(st.lists(st.integers(0, 9), min_size=1, max_size=5))
    tags = st.sampled_from(TAGS)
    one = [draw(st.lists(tags, min_size=length, max_size=length)) for length in lengths]
    other = [draw(st.lists(tags, min_size=length, max_size=length)) for length in lengths]
    # Half the time the prediction is gold with one tag changed, so that matches are common.
    return one, other if draw(st.booleans()) else [
        gold[:-1] + guess[-1:] for gold, guess in zip(one, other, strict=True)
    ]


def spans(sentences):
    return [spans_from_tags(tags) for tags in sentences]


@pytest.mark.filterwarnings("ignore::seqeval.metrics.v1.UndefinedMetricWarning", "ignore::UserWarning")
@given(raw_tags())
def test_strict_scores_are_those_of_seqeval(case):
    # Raw tags are read as conlleval reads them; made valid IOB2 by that reading, seqeval's strict mode agrees.
    gold, predicted = case
    valid = [[to_iob2(tags) for tags in sentences] for sentences in case]
    counts = count_entities(spans(gold), spans(predicted), TYPES).sum(axis=0)
    metric = EntityF1()
    metric.update(predicted, gold)
    found = {name: float(metric.compute()[name]) for name in ("precision", "recall", "f1")}
    strict = {"mode": "strict", "scheme": IOB2, "zero_division": 0}
    if not any(tag != "O" for sentences in valid for tags in sentences for tag in tags):
        assert found["f1"] == 0  # seqeval cannot average over no types
        return
    assert found["f1"] == pytest.approx(f1_score(*valid, **strict), abs=1e-12)
    assert found["precision"] == pytest.approx(precision_score(*valid, **strict), abs=1e-12)
    assert found["recall"] == pytest.approx(recall_score(*valid, **strict), abs=1e-12)
    assert macro_f1(counts) == pytest.approx(f1_score(*valid, average="macro", **strict), abs=1e-12)


@given(raw_tags())
def test_metric_sums_over_batches_and_lenient_scores_bound_strict_ones(case):
    gold, predicted = map(spans, case)
    of_spans, of_tags = (EntityF1(per_type=True, lenient=True) for _ in range(2))
    for wanted, found in zip(gold, predicted, strict=True):
        of_spans.update([found], [wanted])
    of_tags.update(case[1], case[0])
    counts = count_entities(gold, predicted, TYPES).sum(axis=0)
    strict = scores(counts.sum(axis=0))
    found = {name: value.item() for name, value in of_spans.compute().items()}
    assert found == {name: value.item() for name, value in of_tags.compute().items()}
    assert {name: found[name] for name in ("precision", "recall", "f1")} == strict
    for kind, row in zip(TYPES, counts, strict=True):
        by_type = {name: found.get(f"{name}/{kind}", 0.0) for name in ("precision", "recall", "f1")}
        assert by_type == scores(row)
    lenient, partial = lenient_and_partial(counts, count_lenient(gold, predicted, TYPES))
    assert (found["lenient_f1"], found["partial_recall"]) == (lenient["f1"], partial["recall"])
    assert strict["f1"] - 1e-12 <= partial["f1"] <= lenient["f1"] + 1e-12
    assert partial["f1"] == pytest.approx((strict["f1"] + lenient["f1"]) / 2)


def test_lenient_matches_one_to_one_and_the_largest_overlap_first():
    gold = [[(0, 5, "a"), (5, 6, "a")], [(0, 2, "a")]]
    predicted = [[(0, 1, "a"), (1, 6, "a")], [(0, 2, "b")]]
    # (1, 6) takes (0, 5) with four words; then (0, 1) and (5, 6) overlap nothing free. A wrong type never counts.
    counts, matched = count_entities(gold, predicted, TYPES).sum(axis=0), count_lenient(gold, predicted, TYPES)
    lenient, partial = lenient_and_partial(counts, matched)
    assert matched.tolist() == [1, 0, 0]
    assert (lenient["precision"], lenient["recall"]) == (1 / 3, 1 / 3)
    assert (partial["precision"], partial["recall"]) == (1 / 6, 1 / 6)


def test_counts_of_each_sentence_and_type():
    gold = [[(0, 1, "a"), (2, 3, "b")], [], [(0, 2, "a")]]
    predicted = [[(0, 1, "a"), (2, 3, "c")], [(0, 1, "b")], []]
    counts = count_entities(gold, predicted, TYPES)
    assert counts.tolist() == [
        [[1, 0, 0], [0, 0, 1], [0, 1, 0]],
        [[0, 0, 0], [0, 1, 0], [0, 0, 0]],
        [[0, 0, 1], [0, 0, 0], [0, 0, 0]],
    ]


def test_an_unknown_type_and_a_missing_sentence_are_errors():
    with pytest.raises(ValueError, match=r"expected also \['d'\]"):
        count_entities([[(0, 1, "d")]], [[]], TYPES)
    with pytest.raises(ValueError):
        count_entities([[], []], [[]], TYPES)


def test_metric_starts_again_after_reset_and_without_entities_is_zero():
    metric = EntityF1(lenient=True)
    metric.update([["S-a"]], [[(0, 1, "a")]])
    assert metric.compute()["f1"] == 1 and metric.compute()["macro_f1"] == 1
    metric.reset()
    assert all(value == 0 for value in metric.compute().values())


def test_every_gold_entity_of_many_is_found_or_missed():
    generator = np.random.default_rng(0)
    tags = [[TAGS[tag] for tag in row] for row in generator.integers(len(TAGS), size=(4_000, 25))]
    read = spans(tags)
    counts = count_entities(read, read[::-1], TYPES)
    assert counts[..., [0, 2]].sum() == counts[..., [0, 1]].sum() == sum(map(len, read))


def test_f1_of_sets_counts_all_labels_of_all_items():
    assert f1_of_sets([{1, 2, 3}, {4}], [{1, 2}, {5}]) == pytest.approx(2 * 2 / (4 + 3))
    assert f1_of_sets([set()], [set()]) == 0


@pytest.mark.parametrize("nested", [[(0, 5, "a"), (2, 3, "b")], [(2, 3, "a"), (0, 3, "a"), (6, 7, "a")]])
def test_lenient_scores_of_overlapping_spans_are_refused(nested):
    """The sweep over both sides pairs spans that do not overlap within a side: some overlaps were lost."""
    metric, gold = EntityF1(lenient=True), [[], [(2, 3, "b")]]
    for name, sides in (("predicted", ([[], nested], gold)), ("gold", (gold, [[], nested]))):
        with refused(
            where=f"{name}[1]", problem="the spans (0, ... and (2, 3, ... overlap", expected="spans that do..."
        ):
            metric.update(*sides)
    strict = EntityF1()
    strict.update([nested], [nested])
    assert strict.compute()["f1"] == 1
    metric.update([[(5, 6, "a"), (3, 5, "a")]], [[(3, 5, "a")]])  # adjacent, in any order
    assert float(metric.compute()["lenient_f1"]) == pytest.approx(2 / 3)
