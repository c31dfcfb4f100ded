"""Embeddings that a generator and a discriminator have in common."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from domainbert.base.errors import DomainbertError
from domainbert.encoders.base import Encoder
from domainbert.pretraining.objective import Built

_DISENTANGLED = ("word", "position")


class DeltaEmbedding(nn.Embedding):
    """Embeddings that are those of another model, which do not learn from here, and a difference of their own, which
    does: sg(E_G) + delta (He et al. 2021, DeBERTaV3, section 3.3). Its `weight` is the difference.

    At first its rows are those of `own`. `base` is no part of this module: the other model learns and saves it.
    """

    def __init__(self, own: nn.Embedding, base: nn.Embedding) -> None:
        super().__init__(own.num_embeddings, own.embedding_dim, _weight=(own.weight - base.weight).detach())
        self._base = [base]

    @property
    def base(self) -> nn.Embedding:
        """The other model's."""
        return self._base[0]

    def forward(self, input: Tensor) -> Tensor:
        """Ids of any shape -> (..., E)."""
        return super().forward(input) + functional.embedding(input, self.base.weight.detach())

    def joined(self) -> nn.Embedding:
        """The sum, as embeddings like any other."""
        whole = (self.base.weight + self.weight).detach()
        return nn.Embedding(self.num_embeddings, self.embedding_dim, _weight=whole)


def share(model: Built, generator: Built, how: str, new: bool) -> None:
    """Let two models share embeddings, `es` or `gdes`; those of a `new` generator start as the model's.

    Of one family these are all `Encoder.embedding_parts` of the same shape (with `gdes` those of words and positions,
    as in the authors' code), of two families the words alone.

    Raises:
        DomainbertError: those of words have other shapes; or `es`, and the models come from folders that did not.
    """
    for name, (ours, theirs) in _common(model, generator).items():
        if new:
            theirs.load_state_dict(ours.state_dict())
        if how == "gdes" and name in _DISENTANGLED and isinstance(ours, nn.Embedding):
            _put(model.model.encoder, ours, DeltaEmbedding(ours, theirs))
            model.model.borrowed = (*model.model.borrowed, theirs.weight)
        if how == "es":
            _check_same(ours, theirs)
            for own, parameter in ours.named_parameters():
                setattr(theirs, own, parameter)


def join(encoder: Encoder) -> None:
    """Put an encoder's embeddings in place of its differences: the end of training with them."""
    for part in list(encoder.modules()):
        if isinstance(part, DeltaEmbedding):
            _put(encoder, part, part.joined())


def _common(model: Built, generator: Built) -> dict[str, tuple[nn.Module, Any]]:
    ours, theirs = (one.model.encoder.embedding_parts() for one in (model, generator))
    shapes = [_shapes(parts["word"]) for parts in (ours, theirs)]
    if shapes[0] != shapes[1]:
        raise DomainbertError(
            f"sharing: the word embeddings of the generator have shape {shapes[1][0]}, the encoder's "
            f"{shapes[0][0]}; expected the same, or sharing: none"
        )
    names = ours.keys() & theirs.keys() if model.config.model_type == generator.config.model_type else {"word"}
    same = [name for name in ours if name in names and _shapes(ours[name]) == _shapes(theirs[name])]
    return {name: (ours[name], theirs[name]) for name in same}


def _shapes(part: nn.Module) -> list[tuple[int, ...]]:
    return [tuple(parameter.shape) for parameter in part.parameters()]


def _check_same(ours: nn.Module, theirs: nn.Module) -> None:
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        if not torch.equal(one, other):
            raise DomainbertError(
                "sharing: es, but generator and discriminator in the folder to go on from have different "
                "embeddings; expected gdes or none, as they were trained"
            )


def _put(encoder: Encoder, old: nn.Module, new: nn.Module) -> None:
    name = next(name for name, part in encoder.named_modules() if part is old)
    parent, _, own = name.rpartition(".")
    setattr(encoder.get_submodule(parent), own, new.train(old.training))
