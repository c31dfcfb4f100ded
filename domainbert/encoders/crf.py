"""A linear-chain conditional random field over the words of sentences (Lafferty et al. 2001; Lample et al. 2016,
arXiv:1603.01360, section 2.2), for all sentences of a batch at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from domainbert.encoders.names import NameMap

CRF_NAMES: NameMap = {f"head.crf.{name}": (f"crf.{name}",) for name in ("transitions", "start", "end")}
"""The CRF of a token head, which Hugging Face's classes do not know and leave out."""

NEVER = -1e4
"""A score that no path takes; finite, so that differences of scores stay numbers."""


class Crf(nn.Module):
    """Scores of label sequences: emissions plus transitions."""

    def __init__(self, num_labels: int) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(num_labels, num_labels))
        self.start = nn.Parameter(torch.zeros(num_labels))
        self.end = nn.Parameter(torch.zeros(num_labels))
        self._allowed: dict[torch.device, tuple[Tensor, Tensor, Tensor]] = {}
        self.constrain(["O"] * num_labels)

    def constrain(self, labels: Sequence[str]) -> None:
        """Never take what IOB2 forbids, or BIOES, whose labels are those with an S- among them.

        I-X and E-X follow only B-X or I-X, and begin no sentence. In BIOES they have to follow them, and a sentence
        ends with neither B-X nor I-X.
        """
        closes = any(label.startswith("S-") for label in labels)
        continues = [label[:2] in ("I-", "E-") for label in labels]
        is_open = [closes and label[:2] in ("B-", "I-") for label in labels]

        def follows(a: int, b: int) -> bool:
            if continues[b]:
                return labels[a] in ("B-" + labels[b][2:], "I-" + labels[b][2:])
            return not is_open[a]

        numbers = range(len(labels))
        # no buffers: torch cannot load a sharded module that has one
        self._allowed = {}
        self.allowed = torch.tensor([[follows(a, b) for b in numbers] for a in numbers])
        self.allowed_first = torch.tensor([not one for one in continues])
        self.allowed_last = torch.tensor([not one for one in is_open])

    def _allowed_on(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """`allowed_first`, `allowed` and `allowed_last` on a device; copied there once."""
        if device not in self._allowed:
            masks = (self.allowed_first, self.allowed, self.allowed_last)
            first, allowed, last = (mask.to(device) for mask in masks)
            self._allowed[device] = first, allowed, last
        return self._allowed[device]

    def allows(self, labels: Tensor, lengths: Tensor) -> Tensor:
        """Whether a label sequence of each sentence takes no step that `constrain` forbids: (E, L), (E,) -> (E,)."""
        first, allowed, last = self._allowed_on(labels.device)
        ended = ~_inside(lengths, labels.shape[1])[:, 1:]  # (E, L - 1)
        steps = (allowed[labels[:, :-1], labels[:, 1:]] | ended).all(dim=1)
        return first[labels[:, 0]] & steps & last[_last(labels, lengths)]

    def reorder(self, order: Tensor) -> None:
        """Put the labels in another order, in place: label i is what label `order[i]` was; `order` is (C,)."""
        with torch.no_grad():
            for parameter in (self.start, self.end):
                parameter.copy_(parameter[order])
            self.transitions.copy_(self.transitions[order][:, order])
        places = order.to(self.allowed.device)
        self._allowed = {}
        self.allowed, self.allowed_first = self.allowed[places][:, places], self.allowed_first[places]
        self.allowed_last = self.allowed_last[places]

    def log_partition(self, emissions: Tensor, lengths: Tensor) -> Tensor:
        """The logarithm of the summed exponential scores of all label sequences: (E, L, C), (E,) -> (E,)."""
        start, moves, end = self.scores(emissions)
        alpha = start + emissions[:, 0]
        for step in range(1, emissions.shape[1]):
            forward = torch.logsumexp(alpha.unsqueeze(2) + moves, dim=1) + emissions[:, step]
            alpha = torch.where((step < lengths).unsqueeze(1), forward, alpha)
        return torch.logsumexp(alpha + end, dim=1)

    def score(self, emissions: Tensor, labels: Tensor, lengths: Tensor) -> Tensor:
        """The score of one label sequence of each sentence: (E, L, C), (E, L), (E,) -> (E,)."""
        start, moves, end = self.scores(emissions)
        real = _inside(lengths, emissions.shape[1])
        summed = (emissions.gather(2, labels.unsqueeze(2)).squeeze(2) * real).sum(dim=1)
        summed = summed + (moves[labels[:, :-1], labels[:, 1:]] * real[:, 1:]).sum(dim=1)
        return summed + start[labels[:, 0]] + end[_last(labels, lengths)]

    def decode(self, emissions: Tensor, lengths: Tensor) -> Tensor:
        """The best label sequence of each sentence (Viterbi), (E, L); 0 behind its end."""
        # in NumPy: a text may have a million words, and a step of one sentence takes torch four times as long
        start, moves, end = (scores.detach().cpu().numpy() for scores in self.scores(emissions))
        local = emissions.detach().transpose(0, 1).cpu().numpy()  # (L, E, C)
        inside = _inside(lengths, len(local)).T.cpu().numpy()
        best, path = np.empty(local.shape, local.dtype), np.empty(local.shape[:2], dtype=np.int64)
        best[0] = start + local[0]
        for step in range(1, len(local)):
            scores = best[step - 1].T[:, :, np.newaxis] + moves[:, np.newaxis]  # (from, E, to)
            best[step] = np.where(inside[step, :, np.newaxis], scores.max(axis=0) + local[step], best[step - 1])
        path[-1] = (best[-1] + end).argmax(axis=1)
        for step in range(len(local) - 1, 0, -1):
            source = (best[step - 1] + moves.T[path[step]]).argmax(axis=1)
            path[step - 1] = np.where(inside[step], source, path[step])
        return torch.from_numpy((path * inside).T).to(emissions.device)

    def log_marginals(self, emissions: Tensor, lengths: Tensor) -> Tensor:
        """Log-probability of each label of each word over all sequences, (E, L, C); 0 behind a sentence's end.

        By the forward-backward algorithm (Rabiner 1989, section III.A), in logarithms, so that a student learns through
        it even where a probability is next to nothing.
        """
        start, moves, end = self.scores(emissions)
        before = [start + emissions[:, 0]]
        for step in range(1, emissions.shape[1]):
            before.append(torch.logsumexp(before[-1].unsqueeze(2) + moves, dim=1) + emissions[:, step])
        behind = [end.expand_as(before[0])]
        for step in range(emissions.shape[1] - 1, 0, -1):
            further = torch.logsumexp(moves + (emissions[:, step] + behind[-1]).unsqueeze(1), dim=2)
            behind.append(torch.where((step < lengths).unsqueeze(1), further, end))
        joint = torch.stack(before, dim=1) + torch.stack(behind[::-1], dim=1)
        return torch.log_softmax(joint, dim=2) * _inside(lengths, emissions.shape[1]).unsqueeze(2)

    def scores(self, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Scores of a first label (C,), of each label behind another one (C, C), and of a last label (C,).

        What `constrain` forbids has one that no path takes. They are of the device and the type of `like`.
        """
        scores = (self.start, self.transitions, self.end)
        masked = zip(scores, self._allowed_on(like.device), strict=True)
        start, moves, end = (values.to(like).masked_fill(~mask, NEVER) for values, mask in masked)
        return start, moves, end


def _inside(lengths: Tensor, longest: int) -> Tensor:
    """Whether a place is one of its sentence: (E,) -> (E, L)."""
    return torch.arange(longest, device=lengths.device) < lengths.unsqueeze(1)


def _last(labels: Tensor, lengths: Tensor) -> Tensor:
    """The label of each sentence's last word, or the first label of an empty sentence: (E, L), (E,) -> (E,)."""
    return labels.gather(1, (lengths - 1).clamp(min=0).unsqueeze(1)).squeeze(1)


class SizedGrid:
    """The words of a packed batch as sentences (E, L) whose sizes are known, so that a GPU need not be waited for.

    Args:
        example: (N,) the sentence of each position that the head reads.
        outputs: (N,) the word it decides, or -1.
        size: E; a sentence without words has a row of length 0.
        longest: L, words of the longest sentence at least.
    """

    def __init__(self, example: Tensor, outputs: Tensor, size: int, longest: int) -> None:
        self.shape, decides = (size, longest), outputs >= 0
        self.places = example, outputs.where(decides, longest)  # other positions go to a column that is cut off
        self.lengths = example.new_zeros(size).index_add(0, example, decides.long())

    def fill(self, values: Tensor) -> Tensor:
        """Values (N, ...) of positions as (E, L, ...); 0 where a sentence has ended."""
        size, longest = self.shape
        filled = values.new_zeros(size, longest + 1, *values.shape[1:])
        return filled.index_put(self.places, values)[:, :longest]


class WordGrid:
    """The words of a packed batch as sentences (E, L), whatever rows and windows they stand in.

    Args:
        example: (N,) the sentence of each position that the head reads.
        outputs: (N,) the word it decides, or -1.
    """

    def __init__(self, example: Tensor, outputs: Tensor) -> None:
        decides = (outputs >= 0).nonzero().flatten()
        rank = example[decides] * (int(outputs.max()) + 1) + outputs[decides]
        self.positions = decides[rank.argsort()]
        """(words,) places among the N, by sentence and word."""
        counts = torch.bincount(example[decides])
        present = counts > 0  # a sentence without words has no row
        self.lengths = counts[present]
        row = (present.cumsum(0) - 1)[example[self.positions]]
        self.places = row, outputs[self.positions]

    def fill(self, values: Tensor) -> Tensor:
        """Values (N, ...) of positions as (E, L, ...); 0 where a sentence has ended."""
        filled = values.new_zeros(len(self.lengths), int(self.lengths.max()), *values.shape[1:])
        return filled.index_put(self.places, values[self.positions])

    def put_back(self, filled: Tensor, values: Tensor) -> Tensor:
        """`values` (N, ...) with those of the words taken from `filled` (E, L, ...)."""
        return values.index_put((self.positions,), filled[self.places].to(values.dtype))


def crf_of(head: nn.Module) -> Crf | None:
    """The CRF of a head, if it has one."""
    found = getattr(head, "crf", None)
    return found if isinstance(found, Crf) else None


def label_logits(head: nn.Module, logits: Tensor, example: Tensor, outputs: Tensor) -> Tensor:
    """Logits (N, C) whose softmax is a model's opinion of each word: those of a linear head; a CRF's log-marginals.

    `example` and `outputs` are those of a `WordGrid`.
    """
    crf = crf_of(head)
    return logits if crf is None else word_marginals(crf, logits, example, outputs)


def word_marginals(crf: Crf, logits: Tensor, example: Tensor, outputs: Tensor) -> Tensor:
    """Logits (N, C) as a CRF's log-marginals of the words that they decide; `example` and `outputs` as above."""
    if not bool((outputs >= 0).any()):
        return logits
    sentences = WordGrid(example, outputs)
    return sentences.put_back(crf.log_marginals(sentences.fill(logits.float()), sentences.lengths), logits.float())
