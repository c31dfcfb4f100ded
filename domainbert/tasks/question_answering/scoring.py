"""Questions as a test set: exact match and F1 as SQuAD's scripts count them."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.metrics.answers import best_threshold, score_answer
from domainbert.metrics.bootstrap import Statistic
from domainbert.metrics.confusion import Pair
from domainbert.metrics.counts import FloatArray
from domainbert.metrics.summary import Summary, collapsed
from domainbert.metrics.table import score_lines
from domainbert.tasks.config import TaskConfig
from domainbert.tasks.mistakes import BOUNDARY, MISSED, SPURIOUS, Mark, Mistake
from domainbert.tasks.question_answering.files import Question, QuestionFile
from domainbert.tasks.question_answering.reader import Reply
from domainbert.tasks.scoring import CountedScoring

_EXACT, _F1, _QUESTIONS = range(3)
_ANSWER = "answer"
_KINDS = ("answerable", "unanswerable")
_FURTHER = {
    "by_answer.answerable.exact": "exact, answerable",
    "by_answer.answerable.f1": "F1, answerable",
    "by_answer.unanswerable.f1": "unanswerable",
    "best_exact": "best exact",
    "best_f1": "best F1",
}


def _mean(column: int) -> Statistic:
    """The mean of a score over questions, of counts (..., 2, 3)."""

    def mean(counts: NDArray[Any]) -> FloatArray:
        summed = counts.sum(axis=-2)
        found: FloatArray = summed[..., column] / summed[..., _QUESTIONS]
        return found

    return mean


class AnswerScoring(CountedScoring):
    """Questions with answers. Where some have none they are scored as SQuAD 2.0's, else as SQuAD 1.1's.

    The bootstrap draws contexts.
    """

    test: QuestionFile
    statistics: ClassVar[Mapping[str, Statistic]] = {"f1": _mean(_F1), "exact": _mean(_EXACT)}

    def __init__(self, config: TaskConfig, test: QuestionFile, train: QuestionFile | None = None) -> None:
        super().__init__(config, test, train)
        numbers: dict[str, int] = {}
        for number, item in enumerate(test.items):
            first = numbers.setdefault(item.id, number)
            if first != number:
                found = f"question {reprlib.repr(item.id)} is also at {test.place(first)}"
                raise DomainbertError(f"{test.place(number)}: {found}; expected ids that differ in all files of a set")

    @property
    @override
    def title(self) -> str:
        rules = "SQuAD 2.0" if self.test.has_unanswerable else "SQuAD 1.1"
        return f"F1 and exact match over {self.num_gold:,} questions, as {rules} counts them"

    @override
    def row(self, item: Question, prediction: Reply) -> dict[str, Any]:
        """A row of the predictions, without the other candidates."""
        gold = {"id": item.id, "question": item.question, "gold": item.texts}
        found = {"predicted": prediction.answer, "start": prediction.start, "end": prediction.end}
        return {**gold, **found, "score": prediction.score, "margin": prediction.margin}

    def write(self, path: Path, predictions: Sequence[Reply]) -> None:
        """A line of JSON for each question; beside it the official format, the answer of each id."""
        super().write(path, predictions)
        answers = {item.id: one.answer for item, one in zip(self.test.items, predictions, strict=True)}
        path.with_suffix(".json").write_text(json.dumps(answers, ensure_ascii=False) + "\n", encoding="utf-8")

    def mistake(self, item: Question, prediction: Reply) -> Mistake | None:
        """An answer that is no exact match. The text is the context, and the question the second of the pair."""
        if score_answer(prediction.answer, item.texts, self.test.has_unanswerable).exact:
            return None
        wanted = sorted({(answer.start, answer.end) for answer in item.answers})
        found = Mark(_ANSWER, prediction.start, prediction.end, prediction.score)
        place = found.place
        overlap = place is not None and any(max(place[0], start) < min(place[1], end) for start, end in wanted)
        gold = [Mark(_ANSWER, *one, kind=BOUNDARY if overlap else MISSED) for one in wanted]
        said = [replace(found, kind=BOUNDARY if overlap else SPURIOUS)] if place else []
        return Mistake(item.context, gold, said, prediction.score, item.question)

    def confused(self, item: Question, prediction: Reply) -> list[Pair]:
        """Whether there is an answer, where some questions have none."""
        if not self.test.has_unanswerable:
            return []
        return [(_ANSWER if item.answers else None, _ANSWER if prediction.answer else None)]

    def confidences(self, item: Question, prediction: Reply) -> list[tuple[float, bool]]:
        """The answer, or that there is none; right is an exact match."""
        exact = score_answer(prediction.answer, item.texts, self.test.has_unanswerable).exact
        return [(prediction.score, exact == 1)]

    def count(self, predictions: Sequence[Reply]) -> NDArray[np.float64]:
        """Exact match, F1 and 1 of each question: (questions, 2, 3), with an answer in the first row, or the second."""
        counts = np.zeros((len(predictions), 2, 3))
        kinds = [int(not item.answers) for item in self.test.items]
        counts[np.arange(len(predictions)), kinds] = self._rows([one.answer for one in predictions])
        return counts

    def scores(self, predictions: Sequence[Reply], totals: NDArray[Any]) -> dict[str, Any]:
        """All scores are means over questions, as evaluate-v2.0.py gives them, from 0 to 1."""
        found = super().scores(predictions, totals)
        if not self.test.has_unanswerable:
            return found
        found["by_answer"] = {
            kind: {"exact": exact / max(questions, 1), "f1": f1 / max(questions, 1), "support": int(questions)}
            for kind, (exact, f1, questions) in zip(_KINDS, totals.tolist(), strict=True)
        }
        return found | self._best(predictions)

    def _best(self, predictions: Sequence[Reply]) -> dict[str, float]:
        """Scores of the best candidates at the threshold that is best here: an upper bound, not what the model says."""
        rows = self._rows([one.candidates[0].text if one.candidates else "" for one in predictions])
        answerable = np.asarray([float(bool(item.answers)) for item in self.test.items])
        margins = np.asarray([np.inf if one.margin is None else one.margin for one in predictions])
        found: dict[str, float] = {}
        for name, column in (("exact", _EXACT), ("f1", _F1)):
            best = best_threshold(rows[:, column], answerable, margins)
            found |= {f"best_{name}": best.score, f"best_{name}_threshold": best.threshold}
        return found

    def _rows(self, answers: Sequence[str]) -> NDArray[np.float64]:
        """Exact match, F1 and 1 of each answer: (questions, 3)."""
        version_2 = self.test.has_unanswerable
        pairs = zip(self.test.items, answers, strict=True)
        return np.asarray([(*score_answer(answer, item.texts, version_2), 1.0) for item, answer in pairs])

    def warnings(self) -> list[str]:
        """Models that answer nothing."""
        said = collapsed(self.predictions, lambda found: not any(one.answer for one in found), "answers no question")
        return said if any(item.answers for item in self.test.items) else []

    @override
    def lines(self, summary: Summary) -> list[str]:
        further = _FURTHER if self.test.has_unanswerable else {}
        return score_lines(summary, {"f1": "F1", "exact": "exact match"}, further=further)
