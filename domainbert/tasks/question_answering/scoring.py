"""Scoring of question answering: exact match and F1 as in SQuAD's scripts."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.metrics.answers import best_threshold, score_answer
from domainbert.metrics.bootstrap import Statistic
from domainbert.metrics.counts import FloatArray
from domainbert.metrics.diagnostics import Pair
from domainbert.metrics.summary import Summary, collapse_warnings
from domainbert.metrics.table import score_lines
from domainbert.tasks.config import TaskConfig
from domainbert.tasks.counted_scoring import CountedScoring
from domainbert.tasks.mistakes import BOUNDARY, MISSED, SPURIOUS, Mark, Mistake
from domainbert.tasks.output import json_line
from domainbert.tasks.question_answering.files import Question, QuestionFile
from domainbert.tasks.question_answering.reader import Reply

_EXACT, _F1, _QUESTIONS = range(3)  # columns of the counts
_ANSWER = "answer"
_KINDS = ("answerable", "unanswerable")
_FURTHER_SCORES = {  # key and name of further scores of SQuAD 2.0
    "by_answer.answerable.exact": "exact, answerable",
    "by_answer.answerable.f1": "F1, answerable",
    "by_answer.unanswerable.f1": "unanswerable",
    "best_exact": "best exact",
    "best_f1": "best F1",
}


def _mean(counts: NDArray[Any], column: int) -> FloatArray:
    """Return the means (...) of a column over questions, from summed `AnswerScoring.count` (..., 2, 3)."""
    totals = counts.sum(axis=-2)  # of answerable and unanswerable questions
    means: FloatArray = totals[..., column] / totals[..., _QUESTIONS]
    return means


class AnswerScoring(CountedScoring):
    """Scoring as in SQuAD 2.0 if some questions have no answer, otherwise as in SQuAD 1.1.

    The bootstrap resamples contexts, or the questions of a single context.
    """

    test: QuestionFile
    statistics: ClassVar[Mapping[str, Statistic]] = {
        name: partial(_mean, column=column) for name, column in (("f1", _F1), ("exact", _EXACT))
    }

    def __init__(self, config: TaskConfig, test: QuestionFile, train: QuestionFile | None = None) -> None:
        super().__init__(config, test, train)
        first_with_id: dict[str, int] = {}
        for index, item in enumerate(test.items):
            first = first_with_id.setdefault(item.id, index)
            if first != index:
                found = f"the id {reprlib.repr(item.id)} is also at {test.location(first)}"
                raise DomainbertError(found, where=test.location(index), expected="an 'id' that is unique in all files")

    @property
    @override
    def title(self) -> str:
        rules = "SQuAD 2.0" if self.test.has_unanswerable else "SQuAD 1.1"
        return f"F1 and exact match over {self.num_gold:,} questions, as {rules} counts them"

    @override
    def row(self, item: Question, prediction: Reply) -> dict[str, Any]:
        """Return gold and prediction of an item for the predictions file, without the other candidates."""
        gold = {"id": item.id, "question": item.question, "gold": item.texts}
        predicted = {"predicted": prediction.answer, "start": prediction.start, "end": prediction.end}
        return {**gold, **predicted, "score": prediction.score, "margin": prediction.margin}

    @override
    def write(self, path: Path, predictions: Sequence[Reply]) -> None:
        """Write JSONL, and answers by id as JSON, the official format."""
        super().write(path, predictions)
        answers = {item.id: reply.answer for item, reply in zip(self.test.items, predictions, strict=True)}
        path.with_suffix(".json").write_text(json_line(answers), encoding="utf-8")

    @override
    def mistake(self, item: Question, prediction: Reply) -> Mistake | None:
        """Return the error of an answer, with marks on the predicted answer and on the gold answers in the context;
        None for an exact match."""
        if score_answer(prediction.answer, item.texts, self.test.has_unanswerable).exact:
            return None
        spans = sorted({(answer.start, answer.end) for answer in item.answers})
        mark = Mark(_ANSWER, prediction.start, prediction.end, prediction.score)
        if mark.char_range is None:  # the model predicts no answer
            overlaps, predicted = False, []
        else:
            first, end = mark.char_range
            overlaps = any(max(first, gold_start) < min(end, gold_end) for gold_start, gold_end in spans)
            predicted = [replace(mark, kind=BOUNDARY if overlaps else SPURIOUS)]
        gold = [Mark(_ANSWER, *span, kind=BOUNDARY if overlaps else MISSED) for span in spans]
        return Mistake(item.context, gold, predicted, prediction.score, item.question)

    @override
    def confusion_pairs(self, item: Question, prediction: Reply) -> list[Pair]:
        """Return one pair (gold, predicted), each "answer", or None if there is no answer; [] for SQuAD 1.1, where all
        questions have answers."""
        if not self.test.has_unanswerable:
            return []
        return [(_ANSWER if item.answers else None, _ANSWER if prediction.answer else None)]

    @override
    def confidences(self, item: Question, prediction: Reply) -> list[tuple[float, bool]]:
        """Return the confidence of the answer, or of no answer; correct means exact match."""
        exact = score_answer(prediction.answer, item.texts, self.test.has_unanswerable).exact
        return [(prediction.score, exact == 1)]

    def count(self, predictions: Sequence[Reply]) -> NDArray[np.float64]:
        """Return counts (questions, 2, 3): row 0 of an answerable question, or row 1 of an unanswerable question, is
        (exact match, F1, 1); the other row is 0."""
        counts = np.zeros((len(predictions), 2, 3))
        is_unanswerable = [int(not item.answers) for item in self.test.items]
        counts[np.arange(len(predictions)), is_unanswerable] = self._rows([reply.answer for reply in predictions])
        return counts

    def scores(self, predictions: Sequence[Reply], totals: NDArray[Any]) -> dict[str, Any]:
        """Return the means over questions from 0 to 1. If some questions have no answer, add the means of answerable
        and of unanswerable questions, and the scores at the best thresholds, as in evaluate-v2.0.py."""
        scores = super().scores(predictions, totals)
        if not self.test.has_unanswerable:
            return scores
        scores["by_answer"] = {
            kind: {"exact": exact / max(questions, 1), "f1": f1 / max(questions, 1), "support": int(questions)}
            for kind, (exact, f1, questions) in zip(_KINDS, totals.tolist(), strict=True)
        }
        return scores | self._best_scores(predictions)

    def _best_scores(self, predictions: Sequence[Reply]) -> dict[str, float]:
        """Return the scores of the best candidates at the best threshold on the test set, an upper bound."""
        rows = self._rows([reply.candidates[0].text if reply.candidates else "" for reply in predictions])
        answerable = np.asarray([float(bool(item.answers)) for item in self.test.items])
        # without candidates, there is no answer at any threshold
        margins = np.asarray([np.inf if reply.margin is None else reply.margin for reply in predictions])
        scores: dict[str, float] = {}
        for name, column in (("exact", _EXACT), ("f1", _F1)):
            best = best_threshold(rows[:, column], answerable, margins)
            scores |= {f"best_{name}": best.score, f"best_{name}_threshold": best.threshold}
        return scores

    def _rows(self, answers: Sequence[str]) -> NDArray[np.float64]:
        """Return (exact match, F1, 1) of each answer: (questions, 3). Summed over questions, the 1 is their number."""
        version_2 = self.test.has_unanswerable
        pairs = zip(self.test.items, answers, strict=True)
        return np.asarray([(*score_answer(answer, item.texts, version_2), 1.0) for item, answer in pairs])

    def warnings(self) -> list[str]:
        """Return warnings about models that answer no question although some have answers; otherwise []."""
        gold = [answer.text for item in self.test.items for answer in item.answers]
        return collapse_warnings(
            self.predictions, lambda reply: filter(None, [reply.answer]), gold, "answers no question", max_values=0
        )

    @override
    def lines(self, summary: Summary) -> list[str]:
        further = _FURTHER_SCORES if self.test.has_unanswerable else {}
        return score_lines(summary, {"f1": "F1", "exact": "exact match"}, further=further)
