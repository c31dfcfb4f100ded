"""Base of the modules for packed rows: tokenizer, objective, and checkpoints that contain both."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from weakref import ReferenceType, ref

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.utils.data import Dataset

from domainbert.base.errors import DomainbertError
from domainbert.data.packing import Batch
from domainbert.data.splits import PreparedCorpus
from domainbert.encoders.heads import pool_texts
from domainbert.encoders.packed import Packed
from domainbert.pretraining.batches import TrainRows
from domainbert.pretraining.config import ObjectiveConfig
from domainbert.pretraining.objective import Objective
from domainbert.tokenization.load import DomainTokenizer, load_tokenizer
from domainbert.training.config import OptimConfig, ScheduleConfig
from domainbert.training.hparams import read_argument
from domainbert.training.module import TrainedModule

_TOKENIZER_KEY = "domainbert_tokenizer"  # checkpoint key of `tokenizer.json` and the special tokens by role


class RowsModule(TrainedModule):
    """Base of the modules that train on packed rows of a corpus.

    Args, in addition to `TrainedModule`:
        tokenizer: tokenizer of the corpus, or its folder; None takes the tokenizer that prepared the corpus.
        objective: masking of the rows, and the targets.
    """

    data_class = "PretrainingData"
    validates_by_language = True
    objective: Objective[Any]

    def __init__(
        self,
        tokenizer: str | Path | DomainTokenizer | None,
        objective: ObjectiveConfig,
        optim: OptimConfig,
        schedule: ScheduleConfig,
        seed: int,
    ) -> None:
        super().__init__(optim, schedule, seed)
        self.tokenizer = load_tokenizer(Path(tokenizer)) if isinstance(tokenizer, (str, Path)) else tokenizer
        self.objective_config: ObjectiveConfig = read_argument("objective", ObjectiveConfig, objective)
        # corpus of `objective`; None for the objective of a checkpoint; weak, because callbacks copy the module
        self._corpus: ReferenceType[PreparedCorpus] | None = None

    @property
    def fingerprint(self) -> str | None:
        """Fingerprint of the module's vocabulary; None if it takes the vocabulary of the corpus."""
        return None if self.tokenizer is None else self.tokenizer.fingerprint

    def objective_for(self, corpus: PreparedCorpus) -> Objective[Any]:
        """Return the objective for training on a corpus, built once for each corpus; a module without a tokenizer takes
        the corpus's.

        Raises:
            DomainbertError: the vocabulary of the module differs from the corpus's.
        """
        self.tokenizer = self.tokenizer or load_tokenizer(corpus.tokenizer_folder)
        if self.tokenizer.fingerprint != corpus.tokenizer_fingerprint:
            raise DomainbertError(
                f"prepared: {corpus.tokenizer_folder.parent} has another vocabulary than the model; expected a corpus "
                "prepared with the tokenizer of the model"
            )
        if self._corpus is None or self._corpus() is not corpus:
            self.objective = self.objective_config.build(self.tokenizer)
            self._corpus = ref(corpus)
        return self.objective

    def wrap(self, rows: TrainRows) -> Dataset[Batch]:
        """Return the micro-batches of the objective as inputs of the module; by default unchanged."""
        return rows

    def report(self, stage: str) -> None:
        """Log the metrics of a stage, `validation` or `test`, and reset the sums that `validation_step` adds to."""
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
        windows = pool_texts("mean", self.model.encoder(tokens), tokens.segment_ids, batch["positions"])
        sums = windows.new_zeros(len(batch["items"]), windows.shape[1]).index_add(0, example, windows)
        return sums / torch.bincount(example).unsqueeze(-1)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the tokenizer, so that `load_from_checkpoint` needs no other file."""
        super().on_save_checkpoint(checkpoint)
        assert self.tokenizer is not None
        facts = {"special_tokens": dict(self.tokenizer.special_tokens), "max_length": self.tokenizer.model_max_length}
        arguments = checkpoint.get(self.CHECKPOINT_HYPER_PARAMS_KEY, {})
        if "tokenizer" in arguments:
            arguments["tokenizer"] = None  # its folder may be moved or changed
        checkpoint[_TOKENIZER_KEY] = {"backend": self.tokenizer.copy_backend().to_str(), **facts}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Build the models with the tokenizer of the checkpoint, unless they exist."""
        super().on_load_checkpoint(checkpoint)
        if self.is_built:
            return
        saved = checkpoint.get(_TOKENIZER_KEY)
        if saved is None:
            raise DomainbertError(f"ckpt_path: found no tokenizer; expected a checkpoint of {type(self).__name__}")
        backend = Tokenizer.from_str(saved["backend"])
        self.tokenizer = DomainTokenizer(backend, saved["special_tokens"], saved["max_length"])
        self.objective = self.objective_config.build(self.tokenizer)
        self.build(None)

    def build(self, corpus: PreparedCorpus | None) -> None:
        """Build the models; `corpus` is None if their weights come from a checkpoint."""
        raise NotImplementedError
