"""Heads for masked LM, tokens, spans and sequences, and the model of an encoder and a head."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional

from domainbert.encoders.base import Encoder
from domainbert.encoders.config import Sizes
from domainbert.encoders.head_config import HeadConfig, Pooling
from domainbert.encoders.layers import ACTIVATIONS, Dropout, initialise
from domainbert.encoders.packed import Packed, pad_positions, select, text_ids

_POOLER_ACTIVATIONS: dict[str, Callable[..., Tensor]] = {"tanh": torch.tanh, **ACTIVATIONS}


class MaskedLMHead(nn.Module):
    """Predicts vocabulary entries at given positions, with the input embeddings (V, E) as output weights."""

    def __init__(self, embeddings: nn.Embedding, hidden_size: int, activation: str, layer_norm_eps: float) -> None:
        super().__init__()
        vocab_size, width = embeddings.weight.shape
        self.dense = nn.Linear(hidden_size, width)
        self.norm = nn.LayerNorm(width, eps=layer_norm_eps)
        self.activation = ACTIVATIONS[activation]
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def forward(self, hidden: Tensor, embeddings: Tensor) -> Tensor:
        """Return the logits of vocabulary entries: (N, H), (V, E) -> (N, V)."""
        return functional.linear(self.norm(self.activation(self.dense(hidden))), embeddings, self.bias)


class PretrainingHead(MaskedLMHead):
    """Masked-LM head and a classifier on the pooled [CLS]: whether the second segment follows the first (Devlin et al.
    2019, section 3.1), or whether the two segments are in order (Lan et al. 2020, section 3.1)."""

    def __init__(
        self, embeddings: nn.Embedding, hidden_size: int, activation: str, layer_norm_eps: float, pair_dropout: float
    ) -> None:
        super().__init__(embeddings, hidden_size, activation, layer_norm_eps)
        self.pooler = nn.Linear(hidden_size, hidden_size)
        self.pair_dropout = Dropout(pair_dropout)
        self.classifier = nn.Linear(hidden_size, 2)

    def pair_logits(self, hidden: Tensor) -> Tensor:
        """Return the logits of labels 0 and 1 of pairs (N, 2) from the states of [CLS] (N, H)."""
        return self.classifier(self.pair_dropout(torch.tanh(self.pooler(hidden))))


class TokenHead(nn.Module):
    """Predicts labels of tokens, or start and end scores of spans."""

    def __init__(self, hidden_size: int, num_labels: int, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.classifier = nn.Linear(hidden_size, num_labels)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the logits: (N, H) -> (N, labels)."""
        return self.classifier(self.dropout(hidden))


