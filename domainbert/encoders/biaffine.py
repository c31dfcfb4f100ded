"""Biaffine head that scores dependency arcs and labels, in batches (Dozat and Manning 2017, arXiv:1611.01734, section
3.1)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from domainbert.encoders.layers import Dropout
from domainbert.encoders.names import NameMap

_PARTS = ("project.weight", "project.bias", "root", "arc", "label")
BIAFFINE_NAMES: NameMap = {f"head.{name}": (f"biaffine.{name}",) for name in _PARTS}
"""Names of the head's parameters in a model folder; Hugging Face's classes ignore them."""


class Biaffine(nn.Module):
    """Projects the states of words, and scores each word as the head of every other word.

    One linear layer computes four projections of a word, concatenated to P = 2 (A + L): dependent of an arc (A),
    dependent of a label (L), head of an arc (A), head of a label (L). Activation (ELU) and initialisation (Xavier) are
    as in AllenNLP's parser, which was used to fine-tune SciBERT. The projections of the root, head 0, are parameters.

    Args:
        hidden_size, num_labels: H and C.
        dropout: on states and on projections.
        arc_size, label_size: A and L; 100 each as in SciBERT's fine-tuning, 500 and 100 in the paper.
    """

    def __init__(
        self, hidden_size: int, num_labels: int, dropout: float, arc_size: int = 100, label_size: int = 100
    ) -> None:
        super().__init__()
        self.arc_size, self.label_size = arc_size, label_size
        self.dropout = Dropout(dropout)
        self.project = nn.Linear(hidden_size, 2 * (arc_size + label_size))
        self.root = nn.Parameter(torch.randn(arc_size + label_size))
        # + 1: weights of a bias, for the 1 that `_append_one` appends
        self.arc = nn.Parameter(torch.empty(arc_size + 1, arc_size))
        self.label = nn.Parameter(torch.empty(num_labels, label_size + 1, label_size + 1))
        for weight in (self.project.weight, self.arc, self.label):
            nn.init.xavier_uniform_(weight)
        nn.init.zeros_(self.project.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """Project states: (N, H) -> (N, P)."""
        return self.dropout(functional.elu(self.project(self.dropout(hidden))))

    def arc_scores(self, words: Tensor, lengths: Tensor) -> Tensor:
        """Return the score h_d U h_h + u h_h of each head h for each word d: (E, W, P), lengths (E,) -> (E, W, 1 + W).

        h_d and h_h are the projections of word and head for arcs; `arc` has U and u. Head 0 is the root. The score is
        -inf for the word itself and for positions after the end of the sentence.
        """
        dependents, _ = self._dependents(words)
        heads, _ = self._heads(words)
        scores = _append_one(dependents) @ self.arc @ heads.transpose(1, 2)
        head = torch.arange(heads.shape[1], device=words.device)  # numbers of heads; 0 is the root
        word = head[1:].unsqueeze(1)
        impossible = (head > lengths.view(-1, 1, 1)) | (head == word)  # (E, W, 1 + W)
        return scores.masked_fill(impossible, -torch.inf)

    def label_scores(self, words: Tensor, heads: Tensor, selected: Tensor) -> Tensor:
        """Return the label scores (M, C) of the arcs from `heads` (E, W) to M words, selected by a mask (E, W)."""
        _, dependents = self._dependents(words)
        _, all_heads = self._heads(words)
        chosen = all_heads.gather(1, heads.unsqueeze(2).expand(-1, -1, self.label_size))
        return torch.einsum(
            "mi,cij,mj->mc", _append_one(dependents[selected]), self.label, _append_one(chosen[selected])
        )

    def joint_scores(self, words: Tensor, lengths: Tensor) -> list[Tensor]:
        """Return joint log-probabilities of heads and labels: (E, W, P), lengths (E,) -> E tensors (W, 1 + W, C).

        Impossible heads have -inf. Sentences are computed one by one, because in a batch each would take the memory of
        the longest one.
        """
        arcs = torch.log_softmax(self.arc_scores(words, lengths), dim=2)
        _, dependents = self._dependents(words)
        _, heads = self._heads(words)
        sentences = []
        for index, length in enumerate(lengths.tolist()):
            factors = _append_one(dependents[index, :length]), self.label, _append_one(heads[index, : 1 + length])
            labels = torch.log_softmax(torch.einsum("wi,cij,hj->whc", *factors), dim=2)
            sentences.append(arcs[index, :length, : 1 + length].unsqueeze(2) + labels)
        return sentences

    def reorder(self, order: Tensor) -> None:
        """Reorder the labels in place: `order` (C,) has the old index of each label."""
        with torch.no_grad():
            self.label.copy_(self.label[order])

    def _dependents(self, words: Tensor) -> tuple[Tensor, Tensor]:
        """Return the projections of the words as dependents, (E, W, A) for arcs and (E, W, L) for labels: the first
        half of `words` (E, W, P)."""
        return words[..., : self.arc_size], words[..., self.arc_size : len(self.root)]

    def _heads(self, words: Tensor) -> tuple[Tensor, Tensor]:
        """Return the projections of the root and the words as heads, (E, 1 + W, A) for arcs and (E, 1 + W, L) for
        labels. The root is a parameter; the words are the second half of `words` (E, W, P)."""
        root = self.root.to(words).expand(len(words), 1, -1)
        heads = torch.cat([root, words[..., len(self.root) :]], dim=1)
        return heads[..., : self.arc_size], heads[..., self.arc_size :]


def _append_one(values: Tensor) -> Tensor:
    # a product with a matrix then includes a bias
    return functional.pad(values, (0, 1), value=1.0)
