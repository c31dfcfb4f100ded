"""Probabilities of whole entities: the forward-backward algorithm with the labels of one segment held fast (Culotta and
McCallum 2004, "Confidence estimation for information extraction", section 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from domainbert.encoders.crf import Crf
from domainbert.tasks.claims import Claim, log_probability
from domainbert.tasks.ner.tags import goes_on, spans_from_tags


def entity_claims(field: Crf, labels: Sequence[str], tags: Sequence[str], batch: Mapping[str, Any]) -> list[Claim]:
    """The entities in the tags of the one sentence of a batch, each with the logarithm of `Lattice.probability`."""

    def strength(start: int, stop: int, logits: Tensor) -> Tensor:
        allowed = {word: [label == tags[word] for label in labels] for word in range(start, stop)}
        if stop < len(tags):  # the entity ends there
            allowed[stop] = [not goes_on(tags[stop - 1], label) for label in labels]
        return log_probability(field, logits, batch, allowed)

    return [Claim(kind, partial(strength, start, stop), (start, stop)) for start, stop, kind in spans_from_tags(tags)]


class Lattice:
    """All label sequences of some sentences, with the probability of each under a CRF.

    Sums are scaled at every word, as in Rabiner (1989), section V.A, so that long sentences do not underflow.

    Args:
        field: the CRF; of a linear head `valid_field`, so that probabilities are among the valid sequences.
        emissions: (E, L, C) scores of labels; what stands behind a sentence's end is not read.
        lengths: (E,) words.
        labels: (C,) their names.
    """

    def __init__(self, field: Crf, emissions: Tensor, lengths: Tensor, labels: Sequence[str]) -> None:
        self.labels, self.lengths = tuple(labels), lengths.cpu().numpy()
        self._number = {label: number for number, label in enumerate(labels)}
        scores = emissions.detach().double().cpu()
        start, self._moves, end = (one.detach().exp().numpy() for one in field.scores(scores))
        self._local = (scores - scores.amax(dim=2, keepdim=True)).exp().numpy()  # (E, L, C)
        self._forward, self._scale = self._sums_before(start)
        self._backward = self._sums_behind(end)

    def of_words(self, row: int, tags: Sequence[str]) -> list[float]:
        """(words,) for the best tags of a sentence: the probability of the entity that a word is in, or that it is in
        none."""
        found = [0.0] * len(tags)
        if "O" in self._number:
            outside = row, slice(len(tags)), self._number["O"]
            found = np.minimum(self._forward[outside] * self._backward[outside], 1.0).tolist()
        for start, stop, _ in spans_from_tags(tags):
            found[start:stop] = [self.probability(row, start, tags[start:stop])] * (stop - start)
        return found

    def probability(self, row: int, start: int, tags: Sequence[str]) -> float:
        """The probability that the words of a sentence from `start` on have these tags, and that the entity ends there:
        that the next word does not go on with it."""
        labels = [self._number[tag] for tag in tags]
        value = self._forward[row, start, labels[0]]
        for word, (before, label) in enumerate(pairwise(labels), start + 1):
            value *= self._moves[before, label] * self._local[row, word, label] / self._scale[row, word]
        last, behind = labels[-1], start + len(labels)
        if behind == self.lengths[row]:
            return min(float(value * self._backward[row, behind - 1, last]), 1.0)
        ends = np.asarray([not goes_on(tags[-1], label) for label in self.labels])
        rest = self._moves[last] * self._local[row, behind] * self._backward[row, behind] / self._scale[row, behind]
        return min(float(value * rest[ends].sum()), 1.0)

    def _sums_before(self, start: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Sums over what stands before each label (E, L, C), each word's adding up to 1; and its scale (E, L)."""
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
        """Sums over what stands behind each label (E, L, C), by which those before it become probabilities."""
        backward = np.empty_like(self._local)
        closed = end / (self._forward[:, -1] @ end)[:, np.newaxis]  # a sentence keeps its last sums behind its end
        backward[:, -1] = now = closed
        for word in range(self._local.shape[1] - 1, 0, -1):
            inside = (word < self.lengths)[:, np.newaxis]
            moved = (self._local[:, word] * now) @ self._moves.T / self._scale[:, word, np.newaxis]
            backward[:, word - 1] = now = np.where(inside, moved, closed)
        return backward
