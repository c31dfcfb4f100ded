"""Vocabularies and tiny random models of several families, and pairs of texts of which the second is often longer."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from domainbert.encoders.bert.config import BertConfig
from domainbert.encoders.config import EncoderConfig, VocabularyFacts
from domainbert.encoders.deberta_v2.config import DebertaV2Config
from domainbert.encoders.distilbert.config import DistilBertConfig
from domainbert.encoders.families import build_model
from domainbert.encoders.heads import EncoderWithHead
from domainbert.encoders.modernbert.config import ModernBertConfig
from domainbert.encoders.roberta.config import RobertaConfig
from domainbert.labelled.contents import TextPair
from domainbert.stages.vocab import vocab
from domainbert.tokenization.load import DomainTokenizer, load_tokenizer

SIZES: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
FAMILIES: dict[str, tuple[str, EncoderConfig]] = {
    "bert": ("bert", BertConfig(**SIZES, max_position_embeddings=64)),
    "roberta": ("roberta", RobertaConfig(**SIZES, max_position_embeddings=66, type_vocab_size=1)),
    "deberta-v2": ("deberta-v2", DebertaV2Config(**SIZES, max_position_embeddings=64, type_vocab_size=2)),
    "distilbert": ("bert", DistilBertConfig(32, 2, 2, 48, max_position_embeddings=64)),
    "modernbert": ("modernbert", ModernBertConfig(**SIZES, max_position_embeddings=64)),
}
"""The layout of the vocabulary of each family, and an architecture."""

_WORDS = "café loans to firms rose while the bank's rates fell by 3.5 % in Zürich and 中国 [x] naïve prices"
_DRAW = random.Random(0)
TEXTS = [" ".join(_DRAW.choices(_WORDS.split(), k=_DRAW.randint(3, 12))) for _ in range(200)]
PAIRS = [TextPair(TEXTS[2 * number], TEXTS[2 * number + 1]) for number in range(8)]

Folders = Callable[[str], Path]


@pytest.fixture(scope="session")
def vocabularies(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """The folder of a vocabulary with a layout."""
    root = tmp_path_factory.mktemp("vocabularies")
    sizes = {"roberta": 320, "modernbert": 320}  # where all bytes are entries
    (root / "corpus.txt").write_text("\n".join(TEXTS))

    def folder(layout: str) -> Path:
        out = root / layout
        if not out.exists():
            out.mkdir()
            vocab(
                out=out,
                corpus=root / "corpus.txt",
                kind=layout,
                vocab_size=sizes.get(layout, 128),
            )
        return out

    return folder


def tiny_model(family: str, vocabularies: Folders, outputs: int) -> tuple[EncoderWithHead, DomainTokenizer]:
    """A random model of a family in eval mode, with a head on texts, in which no bias is 0; and its vocabulary."""
    layout, config = FAMILIES[family]
    tokenizer = load_tokenizer(vocabularies(layout))
    torch.manual_seed(0)
    model = build_model(config, VocabularyFacts(tokenizer.vocab_size, tokenizer.pad_id), "sequence", outputs).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model, tokenizer
