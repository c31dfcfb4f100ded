"""Probabilities of whole entities: constrained forward-backward (Culotta and McCallum 2004, "Confidence estimation for
information extraction", section 3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from domainbert.encoders.crf import Crf, scan
from domainbert.labelled.tag_schemes import continues_entity, spans_from_tags

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Lattice:
    """Forward-backward sums of a CRF over all label sequences of sentences.

    Sums are scaled at every word, as in Rabiner (1989), section V.A, so that long sentences do not underflow.

    Args:
        crf: the CRF of the head; for a linear head `uniform_crf`, which normalises over valid sequences.
        emissions: (E, L, C) scores of labels; padding after the end of a sentence is ignored.
        lengths: (E,) numbers of words.
        labels: (C,) names of labels.
    """

    def __init__(self, crf: Crf, emissions: Tensor, lengths: Tensor, labels: Sequence[str]) -> None:
        self.lengths: Ints = lengths.cpu().numpy()
        self._label_id = {label: index for index, label in enumerate(labels)}
        # (C, C) whether an entity with the first label ends if the second label follows
        self._ends = np.asarray([[not continues_entity(tag, following) for following in labels] for tag in labels])
        self._rows = np.repeat(np.arange(len(self.lengths)), self.lengths)  # (W,) index of each word's sentence
        # (W,) index of each word in its sentence
        self._words = _concat_ranges(np.zeros_like(self.lengths), self.lengths)
        scores = emissions.detach().to("cpu", torch.float64, copy=True)
        start, self._transitions, end = (part.detach().exp().numpy() for part in crf.scores(scores))
        # (E, L, C); the maximum is subtracted against overflow: a factor of all labels of a word cancels out
        self._emissions = scores.sub_(scores.amax(dim=2, keepdim=True)).exp_().numpy()
        word_index = np.arange(1, scores.shape[1])[:, np.newaxis, np.newaxis]
        self._inside = word_index < self.lengths[:, np.newaxis]  # (L - 1, E, 1); False after the end of a sentence
        self._forward, self._scale = self._forward_sums(start)
        self._backward = self._backward_sums(end)

    def scores(self, tags: Sequence[Sequence[str]]) -> list[list[float]]:
        """Return a probability for each word of all sentences (E lists), given their tags.

        A word in an entity has the probability of the entity: its words have these tags, and the next word does not
        continue it. A word outside of entities has the probability of the label O.
        """
        sentence_bounds = np.cumsum([0, *map(len, tags)])  # in the words of all sentences
        spans: list[tuple[int, int]] = []
        for sentence_start, sentence_tags in zip(sentence_bounds[:-1].tolist(), tags, strict=True):
            sentence_spans = spans_from_tags(sentence_tags)
            spans += [(sentence_start + start, sentence_start + stop) for start, stop, _ in sentence_spans]
        scores = self._outside_probabilities()
        if spans:
            starts, stops = np.asarray(spans).T
            labels = np.asarray([self._label_id[tag] for sentence_tags in tags for tag in sentence_tags])
            probabilities = self._entity_probabilities(labels, starts, stops)
            scores[_concat_ranges(starts, stops)] = np.repeat(probabilities, stops - starts)
        return [sentence_scores.tolist() for sentence_scores in np.split(scores, sentence_bounds[1:-1])]

    def _outside_probabilities(self) -> Floats:
        """Return the probability (W,) of the label O; 0 if there is no such label."""
        if "O" not in self._label_id:
            return np.zeros(len(self._rows))
        index = self._rows, self._words, self._label_id["O"]
        return np.minimum(self._forward[index] * self._backward[index], 1.0)

    def _entity_probabilities(self, labels: Ints, starts: Ints, stops: Ints) -> Floats:
        """Return the probability (S,) of entities at words `starts` to `stops` (S,), given all word labels (W,).

        It is the product of the forward sum at the first word, the factor of each further word, and the sum over all
        label sequences after the last word.
        """
        rows, words = self._rows, self._words
        # (W,) factor of each word, given the label of the word before; at the first word of an entity the forward sum
        factors = self._transitions[np.roll(labels, 1), labels] * self._emissions[rows, words, labels]
        factors /= self._scale[rows, words]
        factors[starts] = self._forward[rows[starts], words[starts], labels[starts]]
        # `reduceat` multiplies from each bound to the next: every second product is from a start to its stop. The
        # appended 1 makes the last stop a valid index
        bounds = np.stack([starts, stops], axis=1).ravel()  # start, stop, start, stop, ...
        inside = np.multiply.reduceat(np.append(factors, 1.0), bounds)[::2]  # (S,)
        last_words = stops - 1
        after = self._sums_after(rows[last_words], words[last_words], labels[last_words])
        return np.minimum(inside * after, 1.0)

    def _sums_after(self, rows: Ints, words: Ints, labels: Ints) -> Floats:
        """Return the sums (S,) over the label sequences after entities, from the place and label of the last words."""
        # the index of the next word, kept valid at the end of the longest sentence, where `after` is not used
        following = np.minimum(words + 1, self._emissions.shape[1] - 1)
        continuations = self._transitions[labels] * self._emissions[rows, following] * self._backward[rows, following]
        after = (continuations * self._ends[labels]).sum(axis=1) / self._scale[rows, following]
        is_last_in_sentence = words + 1 == self.lengths[rows]
        return np.where(is_last_in_sentence, self._backward[rows, words, labels], after)

    def _forward_sums(self, start: Floats) -> tuple[Floats, Floats]:
        """Return forward sums (E, L, C), normalised to 1 at each word, and their scales (E, L)."""

        def with_scale(sums: Floats) -> Floats:
            """Return a state of `scan`: the normalised sums, and their scale as the last column, (E, C + 1)."""
            scale = sums.sum(axis=1, keepdims=True)
            return np.concatenate([sums / scale, scale], axis=1)

        def step(before: Floats, emissions: Floats) -> Floats:
            sums_before = before[:, :-1, np.newaxis]
            # not `@`, whose last digit depends on the number of rows
            return with_scale((sums_before * self._transitions).sum(axis=1) * emissions)

        emissions = self._emissions.swapaxes(0, 1)
        states = scan(step, with_scale(start * emissions[0]), self._inside, emissions[1:]).swapaxes(0, 1)
        return states[..., :-1], states[..., -1]

    def _backward_sums(self, end: Floats) -> Floats:
        """Return backward sums (E, L, C); forward times backward is the marginal probability."""

        def step(after: Floats, emissions: Floats, forward: Floats) -> Floats:
            sums = ((emissions * after)[:, np.newaxis] * self._transitions).sum(axis=2)
            return sums / (sums * forward).sum(axis=1, keepdims=True)

        emissions, forward = self._emissions.swapaxes(0, 1), self._forward.swapaxes(0, 1)
        # in padding, `_forward` repeats the sums of the last word, so -1 is the last word of every sentence
        last = end / (forward[-1] @ end)[:, np.newaxis]
        # from word L back to word 1: [:0:-1] are L to 2, [-2::-1] are L - 1 to 1
        states = scan(step, last, self._inside[::-1], emissions[:0:-1], forward[-2::-1])
        return states[::-1].swapaxes(0, 1)


def _concat_ranges(starts: Ints, stops: Ints) -> Ints:
    sizes = stops - starts
    positions = np.cumsum(sizes) - sizes  # of each range in the result
    return np.arange(sizes.sum()) + np.repeat(starts - positions, sizes)
