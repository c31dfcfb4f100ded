"""Dependency trees of words or of raw text, by a fine-tuned model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from domainbert.metrics.attachment import Arc
from domainbert.tasks.labelled import Content
from domainbert.tasks.predictor import Predictor
from domainbert.tasks.words import aligned_contents, placed_words


class Tree(NamedTuple):
    """The arcs of the words of a sentence, and the probability of each: of its head, times that of its label there."""

    arcs: list[Arc]
    scores: list[float]


@dataclass(frozen=True)
class ParsedWord:
    """A word of a text: characters `start` to `end` (exclusive), which are `text`.

    `head` is the number of its head among the words, from 1, or 0 for the root; `score` as in `Tree`.
    """

    start: int
    end: int
    text: str
    head: int
    label: str
    score: float


class Parser(Predictor[list[ParsedWord]]):
    """Parses words or raw text."""

    kind = "a dependency parser with the labels"

    def predict(self, texts: Sequence[Content]) -> list[list[ParsedWord]]:
        """The words of each text, which are its pre-tokens, or of each list of words, with their heads."""
        aligned = aligned_contents(self.tokenizer, texts)
        placed = [placed_words(content, words) for content, words in zip(texts, aligned, strict=True)]
        return [
            [
                ParsedWord(start, end, text[start:end], head, label, score)
                for (start, end), (head, label), score in zip(places, tree.arcs, tree.scores, strict=True)
            ]
            for (text, places), tree in zip(placed, self.predict_trees(texts), strict=True)
        ]

    def predict_trees(self, contents: Sequence[Content]) -> list[Tree]:
        """The tree of each text or list of words; one without words has no arcs."""
        decoded = self._decoded(self.task.encode_contents(contents, self.tokenizer, self.max_length))
        return [decoded.get(number, Tree([], [])) for number in range(len(contents))]
