"""Architecture of the encoder; does not import torch."""

from dataclasses import dataclass

from domainbert.base.fields import Dropout, Length
from domainbert.encoders.config import Deviation, EncoderConfig, Heads, Layers, Width, standard_classes


@dataclass(frozen=True)
class PreNormConfig(EncoderConfig):
    """A pre-norm encoder (Xiong et al. 2020)."""

    model_type = "pre_norm"  # the name of this folder
    architectures = standard_classes("PreNorm")
    activation = "silu"  # a fixed size: no field, so no key of config.json
    layer_norm_eps = 1e-5

    hidden_size: Width = 256
    num_layers: Layers = 4
    num_heads: Heads = 4
    intermediate_size: Width = 1024
    max_length: Length = 512
    dropout: Dropout = 0.1
    attention_dropout: Dropout = 0.1
    initializer_range: Deviation = 0.02
