"""The interface of encoders and the reversible map between our parameter names and those of Hugging Face."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from domainbert.encoders.attention import Segments
from domainbert.encoders.packed import Packed

HEADS = ("masked_lm", "tokens", "sequence", "crf")

NameMap = dict[str, tuple[str, ...]]
"""Our parameter -> the Hugging Face tensors it consists of, stacked along the first dimension."""


class Encoder(nn.Module, ABC):
    """Turns packed token ids into hidden states.

    Attributes:
        layers: the stack of layers.
        hidden_size: width H of the hidden states.
        num_hidden_layers: number of layers.
        hidden_act: activation, for a masked-LM head.
        layer_norm_eps: of the layer normalisations, for a masked-LM head.
        initializer_range: standard deviation for new heads.
        dropout_prob: dropout of heads put on top.
        sequence_dropout_prob: that of a sequence head.
        pooler_act: activation of a sequence head's pooler, `tanh` or `relu`.
        num_token_types: how many kinds of token (sentence A and B of a pair) it tells apart.
        activation_checkpointing: keep only what goes into each layer, and compute the layer again in the backward pass.
    """

    layers: nn.ModuleList
    hidden_size: int
    num_hidden_layers: int
    hidden_act: str
    layer_norm_eps: float
    initializer_range: float
    dropout_prob: float
    sequence_dropout_prob: float
    pooler_act: str = "tanh"
    num_token_types: int = 0
    activation_checkpointing: bool = False

    @abstractmethod
    def forward(self, tokens: Packed) -> Tensor:
        """The last hidden states (B, S, H)."""

    @abstractmethod
    def hidden_states(self, tokens: Packed) -> list[Tensor]:
        """The embeddings' output and every layer's, each (B, S, H)."""

    def run_layer(self, layer: nn.Module, hidden: Tensor, segments: Segments) -> Tensor:
        """One of `layers`, (B, S, H) -> (B, S, H), as `activation_checkpointing` says.

        A layer that is computed again draws the same dropout.
        """
        if self.activation_checkpointing and torch.is_grad_enabled():
            again: Tensor = checkpoint(layer, hidden, segments, use_reentrant=False)
            return again
        output: Tensor = layer(hidden, segments)
        return output

    @property
    @abstractmethod
    def input_embeddings(self) -> nn.Embedding:
        """The word embeddings (vocab_size, E), shared with a masked-LM head."""


CRF_NAMES: NameMap = {f"head.crf.{name}": (f"crf.{name}",) for name in ("transitions", "start", "end")}
"""A random field on a token head, which Hugging Face's classes do not know and leave out."""


def to_hugging_face(state: Mapping[str, Tensor], names: NameMap) -> dict[str, Tensor]:
    """Our state dict under Hugging Face names, stacked tensors taken apart."""
    result: dict[str, Tensor] = {}
    for ours, theirs in names.items():
        parts = state[ours].detach().chunk(len(theirs), dim=0)
        result.update({name: part.contiguous() for name, part in zip(theirs, parts, strict=True)})
    return result


def from_hugging_face(tensors: Mapping[str, Tensor], names: NameMap) -> tuple[dict[str, Tensor], list[str]]:
    """Our state dict from tensors under Hugging Face names, and the names that were missing."""
    state: dict[str, Tensor] = {}
    missing: list[str] = []
    for ours, theirs in names.items():
        absent = [name for name in theirs if name not in tensors]
        missing.extend(absent)
        if not absent:
            parts = [tensors[name].to(torch.float32) for name in theirs]
            state[ours] = torch.cat(parts) if len(parts) > 1 else parts[0]
    return state, missing
