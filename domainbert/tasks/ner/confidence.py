"""Probabilities of whole entities: constrained forward-backward (Culotta and McCallum 2004, "Confidence estimation for
information extraction", section 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from domainbert.encoders.crf import Crf
from domainbert.labelled.tag_schemes import continues_entity, spans_from_tags
from domainbert.tasks.attribution_targets import AttributionTarget, log_probability

Ints = NDArray[np.int64]


def entity_targets(
    field: Crf, labels: Sequence[str], tags: Sequence[str], batch: Mapping[str, Any]
) -> list[AttributionTarget]:
    """Return the entities of the only sentence in a batch, each with the log of its `Lattice.scores`."""

    def strength(start: int, stop: int, logits: Tensor) -> Tensor:
        allowed = {word: [label == tags[word] for label in labels] for word in range(start, stop)}
        if stop < len(tags):  # the next word does not continue the entity
            allowed[stop] = [not continues_entity(tags[stop - 1], label) for label in labels]
        return log_probability(field, logits, batch, allowed)

    return [
        AttributionTarget(kind, partial(strength, start, stop), (start, stop))
        for start, stop, kind in spans_from_tags(tags)
    ]


class Lattice:
    """Forward-backward sums of a CRF over all label sequences of sentences.

    Sums are scaled at every word, as in Rabiner (1989), section V.A, so that long sentences do not underflow.

    Args:
        field: the CRF; for a linear head `uniform_crf`, which normalises over valid sequences.
        emissions: (E, L, C) scores of labels; padding after the end of a sentence is ignored.
        lengths: (E,) numbers of words.
        labels: (C,) names of labels.
    """

    def __init__(self, field: Crf, emissions: Tensor, lengths: Tensor, labels: Sequence[str]) -> None:
        self.lengths: Ints = lengths.cpu().numpy()
        self._number = {label: number for number, label in enumerate(labels)}
        self._ends = np.asarray(
            [[not continues_entity(tag, following) for following in labels] for tag in labels]
        )  # (C, C)
        self._rows = np.repeat(np.arange(len(self.lengths)), self.lengths)  # (W,) sentence of each word
        self._words = _ranges(np.zeros_like(self.lengths), self.lengths)  # (W,) index of the word in its sentence
        scores = emissions.detach().double().cpu()
        start, self._moves, end = (part.detach().exp().numpy() for part in field.scores(scores))
        self._local = (scores - scores.amax(dim=2, keepdim=True)).exp().numpy()  # (E, L, C)
        self._forward, self._scale = self._sums_before(start)
        self._backward = self._sums_behind(end)

    def scores(self, tags: Sequence[Sequence[str]]) -> list[list[float]]:
        """Return a probability for each word of all sentences (E lists), given their tags.

        A word in an entity has the probability of the entity: its words have these tags, and the next word does not
        continue it. A word outside of entities has the probability of the label O.
        """
        begins = np.cumsum([0, *map(len, tags)])
        spans = [
            (begin + start, begin + stop)
            for begin, sentence_tags in zip(begins.tolist(), tags, strict=False)
            for start, stop, _ in spans_from_tags(sentence_tags)
        ]
        scores = self._outside()
        if spans:
            starts, stops = np.asarray(spans).T
            labels = np.asarray([self._number[tag] for sentence_tags in tags for tag in sentence_tags])
            scores[_ranges(starts, stops)] = np.repeat(self._entities(labels, starts, stops), stops - starts)
        return [sentence_scores.tolist() for sentence_scores in np.split(scores, begins[1:-1])]

    def _outside(self) -> NDArray[np.float64]:
        """Return the probability (W,) of the label O for each word; 0 if there is no such label."""
        if "O" not in self._number:
            return np.zeros(len(self._rows))
        index = self._rows, self._words, self._number["O"]
        return np.minimum(self._forward[index] * self._backward[index], 1.0)

    def _entities(self, labels: Ints, starts: Ints, stops: Ints) -> NDArray[np.float64]:
        """Return the probability (S,) of entities at words `starts` to `stops` (S,), given all word labels (W,)."""
        rows, words = self._rows, self._words
        steps = self._moves[np.roll(labels, 1), labels] * self._local[rows, words, labels] / self._scale[rows, words]
        steps[starts] = self._forward[rows[starts], words[starts], labels[starts]]
        pairs = np.stack([starts, stops], axis=1).ravel()
        inside = np.multiply.reduceat(np.append(steps, 1.0), pairs)[::2]
        rows, words, labels = rows[stops - 1], words[stops - 1], labels[stops - 1]
        behind = np.minimum(words + 1, self._local.shape[1] - 1)
        rest = self._moves[labels] * self._local[rows, behind] * self._backward[rows, behind]
        ends = (rest * self._ends[labels]).sum(axis=1) / self._scale[rows, behind]
        last = words + 1 == self.lengths[rows]
        return np.minimum(inside * np.where(last, self._backward[rows, words, labels], ends), 1.0)

    def _sums_before(self, start: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return forward sums (E, L, C), normalised to 1 at each word, and their scales (E, L)."""
        forward, scale = np.empty_like(self._local), np.ones(self._local.shape[:2])
        now = start * self._local[:, 0]
        for word in range(self._local.shape[1]):
            if word:
                inside = (word < self.lengths)[:, np.newaxis]
                now = np.where(inside, (now @ self._moves) * self._local[:, word], now)
            scale[:, word] = now.sum(axis=1)
            now = now / scale[:, word, np.newaxis]
            forward[:, word] = now
        return forward, scale

    def _sums_behind(self, end: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return backward sums (E, L, C); forward times backward is the marginal probability."""
        backward = np.empty_like(self._local)
        closed = end / (self._forward[:, -1] @ end)[:, np.newaxis]  # padding repeats the last sums of a sentence
        backward[:, -1] = now = closed
        for word in range(self._local.shape[1] - 1, 0, -1):
            inside = (word < self.lengths)[:, np.newaxis]
            moved = (self._local[:, word] * now) @ self._moves.T / self._scale[:, word, np.newaxis]
            backward[:, word - 1] = now = np.where(inside, moved, closed)
        return backward


def _ranges(starts: Ints, stops: Ints) -> Ints:
    """Concatenate the ranges `starts[i]` to `stops[i]`."""
    sizes = stops - starts
    return np.arange(sizes.sum()) + np.repeat(starts - np.cumsum(sizes) + sizes, sizes)
