"""Exact match and F1 of answers, as the official scripts of SQuAD 1.1 and 2.0 count them.

evaluate-v1.1.py (Rajpurkar et al. 2016, section 6.1) and evaluate-v2.0.py (Rajpurkar et al. 2018). The two differ where
nothing is left of a text once articles and punctuation are gone, and where a question has no answer.
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
    """Of one question; both are from 0 to 1."""

    exact: float
    f1: float


class BestThreshold(NamedTuple):
    """The threshold of the highest mean score."""

    score: float
    threshold: float
    answered: int
    """Number of questions that get an answer."""


def normalise(text: str) -> str:
    """A text in lower case, without ASCII punctuation and English articles, with single spaces.

    >>> normalise("The  U.S.'s a-team")
    'uss ateam'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def score_answer(predicted: str, gold: Sequence[str], version_2: bool) -> AnswerScore:
    """The best exact match and the best F1 over the gold answers.

    Of SQuAD 2.0 a question without an answer has no gold, and an empty prediction is right; gold answers of which
    nothing is left do not count.
    """
    wanted = [normalise(text) for text in gold]
    if version_2:
        wanted = [text for text in wanted if text] or [""]
    found = normalise(predicted)
    exact = max(float(found == text) for text in wanted)
    return AnswerScore(exact, max(_f1(found.split(), text.split(), version_2) for text in wanted))


def _f1(found: Sequence[str], wanted: Sequence[str], version_2: bool) -> float:
    if version_2 and not (found and wanted):
        return float(found == wanted)
    common = sum((Counter(found) & Counter(wanted)).values())
    if not common:
        return 0.0
    precision, recall = common / len(found), common / len(wanted)
    return 2 * precision * recall / (precision + recall)


def best_threshold(scores: FloatArray, answerable: FloatArray, margins: FloatArray) -> BestThreshold:
    """The mean score where no answer is predicted of questions whose margin is above a threshold, at the best of them.

    As `find_best_thresh` of evaluate-v2.0.py: a question without an answer scores 1 if it gets none. Of equal
    thresholds the lowest is taken, and 0 where it is best to answer nothing.

    Args:
        scores: (questions,) of the best answer to each.
        answerable: (questions,) 1 where there is an answer.
        margins: (questions,) how much better no answer is.
    """
    order = np.argsort(margins, kind="stable")
    change = np.where(answerable == 1, scores, -1.0)[order]
    totals = np.cumsum([(answerable == 0).sum(), *change])  # of so many questions that get an answer
    best = int(np.argmax(totals))
    return BestThreshold(float(totals[best]) / len(scores), float(margins[order[best - 1]]) if best else 0.0, best)


def clear_threshold(answered: int, margins: FloatArray) -> float:
    """A threshold by which so many questions get an answer: half way between two margins (questions,), so that rounding
    does not decide."""
    ordered = np.sort(margins[np.isfinite(margins)])
    if not answered or not len(ordered):
        return float(ordered[0]) - 1 if len(ordered) else 0.0
    last = min(answered, len(ordered))
    return float(ordered[last - 1 : last + 1].mean()) if last < len(ordered) else float(ordered[-1]) + 1


def validation_scores(rows: FloatArray) -> dict[str, Any]:
    """Scores of a validation from rows (questions, 4) of exact match and F1 of the best answer, whether there is an
    answer, and how much better none is.

    Where some questions have no answer, `threshold` is that of the best F1, and the scores are those that it gives.
    """
    exact, f1, answerable, margins = rows.T
    if answerable.all():
        return {"f1": f1.mean(), "exact": exact.mean()}
    threshold = clear_threshold(best_threshold(f1, answerable, margins).answered, margins)
    exact, f1 = (np.where(margins <= threshold, score, 1 - answerable) for score in (exact, f1))
    return {"f1": f1.mean(), "exact": exact.mean(), "threshold": threshold}
