"""Prediction of dependency trees for words or raw text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from typing_extensions import override

from domainbert.labelled.contents import Content, as_contents
from domainbert.metrics.attachment import Arc
from domainbert.tasks.predictor import Predictor
from domainbert.tasks.word_task import aligned_contents, text_and_offsets


class Tree(NamedTuple):
    """Dependency tree of a sentence: one arc, a pair (head, label), for each word."""

    arcs: list[Arc]
    scores: list[float]
    """Probability of each arc: of its head, times its label given the head."""


@dataclass(frozen=True)
class ParsedWord:
    """A word of a text: characters `start` to `end` (exclusive); `text` is the substring.

    `head` is the number of its head word, from 1, or 0 for the root; `score` as in `Tree`.
    """

    start: int
    end: int
    text: str
    head: int
    label: str
    score: float


class Parser(Predictor[list[ParsedWord]]):
    """Predictor of dependency trees for raw text, whose words are its pre-tokens, or lists of words."""

    kind = "a dependency parser with the labels"

    def _predict(self, texts: Sequence[Content]) -> list[list[ParsedWord]]:
        aligned = aligned_contents(self.tokenizer, texts, self.task.word_splitting)
        with_offsets = [text_and_offsets(content, words) for content, words in zip(texts, aligned, strict=True)]
        return [
            [
                ParsedWord(start, end, text[start:end], head, label, score)
                for (start, end), (head, label), score in zip(offsets, tree.arcs, tree.scores, strict=True)
            ]
            for (text, offsets), tree in zip(with_offsets, self.predict_trees(texts), strict=True)
        ]

    @override
    def as_json(self, prediction: list[ParsedWord]) -> dict[str, Any]:
        return {"words": [asdict(word) for word in prediction]}

    def predict_trees(self, texts: Iterable[Content] | Content) -> list[Tree]:
        """Return the tree of each text or list of words; without words it has no arcs."""
        contents = as_contents(texts)
        decoded = self._decode_examples(self.task.encode_contents(contents, self.tokenizer, self.max_length))
        return [decoded.get(index, Tree([], [])) for index in range(len(contents))]
