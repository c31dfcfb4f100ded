"""Base class of the encoders of all families, and encoder of BERT and of families with the same architecture (Devlin et
al. 2019, section 3)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.encoders.config import EncoderConfig, Sizes, VocabularyFacts, frozen_layers_error
from domainbert.encoders.dropout import checkpoint_contexts
from domainbert.encoders.layers import Attention, Dropout, PostNormLayer, SelfAttention, choose_kernel, initialise
from domainbert.encoders.packed import Packed


class Encoder(nn.Module, ABC):
    """Computes hidden states from packed token ids: embeddings, then a sequence of blocks.

    A family provides the parts; this class runs them, with or without activation checkpointing.

    Attributes:
        hidden_size: width H of the hidden states.
        num_heads: attention heads of a block.
        attention_dropout: rate on the attention probabilities in training.
        num_token_types: number of token-type embeddings (sentence A and B of a pair); with fewer than two the
            tokenizer's token types are ignored.
        activation_checkpointing: keep only the input of each block, and compute the block again in the backward pass.
        causal: hide the tokens after a token, if `EncoderConfig.supports_causal`.
    """

    hidden_size: int
    num_heads: int
    attention_dropout: float = 0.0
    num_token_types: int = 0
    activation_checkpointing: bool = False
    causal: bool = False

    @property
    @abstractmethod
    def input_embeddings(self) -> nn.Embedding:
        """Word embeddings (vocab_size, E), shared with a masked-LM head."""

    def embedding_parts(self) -> Mapping[str, nn.Module]:
        """Return the modules that embed a token, by name, without a projection; encoders of a family can share them."""
        return {"word": self.input_embeddings}

    def embedding_modules(self) -> Sequence[nn.Module]:
        """Return the modules of `embedding_parts`, and the projection after them if there is one."""
        return list(self.embedding_parts().values())

    def non_embedding_parameters(self) -> list[nn.Parameter]:
        """Return all parameters that are not in `embedding_modules`."""
        embedding = {id(parameter) for module in self.embedding_modules() for parameter in module.parameters()}
        return [parameter for parameter in self.parameters() if id(parameter) not in embedding]

    @abstractmethod
    def embed(self, tokens: Packed) -> Tensor:
        """Return the input of the first block, (B, S, H)."""

    def context(self, tokens: Packed) -> Any:
        """Return the argument `context` of all blocks, for a batch: by default `Segments`, which separate the texts."""
        rate = self.attention_dropout if self.training else 0.0
        return choose_kernel(tokens, self.hidden_size // self.num_heads, rate, causal=self.causal)

    @abstractmethod
    def blocks(self) -> Sequence[nn.Module]:
        """Return the blocks in execution order; a block with shared weights is listed several times.

        Each block has one `layers.Attention`, modules that compute the inputs of the attention, and a module `output`
        after the attention. The block is called as `block(hidden, context, positions)` and returns states (B, S, H).
        Only the last block gets `positions` (N,) in the flattened tokens: it then returns only the states (N, H) at
        these positions, and computes only them after its attention.
        """

    def finish(self, hidden: Tensor, tokens: Packed) -> Tensor:
        """Return the output of the encoder, computed from `hidden`, the output of the last block, (..., H) each. By
        default both are the same; a family may apply a final norm."""
        return hidden

    def attention_flops(self, length: int) -> float:
        """Return the FLOPs of the attention products per token of a text of `length` tokens, forward and backward.

        Each block has two products with the tokens in its window, of 2 * H FLOPs per token, and twice as many backward
        (Chowdhery et al. 2022, PaLM, appendix B).
        """
        windows = (part.window for block in self.blocks() for part in block.modules() if isinstance(part, Attention))
        visible = sum(length if window is None else min(length, 2 * window + 1) for window in windows)
        return 12 * self.hidden_size * visible

    def depth_of(self, parameter: str) -> int:
        """Return the depth of a parameter, by its name: n in block n (from 1); 0 outside of all blocks (embeddings).

        Weights that blocks share have the depth of the last one.
        """
        target = self.get_parameter(parameter)
        depth = 0
        for number, block in enumerate(self.blocks(), start=1):
            if any(weight is target for weight in block.parameters()):
                depth = number
        return depth

    def parameters_up_to(self, depth: int) -> list[nn.Parameter]:
        """Return the parameters of the embeddings and the first `depth` blocks."""
        return [parameter for name, parameter in self.named_parameters() if self.depth_of(name) <= depth]

    def freeze(self, num_layers: int) -> None:
        """Freeze the embeddings and the first `num_layers` blocks.

        Raises:
            DomainbertError: there are fewer blocks, or a frozen block shares its weights with a block above.
        """
        blocks = self.blocks()
        if num_layers > len(blocks):
            raise frozen_layers_error(num_layers, len(blocks))
        frozen = set(self.parameters_up_to(num_layers))  # without parameters that a block above shares
        for number, block in enumerate(blocks[:num_layers], start=1):
            if not frozen.issuperset(block.parameters()):
                raise DomainbertError(
                    where="frozen_layers",
                    found=f"{num_layers}, but layer {number} shares its weights with a higher layer",
                    expected=f"0 (only the embeddings) or {len(blocks)} (all layers)",
                )
        for parameter in frozen:
            parameter.requires_grad_(False)

    @property
    def num_hidden_layers(self) -> int:
        """Number of blocks."""
        return len(self.blocks())

    def forward(self, tokens: Packed, positions: Tensor | None = None) -> Tensor:
        """Return the last hidden states (B, S, H), or (N, H) at `positions` (N,) in the flattened tokens.

        With positions, most of the last block is computed only for them.
        """
        return self._run(tokens, block_inputs=None, positions=positions)

    def hidden_states(self, tokens: Packed) -> list[Tensor]:
        """Return the output of the embeddings and of every block, each (B, S, H); the last equals `forward`."""
        block_inputs: list[Tensor] = []
        output = self._run(tokens, block_inputs)
        return [*block_inputs, output]

    def _run(self, tokens: Packed, block_inputs: list[Tensor] | None, positions: Tensor | None = None) -> Tensor:
        """Return the result of `forward`, and append the input of each block to `block_inputs`."""
        if self.num_token_types < 2:
            tokens = tokens._replace(token_type_ids=None)
        context = self.context(tokens)
        hidden = self.embed(tokens)
        # The contexts repeat the dropout of a CPU. The compiler does not accept them, and does not need them: it skips
        # this function if a CPU has dropout.
        contexts: dict[str, Any] = {} if torch.compiler.is_compiling() else {"context_fn": checkpoint_contexts}
        blocks = self.blocks()
        for number, block in enumerate(blocks, start=1):
            if block_inputs is not None:
                block_inputs.append(hidden)
            is_last = number == len(blocks)
            inputs = hidden, context, (positions if is_last else None)
            if self.activation_checkpointing and torch.is_grad_enabled():
                hidden = checkpoint(block, *inputs, use_reentrant=False, **contexts)
            else:
                hidden = block(*inputs)
        return self.finish(hidden, tokens)


class TokenEmbeddings(nn.Module):
    """Base of the embeddings of a `StackedEncoder`: word embeddings, optionally positions and token types, and a norm.

    Attributes:
        first_position: row of the position table for the first token of a text.
    """

    word: nn.Embedding
    position: nn.Embedding | None
    token_type: nn.Embedding | None
    norm: nn.LayerNorm
    first_position: int = 0

    def add_types(self, summed: Tensor, tokens: Packed) -> Tensor:
        """Add token-type embeddings if there are any: (B, S, E) -> (B, S, E). If the batch has no token types, every
        token has type 0."""
        if self.token_type is None:
            return summed
        types = tokens.token_type_ids
        return summed + (self.token_type.weight[0] if types is None else self.token_type(types))

    def parts(self) -> dict[str, nn.Module]:
        """Return the modules by name, without modules that are None."""
        modules = {"word": self.word, "position": self.position, "token_type": self.token_type, "norm": self.norm}
        return {name: module for name, module in modules.items() if module is not None}

    def zero_padding(self, pad_id: int) -> None:
        """Set the word embedding of the padding to 0, as transformers does. Do the same with the position before
        `first_position`, if there is one: it is the position of the padding."""
        with torch.no_grad():
            self.word.weight[pad_id].zero_()
            if self.position is not None and self.first_position:
                self.position.weight[self.first_position - 1].zero_()


class Embeddings(TokenEmbeddings):
    """Sum of word, position and token-type embeddings, normalised; no types if `num_types` is 0.

    `first_position` is the row of the position table for the first token of a text. `factor_width` is the width of
    factorised embeddings, which a linear layer projects to the hidden states (Lan et al. 2020, ALBERT, section 3.1).
    """

    position: nn.Embedding

    def __init__(
        self,
        vocab_size: int,
        num_positions: int,
        num_types: int,
        sizes: Sizes,
        first_position: int = 0,
        factor_width: int | None = None,
    ) -> None:
        super().__init__()
        width = sizes.hidden_size if factor_width is None else factor_width
        self.first_position = first_position
        self.word = nn.Embedding(vocab_size, width)
        self.position = nn.Embedding(num_positions, width)
        self.token_type = nn.Embedding(num_types, width) if num_types else None
        self.norm = nn.LayerNorm(width, eps=sizes.layer_norm_eps)
        self.dropout = Dropout(sizes.dropout)
        self.project = None if factor_width is None else nn.Linear(width, sizes.hidden_size)

    def forward(self, tokens: Packed) -> Tensor:
        """Return the input of the first layer: (B, S) -> (B, S, H)."""
        positions = tokens.position_ids + self.first_position if self.first_position else tokens.position_ids
        summed = self.word(tokens.input_ids) + self.position(positions)
        embedded = self.dropout(self.norm(self.add_types(summed, tokens)))
        # in the precision of its input; under autocast the sums of the layers would otherwise have 16 bits
        return embedded if self.project is None else self.project(embedded).to(embedded.dtype)


class StackedEncoder(Encoder):
    """Embeddings and a stack of layers; it ignores token types if `num_token_types` is 0.

    Each layer has one `layers.Attention` and is called as described in `Encoder.blocks`. `shared` are modules that all
    layers use; they become attributes of the encoder.
    """

    def __init__(
        self,
        embeddings: TokenEmbeddings,
        layers: Iterable[nn.Module],
        sizes: Sizes,
        pad_id: int,
        num_token_types: int = 0,
        **shared: nn.Module,
    ) -> None:
        super().__init__()
        self.embeddings = embeddings
        for name, module in shared.items():
            self.add_module(name, module)
        self.layers = nn.ModuleList(layers)
        self.hidden_size, self.num_heads = sizes.hidden_size, sizes.num_heads
        self.num_token_types = num_token_types
        self.attention_dropout = sizes.attention_dropout
        initialise(self, sizes.initializer_range)
        embeddings.zero_padding(pad_id)

    @override
    def embed(self, tokens: Packed) -> Tensor:
        embedded: Tensor = self.embeddings(tokens)
        return embedded

    @override
    def embedding_parts(self) -> Mapping[str, nn.Module]:
        return self.embeddings.parts()

    @override
    def embedding_modules(self) -> Sequence[nn.Module]:
        return [self.embeddings]

    @override
    def blocks(self) -> Sequence[nn.Module]:
        return list(self.layers)

    @property
    @override
    def input_embeddings(self) -> nn.Embedding:
        return self.embeddings.word


class PostNormEncoder(StackedEncoder):
    """Encoder of BERT and of families with the same layers; weights of layers are shared as in `layer_weights`."""

    def __init__(self, config: EncoderConfig, vocabulary: VocabularyFacts) -> None:
        sizes = config.sizes
        embeddings = Embeddings(
            vocabulary.size,
            num_positions=config.max_length + config.position_offset,
            num_types=getattr(config, "type_vocab_size", 0),  # RoBERTa has a table of types, but ignores types
            sizes=sizes,
            first_position=vocabulary.pad_id + 1 if config.position_offset else 0,  # the padding's row precedes it
            factor_width=config.factor_width,
        )
        attention = sizes.hidden_size, sizes.num_heads, sizes.attention_dropout
        # one module for each set of weights, which several layers may share
        layers = [PostNormLayer(SelfAttention(*attention), sizes) for _ in set(config.layer_weights)]
        super().__init__(embeddings, layers, sizes, vocabulary.pad_id, config.num_token_types)
        self.layer_weights = config.layer_weights

    @override
    def blocks(self) -> Sequence[nn.Module]:
        return [self.layers[index] for index in self.layer_weights]
