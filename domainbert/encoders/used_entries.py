"""Word embeddings of those vocabulary entries alone that a training meets."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from domainbert.encoders.heads import EncoderWithHead


class UsedEntries:
    """Takes the word embeddings of all other entries out of a model, until its weights are saved.

    An entry that never occurs has no gradient; its moments stay 0 and, as embeddings have no weight decay, it stays as
    it is. So the outcome is the same, and gradient, norm and optimiser step are those of a smaller vocabulary: of the
    30,522 entries of a general one, a labelled set of 5,000 sentences has 8,000, and they are most of a small model.

    Args:
        model: its word embeddings are replaced by those of the entries that occur.
        ids: which entries occur, in any shape and as often as they like.

    Attributes:
        row: (vocab_size,) where an entry stands among those that occur; -1 if it is none of them.
    """

    def __init__(self, model: EncoderWithHead, ids: Tensor) -> None:
        embeddings = model.encoder.input_embeddings
        self._whole, self._ids = embeddings.weight.detach(), ids.unique()
        self._name = next(name for name, parameter in model.named_parameters() if parameter is embeddings.weight)
        self.row = torch.full((len(self._whole),), -1)
        self.row[self._ids] = torch.arange(len(self._ids))
        embeddings.weight = nn.Parameter(self._whole[self._ids], embeddings.weight.requires_grad)

    def put_back(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The model's weights by name, on the CPU, with the embeddings of all entries."""
        whole = self._whole.clone()
        whole[self._ids] = weights[self._name]
        return {**weights, self._name: whole}
