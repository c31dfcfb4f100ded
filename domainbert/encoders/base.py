"""The base of the encoders of all families: it runs their blocks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from domainbert.base.errors import DomainbertError
from domainbert.encoders.attention import choose_kernel
from domainbert.encoders.layers import Attention
from domainbert.encoders.packed import Packed


class Encoder(nn.Module, ABC):
    """Turns packed token ids into hidden states: embeddings, then blocks one after the other.

    A family gives the parts; how they are run, and how often one is computed, is decided here.

    Attributes:
        hidden_size: width H of the hidden states.
        num_heads: attention heads of a block.
        attention_dropout: rate on the attention probabilities in training.
        num_token_types: how many kinds of token (sentence A and B of a pair) it has embeddings for; with fewer than two
            it is blind to them, whatever the tokenizer says.
        activation_checkpointing: keep only what goes into each block, and compute the block again in the backward pass.
    """

    hidden_size: int
    num_heads: int
    attention_dropout: float = 0.0
    num_token_types: int = 0
    activation_checkpointing: bool = False

    @property
    @abstractmethod
    def input_embeddings(self) -> nn.Embedding:
        """The word embeddings (vocab_size, E), shared with a masked-LM head."""

    def embedding_parts(self) -> Mapping[str, nn.Module]:
        """The modules that a token's embedding is made with, by name, `word` among them, but for a projection: what a
        smaller encoder of the family can have in common with this one."""
        return {"word": self.input_embeddings}

    def embedders(self) -> Sequence[nn.Module]:
        """The modules of `embedding_parts`, and a projection behind them."""
        return list(self.embedding_parts().values())

    def reading_parameters(self) -> list[nn.Parameter]:
        """The parameters that embed no token: those of the blocks, of distances in them, and of what is behind them."""
        embedding = {id(one) for part in self.embedders() for one in part.parameters()}
        return [parameter for parameter in self.parameters() if id(parameter) not in embedding]

    @abstractmethod
    def embed(self, tokens: Packed) -> Tensor:
        """Input of the first block, (B, S, H)."""

    def context(self, tokens: Packed) -> Any:
        """Second argument of every block, made once for all: the texts as attention reads them, or that and more."""
        rate = self.attention_dropout if self.training else 0.0
        return choose_kernel(tokens, self.hidden_size // self.num_heads, rate)

    @abstractmethod
    def blocks(self) -> Sequence[nn.Module]:
        """The blocks in the order in which they run; one whose weights are shared stands there several times.

        Each has one `layers.Attention`, and beside it what makes its inputs and `output`, which takes what it gives. It
        is called as `block(hidden, context, positions)`; the last one has to give the states (N, H) at `positions`
        alone, where these are not None, and computes only those from `output` on.
        """

    def finish(self, hidden: Tensor, tokens: Packed) -> Tensor:
        """The encoder's output from the last block's, (..., H) each: a last norm, for example; here the same."""
        return hidden

    def attention_flops(self, length: int) -> float:
        """Floating-point operations of attention's products for one token of a text of `length`, forward and backward:
        two in each block (Chowdhery et al. 2022, PaLM, appendix B), with the tokens that its window holds."""
        windows = (part.window for block in self.blocks() for part in block.modules() if isinstance(part, Attention))
        seen = sum(length if window is None else min(length, 2 * window + 1) for window in windows)
        return 12 * self.hidden_size * seen

    def depth_of(self, parameter: str) -> int:
        """Depth of a parameter: 0 in the embeddings, n in block n. A shared one stands where it is used last."""
        wanted = self.get_parameter(parameter)
        numbered = enumerate(self.blocks(), start=1)
        return max((n for n, block in numbered if any(one is wanted for one in block.parameters())), default=0)

    def up_to(self, depth: int) -> list[nn.Parameter]:
        """The parameters of that depth and below: those of the embeddings and of the first blocks."""
        return [parameter for name, parameter in self.named_parameters() if self.depth_of(name) <= depth]

    def freeze(self, num_layers: int) -> None:
        """Let the embeddings and the first blocks learn no more: nothing computes a gradient for them.

        Raises:
            DomainbertError: there are fewer blocks; or one of them shares its weights with a block above.
        """
        blocks, frozen = self.blocks(), set(self.up_to(num_layers))
        if num_layers > len(blocks):
            raise DomainbertError(f"frozen_layers: {num_layers}; the encoder has {len(blocks)} layers")
        for number, block in enumerate(blocks[:num_layers], start=1):
            if not frozen.issuperset(block.parameters()):
                raise DomainbertError(
                    f"frozen_layers: {num_layers}; layer {number} shares its weights with one above; "
                    f"expected 0 (the embeddings) or {len(blocks)} (all layers)"
                )
        for parameter in frozen:
            parameter.requires_grad_(False)

    @property
    def num_hidden_layers(self) -> int:
        """Number of blocks that a token goes through."""
        return len(self.blocks())

    def forward(self, tokens: Packed, positions: Tensor | None = None) -> Tensor:
        """The last hidden states (B, S, H); or those at `positions` (N,) in the flattened tokens, (N, H), which saves
        the greater part of the last block: nobody reads the others."""
        return self._run(tokens, None, positions)

    def from_embedded(self, embedded: Tensor, tokens: Packed) -> Tensor:
        """The last hidden states (B, S, H), with other input of the first block (B, S, H) than `embed` gives."""
        return self._run(tokens, None, embedded=embedded)

    def hidden_states(self, tokens: Packed) -> list[Tensor]:
        """The embeddings' output and every block's, each (B, S, H); the last is what `forward` gives."""
        earlier: list[Tensor] = []
        last = self._run(tokens, earlier)
        return [*earlier, last]

    def _run(
        self,
        tokens: Packed,
        earlier: list[Tensor] | None,
        positions: Tensor | None = None,
        embedded: Tensor | None = None,
    ) -> Tensor:
        """The last hidden states; what goes into each block is added to `earlier`, if someone wants it."""
        if self.num_token_types < 2:
            tokens = tokens._replace(token_type_ids=None)
        context, hidden = self.context(tokens), self.embed(tokens) if embedded is None else embedded
        blocks = self.blocks()
        for number, block in enumerate(blocks, start=1):
            if earlier is not None:
                earlier.append(hidden)
            inputs = hidden, context, positions if number == len(blocks) else None
            if self.activation_checkpointing and torch.is_grad_enabled():
                hidden = checkpoint(block, *inputs, use_reentrant=False)  # it draws the same dropout again
            else:
                hidden = block(*inputs)
        return self.finish(hidden, tokens)
