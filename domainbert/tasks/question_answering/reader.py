"""Prediction of answers from contexts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from domainbert.base.errors import DomainbertError
from domainbert.labelled.contents import Content, TextPair, map_contents
from domainbert.tasks.predictor import Predictor
from domainbert.tasks.question_answering.windows import Spans


@dataclass(frozen=True)
class Candidate:
    """A possible answer: characters `start` to `end` (exclusive) of the context; `text` is the substring."""

    text: str
    start: int
    end: int
    score: float
    """Softmax over the scores of the listed candidates, and of no answer if the model can predict it."""


@dataclass(frozen=True)
class Reply:
    """The answer to a question; empty if the model predicts no answer."""

    answer: str
    start: int | None
    """First character in the context; None without an answer."""

    end: int | None
    score: float
    """As `Candidate.score`."""

    margin: float | None
    """Score of no answer minus the score of the best candidate; None without candidates."""

    candidates: list[Candidate]
    """In descending order of score."""


class Reader(Predictor[Reply]):
    """Predictor of answers; `predict` takes pairs of a question and its context."""

    kind = "a question answering model with the outputs"
    task: Any  # has a `threshold`

    def _predict(self, texts: Sequence[Content]) -> list[Reply]:
        pairs = as_pairs(texts)
        spans = self._decode_examples(self.task.encode_contents(pairs, self.tokenizer, self.max_length))  # by index
        return [_build_reply(pair.second, spans[index], self.task.threshold) for index, pair in enumerate(pairs)]

    def answer(self, question: str, context: str) -> Reply:
        """Return the answer to one question."""
        return self.predict([TextPair(question, context)])[0]


def as_pairs(contents: Sequence[Content]) -> list[TextPair]:
    """Return the contents as pairs; raise `UnreadableContents` for contents that are not pairs."""

    def as_pair(content: Content) -> TextPair:
        if not isinstance(content, TextPair):
            raise DomainbertError(found=repr(str(content)[:40]), expected="TextPair(question, context)")
        return content

    return map_contents(as_pair, contents)


def _build_reply(context: str, spans: Spans, threshold: float | None) -> Reply:
    # with a threshold, the last score is the score of no answer
    scores = spans.scores if threshold is None else np.append(spans.scores, spans.null_score)
    exponentials = np.exp(scores - scores.max(initial=-np.inf))
    probabilities = (exponentials / exponentials.sum()).tolist()
    candidates = [
        Candidate(context[start:end], start, end, probability)
        for (start, end), probability in zip(spans.characters.tolist(), probabilities, strict=False)  # spans only
    ]
    if not candidates:
        return Reply(answer="", start=None, end=None, score=1.0, margin=None, candidates=[])
    if threshold is not None and spans.margin > threshold:
        no_answer_score = probabilities[-1]
        return Reply("", None, None, no_answer_score, spans.margin, candidates)
    best = candidates[0]
    return Reply(best.text, best.start, best.end, best.score, spans.margin, candidates)
