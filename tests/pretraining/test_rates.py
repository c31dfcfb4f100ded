"""A share of masked tokens that changes over the steps: exact, static in its shapes, and a function of the step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from domainbert.data.batches import GlobalOrder, Share
from domainbert.data.packing import IGNORE_INDEX
from domainbert.distillation.batches import CountedRows
from domainbert.pretraining.batches import PackedRowsReader, TrainRows
from domainbert.pretraining.config import MaskingConfig
from domainbert.pretraining.objective import Objective
from domainbert.pretraining.objectives.masked_lm.config import MaskedLM
from domainbert.pretraining.objectives.replaced_tokens.config import ReplacedTokens
from tests.refusals import refused
from tests.toy_corpus import corpus_readers

LENGTH, STEPS, BATCH = 24, 10, 8
MASKING = MaskingConfig(0.3, whole_word=True, final_mlm_probability=0.15)
OBJECTIVES = {
    "masked LM": (MaskedLM(MASKING), "num_targets"),
    "replaced tokens": (ReplacedTokens(mlm_probability=0.3, whole_word=True, final_mlm_probability=0.15), "num_masked"),
}
WHOLE = Share()


def rows_of(reader: PackedRowsReader, steps: range, share: Share = WHOLE) -> TrainRows:
    return TrainRows(reader, GlobalOrder(reader.plan.num_rows, BATCH, seed=3), share, steps)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_each_step_has_its_share_to_the_token(toy_corpus: Any, toy_tokenizer: Any, name: str) -> None:
    """In a straight line from 30 % in the first of ten steps to 16.5 % in the last, where the next would be 15 %."""
    config, count = OBJECTIVES[name]
    objective: Objective[Any] = config.build(toy_tokenizer)
    train, validation = corpus_readers(toy_corpus, objective, LENGTH)
    batches, slots = rows_of(train, range(STEPS)), BATCH * round(0.3 * LENGTH)
    for step in range(STEPS):
        rate = 0.3 - 0.15 * step / STEPS
        maskable = train.plan.maskable_tokens[batches.order.batch(step)[1]]
        batch = batches[step]
        assert batch["targets"].shape == (slots,)
        assert batch[count] == (batch["targets"] != IGNORE_INDEX).sum() == np.maximum(np.rint(rate * maskable), 1).sum()
    assert validation.objective.config.masking.mlm_probabilities == (0.15, 0.15)
    assert not validation.objective.config.masking.whole_word


def test_no_final_share_is_the_same_share_in_every_step() -> None:
    config = MaskingConfig(0.1)
    assert {config.mlm_probability_at(step / 7) for step in range(7)} == {0.1}
    rising = MaskingConfig(0.1, final_mlm_probability=0.5)
    assert [rising.mlm_probability_at(one) for one in (0.0, 0.25, 0.5)] == pytest.approx([0.1, 0.2, 0.3])
    assert [one.step_with_most_targets(range(3, 9)) for one in (MASKING, MaskingConfig(0.3), rising)] == [3, 3, 8]
    with refused(where="final_mlm_probability", found="1..."):
        MaskingConfig(final_mlm_probability=1.0)


def test_the_rest_of_a_run_and_its_shares_are_the_same(toy_corpus: Any, toy_tokenizer: Any) -> None:
    """However it is divided over ranks and micro-batches, and wherever it begins; in `distill`, too."""
    train, _ = corpus_readers(toy_corpus, MaskedLM(MASKING).build(toy_tokenizer), LENGTH)
    whole, rest = rows_of(train, range(STEPS)), rows_of(train, range(6, STEPS))
    for world_size, accumulation in ((1, 1), (1, 4), (2, 1), (2, 4), (4, 2)):
        for step in (6, 9):
            batch, ids = whole[step], np.zeros((BATCH, LENGTH), np.int64)
            found = np.zeros((BATCH, LENGTH), np.int64)  # the targets, where they stand
            wanted = found.copy()
            used = batch["targets"] != IGNORE_INDEX
            wanted.ravel()[batch["positions"][used]] = batch["targets"][used]
            assert np.array_equal(rest[step - 6]["input_ids"], batch["input_ids"])
            for rank in range(world_size):
                share = Share(rank, world_size, accumulation)
                parts = CountedRows(rows_of(train, range(6, STEPS), share))
                for number in range(accumulation):
                    part, places = parts[(step - 6) * accumulation + number], share.select(np.arange(BATCH), number)
                    assert part["num_targets"] == batch["num_targets"]
                    ids[places] = part["input_ids"]
                    found[places[part["positions"] // LENGTH], part["positions"] % LENGTH] = part["targets"]
                    assert part["targets"].min() >= 0, "without unused places"
            assert np.array_equal(ids, batch["input_ids"]) and np.array_equal(found, wanted)
