"""Linear-chain conditional random field over the words of sentences, in batches (Lafferty et al. 2001; Lample et al.
2016, arXiv:1603.01360, section 2.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from domainbert.encoders.config import require
from domainbert.encoders.names import NameMap

CRF_NAMES: NameMap = {f"head.crf.{name}": (f"crf.{name}",) for name in ("transitions", "start", "end")}
"""Names of a CRF's parameters in a model folder; Hugging Face's classes ignore them."""

_MAX_LABELS = 4_000  # the transitions are a table of labels by labels
_BLOCK = 1_024  # places of a long sequence that are computed one after the other
FORBIDDEN_SCORE = -1e4
"""Score of a forbidden step; finite, so that differences of scores are numbers."""


class Crf(nn.Module):
    """Scores of label sequences: emissions plus transitions.

    Shapes: E sentences, L words of the longest one, C labels. `lengths` (E,) are the numbers of words.
    """

    def __init__(self, num_labels: int) -> None:
        super().__init__()
        require(
            num_labels <= _MAX_LABELS, found=f"{num_labels:,} labels", expected=f"at most {_MAX_LABELS:,} for a CRF"
        )
        self.transitions = nn.Parameter(torch.zeros(num_labels, num_labels))
        self.start = nn.Parameter(torch.zeros(num_labels))
        self.end = nn.Parameter(torch.zeros(num_labels))
        self._allowed: dict[torch.device, tuple[Tensor, Tensor, Tensor]] = {}
        self.constrain(["O"] * num_labels)  # allows all label sequences

    def constrain(self, labels: Sequence[str]) -> None:
        """Forbid label sequences that are invalid in IOB2, or in BIOES if a label begins with S-.

        I-X and E-X follow only B-X or I-X, and cannot begin a sentence. In BIOES, B-X and I-X must be followed by I-X
        or E-X, and cannot end a sentence.
        """
        is_bioes = any(label.startswith("S-") for label in labels)
        continues = [label[:2] in ("I-", "E-") for label in labels]
        is_open = [is_bioes and label[:2] in ("B-", "I-") for label in labels]

        def may_follow(label: int, previous: int) -> bool:
            """Return whether label number `label` is allowed directly after label number `previous`."""
            if continues[label]:
                return labels[previous] in ("B-" + labels[label][2:], "I-" + labels[label][2:])
            return not is_open[previous]

        indices = range(len(labels))
        self._allowed = {}  # clears the cache of `_allowed_on`
        # no buffers: torch cannot load a sharded module with buffers
        self.allowed = torch.tensor([[may_follow(label, previous) for label in indices] for previous in indices])
        self.allowed_first = torch.tensor([not flag for flag in continues])
        self.allowed_last = torch.tensor([not flag for flag in is_open])

    def _allowed_on(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        if device not in self._allowed:
            masks = (self.allowed_first, self.allowed, self.allowed_last)
            first, allowed, last = (mask.to(device) for mask in masks)
            self._allowed[device] = first, allowed, last
        return self._allowed[device]

    def allows(self, labels: Tensor, lengths: Tensor) -> Tensor:
        """Return whether the label sequence of each sentence is valid (see `constrain`): (E, L), (E,) -> (E,)."""
        first, allowed, last = self._allowed_on(labels.device)
        ended = ~_word_mask(lengths, labels.shape[1])[:, 1:]  # (E, L - 1), true for steps beyond the last word
        steps = (allowed[labels[:, :-1], labels[:, 1:]] | ended).all(dim=1)
        return first[labels[:, 0]] & steps & last[_last_labels(labels, lengths)]

    def reorder(self, order: Tensor) -> None:
        """Reorder the labels in place: `order` (C,) has the old index of each label."""
        with torch.no_grad():
            for parameter in (self.start, self.end):
                parameter.copy_(parameter[order])
            self.transitions.copy_(self.transitions[order][:, order])
        order = order.to(self.allowed.device)
        self._allowed = {}  # clears the cache of `_allowed_on`
        self.allowed, self.allowed_first = self.allowed[order][:, order], self.allowed_first[order]
        self.allowed_last = self.allowed_last[order]

    def log_partition(self, emissions: Tensor, lengths: Tensor) -> Tensor:
        """Return the log-sum-exp of the scores of all label sequences: (E, L, C), (E,) -> (E,)."""
        start, moves, end = self.scores(emissions)
        alpha = start + emissions[:, 0]  # (E, C), over all label sequences so far, by their last label
        for step in range(1, emissions.shape[1]):
            forward = torch.logsumexp(alpha.unsqueeze(2) + moves, dim=1) + emissions[:, step]
            alpha = torch.where((step < lengths).unsqueeze(1), forward, alpha)  # unchanged after the last word
        return torch.logsumexp(alpha + end, dim=1)

    def score(self, emissions: Tensor, labels: Tensor, lengths: Tensor) -> Tensor:
        """Return the score of one label sequence per sentence: (E, L, C), (E, L), (E,) -> (E,)."""
        start, moves, end = self.scores(emissions)
        inside = _word_mask(lengths, emissions.shape[1])
        scores_of_words = emissions.gather(2, labels.unsqueeze(2)).squeeze(2)
        scores_of_steps = moves[labels[:, :-1], labels[:, 1:]]
        summed = (scores_of_words * inside).sum(dim=1) + (scores_of_steps * inside[:, 1:]).sum(dim=1)
        return summed + start[labels[:, 0]] + end[_last_labels(labels, lengths)]

    def decode(self, emissions: Tensor, lengths: Tensor) -> Tensor:
        """Return the best label sequence of each sentence (Viterbi): (E, L, C), (E,) -> (E, L), padded with 0."""
        # in NumPy: a text may have a million words, and a step of one sentence takes four times as long in torch
        start, moves, end = (scores.detach().cpu().numpy() for scores in self.scores(emissions))
        scores_of_words = emissions.detach().transpose(0, 1).cpu().numpy()  # (L, E, C)
        inside = _word_mask(lengths, len(scores_of_words)).T.cpu().numpy()  # (L, E)

        def next_scores(before: NDArray[Any], scores: NDArray[Any]) -> NDArray[Any]:
            best = (before[:, :, np.newaxis] + moves).max(axis=1) + scores
            return best - best.max(axis=1, keepdims=True)  # sums over a long text would lose digits

        def previous_labels(labels: NDArray[Any], scores_before: NDArray[Any]) -> NDArray[Any]:
            return (scores_before + moves.T[labels]).argmax(axis=1)

        # (L, E, C) score of the best label sequence that ends at a word with a label, relative to the best label
        best = scan(next_scores, start + scores_of_words[0], inside[1:, :, np.newaxis], scores_of_words[1:])
        # the labels of the best sequence, from word L back to word 1: [:0:-1] are L to 2, [-2::-1] are L - 1 to 1
        last_labels = (best[-1] + end).argmax(axis=1)
        path = scan(previous_labels, last_labels, inside[:0:-1], best[-2::-1])[::-1]
        return torch.from_numpy((path * inside).T).to(emissions.device)

    def log_marginals(self, emissions: Tensor, lengths: Tensor) -> Tensor:
        """Return the log-probabilities of the labels of each word: (E, L, C), (E,) -> (E, L, C), padded with 0.

        Forward-backward algorithm (Rabiner 1989, section III.A) in log space, so that gradients do not vanish for small
        probabilities in distillation.
        """
        start, moves, end = self.scores(emissions)
        # for each word and its label (E, C), log-sum-exp over all beginnings of a label sequence up to the word ...
        forward = [start + emissions[:, 0]]
        for step in range(1, emissions.shape[1]):
            forward.append(torch.logsumexp(forward[-1].unsqueeze(2) + moves, dim=1) + emissions[:, step])
        # ... and over all ends after the word, from the last word to the first
        backward = [end.expand_as(forward[0])]
        for step in range(emissions.shape[1] - 1, 0, -1):
            previous = torch.logsumexp(moves + (emissions[:, step] + backward[-1]).unsqueeze(1), dim=2)
            backward.append(torch.where((step < lengths).unsqueeze(1), previous, end))
        joint = torch.stack(forward, dim=1) + torch.stack(backward[::-1], dim=1)
        return torch.log_softmax(joint, dim=2) * _word_mask(lengths, emissions.shape[1]).unsqueeze(2)

    def scores(self, emissions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return start, transition and end scores, (C,), (C, C) and (C,), with the device and type of `emissions`.

        Steps that `constrain` forbids have the score `FORBIDDEN_SCORE`.
        """
        scores = (self.start, self.transitions, self.end)
        masked = zip(scores, self._allowed_on(emissions.device), strict=True)
        start, moves, end = (values.to(emissions).masked_fill(~mask, FORBIDDEN_SCORE) for values, mask in masked)
        return start, moves, end


