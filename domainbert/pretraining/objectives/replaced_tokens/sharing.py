"""Sharing of embeddings between a generator and a discriminator."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from domainbert.base.errors import DomainbertError
from domainbert.encoders.base import Encoder
from domainbert.pretraining.objective import BuiltModel

_DISENTANGLED = ("word", "position")  # embeddings that have a separate difference with `gdes`


class DeltaEmbedding(nn.Embedding):
    """Another model's embeddings with stopped gradient, plus a trained difference: sg(E_G) + delta (He et al. 2021,
    DeBERTaV3, section 3.3). `weight` is the difference.

    The sum is initialised with `initial`. `base` is not a submodule: the other model trains and saves it.
    """

    def __init__(self, initial: nn.Embedding, base: nn.Embedding) -> None:
        super().__init__(initial.num_embeddings, initial.embedding_dim, _weight=(initial.weight - base.weight).detach())
        self._base = [base]  # a list hides it from torch's registry of submodules

    @property
    def base(self) -> nn.Embedding:
        """Embeddings of the other model."""
        return self._base[0]

    def forward(self, input: Tensor) -> Tensor:
        """Return the sum of base and difference: ids of any shape -> (..., E)."""
        return super().forward(input) + functional.embedding(input, self.base.weight.detach())

    def merged(self) -> nn.Embedding:
        """Return the sum of base and difference as ordinary embeddings."""
        weight = (self.base.weight + self.weight).detach()
        return nn.Embedding(self.num_embeddings, self.embedding_dim, _weight=weight)


def share_embeddings(model: BuiltModel, generator: BuiltModel, sharing: str, new: bool) -> None:
    """Make two models share embeddings, by `es` or `gdes` (see `ReplacedTokens.sharing`); the embeddings of a `new`
    generator are initialised with the model's.

    With `es`, models of one family share all `Encoder.embedding_parts` of the same shape; with `gdes`, only word and
    position embeddings, as in the authors' code. Models of two families share only word embeddings.
    """
    for name, (part, generator_part) in _shared_parts(model, generator).items():
        if new:
            generator_part.load_state_dict(part.state_dict())
        if sharing == "gdes" and name in _DISENTANGLED and isinstance(part, nn.Embedding):
            _replace(model.model.encoder, part, DeltaEmbedding(part, generator_part))
            model.model.shared_parameters = (*model.model.shared_parameters, generator_part.weight)
        elif sharing == "es":
            _check_same(part, generator_part)
            for key, parameter in part.named_parameters():
                setattr(generator_part, key, parameter)


def merge_differences(encoder: Encoder) -> None:
    """Replace each `DeltaEmbedding` of an encoder by ordinary embeddings with the same values."""
    for part in list(encoder.modules()):
        if isinstance(part, DeltaEmbedding):
            _replace(encoder, part, part.merged())


def _shared_parts(model: BuiltModel, generator: BuiltModel) -> dict[str, tuple[nn.Module, Any]]:
    """Return the part of the model and the part of the generator, by name."""
    parts, generator_parts = (built.model.encoder.embedding_parts() for built in (model, generator))
    shapes, generator_shapes = _shapes(parts["word"]), _shapes(generator_parts["word"])
    if shapes != generator_shapes:
        raise DomainbertError(
            where="objective.sharing",
            found=f"word embeddings of shape {generator_shapes[0]} in the generator and {shapes[0]} in the encoder",
            expected="equal shapes",
        )
    if model.config.model_type != generator.config.model_type:
        return {"word": (parts["word"], generator_parts["word"])}
    pairs = {name: (part, generator_parts[name]) for name, part in parts.items() if name in generator_parts}
    return {name: pair for name, pair in pairs.items() if _shapes(pair[0]) == _shapes(pair[1])}


def _shapes(part: nn.Module) -> list[tuple[int, ...]]:
    return [tuple(parameter.shape) for parameter in part.parameters()]


def _check_same(part: nn.Module, other: nn.Module) -> None:
    if not all(torch.equal(*pair) for pair in zip(part.parameters(), other.parameters(), strict=True)):
        raise DomainbertError(
            where="objective.sharing",
            found="es, but generator and discriminator in init_from have different embeddings",
            expected="gdes, as in the training of init_from",
        )


def _replace(encoder: Encoder, old: nn.Module, new: nn.Module) -> None:
    name = next(name for name, part in encoder.named_modules() if part is old)
    parent, _, attribute = name.rpartition(".")
    setattr(encoder.get_submodule(parent), attribute, new.train(old.training))
