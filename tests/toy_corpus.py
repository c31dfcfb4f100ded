"""A toy corpus that goes the whole way: a prepared folder on disk, packed into rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from domainbert.corpus.documents import Document
from domainbert.corpus.report import CorpusReport
from domainbert.data.parallel_encoding import encode_documents
from domainbert.data.prepared import open_prepared
from domainbert.data.prepared_writer import PreparedWriter
from domainbert.data.splits import PreparedCorpus
from domainbert.pretraining.batches import PackedRowsReader, validation_reader
from domainbert.pretraining.config import MaskingConfig
from domainbert.pretraining.objective import Objective
from domainbert.pretraining.objectives.masked_lm.config import MaskedLM
from domainbert.tokenization.kinds.wordpiece.kind import SPECIAL_TOKENS, bert_backend
from domainbert.tokenization.load import DomainTokenizer, load_tokenizer

WORDS = ["men", "rate", "bank", "##s", "##ing", "'", "s", *(f"w{number}" for number in range(38))]


@pytest.fixture(scope="session")
def toy_tokenizer() -> DomainTokenizer:
    """50 entries; `men`, `rate`, `bank` take `##s` and `##ing`, and anything else is [UNK]."""
    vocab = {token: number for number, token in enumerate([*SPECIAL_TOKENS.values(), *WORDS])}
    return DomainTokenizer(bert_backend(vocab, {}), model_max_length=64)


@pytest.fixture(scope="session")
def toy_corpus(toy_tokenizer: DomainTokenizer, tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    """80 documents of up to 60 words; one word in ten is [UNK] and every fifth document is for validation."""
    folder = tmp_path_factory.mktemp("prepared")
    tokenizer_folder = tmp_path_factory.mktemp("tokenizer")
    toy_tokenizer.save(tokenizer_folder)
    generator = np.random.default_rng(0)
    words = [*WORDS[:3], "rates", "bankings", "men's", *WORDS[7:], *["unheard"] * 4]
    documents = [
        Document(
            id=f"d{number}",
            text=" ".join(generator.choice(words, size=1 + generator.integers(60))),
            split="validation" if number % 5 == 0 else "train",
        )
        for number in range(80)
    ]
    writer = PreparedWriter(folder, load_tokenizer(tokenizer_folder))
    for batch in encode_documents(documents, load_tokenizer(tokenizer_folder), 0):
        writer.write(batch)
    writer.close(CorpusReport())
    return open_prepared([folder])


def corpus_readers(
    corpus: PreparedCorpus, objective: Objective[Any], max_length: int
) -> tuple[PackedRowsReader, PackedRowsReader]:
    """Readers of the training and the validation split."""
    return PackedRowsReader(corpus.train, objective, max_length), validation_reader(corpus, objective, max_length)


MASKINGS = {
    "pieces": MaskingConfig(),
    "words": MaskingConfig(whole_word=True),
    "falling rate": MaskingConfig(0.3, whole_word=True, final_mlm_probability=0.15),
}


@pytest.fixture(scope="module", params=MASKINGS)
def readers(request: pytest.FixtureRequest, toy_corpus: PreparedCorpus, toy_tokenizer: DomainTokenizer) -> Any:
    """Training and validation rows of the toy corpus, of 24 tokens; single pieces, or whole words, also at a
    rate that falls, are masked."""
    objective = MaskedLM(MASKINGS[request.param]).build(toy_tokenizer)
    return corpus_readers(toy_corpus, objective, max_length=24)
