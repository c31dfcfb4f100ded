"""BERT encoder, heads, and parameter names in Hugging Face checkpoints."""

from __future__ import annotations

from domainbert.encoders.bert.config import BertConfig
from domainbert.encoders.family import LABEL_HEADS, Family

_MASKED_LM = {"head.dense": "cls.predictions.transform.dense", "head.norm": "cls.predictions.transform.LayerNorm"}
_HEADS = {
    **LABEL_HEADS,
    "masked_lm": _MASKED_LM,
    "pretraining": {**_MASKED_LM, "head.pooler": "bert.pooler.dense", "head.classifier": "cls.seq_relationship"},
    "sequence": {"head.pooler": "bert.pooler.dense", "head.classifier": "classifier"},
}


class BertFamily(Family[BertConfig]):
    """BERT (Devlin et al. 2019)."""

    prefix = "bert."
    heads = _HEADS
    output_bias = "cls.predictions.bias"
    output_copies = ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias")


FAMILY = BertFamily()
