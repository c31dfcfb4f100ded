"""Base of the modules for packed rows: checks of the data, vectors of texts, and checkpoints with the tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor

from domainbert.base.errors import DomainbertError
from domainbert.encoders.heads import pool_texts
from domainbert.encoders.packed import Packed
from domainbert.pretraining.data_module import PretrainingData
from domainbert.tokenization.load import DomainTokenizer, load_tokenizer
from domainbert.training.data_module import TrainingData
from domainbert.training.loaders import SPARE
from domainbert.training.module import TrainedModule


class RowsModule(TrainedModule):
    """Base of the modules that train on packed rows of a corpus."""

    tokenizer: DomainTokenizer

    def setup(self, stage: str) -> None:
        """Check the data module. Raise `DomainbertError` for another data module of this package, another vocabulary
        than of the model, or rows that are longer than the positions of a model."""
        super().setup(stage)
        data = getattr(self.trainer, "datamodule", None)
        if isinstance(data, TrainingData):
            self.check_data(data, stage)

    def check_data(self, data: TrainingData, stage: str) -> None:
        """Raise `DomainbertError` if the module cannot train on the data; see `setup`."""
        if not isinstance(data, PretrainingData):
            found, expected = f"{type(data).__name__} with {type(self).__name__}", "PretrainingData"
            raise DomainbertError(where=f"trainer.{TrainerFn(stage).value}", found=found, expected=expected)
        if data.tokenizer.fingerprint != self.tokenizer.fingerprint:
            raise DomainbertError(
                f"{data.corpus.tokenizer_folder.parent} has another vocabulary than the model",
                where="prepared",
                expected="a corpus prepared with the tokenizer of the model",
            )
        self.check_rows(data)

    def check_rows(self, data: PretrainingData) -> None:
        """Raise `DomainbertError` if the module cannot read the rows of the data."""
        raise NotImplementedError

    def forward(self, batch: Mapping[str, Any]) -> Tensor:
        """Return the logits (N, vocabulary) of the main model at the positions of a batch."""
        logits: Tensor = self.model(Packed.of(batch), batch["positions"])
        return logits

    def report(self, stage: str) -> None:
        """Log the metrics of a stage, `validation` or `test`, from the sums that `validation_step` adds to."""
        raise NotImplementedError

    def on_validation_epoch_end(self) -> None:
        """Log the metrics of the validation sets."""
        self.report("validation")

    def test_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Add a batch of the test set to the sums."""
        self.validation_step(batch, batch_idx)

    def on_test_epoch_end(self) -> None:
        """Log the metrics of the test set."""
        self.report("test")

    def predict_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """Return the vectors of the texts of a batch (texts, H), in order: the mean of the last hidden states of all
        tokens, special tokens included. A text longer than a row has overlapping windows, whose means are averaged."""
        tokens, example = Packed.of(batch), batch["example"]  # (windows,) index of the text of each window
        windows = pool_texts("mean", self.model.hidden_states(tokens), tokens.segment_ids, batch["positions"])
        sums = windows.new_zeros(len(batch["items"]), windows.shape[1]).index_add(0, example, windows)
        means = sums / torch.bincount(example).unsqueeze(-1)
        return means[:0] if SPARE in batch else means


def tokenizer_of(source: str | Path | DomainTokenizer | Mapping[str, Any]) -> DomainTokenizer:
    """Return a tokenizer from its folder, or from the plain values of a checkpoint."""
    if isinstance(source, Mapping):
        return DomainTokenizer.from_plain(source)
    return source if isinstance(source, DomainTokenizer) else load_tokenizer(source)
