"""Architecture of an ELECTRA encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from domainbert.base.fields import Dropout
from domainbert.encoders.config import Architectures, Heads, PostNormConfig, Sizes, Width, standard_classes

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class ElectraConfig(PostNormConfig):
    """An ELECTRA encoder (Clark et al. 2020): BERT with a separate embedding width; the defaults are ELECTRA-small.

    Generator and discriminator are both such encoders, with a masked-LM head and a head for replaced tokens.

    >>> from domainbert import ElectraConfig
    >>> ElectraConfig().embedding_size, ElectraConfig().hidden_size
    (128, 256)
    """

    model_type = "electra"
    architectures: ClassVar[Architectures] = {**standard_classes("Electra"), "replaced": ("ElectraForPreTraining",)}

    hidden_size: Width = 256
    num_attention_heads: Heads = 4
    intermediate_size: Width = 1024

    embedding_size: Width = 128
    """Width of the embeddings; a linear layer projects them to another `hidden_size`."""

    classifier_dropout: Dropout | None = None
    """Dropout in a task's head; None is `hidden_dropout_prob`."""

    @override
    def resized(self, sizes: Sizes) -> Self:
        """Return a copy with other sizes; embeddings as wide as the hidden states are resized with them."""
        resized = super().resized(sizes)
        return resized if self.factor_width is not None else resized.replaced(embedding_size=sizes.hidden_size)

    @property
    @override
    def factor_width(self) -> int | None:
        return None if self.embedding_size == self.hidden_size else self.embedding_size
