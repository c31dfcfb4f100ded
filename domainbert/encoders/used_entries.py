"""Trains word embeddings only for the vocabulary entries that occur."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from domainbert.encoders.heads import EncoderWithHead


class UsedEntries:
    """Removes the word embeddings of vocabulary entries that do not occur in the data from a model, until `restore`.

    An entry that never occurs has no gradient, moments of 0 and, because embeddings have no weight decay, a constant
    value. So the result is the same, but each step computes a smaller vocabulary: a labelled set of 5,000 sentences
    contains 8,000 of the 30,522 entries of a general vocabulary, and word embeddings are most of a small model.

    Args:
        model: its word embeddings are replaced by the rows of the entries that occur.
        ids: ids of the entries that occur, in any shape, with repetitions.

    Attributes:
        row: (vocab_size,) row of each entry in the smaller table; -1 for an entry that does not occur.
        name: name of the word embeddings among the model's parameters.
    """

    def __init__(self, model: EncoderWithHead, ids: Tensor) -> None:
        embeddings = model.encoder.input_embeddings
        self._all, self._ids = embeddings.weight.detach(), ids.unique()
        self.name = next(name for name, parameter in model.named_parameters() if parameter is embeddings.weight)
        self.row = torch.full((len(self._all),), -1)
        self.row[self._ids] = torch.arange(len(self._ids))
        embeddings.weight = nn.Parameter(self._all[self._ids], embeddings.weight.requires_grad)

    def all_embeddings(self, used: Tensor) -> Tensor:
        """Return the embeddings of all entries (vocab_size, D) on the CPU; `used` has the entries that occur."""
        embeddings = self._all.to("cpu", copy=True)
        embeddings[self._ids] = used.detach().to("cpu", embeddings.dtype)
        return embeddings

    def used_embeddings(self, embeddings: Tensor) -> Tensor:
        """Return the rows of `embeddings` (vocab_size, D) of the entries that occur; keep all for `restore`."""
        self._all = embeddings.detach()
        return self._all[self._ids.to(embeddings.device)]

    def restore_weights(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the weights of the model by name, in which the word embeddings of all entries, on the CPU, replace
        the embeddings of the used entries."""
        return {**weights, self.name: self.all_embeddings(weights[self.name])}

    def restore(self, model: EncoderWithHead) -> None:
        """Put the embeddings of all entries back into the model."""
        embeddings = model.encoder.input_embeddings
        weight = embeddings.weight
        embeddings.weight = nn.Parameter(self.all_embeddings(weight).to(weight.device), weight.requires_grad)
