"""ModernBERT encoder, heads, and parameter names in Hugging Face checkpoints."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from typing_extensions import override

from domainbert.encoders.base import Encoder
from domainbert.encoders.config import VocabularyFacts
from domainbert.encoders.family import Family
from domainbert.encoders.heads import MaskedLMHead, SequenceHead, TokenHead
from domainbert.encoders.layers import ACTIVATIONS, Dropout, choose_kernel
from domainbert.encoders.modernbert.config import LOCAL, ModernBertConfig
from domainbert.encoders.modernbert.layers import Context, PreNormLayer, layer_norm, rotation
from domainbert.encoders.names import NameMap, map_layers, with_weight_and_bias
from domainbert.encoders.packed import Packed

_LAYER = {
    "attention_norm": ("attn_norm",),
    "attention.query_key_value": ("attn.Wqkv",),
    "attention.output": ("attn.Wo",),
    "feed_forward_norm": ("mlp_norm",),
    "feed_forward.expand": ("mlp.Wi",),
    "feed_forward.contract": ("mlp.Wo",),
}
_RESIDUAL_OUTPUTS = ("output", "contract", "dense", "pooler")
"""Linear layers whose output is added to the hidden states; the layers of the heads are initialised like them."""

_BIASES = {
    **dict.fromkeys(("norm", "word_norm", "attention_norm", "feed_forward_norm", "last_norm"), "norm_bias"),
    **dict.fromkeys(("query_key_value", "output"), "attention_bias"),
    **dict.fromkeys(("expand", "contract"), "mlp_bias"),
    **dict.fromkeys(("dense", "pooler"), "classifier_bias"),
}
"""Setting that enables the bias of a module; other modules always have one."""


class ModernBertEncoder(Encoder):
    """Normalised word embeddings, pre-norm layers with rotary positions, and a final norm."""

    def __init__(self, config: ModernBertConfig, vocabulary: VocabularyFacts) -> None:
        super().__init__()
        self.config = config
        self.hidden_size, self.num_heads = config.hidden_size, config.num_attention_heads
        self.attention_dropout = config.attention_dropout
        self.word = nn.Embedding(vocabulary.size, config.hidden_size)
        self.word_norm, self.dropout = layer_norm(config), Dropout(config.embedding_dropout)
        windows = [config.window if kind == LOCAL else None for kind in config.layer_types]
        self.layers = nn.ModuleList(PreNormLayer(config, window, n == 0) for n, window in enumerate(windows))
        self.last_norm = layer_norm(config)
        _initialise(self, config)
        with torch.no_grad():
            self.word.weight[vocabulary.pad_id].zero_()

    @property
    @override
    def input_embeddings(self) -> nn.Embedding:
        return self.word

    @override
    def embed(self, tokens: Packed) -> Tensor:
        embedded: Tensor = self.dropout(self.word_norm(self.word(tokens.input_ids)))
        return embedded

    @override
    def embedding_parts(self) -> Mapping[str, nn.Module]:
        return {"word": self.word, "norm": self.word_norm}

    @override
    def context(self, tokens: Packed) -> Context:
        config, head_size = self.config, self.hidden_size // self.num_heads
        rate = self.attention_dropout if self.training else 0.0
        thetas = config.global_rope_theta, config.local_rope_theta
        rotations = (rotation(tokens.position_ids, head_size, theta) for theta in thetas)
        return Context(choose_kernel(tokens, head_size, rate, window=config.window, causal=self.causal), *rotations)

    @override
    def blocks(self) -> Sequence[nn.Module]:
        return list(self.layers)

    @override
    def finish(self, hidden: Tensor, tokens: Packed) -> Tensor:
        return self.last_norm(hidden)

    @override
    def depth_of(self, parameter: str) -> int:
        """Return the depth of a parameter, by its name; the final norm has the depth of the last block."""
        return self.num_hidden_layers if parameter.startswith("last_norm.") else super().depth_of(parameter)


class ModernMaskedLMHead(MaskedLMHead):
    """BERT's masked-LM head, by default without biases in the dense layer and the norm."""

    def __init__(self, embeddings: nn.Embedding, config: ModernBertConfig) -> None:
        super().__init__(embeddings, config.hidden_size, config.classifier_activation, config.norm_eps)
        self.dense, self.norm = _dense(config), layer_norm(config)  # in place of the layers of BERT, which have biases


