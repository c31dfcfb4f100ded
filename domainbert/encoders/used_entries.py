"""Word embeddings of those vocabulary entries alone that a training meets."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from domainbert.encoders.heads import EncoderWithHead


class UsedEntries:
    """Takes the word embeddings of all other entries out of a model, until `restore` or `put_back`.

    An entry that never occurs has no gradient; its moments stay 0 and, as embeddings have no weight decay, it stays as
    it is. So the outcome is the same, and gradient, norm and optimiser step are those of a smaller vocabulary: of the
    30,522 entries of a general one, a labelled set of 5,000 sentences has 8,000, and they are most of a small model.

    Args:
        model: its word embeddings are replaced by those of the entries that occur.
        ids: which entries occur, in any shape and as often as they like.

    Attributes:
        row: (vocab_size,) where an entry stands among those that occur; -1 if it is none of them.
        name: of the word embeddings among the model's parameters.
    """

    def __init__(self, model: EncoderWithHead, ids: Tensor) -> None:
        embeddings = model.encoder.input_embeddings
        self._whole, self._ids = embeddings.weight.detach(), ids.unique()
        self.name = next(name for name, parameter in model.named_parameters() if parameter is embeddings.weight)
        self.row = torch.full((len(self._whole),), -1)
        self.row[self._ids] = torch.arange(len(self._ids))
        embeddings.weight = nn.Parameter(self._whole[self._ids], embeddings.weight.requires_grad)

    def whole(self, used: Tensor) -> Tensor:
        """The embeddings of all entries (vocab_size, D) on the CPU, from those of the entries that occur."""
        whole = self._whole.to("cpu", copy=True)
        whole[self._ids] = used.detach().to("cpu", whole.dtype)
        return whole

    def used(self, whole: Tensor) -> Tensor:
        """The embeddings of the entries that occur, from those of all entries (vocab_size, D), which are kept."""
        self._whole = whole.detach()
        return self._whole[self._ids.to(whole.device)]

    def put_back(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The model's weights by name, on the CPU, with the embeddings of all entries."""
        return {**weights, self.name: self.whole(weights[self.name])}

    def restore(self, model: EncoderWithHead) -> None:
        """Put the embeddings of all entries back into the model."""
        embeddings = model.encoder.input_embeddings
        weight = embeddings.weight
        embeddings.weight = nn.Parameter(self.whole(weight).to(weight.device), weight.requires_grad)