def scan(step: Callable[..., Any], first: NDArray[Any], inside: NDArray[np.bool_], *inputs: NDArray[Any]) -> Any:
    """Return the states (L, E, ...) of E recursions: `first` (E, ...), then L - 1 times `step(state, *inputs)`. The
    inputs are (L - 1, E, ...); the state stays unchanged where `inside` (L - 1, E, ...) is false.

    As a step of a hundred rows takes as long as a step of one, a long sequence (E = 1) is divided into blocks that are
    computed side by side. A block begins with a guess, and is computed again, from the last state of the block before,
    up to the place where its states no longer change. The result is the same as without blocks.
    """
    states = np.full((len(inside) + 1, *first.shape), -1, first.dtype)  # -1: no state
    states[0] = first
    num_blocks = len(inside) // _BLOCK if len(first) == 1 else 0
    in_blocks = (array[: num_blocks * _BLOCK] for array in (states[1:], inside, *inputs))  # the rest follows below
    # (blocks, places of a block, ...) each, as views, so that `states` is filled
    block_states, *given = (array.reshape(num_blocks, _BLOCK, *array.shape[2:]) for array in in_blocks)
    active, state = np.arange(num_blocks), first.repeat(num_blocks, axis=0)  # blocks to compute; the guess is `first`
    while len(active):
        for place in range(_BLOCK):
            is_inside, *values = (array[active, place] for array in given)
            state = np.where(is_inside, step(state, *values), state)
            changed = (state != block_states[active, place]).any(axis=tuple(range(1, state.ndim)))
            active, state = active[changed], state[changed]
            block_states[active, place] = state
        # blocks that changed up to their last place: the blocks after them began with another state
        active = active[active + 1 < num_blocks] + 1
        state = block_states[active - 1, -1]
    for place in range(num_blocks * _BLOCK, len(inside)):
        values = [array[place] for array in inputs]
        states[place + 1] = np.where(inside[place], step(states[place], *values), states[place])
    return states


