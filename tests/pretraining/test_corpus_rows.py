from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from domainbert.data import splits
from domainbert.pretraining.config import MaskingConfig
from domainbert.pretraining.objectives.masked_lm.config import MaskedLM
from domainbert.pretraining.objectives.masked_lm.objective import loss_without_context
from domainbert.pretraining.token_prediction import unigram_entropy
from tests.toy_corpus import corpus_readers


def test_both_splits_are_planned_whole(toy_corpus, toy_tokenizer):
    masking = MaskingConfig(mlm_probability=0.3)
    train, validation = corpus_readers(toy_corpus, MaskedLM(masking).build(toy_tokenizer), 32)
    for reader, split in ((train, toy_corpus.train), (validation, toy_corpus.validation)):
        assert reader.plan.lengths.sum() == split.num_tokens and reader.plan.row_length == 32
        unknown = int((split.take(0, split.num_tokens) == toy_tokenizer.unk_id).sum())
        assert reader.plan.maskable.sum() == split.num_tokens - unknown < split.num_tokens
    assert train.objective.masker.config == masking
    assert validation.objective.masker.config == MaskingConfig(0.15, 0.8, 0.1, False)


def test_unigram_entropy_by_hand(toy_corpus, toy_tokenizer, monkeypatch):
    """Of the tokens that may be hidden: unknown ones are not."""
    monkeypatch.setattr(splits, "_CHUNK_TOKENS", 100)
    read, validation = (
        [token for token in split.take(0, split.num_tokens).tolist() if token not in toy_tokenizer.special_ids]
        for split in (toy_corpus.train, toy_corpus.validation)
    )
    train = Counter(read)
    assert len(read) < toy_corpus.train.num_tokens and len(validation) < toy_corpus.validation.num_tokens
    total = len(read) + toy_corpus.vocab_size
    wanted = -np.mean([np.log((train[token] + 1) / total) for token in validation])
    assert unigram_entropy(toy_corpus, toy_tokenizer.special_ids) == pytest.approx(wanted, rel=1e-12)
    assert 2.5 < wanted < np.log(toy_corpus.vocab_size)


def test_a_loss_is_judged_by_the_masks_of_validation(toy_corpus, toy_tokenizer):
    """Validation keeps a tenth of the tokens and replaces another, whatever is trained."""
    judged = [
        MaskedLM(masking).build(toy_tokenizer).judge(toy_corpus, {"loss": 9.0})[0]["loss_without_context"]
        for masking in (MaskingConfig(), MaskingConfig(mask_share=1.0, random_share=0.0))
    ]
    assert judged[0] == judged[1] == loss_without_context(toy_corpus, MaskingConfig(), toy_tokenizer.special_ids)
