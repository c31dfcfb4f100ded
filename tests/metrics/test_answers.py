"""Exact match and F1 of answers against the official scripts of SQuAD, reimplemented here from their definitions."""

from __future__ import annotations

import random
import re
import string
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from domainbert.metrics.answers import best_threshold, midpoint_threshold, normalise, score_answer, validation_scores
from domainbert.metrics.modules import AnswerScores, RowScores

WORDS = [
    "the",
    "a",
    "An",
    "Zürich",
    "café",
    "1889",
    "U.S.",
    "women's",
    "rate",
    "of",
    "9",
    "%",
    "東京",
    "🍰",
    "-",
    "…",
    "THE",
]


def official_normalise(text: str) -> str:
    """Lower case, then no punctuation, then no articles, then white space."""
    without = "".join(character for character in text.lower() if character not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", without).split())


def official_f1(version: int, gold: str, found: str) -> float:
    """`f1_score` of evaluate-v1.1.py, `compute_f1` of evaluate-v2.0.py."""
    one, other = (official_normalise(text).split() for text in (gold, found))
    if version == 2 and (len(one) == 0 or len(other) == 0):
        return int(one == other)
    same = sum((Counter(one) & Counter(other)).values())
    if same == 0:
        return 0
    precision, recall = 1.0 * same / len(other), 1.0 * same / len(one)
    return (2 * precision * recall) / (precision + recall)


def official_scores(version: int, golds: list[str], found: str) -> tuple[float, float]:
    if version == 2:
        golds = [gold for gold in golds if official_normalise(gold)] or [""]
    exact = max(int(official_normalise(gold) == official_normalise(found)) for gold in golds)
    return exact, max(official_f1(version, gold, found) for gold in golds)


def official_threshold(
    found: dict[str, str], scores: dict[str, float], margins: dict[str, float], has: dict[str, bool]
) -> tuple[float, float]:
    """`find_best_thresh` of evaluate-v2.0.py, as a share."""
    current = best = sum(1 for key in has if not has[key])
    threshold = 0.0
    for key in sorted(margins, key=lambda key: margins[key]):
        if has[key]:
            current += scores[key]
        elif found[key]:
            current -= 1
        if current > best:
            best, threshold = current, margins[key]
    return best / len(scores), threshold


def draw_text(draw: random.Random, most: int) -> str:
    return draw.choice(["", " ", "  "]) + draw.choice([" ", "  ", ", "]).join(
        draw.choices(WORDS, k=draw.randint(0, most))
    )


def test_texts_are_normalised_as_officially() -> None:
    draw = random.Random(0)
    for _ in range(2000):
        text = draw_text(draw, 6) + draw.choice(["", "a-the", "\u00a0x", "THE_A", "an.d", "\n"])
        assert normalise(text) == official_normalise(text)
    assert normalise(" The  Café's A-team ") == "cafés ateam"


@pytest.mark.parametrize("version", [1, 2])
def test_each_answer_is_scored_as_officially(version: int) -> None:
    draw = random.Random(version)
    seen: set[float] = set()
    for _ in range(5000):
        golds = [draw_text(draw, 4) for _ in range(draw.randint(1, 4))]
        found = draw.choice(golds) if draw.random() < 0.2 else draw_text(draw, 4)
        score = score_answer(found, golds, version == 2)
        assert (score.exact, score.f1) == pytest.approx(official_scores(version, golds, found), abs=1e-12)
        seen.add(score.f1)
    assert len(seen) > 8
    assert score_answer("", [], True) == (1.0, 1.0) and score_answer("x", [], True) == (0.0, 0.0)
    assert score_answer("the", ["a"], False) == (1.0, 0.0) and score_answer("the", ["a"], True) == (1.0, 1.0)


def test_scores_are_those_of_torchmetrics() -> None:
    squad = pytest.importorskip("torchmetrics.functional.text").squad
    draw = random.Random(5)
    golds = [[draw_text(draw, 3) + " x" for _ in range(3)] for _ in range(200)]
    found = [draw.choice(gold) if draw.random() < 0.5 else draw_text(draw, 3) for gold in golds]
    ids = [str(number) for number in range(200)]
    theirs = squad(
        [{"prediction_text": text, "id": one} for text, one in zip(found, ids, strict=True)],
        [{"answers": {"answer_start": [0] * 3, "text": gold}, "id": one} for gold, one in zip(golds, ids, strict=True)],
    )
    metric = AnswerScores()
    metric.update(found, golds)
    ours = metric.compute()
    wanted = [float(theirs["exact_match"]), float(theirs["f1"])]
    assert [100 * float(ours[name]) for name in ("exact", "f1")] == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("seed", range(30))
def test_the_best_threshold_is_the_official_one(seed: int) -> None:
    draw = random.Random(seed)
    count = draw.choice([1, 2, 10, 300])
    ids = [str(number) for number in range(count)]
    has = {key: draw.random() < 0.6 for key in ids}
    scores = {key: draw.choice([0.0, 1.0, 2 / 3, draw.random()]) if has[key] else 0.0 for key in ids}
    margins = {key: round(draw.gauss(-2 * has[key], 3), draw.choice([0, 6])) for key in ids}
    wanted = official_threshold(dict.fromkeys(ids, "x"), scores, margins, has)
    arrays: list[Any] = [np.asarray([float(one[key]) for key in ids]) for one in (scores, has, margins)]
    found = best_threshold(*arrays)
    assert (found.score, found.threshold) == pytest.approx(wanted, abs=1e-12)

    clear = midpoint_threshold(found.answered, arrays[2])
    answered = arrays[2] <= clear
    ties = (arrays[2] == found.threshold).sum() if found.answered else 0
    assert found.answered <= answered.sum() <= found.answered + max(ties - 1, 0)
    assert (np.abs(arrays[2] - clear) > 1e-7).all() or ties > 1


def test_scores_of_a_validation() -> None:
    """Of SQuAD 1.1 every question is answered; of 2.0 those whose margin is not above the threshold."""
    scored = [[1, 1, 1, -3.0], [0, 0.5, 1, -1.0], [0, 0, 0, 2.0], [0, 0, 1, 4.0]]
    rows = np.asarray([[0.25, 0.75, *row] for row in scored])  # exact match and F1 as in SQuAD 1.1 come first
    assert validation_scores(rows[[0, 1, 3]]) == {"f1": 0.75, "exact": 0.25}
    found = validation_scores(rows)
    assert found == {"f1": 2.5 / 4, "exact": 0.5, "threshold": 0.5}
    nothing = validation_scores(rows * [1, 1, 1, 1, 0, 1])
    assert (nothing["f1"], nothing["exact"]) == (1.0, 1.0) and nothing["threshold"] < -3
    assert midpoint_threshold(4, rows[:, 5]) == 5.0 and midpoint_threshold(0, rows[:0, 5]) == 0.0
    assert midpoint_threshold(2, np.asarray([1.0, 2.0, np.inf])) == 3.0


def test_rows_of_batches_and_ranks_are_put_together() -> None:
    """A rank without any has numbers of the same type, so that they can be gathered."""
    rows = np.asarray([[1, 1, 1, 1, 1, -3.0], [0, 0, 0, 0.5, 1, -1.0], [0, 0, 0, 0, 0, 2.0], [0, 0, 0, 0, 1, 4.0]])
    metric, alone = (RowScores(validation_scores, 6) for _ in range(2))
    metric.update(rows[:1])
    metric.update(rows[1:3])
    metric._sync_dist(lambda numbers, group=None: [numbers, torch.from_numpy(rows[3:].ravel())])
    assert {name: float(value) for name, value in metric.compute().items()} == validation_scores(rows)
    gathered: list[torch.Tensor] = []
    alone._sync_dist(lambda numbers, group=None: gathered.append(numbers) or [numbers, numbers])
    assert gathered[0].dtype == torch.float64 and gathered[0].shape == (0,)


def test_answers_without_margins_are_scored_as_they_are() -> None:
    """No threshold is sought, which would replace answers that are wrong by no answer."""
    metric = AnswerScores()
    metric.update(["1889", "Paris", ""], [["1889"], [], []])
    metric.update(["x", "in Bern"], [[], ["Bern"]])
    found = {name: float(value) for name, value in metric.compute().items()}
    assert found == pytest.approx({"f1": (1 + 0 + 1 + 0 + 2 / 3) / 5, "exact": 2 / 5})
    metric.reset()
    metric.update(["1889", "Paris", ""], [["1889"], [], []], margins=[0.0, 1.0, 1.0])
    assert {name: float(value) for name, value in metric.compute().items()} == {
        "f1": 1.0, "exact": 1.0, "threshold": 0.5
    }  # fmt: skip
