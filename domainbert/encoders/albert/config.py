"""Architecture of an ALBERT encoder."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from domainbert.base.fields import Dropout
from domainbert.encoders.config import (
    Activation,
    Architectures,
    Heads,
    Layers,
    PostNormConfig,
    Sizes,
    Width,
    require,
    standard_classes,
)

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class AlbertConfig(PostNormConfig):
    """An ALBERT encoder (Lan et al. 2020): BERT with narrow embeddings and layers that share their weights.

    The defaults are ALBERT-xxlarge v2, as in transformers.

    >>> from domainbert import AlbertConfig
    >>> AlbertConfig(embedding_size=64).embedding_size
    64
    """

    model_type = "albert"
    architectures: ClassVar[Architectures] = {**standard_classes("Albert"), "pretraining": ("AlbertForPreTraining",)}
    special_ids: ClassVar[Mapping[str, int]] = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}

    hidden_size: Width = 4096
    num_attention_heads: Heads = 64
    intermediate_size: Width = 16384
    hidden_act: Activation = "gelu_new"
    hidden_dropout_prob: Dropout = 0.0
    attention_probs_dropout_prob: Dropout = 0.0

    embedding_size: Width = 128
    """Width of the embeddings; a linear layer projects them to `hidden_size`."""

    num_hidden_groups: Layers = 1
    """Number of groups of consecutive layers that share their weights: with 1 all layers share them, with
    `num_hidden_layers` none do."""

    inner_group_num: Layers = 1
    """Number of layers with different weights in each of the `num_hidden_layers`."""

    classifier_dropout_prob: Dropout = 0.1
    """Dropout in a task's head."""

    def __post_init__(self) -> None:
        super().__post_init__()
        groups, layers = self.num_hidden_groups, self.num_hidden_layers
        require(
            groups <= layers, where="num_hidden_groups", found=groups, expected=f"at most num_hidden_layers={layers}"
        )

    @property
    @override
    def factor_width(self) -> int:
        return self.embedding_size

    @property
    @override
    def layer_weights(self) -> tuple[int, ...]:
        """Index of the weights of each layer, group by group: with 4 layers in 2 groups (0, 0, 1, 1), and with an
        `inner_group_num` of 2 (0, 1, 0, 1, 2, 3, 2, 3)."""
        inner, layers_per_group = self.inner_group_num, self.num_hidden_layers / self.num_hidden_groups
        # transformers divides by this rounded quotient, so the same is done here
        groups = [int(layer / layers_per_group) for layer in range(self.num_hidden_layers)]
        return tuple(group * inner + index for group in groups for index in range(inner))

    @property
    @override
    def sizes(self) -> Sizes:
        sizes = super().sizes
        return dataclasses.replace(sizes, num_layers=sizes.num_layers * self.inner_group_num)

    @override
    def resized(self, sizes: Sizes) -> Self:
        """Return a copy with other sizes, and at most as many groups as layers. Raises `DomainbertError` if the number
        of layers is no multiple of `inner_group_num`."""
        num_blocks, rest = divmod(sizes.num_layers, self.inner_group_num)
        require(
            rest == 0,
            found=f"{sizes.num_layers} layers for an ALBERT encoder with inner_group_num={self.inner_group_num}",
            expected=f"a multiple of {self.inner_group_num}",
        )
        # the base class sets `num_hidden_layers`, and checks it against the number of groups: 1 is always valid
        single_group = self.replaced(num_hidden_groups=1)
        resized = PostNormConfig.resized(single_group, dataclasses.replace(sizes, num_layers=num_blocks))
        return resized.replaced(num_hidden_groups=min(self.num_hidden_groups, num_blocks))
