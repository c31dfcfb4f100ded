"""Answers from contexts, by a fine-tuned model."""

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
    """A possible answer: characters `start` to `end` (exclusive) of the context, which are `text`."""

    text: str
    start: int
    end: int
    score: float
    """Its share among all candidates that are listed, and no answer where that is possible: softmax of their scores."""


@dataclass(frozen=True)
class Reply:
    """The answer to a question; empty where the context does not say it."""

    answer: str
    start: int | None
    """Its place in the context, in characters; None without an answer."""

    end: int | None
    score: float
    """As that of a candidate."""

    margin: float | None
    """Margin by which no answer scores higher than the best candidate; None where there is no candidate."""

    candidates: list[Candidate]
    """The best first."""


class Reader(Predictor[Reply]):
    """Answers questions from a context; `predict` takes pairs of a question and its context."""

    kind = "a question answering model with the outputs"

    def __init__(self, task: Any, runtime: Any) -> None:
        super().__init__(task, runtime)
        self.threshold: float | None = task.threshold

    def _predict(self, texts: Sequence[Content]) -> list[Reply]:
        pairs = as_pairs(texts)
        found = self._decoded(self.task.encode_contents(pairs, self.tokenizer, self.max_length))
        return [_reply(pair.second, found[number], self.threshold) for number, pair in enumerate(pairs)]

    def answer(self, question: str, context: str) -> Reply:
        """The answer to one question."""
        return self.predict([TextPair(question, context)])[0]


def as_pairs(contents: Sequence[Content]) -> list[TextPair]:
    """Contents that are questions with their contexts; `UnreadableContents` names the others."""
    others = {number: content for number, content in enumerate(contents) if not isinstance(content, TextPair)}
    if others:
        expected = "expected a question and its context"
        raise UnreadableContents({number: f"found {str(one)[:40]!r}; {expected}" for number, one in others.items()})
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
