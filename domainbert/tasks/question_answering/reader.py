"""Prediction of answers from contexts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from domainbert.labelled.contents import Content, TextPair, UnreadableContents
from domainbert.tasks.predictor import Predictor
from domainbert.tasks.question_answering.spans import Spans


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

    def __init__(self, task: Any, runtime: Any) -> None:
        super().__init__(task, runtime)
        self.threshold: float | None = task.threshold

    def _predict(self, texts: Sequence[Content]) -> list[Reply]:
        pairs = as_pairs(texts)
        spans = self._decode_examples(self.task.encode_contents(pairs, self.tokenizer, self.max_length))
        return [_reply(pair.second, spans[number], self.threshold) for number, pair in enumerate(pairs)]

    def answer(self, question: str, context: str) -> Reply:
        """Return the answer to one question."""
        return self.predict([TextPair(question, context)])[0]


def as_pairs(contents: Sequence[Content]) -> list[TextPair]:
    """Return the contents as pairs; `UnreadableContents` lists contents that are not pairs."""
    problems = {
        number: f"found {str(content)[:40]!r}; expected a question and its context"
        for number, content in enumerate(contents)
        if not isinstance(content, TextPair)
    }
    if problems:
        raise UnreadableContents(problems)
    return [content for content in contents if isinstance(content, TextPair)]


def _reply(context: str, spans: Spans, threshold: float | None) -> Reply:
    scores = spans.scores if threshold is None else np.append(spans.scores, spans.null)
    shares = np.exp(scores - scores.max(initial=-np.inf))
    shares = (shares / shares.sum()).tolist()
    places = spans.characters.tolist()
    candidates = [
        Candidate(context[start:end], start, end, share) for (start, end), share in zip(places, shares, strict=False)
    ]
    if not candidates:
        return Reply("", None, None, 1.0, None, [])
    if threshold is not None and spans.margin > threshold:
        return Reply("", None, None, shares[-1], spans.margin, candidates)
    best = candidates[0]
    return Reply(best.text, best.start, best.end, best.score, spans.margin, candidates)
