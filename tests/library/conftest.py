"""A folder with a small corpus, a tagger and a classifier, as examples and snippets name them."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`corpus.txt`, and the models in `model` and `classifier`."""
    import torch

    from domainbert import BertConfig, train_tokenizer
    from domainbert.encoders.config import VocabularyFacts
    from domainbert.encoders.families import build_model
    from domainbert.models.saving import save_model

    made = tmp_path_factory.mktemp("library")
    texts = [f"The high court heard case number {number}." for number in range(200)]
    (made / "corpus.txt").write_text("\n".join(texts), encoding="utf-8")
    tokenizer = train_tokenizer(texts, vocab_size=128)
    config = BertConfig(16, 2, 2, 32, max_position_embeddings=64)
    facts = VocabularyFacts(tokenizer.vocab_size, tokenizer.pad_id)
    models = {"model": ("tokens", ["O", "B-law", "I-law"]), "classifier": ("sequence", ["civil", "criminal"])}
    torch.manual_seed(0)
    for name, (head, labels) in models.items():
        (made / name).mkdir()
        save_model(made / name, build_model(config, facts, head, len(labels)), config, tokenizer, head, "", labels)
    return made
