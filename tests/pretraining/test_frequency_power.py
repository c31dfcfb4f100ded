"""Tokens that are hidden the less, the more frequent they are: XLM's masks."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest

from domainbert.base.errors import DomainbertError
from domainbert.data.packing import IGNORE_INDEX
from domainbert.data.splits import PreparedCorpus
from domainbert.pretraining.config import MaskingConfig
from domainbert.pretraining.masking import Masker
from domainbert.pretraining.objective import Key
from domainbert.pretraining.objectives.masked_lm.config import MaskedLM
from domainbert.pretraining.objectives.masked_lm.objective import loss_without_context
from domainbert.pretraining.token_prediction import unigram_entropy
from domainbert.tokenization.load import DomainTokenizer, load_tokenizer
from tests.toy_corpus import corpus_readers

MASK, SEP = 4, 3
COUNTS = np.asarray([0] * 5 + [100, 25, 4, 1, 0])


def masker(power: float, rate: float) -> Masker:
    masking = MaskingConfig(rate, 1.0, 0.0, frequency_power=power)
    return Masker(masking, MASK, len(COUNTS), frozenset(range(5)), COUNTS)


@pytest.mark.parametrize("power", [0.5, 1.0])
def test_sets_of_tokens_come_as_often_as_drawing_one_after_the_other_says(power: float) -> None:
    """Two of five in proportion to the count to minus a power, without replacement, in 40,000 rows; counted out over
    all orders. An entry that the corpus lacks counts as one that stands there once."""
    rows = np.tile([SEP, 5, 6, 7, 8, 9, SEP], (40_000, 1))
    key = Key(0, 0, np.zeros(40_000, np.int64), np.arange(40_000))
    masked = masker(power, 0.4).mask(rows, np.ones_like(rows, dtype=bool), key)
    assert (masked.labels[:, :2] != IGNORE_INDEX).all() and (masked.labels[:, 2:] == IGNORE_INDEX).all()
    weights = {token: max(int(COUNTS[token]), 1) ** -power for token in range(5, 10)}
    total, checked = sum(weights.values()), 0
    for one, other in permutations(weights, 2):
        if one > other:
            continue
        chance = sum(
            weights[first] / total * weights[second] / (total - weights[first])
            for first, second in ((one, other), (other, one))
        )
        found = (masked.labels[:, :2] == [one, other]).all(axis=1).mean()
        assert abs(found - chance) < 4.5 * np.sqrt(chance * (1 - chance) / 40_000)
        checked += 1
    assert checked == 10


def test_equal_counts_hide_what_no_power_hides() -> None:
    rows = np.tile([SEP, 5, 6, 7, 8, 9, SEP], (50, 1))
    key = Key(7, 0, np.zeros(50, np.int64), np.arange(50))
    alike = Masker(masker(0.5, 0.4).config, MASK, len(COUNTS), frozenset(range(5)), np.full(len(COUNTS), 9))
    found = [one.mask(rows, rows > 4, key).positions for one in (alike, masker(0.0, 0.4), masker(0.5, 0.4))]
    assert np.array_equal(found[0], found[1]) and not np.array_equal(found[0], found[2])


def test_counts_are_those_of_the_training_split(toy_corpus: Any, toy_tokenizer: Any) -> None:
    config = MaskedLM(MaskingConfig(frequency_power=0.5))
    objective = config.build(toy_tokenizer).for_training(toy_corpus)
    tokens = toy_corpus.train.take(0, toy_corpus.train.num_tokens)
    assert objective.masker.counts.tolist() == np.bincount(tokens, minlength=toy_tokenizer.vocab_size).tolist()
    train, validation = corpus_readers(toy_corpus, objective, 24)
    rows = np.arange(train.plan.num_rows)
    batch = train.batch(Key(0, 0, np.zeros_like(rows), rows))
    counts = train.objective.counts(train.plan, Key(0, 0, np.zeros_like(rows), rows))
    assert counts == {"num_targets": (batch["targets"] != IGNORE_INDEX).sum()}
    assert validation.objective.masker.weights is None
    plain = MaskedLM().build(toy_tokenizer)
    assert plain.for_training(toy_corpus) is plain
    with pytest.raises(
        DomainbertError, match=r"^masking\.frequency_power: found 0\.5; expected 0, because the objective does not"
    ):
        corpus_readers(toy_corpus, config.build(toy_tokenizer), 24)[0].batch(Key(0, 0, rows[:1], rows[:1]))


def test_without_context_the_guess_is_of_what_was_hidden_in_training(
    toy_corpus: Any, toy_tokenizer: DomainTokenizer
) -> None:
    """By hand, where all are hidden; a model that was trained so has the higher loss on a usual validation."""
    counts, truth = (
        np.bincount(split.take(0, split.num_tokens), minlength=toy_corpus.vocab_size).astype(float)
        for split in (toy_corpus.train, toy_corpus.validation)
    )
    special = toy_tokenizer.special_ids
    counts[list(special)] = truth[list(special)] = 0
    guess = (counts + 1) * np.maximum(counts, 1) ** -0.5
    wanted = -(truth / truth.sum() * np.log(guess / guess.sum())).sum() - 0.3
    found = loss_without_context(toy_corpus, MaskingConfig(0.15, 1.0, 0.0, frequency_power=0.5), special)
    assert found == pytest.approx(wanted) and found > unigram_entropy(toy_corpus, special) - 0.3


@pytest.mark.parametrize("other", [{"whole_word": True}, {"spans": "ngram"}])
def test_words_have_no_frequency(other: dict[str, Any]) -> None:
    with pytest.raises(
        DomainbertError, match=rf"frequency_power: found 0\.5 with {next(iter(other))}; expected only one of the"
    ):
        MaskingConfig(frequency_power=0.5, **other)


def test_a_loss_is_judged_by_the_masks_of_validation(toy_corpus: PreparedCorpus) -> None:
    """Validation keeps a tenth of the tokens and replaces another, whatever is trained."""
    tokenizer = load_tokenizer(toy_corpus.tokenizer_folder)
    judged = [
        MaskedLM(masking).build(tokenizer).judge(toy_corpus, {"loss": 9.0})[0]["loss_without_context"]
        for masking in (MaskingConfig(), MaskingConfig(mask_share=1.0, random_share=0.0))
    ]
    assert judged[0] == judged[1] == loss_without_context(toy_corpus, MaskingConfig(), tokenizer.special_ids)
