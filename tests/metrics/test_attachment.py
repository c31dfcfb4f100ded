"""Attachment scores against their definitions, spelled out."""

from __future__ import annotations

import random

import pytest

from domainbert.metrics.attachment import ATTACHMENT, LENGTHS, count_arcs, count_by_label, count_by_length
from domainbert.metrics.counts import score_counts


def test_scores_are_those_of_conll_2018_and_of_allennlp() -> None:
    """Spelled out: F1 of aligned words and universal labels; all words but those with certain tags."""
    draw = random.Random(5)
    names = ["nsubj", "nsubj:pass", "obj", "det"]
    gold, system, ignored = [], [], []
    for length in (1, 5, 12, 30):
        gold.append([(draw.randint(0, length), draw.choice(names)) for _ in range(length)])
        others = [(draw.randint(0, length), draw.choice(names)) for _ in range(length)]
        chosen = [draw.choice([arc, arc, (arc[0], "det"), one]) for arc, one in zip(gold[-1], others, strict=True)]
        system.append(chosen)
        ignored.append([draw.random() < 0.2 for _ in range(length)])
    counts = count_arcs(gold, system, ignored)
    found = score_counts(ATTACHMENT, counts.sum(axis=0))
    rows = zip(gold, system, ignored, strict=True)
    words = [word for row in rows for word in zip(*row, strict=True)]

    def f1(right: int, number: int) -> float:
        precision, recall = right / number, right / number  # the same words on both sides
        return 2 * precision * recall / (precision + recall)

    assert found["uas"] == pytest.approx(f1(sum(a[0] == b[0] for a, b, _ in words), len(words)), abs=1e-12)
    assert found["las"] == pytest.approx(f1(sum(a == b for a, b, _ in words), len(words)), abs=1e-12)
    kept = [(a, b) for a, b, skip in words if not skip]
    assert found["las_no_punctuation"] == pytest.approx(sum(a == b for a, b in kept) / len(kept), abs=1e-12)
    assert found["uas_no_punctuation"] == pytest.approx(sum(a[0] == b[0] for a, b in kept) / len(kept), abs=1e-12)
    assert found["exact"] == sum(a == b for a, b in zip(gold, system, strict=True)) / 4
    by_label = count_by_label(gold, system, names)
    for label, (tp, fp, fn) in zip(names, by_label.tolist(), strict=True):
        assert tp == sum(a == b and a[1] == label for a, b, _ in words)
        assert (tp + fp, tp + fn) == tuple(sum(pair[side][1] == label for pair in words) for side in (1, 0))
    by_length = count_by_length(gold, system)
    assert by_length.sum(axis=0)[0] == sum(a[0] == b[0] for a, b, _ in words)
    assert by_length.sum() - by_length[:, 0].sum() == 2 * (len(words) - by_length[:, 0].sum())


def test_lengths_of_arcs() -> None:
    gold = [[(0, "x"), *((1, "x") for _ in range(8))]]
    tp, fp, fn = count_by_length(gold, gold).T
    assert dict(zip(LENGTHS, tp.tolist(), strict=True)) == {"root": 1, "1": 1, "2": 1, "3-6": 4, ">6": 2}
    assert not fp.any() and not fn.any()


def test_slices_of_wrong_arcs_are_those_of_both_sides() -> None:
    """Word 5 hangs on word 1 in gold, and on word 4 in the prediction; word 1 the other way round in direction."""
    gold = [[(0, "r"), (1, "x"), (1, "x"), (1, "x"), (1, "x")]]
    predicted = [[(3, "r"), (1, "y"), (1, "x"), (1, "x"), (4, "x")]]
    found = dict(zip(LENGTHS, count_by_length(gold, predicted).tolist(), strict=True))
    assert found == {"root": [0, 0, 1], "1": [1, 1, 0], "2": [1, 1, 0], "3-6": [1, 0, 1], ">6": [0, 0, 0]}
    by_label = count_by_label(gold, predicted, ["r", "x", "y"]).tolist()
    assert by_label == [[0, 1, 1], [2, 1, 2], [0, 1, 0]]


def test_a_file_of_punctuation_scores_nothing_without_it() -> None:
    scores = score_counts(ATTACHMENT, count_arcs([[(0, "r")]], [[(0, "r")]], [[True]])[0])
    assert scores == {"las": 1, "uas": 1, "las_no_punctuation": 0, "uas_no_punctuation": 0, "exact": 1}
    labelled = score_counts(ATTACHMENT, count_arcs([[(0, "r")]], [[(0, "s")]], [[False]])[0])
    assert labelled == {"las": 0, "uas": 1, "las_no_punctuation": 0, "uas_no_punctuation": 1, "exact": 0}


def test_a_sentence_without_words_is_an_exact_tree() -> None:
    counts = count_arcs([[], [(0, "r")]], [[], [(0, "s")]], [[], [False]])
    assert counts.tolist() == [[[0, 0, 0], [0, 0, 0], [1, 1, 1]], [[1, 1, 0], [1, 1, 0], [1, 1, 0]]]


@pytest.mark.parametrize("predicted", [[], [[]], [[(0, "r")], [(0, "r")]]])
def test_other_sentences_or_words_are_refused(predicted: list[list[tuple[int, str]]]) -> None:
    gold = [[(0, "r")]]
    for count in (lambda: count_arcs(gold, predicted, [[False]]), lambda: count_by_length(gold, predicted)):
        with pytest.raises(ValueError, match="zip"):
            count()
