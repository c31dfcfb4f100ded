"""Exact match and F1 of answers, as in the official scripts of SQuAD 1.1 and 2.0.

evaluate-v1.1.py (Rajpurkar et al. 2016, section 6.1) and evaluate-v2.0.py (Rajpurkar et al. 2018). They differ for
texts that are empty after normalisation, and for questions without an answer.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from domainbert.metrics.counts import FloatArray

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


class AnswerScore(NamedTuple):
    """Scores of one question, from 0 to 1."""

    exact: float
    f1: float


class BestThreshold(NamedTuple):
    """The threshold with the highest mean score, and this score."""

    score: float
    threshold: float
    answered: int
    """Number of questions with a predicted answer."""


def normalise(text: str) -> str:
    """Return a text in lower case, without ASCII punctuation and English articles, words separated by one space.

    >>> normalise("The  U.S.'s a-team")
    'uss ateam'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def score_answer(predicted: str, gold: Sequence[str], version_2: bool) -> AnswerScore:
    """Return the maximum exact match and the maximum F1 over the gold answers.

    In SQuAD 2.0, gold answers that are empty after normalisation are dropped; for a question without gold answers, an
    empty prediction is correct.
    """
    answers = [normalise(text) for text in gold]
    if version_2:
        answers = [text for text in answers if text] or [""]
    answer = normalise(predicted)
    exact = max(float(answer == text) for text in answers)
    return AnswerScore(exact, max(_f1(answer.split(), text.split(), version_2) for text in answers))


def _f1(predicted: Sequence[str], gold: Sequence[str], version_2: bool) -> float:
    # two empty answers score 1 in SQuAD 2.0, and 0 in SQuAD 1.1
    if version_2 and not (predicted and gold):
        return float(predicted == gold)
    common = sum((Counter(predicted) & Counter(gold)).values())
    if not common:
        return 0.0
    precision, recall = common / len(predicted), common / len(gold)
    return 2 * precision * recall / (precision + recall)


def best_threshold(scores: FloatArray, answerable: FloatArray, margins: FloatArray) -> BestThreshold:
    """Return the threshold with the highest mean score: questions with a margin above the threshold get no answer.

    No answer scores 1 for an unanswerable question, as in `find_best_thresh` of evaluate-v2.0.py. Of several best
    thresholds the lowest is returned. If it is best to answer no question, the threshold is 0.

    Args:
        scores: (questions,) score of the best answer.
        answerable: (questions,) 1 if there is a gold answer.
        margins: (questions,) score of "no answer" - score of the best answer.
    """
    order = np.argsort(margins, kind="stable")
    score_changes = np.where(answerable == 1, scores, -1.0)[order]  # an answer to an unanswerable question loses its 1
    total_scores = np.cumsum([(answerable == 0).sum(), *score_changes])  # by number of answered questions
    num_answered = int(np.argmax(total_scores))
    threshold = float(margins[order[num_answered - 1]]) if num_answered else 0.0  # the margin of the last answer
    return BestThreshold(float(total_scores[num_answered]) / len(scores), threshold, num_answered)


def midpoint_threshold(answered: int, margins: FloatArray) -> float:
    """Return a threshold that answers the `answered` questions with the lowest `margins` (questions,).

    It is the midpoint between the last answered and the first unanswered margin, so that rounding has no effect. To
    answer no question, it is the lowest margin - 1; to answer every question, the highest margin + 1. Margins that are
    not finite are ignored; if none is finite, the threshold is 0.
    """
    ordered = np.sort(margins[np.isfinite(margins)])
    if not len(ordered):
        return 0.0
    if not answered:
        return float(ordered[0]) - 1
    if answered >= len(ordered):
        return float(ordered[-1]) + 1
    return float(ordered[answered - 1 : answered + 1].mean())


def validation_scores(rows: FloatArray) -> dict[str, Any]:
    """Return the mean `f1` and `exact` match (0 without questions), and the `threshold` if some have no answer.

    `rows` (questions, 6) are exact match and F1 as in SQuAD 1.1, both as in SQuAD 2.0, which has questions without an
    answer, `answerable` and margin (see `best_threshold`). The threshold maximises F1, and the scores are computed at
    this threshold. If all margins are -inf, the predicted answers are scored, without `threshold`.
    """
    exact_squad_1, f1_squad_1, exact, f1, answerable, margins = rows.T
    if answerable.all():
        num_questions = max(len(rows), 1)
        return {"f1": f1_squad_1.sum() / num_questions, "exact": exact_squad_1.sum() / num_questions}
    if np.isneginf(margins).all():
        return {"f1": f1.mean(), "exact": exact.mean()}
    threshold = midpoint_threshold(best_threshold(f1, answerable, margins).answered, margins)
    is_answered = margins <= threshold
    no_answer_score = 1 - answerable
    scores = {"f1": f1, "exact": exact}
    means = {name: np.where(is_answered, score, no_answer_score).mean() for name, score in scores.items()}
    return {**means, "threshold": threshold}
