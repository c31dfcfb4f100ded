from hypothesis import given
from hypothesis import strategies as st

from domainbert.labelled.tag_schemes import spans_from_tags
from domainbert.metrics.entities import LENGTHS, count_by_length, count_by_novelty, count_entities, error_kinds

tags = st.lists(st.sampled_from(["O", "B-a", "I-a", "B-b", "I-b"]), min_size=12, max_size=12)
sentences = st.lists(st.tuples(tags, tags), min_size=1, max_size=3)


@given(sentences)
def test_slices_sum_to_the_whole(pairs):
    gold = [spans_from_tags(one) for one, _ in pairs]
    predicted = [spans_from_tags(other) for _, other in pairs]
    words = [list("abcabcabcabc")] * len(pairs)
    totals = count_entities(gold, predicted, ["a", "b"]).sum(axis=(0, 1))
    kinds = error_kinds(gold, predicted)
    wrong = kinds["boundary"] + kinds["type"] + kinds["boundary and type"]
    assert kinds["correct"] == totals[0]
    assert kinds["correct"] + wrong + kinds["missed"] == sum(map(len, gold))
    assert kinds["correct"] + wrong + kinds["spurious"] == sum(map(len, predicted))
    assert count_by_length(gold, predicted).sum(axis=0).tolist() == totals.tolist()
    assert count_by_novelty(gold, predicted, words, {("a", "a")}).sum(axis=0).tolist() == totals.tolist()


def test_each_kind_of_error():
    gold = [[(0, 2, "a"), (3, 4, "a"), (5, 7, "a"), (8, 10, "a"), (11, 12, "a")]]
    predicted = [[(0, 2, "a"), (3, 4, "b"), (5, 6, "a"), (9, 10, "b"), (13, 14, "b")]]
    assert error_kinds(gold, predicted) == {
        "correct": 1,
        "boundary": 1,
        "type": 1,
        "boundary and type": 1,
        "missed": 1,
        "spurious": 1,
    }


def test_the_same_type_is_paired_before_a_larger_overlap():
    kinds = error_kinds([[(0, 1, "a"), (1, 5, "b")]], [[(0, 5, "a")]])
    assert (kinds["boundary"], kinds["missed"], kinds["boundary and type"]) == (1, 1, 0)


def test_lengths_in_words():
    spans = [[(7, 7 + length, "a")] for length in (1, 2, 3, 4, 5, 8, 9, 40)]
    assert dict(zip(LENGTHS, count_by_length(spans, spans)[:, 0], strict=True)) == {
        "1": 1,
        "2": 1,
        "3-4": 2,
        "5-8": 2,
        ">8": 2,
    }


def test_seen_means_the_same_words_with_the_same_type():
    words = [["cash", "transfers", "Cash", "transfers"]]
    gold = [[(0, 2, "a"), (2, 4, "a")]]
    predicted = [[(0, 2, "b"), (2, 4, "a")]]
    seen = {("cash transfers", "a")}
    assert count_by_novelty(gold, predicted, words, seen).tolist() == [[0, 0, 1], [1, 1, 0]]
