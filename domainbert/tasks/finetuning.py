"""Fine-tuning on any labelled task as a LightningModule."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor
from torch.nn import ModuleDict
from typing_extensions import Self, override

from domainbert.base.errors import FINETUNED, NO_TASK_HEAD, DomainbertError
from domainbert.encoders.config import check_length
from domainbert.encoders.packed import Packed
from domainbert.encoders.torch_internals import SeededDraws
from domainbert.encoders.used_entries import (
    UsedEntries,
    embedding_positions,
    expand_saved_embeddings,
    reduce_loaded_embeddings,
)
from domainbert.models.card import CardConfig
from domainbert.models.folder import ModelFolder
from domainbert.tasks.config import TaskConfig
from domainbert.tasks.data_checks import check_data
from domainbert.tasks.finetuning_config import FineTuningSettings
from domainbert.tasks.initial_model import InitialModel, ModelSource, check_same_labels, initial_model, plain_model
from domainbert.tasks.labelled_data import LabelledData
from domainbert.tasks.module_runtime import BatchRuntime, ModuleRuntime, predictor_of, saved_task
from domainbert.tasks.module_scores import TestScores, ValidationScores, sums_of_weights, weights_differ
from domainbert.tasks.packed_logits import logits_of_rows
from domainbert.tasks.saving import config_fields, save_folder, task_fields
from domainbert.tasks.task import Task
from domainbert.tokenization.load import DomainTokenizer
from domainbert.training.hparams import read_argument
from domainbert.training.loaders import SPARE
from domainbert.training.module import TrainedModule, log_scores
from domainbert.training.sharding import is_sharded

_CHECKPOINT_KEY = "domainbert"  # checkpoint key of the labels, scores and `config.json` entries
_MAX_TOKENS = 16_384  # computed at once outside of training


class FineTuning(TrainedModule):
    """Train an encoder with a head on a labelled task; validate, test and predict with it.

        data = LabelledData(Ner(), train="train.conll", validation="dev.conll", tokenizer="models/minilm")
        module = FineTuning.from_pretrained("models/minilm", data.task)
        lightning.Trainer(max_epochs=5).fit(module, data)
        module.save_pretrained("runs/tagger")

    >>> from domainbert import FineTuning, Ner
    >>> module = FineTuning.from_pretrained("model", Ner(labels=["law"]), seed=2)
    >>> module.task.labels, module.lr
    (('O', 'B-law', 'I-law'), 0.0001)

    A batch contains the packed windows of whole examples: `input_ids`, `position_ids` and `segment_ids` (rows, length);
    the head returns logits (N, labels) at the `positions` (N,) of the flattened tokens. The loss is a mean over the
    global batch.

    Logged: `train/loss`, `validation/NAME` of each metric of the task and `validation/loss`, `test/NAME` of each score
    that `domainbert evaluate` reports.

    Args:
        model: model folder to start from; with `init="random"` and an `encoder`, a tokenizer or its folder.
        task: the task with its labels: `Ner(labels=[...])`, or `task` of `LabelledData`; or `Ner()` with a model that
            has a head for it.
        seed: random seed of new weights and dropout.
        settings: all settings; or single settings by keyword, see `FineTuningSettings`.

    Attributes:
        task: the task with its labels.
        config, tokenizer, max_length: architecture to save, tokenizer, and window length in tokens.
        measures_loss: whether validation also computes the loss of the task, unless the loss depends on a training set
            that the module has not seen.
        entries: vocabulary entries that training computes, see `exclude_unused_embeddings`.
        scores, test_scores: metrics of the last validation, and of the last test.
        unusable: steps whose validation had non-finite logits, so that its scores are invalid.
        validation_name: file names of the validation set, for the model card.
        start_facts: rows of the model card on the start of the training.
    """

    measures_loss = True
    kind = "Fine-tuned"
    validation_name = ""

    def __init__(
        self,
        model: ModelSource | DomainTokenizer,
        task: Task[Any, Any] | TaskConfig,
        *,
        seed: int = 1,
        settings: FineTuningSettings | None = None,
        **changes: Any,
    ) -> None:
        settings = FineTuningSettings.of(settings, **changes)
        super().__init__(settings.optim, settings.schedule, seed)
        task = task if isinstance(task, Task) else read_argument("task", TaskConfig, task)
        self.start_facts: dict[str, object] = {"started from": f"{settings.init} weights, seed {seed}"}
        with SeededDraws(seed):
            initial = initial_model(model, task, settings.init, settings.encoder, settings.dropout)
        self._set_model(initial, settings.max_length, settings.activation_checkpointing)
        if settings.frozen_layers is not None:
            self.model.encoder.freeze(settings.frozen_layers)
        self._record_arguments(model=path_to_record(model), task=self.task.config, seed=seed, **vars(settings))

    @classmethod
    def from_pretrained(cls, model: str | Path, task: Task[Any, Any] | TaskConfig, **arguments: Any) -> Self:
        """Return a module that starts from a model folder; takes the arguments of the constructor."""
        return cls(model=model, task=task, **arguments)  # by name: a subclass may have other arguments first

    def _set_model(self, initial: InitialModel, max_length: int | None, activation_checkpointing: bool) -> None:
        check_length(max_length, initial.config)
        self.config, self.tokenizer = initial.config, copy(initial.tokenizer)
        self.task = copy(initial.task)  # each module attaches its head to its own task
        positions = initial.config.max_length
        self.max_length = max_length or min(self.tokenizer.model_max_length or positions, positions)
        self.tokenizer.model_max_length = self.max_length
        self.task.tokenizer = self.tokenizer
        initial.model.encoder.activation_checkpointing = activation_checkpointing
        self.model, self.others = initial.model, ModuleDict()
        self.task.attach_head(self.model.head)
        self.initial = replace(initial, tokenizer=self.tokenizer)
        self.task_fields = dict(initial.fields) or task_fields(self.task, {})
        self.has_new_head = not initial.fields
        self.scores: dict[str, float] = {}
        self.validated_weights: Tensor | None = None  # sums of the weights in the last validation
        self._is_stale = False  # whether the weights had changed before the last validation
        self._saved_task: Task[Any, Any] | None = None  # of a test or prediction by the Trainer
        self.entries: UsedEntries | None = None
        self.register_state_dict_post_hook(expand_saved_embeddings)
        self.register_load_state_dict_pre_hook(reduce_loaded_embeddings)
        self.unusable: list[int] = []
        self._validation, self.test_scores = ValidationScores(self.task), TestScores()

    def setup(self, stage: str) -> None:
        """Check the data, and forget the scores of an earlier training. A task from settings gets the values that
        depend on a training set, such as class weights."""
        super().setup(stage)
        data = getattr(self.trainer, "datamodule", None)
        check_data(self, data, stage)
        if stage == "fit":
            if isinstance(data, LabelledData) and not self.task.has_learned:
                self._learn_from(data.task)
            self.scores, self.validated_weights, self.task_fields = {}, None, task_fields(self.task, {})
            self.has_new_head = False
        self._validation.slices = None  # of a validation that stopped within
        self.test_scores.clear()

    def _learn_from(self, task: Task[Any, Any]) -> None:
        """Copy the values of a training set from the task of the data; a trained head gets the units of training."""
        for name in self.task.learned:
            setattr(self.task, name, getattr(task, name))
        if not self.has_new_head:
            self.task.scaling.init_head(self.task, self.model.head)
        self.task.scaling.set_units(self.task, self.model.head)

    def forward(self, batch: Mapping[str, Any]) -> Tensor:
        """Return the logits (N, labels) at the positions of a batch, in the units of training."""
        if self.entries is not None:  # the embedding matrix has only the entries in use: replace ids by its rows
            batch = {**batch, "input_ids": self.entries.rows_of(batch["input_ids"])}
        if not self.training:
            # processes with shards gather the weights together, so each has one part per batch
            max_tokens = batch["input_ids"].numel() if is_sharded(self) else _MAX_TOKENS
            return logits_of_rows(self.model, batch, max_tokens, self.task.scaling.full_precision)
        logits: Tensor = self.model(Packed.of(batch), batch["positions"])
        return logits

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """Return the loss of a micro-batch, scaled so that gradients are means over the global batch."""
        count = max(batch[self.task.loss_divisor], 1)  # 0 targets if all sentences of the global batch are empty
        return self.record_loss(self.task.loss(self(batch), batch) / count)

    def validation_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Add a batch to the validation metric."""
        logits, sources = self(batch), batch["sources"]
        if not self._validation.has_begun:
            self.validation_name = sources.name
            if not self.trainer.sanity_checking:
                self._is_stale = weights_differ(self.model, self.validated_weights)
                # now: a callback may swap weights at the end
                self.validated_weights = sums_of_weights(self.model)
            has_loss = self.task.has_learned or not self.task.needs_training_set
            self._validation.begin(sources.slice_values, self.measures_loss and has_loss, self.device)
        if SPARE not in batch:  # a spare batch only keeps this process in step with the others
            self._validation.update(logits, batch, sources.items)

    @override
    def reset_scores(self) -> None:
        self._validation.reset()

    def on_validation_epoch_end(self) -> None:
        """Log the validation metrics, and record the step in `unusable` if logits were not finite. The sanity check of
        the Trainer reads only some batches, so its scores are not recorded."""
        scores = self._validation.compute()
        if self._validation.not_finite.compute():
            self.unusable.append(self.global_step)
        if not self.trainer.sanity_checking:
            self.scores = scores
            # without a training, the entries of the model folder remain
            if self._is_stale or self.trainer.state.fn == TrainerFn.FITTING:
                self.task_fields = task_fields(self.task, scores)
        log_scores(self, "validation", scores, self.task.headline)

    def on_test_start(self) -> None:
        """Print a warning if the head has never been trained."""
        self._saved_task = saved_task(self)
        if self.has_new_head and self.trainer.is_global_zero:
            print(f"warning: {NO_TASK_HEAD}; expected {FINETUNED}; the scores are of random weights", flush=True)

    on_predict_start = on_test_start

    def test_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Predict a batch of test items, as in `evaluate`, and store the predictions until the end of the epoch."""
        predictor = self._predictor_of_batch(batch)
        if SPARE not in batch:
            self.test_scores.update(predictor, batch["sources"], batch["items"].tolist())

    def on_test_epoch_end(self) -> None:
        """Log the scores of the predicted test items."""
        log_scores(self, "test", self.test_scores.compute(self.predictor), self.task.headline)

    def predict_step(self, batch: dict[str, Any], batch_idx: int) -> list[dict[str, Any]]:
        """Return a JSON object for each content of a batch, in data order: the keys that `domainbert predict` adds. A
        spare batch has none."""
        predictor = self._predictor_of_batch(batch)
        if SPARE in batch:
            return []
        return [predictor.as_json(prediction) for prediction in predictor.predict(batch["sources"].items)]

    @property
    def predictor(self) -> Any:
        """Return a predictor with the current weights, equal to `load_predictor` of the saved folder."""
        return predictor_of(saved_task(self), ModuleRuntime(self))

    def _predictor_of_batch(self, batch: dict[str, Any]) -> Any:
        return predictor_of(self._saved_task or saved_task(self), BatchRuntime(self, batch, self(batch)))

    @property
    def present_fields(self) -> dict[str, Any]:
        """Entries of the task in `config.json` for the present weights: if these have changed since the last
        validation, without the values that the validation selected, such as a threshold."""
        is_stale = weights_differ(self.model, self.validated_weights)
        return task_fields(self.task, {}) if is_stale else self.task_fields

    def exclude_unused_embeddings(self, ids: Tensor | None) -> None:
        """Reduce the embedding matrix to the vocabulary entries `ids` until the end of `fit`, which is faster; None
        restores all entries. The data must have no other entries, see `LabelledData.entry_ids`."""
        if self.entries is not None:
            self.entries.restore(self.model)
        self.entries, self.num_excluded = None, 0
        if ids is not None:
            self.entries = UsedEntries(self.model, ids)
            self.num_excluded = self.entries.num_excluded * self.model.encoder.input_embeddings.embedding_dim

    def teardown(self, stage: str) -> None:
        """Restore all vocabulary entries after training; a sharded model keeps its reduced embedding matrix."""
        self._saved_task = None
        if stage == "fit" and not is_sharded(self):
            self.exclude_unused_embeddings(None)

    def save_pretrained(
        self, folder: str | Path, card: str | CardConfig | None = None, scores: Mapping[str, float] | None = None
    ) -> None:
        """Write a model folder that `load_predictor`, `transformers` and all stages read; call it in every process.

        Args:
            folder: created if it does not exist.
            card: text of the model card, or values for the header of the default card, such as its licence. The
                default card has the scores of the last test of these weights.
            scores: validation scores of the model; None takes the last validation, unless the weights have changed
                since then, as by an average of weights at the end of the training.

        Raises:
            DomainbertError: a weight is not finite.
        """
        fields = self.present_fields if scores is None else task_fields(self.task, scores)
        if scores is None and weights_differ(self.model, self.validated_weights):
            changed = [f" and no validated `{name}`" for name in fields if fields[name] != self.task_fields[name]]
            reason = "because the weights have changed since the last validation; validate"
            print(f"save_pretrained: no scores{''.join(changed)}, {reason}")
            scores = {}
        save_folder(self, Path(folder), card, self.scores if scores is None else scores, fields)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Store architecture, tokenizer and task, so that `load_from_checkpoint` needs no other file."""
        super().on_save_checkpoint(checkpoint)
        arguments = checkpoint.get(self.CHECKPOINT_HYPER_PARAMS_KEY, {})
        arguments["model"] = plain_model(replace(self.initial, fields=self.task_fields), config_fields(self))
        arguments |= {"init": "pretrained", "encoder": None} if "init" in arguments else {}  # not in a distillation
        positions = embedding_positions(self.model, self.trainer.optimizers)
        states = checkpoint.get("optimizer_states", [])
        if self.entries is not None and states:
            self.entries.expand_moments(positions, states)
        checkpoint[_CHECKPOINT_KEY] = {
            "embeddings": positions,
            "labels": list(self.task.labels),
            "scores": self.scores,
            "validated_weights": self.validated_weights,
            "validation": self.validation_name,
            "start": self.start_facts,
            "fields": self.task_fields,
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore the scores. Raise `DomainbertError` if labels or tokenizer of the checkpoint differ."""
        saved = checkpoint.get(_CHECKPOINT_KEY)
        if saved is None:
            raise DomainbertError(
                "the file has no labels", where="ckpt_path", expected=f"a checkpoint of {type(self).__name__}"
            )
        check_same_labels(saved["labels"], self.task.labels, "ckpt_path")
        super().on_load_checkpoint(checkpoint)
        self.scores, self.validation_name, self.has_new_head = dict(saved["scores"]), saved["validation"], False
        self.validated_weights, self.task_fields = saved["validated_weights"], dict(saved["fields"])
        self.start_facts = dict(saved["start"])
        if self.entries is not None and "optimizer_states" in checkpoint:
            self.entries.reduce_moments(saved["embeddings"], checkpoint["optimizer_states"])


def path_to_record(model: ModelSource | DomainTokenizer) -> Path | None:
    """Return the path of a model for the hyperparameters; None if it has none."""
    if isinstance(model, ModelFolder):
        return model.path
    return Path(model) if isinstance(model, (str, Path)) else None