class ModernTokenHead(TokenHead):
    """Predicts labels of tokens, or start and end scores of spans, after a dense layer and a norm."""

    def __init__(self, config: ModernBertConfig, num_labels: int) -> None:
        super().__init__(config.hidden_size, num_labels, config.classifier_dropout)
        # further layers, before the layers of `TokenHead`
        self.dense, self.norm = _dense(config), layer_norm(config)
        self.activation = ACTIVATIONS[config.classifier_activation]

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the logits: (N, H) -> (N, labels)."""
        return super().forward(self.norm(self.activation(self.dense(hidden))))


class ModernSequenceHead(SequenceHead):
    """Predicts labels of texts from [CLS] or the mean of all tokens, after a dense layer and a norm."""

    def __init__(self, config: ModernBertConfig, num_labels: int) -> None:
        super().__init__(config.hidden_size, num_labels, config.classifier_dropout, config.classifier_activation)
        self.pooler, self.norm = _dense(config), layer_norm(config)  # the pooler of BERT always has a bias
        self.pooling = config.default_pooling

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the logits: states of texts (N, H) -> (N, labels)."""
        return self.classifier(self.dropout(self.norm(self.activation(self.pooler(hidden)))))


def _dense(config: ModernBertConfig) -> nn.Linear:
    return nn.Linear(config.hidden_size, config.hidden_size, bias=config.classifier_bias)


def _initialise(module: nn.Module, config: ModernBertConfig) -> None:
    """Initialise the parameters as transformers: truncated normal weights and zero biases.

    The deviation is divided by sqrt(2 * layers) in layers whose output is added to the hidden states (Radford et al.
    2019, section 2.3), and is 1 / sqrt(H) in classifiers.
    """
    residual = config.initializer_range / math.sqrt(2 * config.num_hidden_layers)
    deviations = {**dict.fromkeys(_RESIDUAL_OUTPUTS, residual), "classifier": config.hidden_size**-0.5}
    for name, part in module.named_modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            std = deviations.get(name.rpartition(".")[2], config.initializer_range)
            limit = std * config.initializer_cutoff_factor
            nn.init.trunc_normal_(part.weight, std=std, a=-limit, b=limit)
        if isinstance(part, nn.Linear) and part.bias is not None:
            nn.init.zeros_(part.bias)


class ModernBertFamily(Family[ModernBertConfig]):
    """ModernBERT (Warner et al. 2024): rotary positions, windows in most layers, few biases, no token types."""

    prefix = "model."
    layers = "layers"
    layer = _LAYER
    heads: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "masked_lm": {"head.dense": "head.dense", "head.norm": "head.norm"},
        "tokens": {"head.dense": "head.dense", "head.norm": "head.norm", "head.classifier": "classifier"},
        "sequence": {"head.pooler": "head.dense", "head.norm": "head.norm", "head.classifier": "classifier"},
        "span": {"head.dense": "head.dense", "head.norm": "head.norm", "head.classifier": "classifier"},
    }
    shared_head_prefixes = ("head.",)
    output_bias = "decoder.bias"
    output_copies = ("decoder.weight",)

    @override
    def encoder(self, config: ModernBertConfig, vocabulary: VocabularyFacts) -> Encoder:
        return ModernBertEncoder(config, vocabulary)

    @override
    def head(self, kind: str, config: ModernBertConfig, encoder: Encoder, num_labels: int) -> nn.Module:
        head: nn.Module
        if kind == "masked_lm":
            head = ModernMaskedLMHead(encoder.input_embeddings, config)
        else:
            head_class = ModernSequenceHead if kind == "sequence" else ModernTokenHead
            head = head_class(config, num_labels)
        _initialise(head, config)
        return head

    @override
    def names(self, config: ModernBertConfig, kind: str | None) -> NameMap:
        """Return the Hugging Face names by parameter, without the first norm and disabled biases."""
        return {name: hf_names for name, hf_names in super().names(config, kind).items() if _exists(name, config)}

    @override
    def encoder_names(self, config: ModernBertConfig) -> NameMap:
        """Return the Hugging Face names by parameter, if all norms and biases existed; `names` removes absent ones."""
        norms = {"encoder.word_norm": "model.embeddings.norm", "encoder.last_norm": "model.final_norm"}
        layers = map_layers(self.layer_names(config), self.layer)
        words: NameMap = {"encoder.word.weight": (self.vocabulary_tensors(config)[0],)}
        return words | with_weight_and_bias({**norms, **layers})

    @override
    def vocabulary_tensors(self, config: ModernBertConfig) -> Sequence[str]:
        return "model.embeddings.tok_embeddings.weight", self.output_bias


def _exists(parameter: str, config: ModernBertConfig) -> bool:
    module, _, name = parameter.rpartition(".")
    if module == "encoder.layers.0.attention_norm":
        return False
    if name != "bias":
        return True
    setting = _BIASES.get(module.rpartition(".")[2])  # None: a bias that always exists
    return setting is None or bool(getattr(config, setting))


FAMILY = ModernBertFamily()
