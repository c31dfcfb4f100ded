"""Base LightningModule of labelled tasks: model, testing, prediction, model folders and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import torch
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor, nn
from torch.distributed import all_gather_object, get_world_size, is_initialized
from torch.distributed.tensor import DTensor
from torchmetrics import Metric

from domainbert.base.errors import DomainbertError
from domainbert.data.packing import Example
from domainbert.encoders.config import EncoderConfig, HeadConfig, check_length
from domainbert.encoders.heads import EncoderWithHead
from domainbert.encoders.used_entries import UsedEntries
from domainbert.labelled.contents import located_errors
from domainbert.metrics.headline import Headline
from domainbert.models.card import CardConfig, Result, card_head, model_card
from domainbert.models.folder import ModelFolder
from domainbert.models.loading import reorder_labels
from domainbert.models.saving import folder_fields, save_model
from domainbert.tasks.config import TASK_KEY, TaskConfig
from domainbert.tasks.packed_logits import packed_logits
from domainbert.tasks.scoring import flatten_scores
from domainbert.tasks.slices import SlicedMetric
from domainbert.tasks.task import Task, task_from_fields
from domainbert.tokenization.load import DomainTokenizer
from domainbert.tokenization.splitting import SPLITTING_KEY
from domainbert.training.checkpoints import is_sharded, whole_weights
from domainbert.training.config import OptimConfig, Precision, ScheduleConfig
from domainbert.training.hparams import read_argument
from domainbert.training.module import TrainedModule
from domainbert.training.precision import autocast_dtype

if TYPE_CHECKING:
    from domainbert.tasks.labelled_data import LabelledData

_CHECKPOINT_KEY = "domainbert"  # checkpoint key of the labels and the model configuration


@dataclass(frozen=True)
class InitialModel:
    """Initial model of a training, with the configuration to save, its tokenizer and the names of its teachers.

    `has_new_head` is whether the head has random weights.
    """

    model: EncoderWithHead
    config: EncoderConfig
    tokenizer: DomainTokenizer
    teachers: tuple[str, ...] = ()
    has_new_head: bool = True


class TaskModule(TrainedModule):
    """Base module for a model with the head of a task: test, predict, save as a model folder.

    Attributes:
        task: the task with its labels, in training units.
        config, tokenizer, max_length: architecture to save, tokenizer, and window length in tokens.
        validation, entries, row_of_entry, scores: see `FineTuning`.
        kind, validation_name: kind of training and file names of the validation set, for the model card.
    """

    data_class = "LabelledData"
    kind, validation_name = "Fine-tuned", ""
    task: Task[Any, Any]
    metric: Metric
    slices: SlicedMetric
    config: EncoderConfig
    tokenizer: DomainTokenizer
    row_of_entry: Tensor | None
    max_length: int
    entries: UsedEntries | None = None
    activation_checkpointing: bool
    frozen_layers: int | None
    init: str
    folder: str | Path | ModelFolder

    def __init__(self, task: TaskConfig, optim: OptimConfig, schedule: ScheduleConfig, seed: int) -> None:
        super().__init__(optim, schedule, seed)
        self.task_config: TaskConfig = read_argument("task", TaskConfig, task)
        self.validation: Sequence[Any] = ()
        self.scores: dict[str, float] = {}
        self.teacher_names: tuple[str, ...] = ()
        self.register_buffer("row_of_entry", None, persistent=False)  # set by `exclude_unused_embeddings`
        self._facts: dict[str, Any] | None = None  # `config.json` entries of the task, from a folder or checkpoint
        self._saved_task: Task[Any, Any] | None = None  # the task in the units of a saved model, for prediction
        self._tested: dict[int, Any] = {}  # predictions by index of the test item
        self.register_state_dict_post_hook(_expand_saved_embeddings)
        self.register_load_state_dict_pre_hook(_reduce_loaded_embeddings)

    def initial_model(self, task: Task[Any, Any]) -> InitialModel:
        """Return the initial model with a head for a task; a subclass defines it."""
        raise NotImplementedError

    def set_initial_model(self, initial: InitialModel, task: Task[Any, Any], max_length: int) -> None:
        """Set the model to train, its tokenizer and its task; windows have at most `max_length` tokens."""
        check_length(max_length, initial.config)
        self.config, self.tokenizer, self.max_length = initial.config, initial.tokenizer, max_length
        self.teacher_names = initial.teachers
        initial.model.encoder.activation_checkpointing = self.activation_checkpointing
        if self.frozen_layers is not None:
            initial.model.encoder.freeze(self.frozen_layers)
        self.set_model(initial.model, task)

    def set_model(self, model: EncoderWithHead, task: Task[Any, Any]) -> None:
        """Set the model and its task."""
        self.task = task
        self.set_models(model)
        task.attach_head(model.head)

    def validate_on(self, items: Sequence[Any]) -> None:
        """Set the validation items and create their metrics."""
        self.validation, self.metric, self.slices = items, self.task.metric(), SlicedMetric(self.task, items)

    def replace_task(self, task: Task[Any, Any]) -> None:
        """Replace the task of a folder or checkpoint by the task of a training set with the same labels.

        The head is reordered and rescaled if the two tasks have another order of labels or other units of the outputs.
        """
        self._facts, self._saved_task = None, None  # both are computed from this training
        if task is self.task:
            return
        if task.scaling.output_scale(task) != self.task.scaling.output_scale(self.task):
            # to the units of a model folder, then to the units of the new task
            self.model.load_state_dict(dict(self.task.scaling.folder_weights(self.task, self.model.state_dict())))
            task.scaling.init_head(task, self.model.head)
        reorder_labels(self.model.head, self.task.labels, task.labels)
        self.task = task
        task.attach_head(self.model.head)

    @property
    def _folder_name(self) -> str:
        return str(self.folder.path if isinstance(self.folder, ModelFolder) else self.folder)

    def exclude_unused_embeddings(self, ids: Tensor | None) -> None:
        """Reduce the embedding matrix to the vocabulary entries `ids` during training; None restores all entries."""
        if self.entries is not None:
            self.entries.restore(self.model)
        self.entries, self.row_of_entry, self.num_excluded = None, None, 0
        if ids is not None:
            self.entries = UsedEntries(self.model, ids)
            self.row_of_entry = self.entries.row
            num_excluded_entries = int((self.row_of_entry < 0).sum())
            self.num_excluded = num_excluded_entries * self.model.encoder.input_embeddings.embedding_dim

    def teardown(self, stage: str) -> None:
        """Restore all vocabulary entries after training; a sharded model keeps its reduced embedding matrix."""
        if stage == "fit" and self.is_built and not is_sharded(self):
            self.exclude_unused_embeddings(None)

    def test_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Predict a batch of test items, as in `evaluate`, and store the predictions until the end of the epoch."""
        indices = batch["items"].tolist()
        scoring = copy(self._data.scoring)  # shallow, to replace the test set by the items of the batch
        scoring.test = replace(scoring.test, items=[scoring.test.items[index] for index in indices])
        test = self._data.labelled("test")
        with located_errors(lambda position: test.location(indices[position])):
            self._tested.update(zip(indices, scoring.predict(self.predictor), strict=True))

    def on_test_epoch_end(self) -> None:
        """Log the scores of the predicted test items."""
        predictions = gather_predictions(self._tested)
        self._tested.clear()
        indices = sorted(predictions)
        scoring = self._data.scoring_of(indices)
        scores = scoring.scores_of([predictions[index] for index in indices], self.predictor)
        self.log_dict({f"test/{name}": value for name, value in flatten_scores(scores).items()})

    def predict_step(self, batch: dict[str, Any], batch_idx: int) -> list[dict[str, Any]]:
        """Return a JSON object for each content of a batch, in data order: the keys that `domainbert predict` adds."""
        contents, predictor = self._data.contents, self.predictor
        indices = batch["items"].tolist()
        with located_errors(lambda position: f"text {indices[position] + 1:,}"):
            predictions = predictor.predict([contents[index] for index in indices])
        return [predictor.as_json(prediction) for prediction in predictions]

    @property
    def predictor(self) -> Any:
        """Return a predictor with the current weights, equal to `load_predictor` of the saved folder."""
        if self._saved_task is None:  # the task that would be read from the saved `config.json`
            self._saved_task = self._task_from_fields(self.task.labels, self._fields(self._task_facts(self.scores)))
            self._saved_task.attach_head(self.model.head)
        return self._saved_task.predictor(self._saved_task, self)

    def logits(self, examples: Sequence[Example]) -> Iterator[tuple[dict[str, Any], Tensor]]:
        """Yield each batch with the logits (N, labels) at its positions, in the units of the saved model.

        The encoder has the precision of the Trainer. Raise `DomainbertError` if logits are not finite.
        """
        precision = cast(Precision, self.trainer.precision) if self._trainer is not None else "32-true"
        scaling = self.task.scaling
        scale = scaling.output_scale(self.task)
        dtype = None if scaling.full_precision else autocast_dtype(precision)
        was_training = self.model.training
        self.model.eval()
        try:
            with torch.autocast(self.device.type, enabled=False):  # `packed_logits` applies its own autocast
                for batch, logits in packed_logits(self.model, self.tokenizer, examples, self.device, dtype):
                    if not logits.isfinite().all():
                        raise DomainbertError("the logits are NaN or infinite; train again with a lower optim.lr")
                    if scale is not None:
                        shift, factor = scale
                        logits = logits * factor + shift
                    yield batch, logits
        finally:
            self.model.train(was_training)

    def _task_from_fields(self, labels: Sequence[str], fields: Mapping[str, Any]) -> Task[Any, Any]:
        """Return the task of a `config.json`, as saved with the model or in a checkpoint."""
        task = task_from_fields(type(self.task_config), labels, fields)
        task.headline = self.task_config.headline
        task.head_config = HeadConfig.from_json(task.head, fields)
        return task

    def _fields(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the content of the `config.json` of the model; `facts` are the entries of its task."""
        return folder_fields(
            self.model, self.config, self.tokenizer, self.task.head, self.task.labels, self.teacher_names, facts
        )

    @property
    def _data(self) -> LabelledData:
        return cast("LabelledData", self.trainer.datamodule)  # type: ignore[attr-defined]

    def save_pretrained(
        self, folder: str | Path, card: str | CardConfig | None = None, scores: Mapping[str, float] | None = None
    ) -> None:
        """Write a model folder that `load_predictor`, `transformers` and all stages read; call it in every process.

        Args:
            folder: created if it does not exist.
            card: text of the model card, or values for the header of the default card, such as its licence.
            scores: validation scores of the model; None takes the last validation.

        Raises:
            DomainbertError: the model is not built yet; a weight is not finite.
        """
        if not self.is_built:
            raise DomainbertError("save_pretrained: the model has no head yet; expected trainer.fit before it")
        weights = whole_weights(self.model)
        scores = self.scores if scores is None else scores
        with self.writing() as writes:
            if writes:
                text = card if isinstance(card, str) else self.card(scores, card)
                self._write_folder(Path(folder), weights, text, scores)

    def _write_folder(
        self, folder: Path, weights: Mapping[str, Tensor], card: str, scores: Mapping[str, float]
    ) -> None:
        """Write a model folder; `weights` may lack the vocabulary entries that are excluded in training."""
        if self.entries is not None:
            weights = self.entries.restore_weights(weights)
        save_model(
            folder,
            self.model,
            self.config,
            self.tokenizer,
            self.task.head,
            card,
            labels=self.task.labels,
            max_length=self.max_length,
            weights=self.task.scaling.folder_weights(self.task, weights),
            teachers=self.teacher_names,
            facts=self._task_facts(scores),
        )

    def card(
        self,
        scores: Mapping[str, float],
        values: CardConfig | None = None,
        headline: Headline | None = None,
        facts: Mapping[str, object] = MappingProxyType({}),
    ) -> str:
        """Return the text of a model card with one of the validation scores, by default the main metric of the task.

        Values of the header that are not in `values` come from the card of the model that training starts from; `facts`
        are further rows of the table.
        """
        task, headline, title = self.task_config, headline or self.task_config.headline, f"{self.kind} domain model"
        rows, results = {**self.task.card_facts(), **self.card_facts(), **facts}, []
        if headline.key in scores:  # there is a validation set
            score, name = scores[headline.key], headline.name
            rows |= {f"validation {name}": f"{score:.4f}"}
            results = [Result(task.title, self.validation_name, "validation", headline.key, name, score)]
        base = Path(self._folder_name) if self.init == "pretrained" else None
        head = card_head(title, task.pipeline_tag, values, base, results=results)
        usage = self.task.predictor.usage(self.task)
        return model_card(title, f"{self.kind} with domainbert.", rows, usage, head)

    def card_facts(self) -> dict[str, object]:
        """Return rows of a model card on the start of the training."""
        return {"started from": f"{self.init} weights, seed {self.seed}"}

    def _task_facts(self, scores: Mapping[str, float]) -> dict[str, Any]:
        """Return the `config.json` entries of the task: from the loaded folder or checkpoint, or of this training."""
        if self._facts is not None:
            return self._facts
        facts = {TASK_KEY: self.task.name, **self.task.model_config_fields(scores)}
        splitting = self.task.word_splitting
        return facts if splitting is None else {**facts, SPLITTING_KEY: splitting}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Store the labels and other plain values that `load_from_checkpoint` needs."""
        super().on_save_checkpoint(checkpoint)
        facts = self._task_facts(self.scores)
        weights = {name.removeprefix("model."): value for name, value in checkpoint["state_dict"].items()}
        folder_weights = self.task.scaling.folder_weights(self.task, weights).items()
        # weights in the units of a model folder, if these differ from training
        differing_weights = {f"model.{name}": value for name, value in folder_weights if value is not weights.get(name)}
        checkpoint[_CHECKPOINT_KEY] = {
            "labels": list(self.task.labels),
            "max_length": self.max_length,
            "scores": self.scores,
            "validation": self.validation_name,
            "facts": facts,
            "fields": self._fields(facts),
            "finished": differing_weights,  # for prediction from the checkpoint
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore the scores, and build the model of the checkpoint if the module has none.

        Raise `DomainbertError` if the labels or the tokenizer of the checkpoint differ.
        """
        saved = checkpoint.get(_CHECKPOINT_KEY)
        if saved is None:
            raise DomainbertError(f"ckpt_path: the file has no labels; expected a checkpoint of {type(self).__name__}")
        labels = saved["labels"]
        if self.is_built and list(self.task.labels) != labels:
            expected = f"expected {', '.join(self.task.labels)}, as in the module"
            raise DomainbertError(f"ckpt_path: found the labels {', '.join(labels)}; {expected}")
        self.scores, self.validation_name = dict(saved["scores"]), saved["validation"]
        is_fit = self._trainer is not None and self.trainer.state.fn == TrainerFn.FITTING
        if not self.is_built:
            task = self._task_from_fields(labels, saved["fields"])
            self.set_initial_model(self.initial_model(task), task, saved["max_length"])
            # the task from `config.json` predicts with the weights of a model folder
            checkpoint["state_dict"] |= saved["finished"]
        elif not is_fit:
            self._convert_head(checkpoint["state_dict"], saved["finished"])
        super().on_load_checkpoint(checkpoint)
        self._facts = None if is_fit else saved["facts"]  # None: `fit` computes the facts of its own training
        self._rebuild_predictor()

    def _convert_head(self, state: dict[str, Tensor], folder_weights: Mapping[str, Tensor]) -> None:
        """Convert the head in the state dict of a checkpoint from the units of its training to the units of `task`.

        `folder_weights` are the weights of the checkpoint that differ in the units of a model folder.
        """
        prefix = "model.head."
        weights = {name.removeprefix("model."): value for name, value in state.items()}
        expected = self.task.scaling.folder_weights(self.task, weights)
        if all(torch.equal(expected[name.removeprefix("model.")], value) for name, value in folder_weights.items()):
            return  # the units are equal
        head = deepcopy(self.model.head)
        head_state = {name: value for name, value in {**state, **folder_weights}.items() if name.startswith(prefix)}
        head.load_state_dict({name.removeprefix(prefix): value for name, value in head_state.items()})
        self.task.scaling.init_head(self.task, head)
        state |= {f"{prefix}{name}": value for name, value in head.state_dict().items()}

    def _rebuild_predictor(self) -> None:
        """Build the task of the predictor anew, outside of inference mode, as it may change the head's buffers."""
        self._saved_task = None
        _ = self.predictor  # its getter sets `_saved_task`


def _expand_saved_embeddings(module: nn.Module, state: dict[str, Any], prefix: str, _: Any) -> None:
    """Expand the embeddings in a state dict, unless they are sharded, to all vocabulary entries; a state-dict hook."""
    if (entries := cast(TaskModule, module).entries) is not None:
        name = f"{prefix}model.{entries.name}"
        if name in state and not isinstance(state[name], DTensor):
            state[name] = entries.all_embeddings(state[name])


def _reduce_loaded_embeddings(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Reduce the embeddings in a state dict to load to the entries in training; a state-dict hook."""
    if (entries := cast(TaskModule, module).entries) is not None:
        name = f"{prefix}model.{entries.name}"
        if name in state and len(state[name]) == len(entries.row):
            state[name] = entries.used_embeddings(state[name])


def gather_predictions(predictions: Mapping[int, Any]) -> dict[int, Any]:
    """Return the predictions of all processes, by index of the test item."""
    if not is_initialized():
        return dict(predictions)
    parts: list[dict[int, Any]] = [{} for _ in range(get_world_size())]
    all_gather_object(parts, dict(predictions))
    return {index: prediction for part in parts for index, prediction in part.items()}