def _word_mask(lengths: Tensor, longest: int) -> Tensor:
    """Return the mask of the words of each sentence, whose longest has L = `longest` words: (E,) -> (E, L)."""
    return torch.arange(longest, device=lengths.device) < lengths.unsqueeze(1)


def _last_labels(labels: Tensor, lengths: Tensor) -> Tensor:
    """Return the label of the last word of each sentence, or the first entry for an empty one: (E, L), (E,) -> (E,)."""
    return labels.gather(1, (lengths - 1).clamp(min=0).unsqueeze(1)).squeeze(1)


class SizedGrid:
    """Groups the words of a packed batch by sentence (E, L); the given sizes avoid a synchronisation with a GPU.

    Args:
        example: (N,) index of the sentence of each position that the head reads.
        outputs: (N,) index of the word that the position predicts, or -1.
        size: E; a sentence without words has a row of length 0.
        longest: L, an upper limit of the words of a sentence.
    """

    def __init__(self, example: Tensor, outputs: Tensor, size: int, longest: int) -> None:
        self.shape = (size, longest)
        predicts = outputs >= 0
        self.indices = example, outputs.where(predicts, longest)  # other positions go to an extra column
        self.lengths = example.new_zeros(size).index_add(0, example, predicts.long())

    def fill(self, values: Tensor) -> Tensor:
        """Return the values of positions, arranged by sentence and padded with 0: (N, ...) -> (E, L, ...)."""
        size, longest = self.shape
        filled = values.new_zeros(size, longest + 1, *values.shape[1:])
        return filled.index_put(self.indices, values)[:, :longest]


class WordGrid:
    """Groups the words of a packed batch by sentence (E, L), independent of rows and windows.

    Args:
        example: (N,) index of the sentence of each position that the head reads.
        outputs: (N,) index of the word that the position predicts, or -1.
    """

    def __init__(self, example: Tensor, outputs: Tensor) -> None:
        predicts = (outputs >= 0).nonzero().flatten()
        # sorts by sentence, then by the index of the word in it
        sort_keys = example[predicts] * (int(outputs.max()) + 1) + outputs[predicts]
        self.positions = predicts[sort_keys.argsort()]
        """(words,) indices into the N positions, by sentence and word."""
        counts = torch.bincount(example[predicts])
        has_words = counts > 0
        self.lengths = counts[has_words]
        row_of_sentence = has_words.cumsum(0) - 1  # a sentence without words has no row
        self.indices = row_of_sentence[example[self.positions]], outputs[self.positions]

    def fill(self, values: Tensor) -> Tensor:
        """Return the values of positions, arranged by sentence and padded with 0: (N, ...) -> (E, L, ...)."""
        filled = values.new_zeros(len(self.lengths), int(self.lengths.max()), *values.shape[1:])
        return filled.index_put(self.indices, values[self.positions])

    def scatter(self, filled: Tensor, values: Tensor) -> Tensor:
        """Return a copy of `values` (N, ...) with the values of the words taken from `filled` (E, L, ...)."""
        return values.index_put((self.positions,), filled[self.indices].to(values.dtype))


def crf_of(head: nn.Module) -> Crf | None:
    """Return the CRF of a head; None if it has none."""
    crf = getattr(head, "crf", None)
    return crf if isinstance(crf, Crf) else None


def label_logits(head: nn.Module, logits: Tensor, example: Tensor, outputs: Tensor) -> Tensor:
    """Return logits (N, C) whose softmax is the label distribution: unchanged for a linear head, marginals for a CRF.

    `example` (N,) is the index of the sentence of a position; `outputs` (N,) the index of the word it predicts, or -1.
    """
    crf = crf_of(head)
    return logits if crf is None else word_marginals(crf, logits, example, outputs)


def word_marginals(crf: Crf, logits: Tensor, example: Tensor, outputs: Tensor) -> Tensor:
    """Return the logits (N, C); the logits of words are replaced by a CRF's log-marginals.

    `example` (N,) is the index of the sentence of a position; `outputs` (N,) the index of the word it predicts, or -1.
    """
    if not bool((outputs >= 0).any()):
        return logits
    sentences = WordGrid(example, outputs)
    return sentences.scatter(crf.log_marginals(sentences.fill(logits.float()), sentences.lengths), logits.float())