class ReplacedHead(nn.Module):
    """Predicts whether a token was replaced (Clark et al. 2020, ELECTRA, section 2)."""

    def __init__(self, hidden_size: int, activation: str) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.activation = ACTIVATIONS[activation]
        self.classifier = nn.Linear(hidden_size, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the logit that a token was replaced: (N, H) -> (N, 1)."""
        return self.classifier(self.activation(self.dense(hidden)))


class SequenceHead(nn.Module):
    """Predicts labels of texts from the pooled [CLS] token; the pooler's activation is `tanh` or one of `ACTIVATIONS`.

    Attributes:
        pooling: state of a text that the head reads, see `HeadConfig`.
    """

    pooling: Pooling = "cls"

    def __init__(
        self, hidden_size: int, num_labels: int, dropout: float, activation: str, input_dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.input_dropout = Dropout(input_dropout) if input_dropout else nn.Identity()
        self.pooler = nn.Linear(hidden_size, hidden_size)
        self.activation = _POOLER_ACTIVATIONS[activation]
        self.dropout = Dropout(dropout)
        self.classifier = nn.Linear(hidden_size, num_labels)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the logits: states of texts (N, H) -> (N, labels)."""
        return self.classifier(self.dropout(self.activation(self.pooler(self.input_dropout(hidden)))))


def build_head(
    kind: str,
    encoder: Encoder,
    sizes: Sizes,
    num_labels: int,
    *,
    dropout: float,
    activation: str | None = None,
    pooler: str = "tanh",
    pooler_dropout: float = 0.0,
    span_dropout: float = 0.0,
    pair_dropout: float = 0.0,
) -> nn.Module:
    """Return a newly initialised head for an encoder.

    Args:
        kind: `masked_lm`, `pretraining`, `replaced`, `tokens`, `span` or `sequence`.
        num_labels: outputs of `tokens`, `span` and `sequence`.
        dropout: before the classifier of tokens and sequences.
        activation: of masked LM; None takes the activation of the layers.
        pooler, pooler_dropout: activation of the pooler of sequences, and dropout before it.
        span_dropout, pair_dropout: before the outputs of spans, and of pairs in pretraining; 0 in most families.
    """
    head: nn.Module
    if kind in ("masked_lm", "pretraining"):
        arguments = encoder.input_embeddings, sizes.hidden_size, activation or sizes.activation, sizes.layer_norm_eps
        head = MaskedLMHead(*arguments) if kind == "masked_lm" else PretrainingHead(*arguments, pair_dropout)
    elif kind == "replaced":
        head = ReplacedHead(sizes.hidden_size, sizes.activation)
    elif kind in ("tokens", "span"):
        head = TokenHead(sizes.hidden_size, num_labels, dropout if kind == "tokens" else span_dropout)
    else:
        head = SequenceHead(sizes.hidden_size, num_labels, dropout, pooler, pooler_dropout)
    initialise(head, sizes.initializer_range)
    return head


def pool_texts(pooling: Pooling, hidden: Tensor, segment_ids: Tensor, positions: Tensor) -> Tensor:
    """Return one state per text, pooled from the hidden states of its tokens: (B, S, H) -> (N, H).

    `pooling` selects the state of [CLS], or the mean or maximum over all tokens of the text. A mean is computed in fp32
    or wider, also under autocast, because the sum over a long text loses digits in bf16 and overflows in fp16.
    `positions` (N,) are the positions of [CLS] of the texts in the flattened tokens.
    """
    if pooling == "cls":
        return select(hidden, positions)
    text_of_token = text_ids(segment_ids).flatten()  # (B * S,)
    pooled_texts = text_of_token[positions]
    if pooling == "max":
        index = text_of_token.unsqueeze(-1).expand(-1, hidden.shape[-1])  # (B * S, H)
        num_ids = segment_ids.numel() + segment_ids.shape[0]  # B * (S + 1), the limit of `text_ids`
        lowest = hidden.new_full((num_ids, hidden.shape[-1]), -torch.inf)
        maxima = lowest.scatter_reduce(0, index, hidden.flatten(0, 1), "amax")  # by text id; -inf for unused ids
        return maxima[pooled_texts]
    states = hidden.flatten(0, 1).to(torch.promote_types(hidden.dtype, torch.float32))
    inside = (pooled_texts.unsqueeze(-1) == text_of_token).to(states.dtype)  # (N, B * S), 1 for the tokens of a text
    autocast = torch.is_autocast_enabled(hidden.device.type)  # otherwise no context, which torch.export would record
    with torch.autocast(hidden.device.type, enabled=False) if autocast else nullcontext():
        return inside @ states / inside.sum(dim=-1, keepdim=True)


class EncoderWithHead(nn.Module):
    """An encoder and a head that reads some of its positions; it is trained, saved and loaded as a unit.

    The head reads masked tokens for masked LM, labelled pieces for token labels, [CLS] and the pieces of the context
    for spans, and [CLS] or the mean of the text for sequence labels.

    Attributes:
        head_config: configuration of the head; None if no model folder stores the head.
        shared_parameters: parameters of another model that this model uses; the other model trains and saves them.
    """

    shared_parameters: tuple[nn.Parameter, ...] = ()

    def __init__(self, encoder: Encoder, head: nn.Module, config: HeadConfig | None = None) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head
        self.head_config = config
        if isinstance(head, SequenceHead) and config is not None and config.pooling is not None:
            head.pooling = config.pooling

    def forward(self, tokens: Packed, positions: Tensor, pairs: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        """Return the logits (N, V or labels) at `positions` (N,), indices into the flattened (B * S) tokens.

        With `pairs` (P,), positions of [CLS], a `PretrainingHead` also returns the logits of the pairs (P, 2).
        """
        if pairs is not None:
            assert isinstance(self.head, PretrainingHead)
            states = self.encoder(tokens, torch.cat([positions, pairs]))
            return self.logits(states[: len(positions)]), self.head.pair_logits(states[len(positions) :])
        logits = self.logits(self.head_input(tokens, positions))
        return logits[: len(positions)]  # without the rows that `pad_positions` may have added

    def hidden_states(self, tokens: Packed) -> Tensor:
        """Return the last hidden states (B, S, H)."""
        return self.encoder(tokens)  # a method of this class, so that a sharded model gathers its weights

    def precise_logits(self, tokens: Packed, positions: Tensor) -> Tensor:
        """Return the same logits as `forward`, in fp32 also inside `torch.autocast`, in which the encoder runs: bf16
        logits (8 bits) would change predictions."""
        states = self.head_input(tokens, positions)
        with torch.autocast(positions.device.type, enabled=False):
            return self.logits(states.float())

    def head_input(self, tokens: Packed, positions: Tensor) -> Tensor:
        """Return the input of the head (N, H) at `positions` (N,).

        A head that pools whole texts gets their pooled states. For another head, in training on a CPU, rows are
        appended, see `pad_positions`.
        """
        pools_whole_texts = self._pooling != "cls"
        if pools_whole_texts:
            return self.head_states(self.encoder(tokens), tokens, positions)
        pads = self.training and positions.device.type == "cpu"
        return self.encoder(tokens, pad_positions(positions) if pads else positions)

    def head_states(self, hidden: Tensor, tokens: Packed, positions: Tensor) -> Tensor:
        """Return the input of the head (N, H) from hidden states (B, S, H): at `positions` (N,), or pooled."""
        return pool_texts(self._pooling, hidden, tokens.segment_ids, positions)

    @property
    def _pooling(self) -> Pooling:
        return self.head.pooling if isinstance(self.head, SequenceHead) else "cls"

    def logits(self, states: Tensor) -> Tensor:
        """Return the logits (N, V or labels) from the input of the head (N, H)."""
        if isinstance(self.head, MaskedLMHead):
            return self.head(states, self.encoder.input_embeddings.weight)
        return self.head(states)
