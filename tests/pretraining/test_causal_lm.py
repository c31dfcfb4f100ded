"""Causal LM: exact targets and counts, golden losses, and masked LM after it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import pytest
import torch
import transformers

from domainbert.data.batches import GlobalOrder, Share
from domainbert.data.packing import IGNORE_INDEX
from domainbert.encoders.bert.config import BertConfig
from domainbert.encoders.deberta_v2.config import DebertaV2Config
from domainbert.pretraining.batches import TrainRows
from domainbert.pretraining.data_module import PretrainingData
from domainbert.pretraining.module import Pretraining
from domainbert.pretraining.objectives.causal_lm.config import CausalLM
from domainbert.pretraining.objectives.causal_lm.objective import next_tokens
from domainbert.training.config import OptimConfig, ScheduleConfig
from tests.interface.snapshot import check_interface
from tests.refusals import refused
from tests.tiny_training import Losses
from tests.toy_corpus import corpus_readers

NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
BERT = BertConfig(32, 2, 2, 48, max_position_embeddings=32, initializer_range=0.1, **NO_DROPOUT)
LENGTH, BATCH = 24, 8
WHOLE = Share()
GOLDEN = [4.044949, 4.018626, 3.98939, 4.019703, 3.895764, 3.829562, 3.864042, 3.836884, 3.871802, 3.825525]


def micro_batch(reader: Any, share: Share = WHOLE, number: int = 0) -> dict[str, Any]:
    rows = TrainRows(reader, GlobalOrder(reader.plan.num_rows, BATCH, seed=0), share, range(3, 1000))
    return dict(rows[number])


def fit(module: Pretraining, corpus: Any, num_steps: int, out: Path) -> tuple[list[float], dict[str, float]]:
    """Train, and return the loss of each step and the metrics of the last validation."""
    losses = Losses()
    data = PretrainingData(corpus, module.objective_config, max_length=LENGTH, batch_size=BATCH, num_workers=0)
    trainer = lightning.Trainer(
        max_steps=num_steps,
        val_check_interval=num_steps,
        check_val_every_n_epoch=None,
        callbacks=[losses],
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=out,
    )
    trainer.fit(module, data)
    return losses.values, {name: float(value) for name, value in trainer.callback_metrics.items()}


def test_next_tokens_of_rows() -> None:
    ids = np.array([[1, 7, 8, 2, 1, 9, 2, 0, 0], [1, 5, 4, 6, 2, 1, 9, 9, 9]])
    segments = np.array([[1, 1, 1, 1, 2, 2, 2, 0, 0], [1, 1, 1, 1, 1, 2, 2, 2, 2]])
    none = IGNORE_INDEX
    assert next_tokens(ids, segments, frozenset({0, 1, 2, 3, 4})).tolist() == [
        [7, 8, none, none, 9, none, none, none, none],
        [5, none, 6, none, none, 9, 9, 9, none],
    ]
    # a text that begins with an ordinary token is no continuation of the text before it
    assert next_tokens(ids[:1, 1:3], np.array([[1, 2]]), frozenset()).tolist() == [[none, none]]


def test_batches_hide_nothing_and_count_every_ordinary_token(toy_corpus: Any, toy_tokenizer: Any) -> None:
    """Counts are of the global batch, whatever the ranks and micro-batches."""
    reader, validation = corpus_readers(toy_corpus, CausalLM().build(toy_tokenizer), LENGTH)
    batch, special = micro_batch(reader), toy_tokenizer.special_ids
    assert batch["segment_ids"].max() > 1 and (batch["segment_ids"] == 0).any()  # several texts in a row, padding
    assert toy_tokenizer.mask_id not in batch["input_ids"]
    assert batch["positions"].tolist() == list(range(BATCH * LENGTH))
    ordinary = ~np.isin(batch["input_ids"], sorted(special))
    num_targets = int((batch["targets"] != IGNORE_INDEX).sum())
    assert batch["num_targets"] == num_targets == int(ordinary.sum()) > 100
    parts = [micro_batch(reader, Share(rank, 2, 2), number) for rank in range(2) for number in range(2)]
    assert sum(int((part["targets"] != IGNORE_INDEX).sum()) for part in parts) == num_targets
    assert {part["num_targets"] for part in parts} == {num_targets}
    assert isinstance(validation.objective.config, CausalLM)


def test_ten_steps_and_masked_lm_after_them(toy_corpus: Any, toy_tokenizer: Any, tmp_path: Path) -> None:
    """Golden losses; masked LM continues from the folder with the weights, and with attention in both directions."""
    torch.manual_seed(0)
    module = Pretraining(
        BERT, toy_tokenizer, CausalLM(), optim=OptimConfig(lr=1e-2), schedule=ScheduleConfig(warmup_steps=2)
    )
    losses, metrics = fit(module, toy_corpus, 10, tmp_path)
    assert losses == pytest.approx(GOLDEN, rel=1e-4)
    assert metrics["validation/bits_per_character"] == pytest.approx(
        metrics["validation/loss"] / math.log(2) * toy_corpus.validation.tokens_per_character
    )
    check_interface("metrics", metrics, "causal_lm")
    module.save_pretrained(tmp_path / "causal")
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "causal").eval()
    continued = Pretraining.from_pretrained(tmp_path / "causal", optim=OptimConfig(lr=1e-12))
    fit(continued, toy_corpus, 1, tmp_path)
    assert not continued.model.encoder.causal
    torch.testing.assert_close(
        continued.model.encoder.input_embeddings.weight.detach(), theirs.get_input_embeddings().weight.detach()
    )


def test_families_without_causal_attention_are_refused(toy_tokenizer: Any) -> None:
    config = DebertaV2Config(32, 2, 2, 48, max_position_embeddings=32)
    with refused(found="CausalLM with DebertaV2Config..."):
        Pretraining(config, toy_tokenizer, CausalLM())
