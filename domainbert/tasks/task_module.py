"""Base of the modules that learn a labelled task: the model with its head, tests, predictions, folders, checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torchmetrics import Metric

from domainbert.base.errors import DomainbertError
from domainbert.encoders.config import EncoderConfig, check_length
from domainbert.encoders.head_config import HeadConfig
from domainbert.encoders.heads import EncoderWithHead
from domainbert.encoders.used_entries import UsedEntries
from domainbert.labelled.tagged_files import OF_A_CRF
from domainbert.models.card import card_head, model_card
from domainbert.models.folder import ModelFolder
from domainbert.models.saving import folder_fields, save_model
from domainbert.tasks.config import TASK_KEY, TaskConfig
from domainbert.tasks.extra_losses_config import RDropConfig
from domainbert.tasks.running import ModuleRuntime, gathered, numbers_of
from domainbert.tasks.slices import SlicedMetric
from domainbert.tasks.task import Task, task_class
from domainbert.tokenization.load import DomainTokenizer
from domainbert.tokenization.splitting import SPLITTING_KEY, check_splitting
from domainbert.training.hparams import from_plain
from domainbert.training.module import TrainedModule
from domainbert.training.optim_config import OptimConfig, ScheduleConfig
from domainbert.training.state import is_sharded, whole_weights

if TYPE_CHECKING:
    from domainbert.tasks.labelled_data import LabelledData

_CHECKPOINT_KEY = "domainbert"  # of what a checkpoint says of the task and its model


@dataclass(frozen=True)
class Start:
    """A model to be trained: the architecture to save, its vocabulary, the names of its teachers, and whether its head
    is new."""

    model: EncoderWithHead
    config: EncoderConfig
    tokenizer: DomainTokenizer
    teachers: tuple[str, ...] = ()
    has_new_head: bool = True


class TaskModule(TrainedModule):
    """A model with a head for a task, which is tested, predicts, and is saved as a folder.

    Attributes:
        task: the task with its labels, as the training has it.
        config, tokenizer, max_length: architecture to save, vocabulary, and tokens of a window.
        validation: the labelled items whose numbers the validation batches carry.
        entries: the vocabulary entries that occur in a training, while it runs.
        row: (vocab_size,) where the model has an entry's embedding, see `UsedEntries`; None if at its id.
        scores: metrics of the last validation.
    """

    data_class = "LabelledData"
    task: Task[Any, Any]
    metric: Metric
    slices: SlicedMetric
    config: EncoderConfig
    tokenizer: DomainTokenizer
    row: Tensor | None
    max_length: int
    entries: UsedEntries | None = None
    activation_checkpointing: bool
    frozen_layers: int | None
    r_drop: RDropConfig | None
    init: str
    folder: str | Path | ModelFolder

    def __init__(self, task: TaskConfig, optim: OptimConfig, schedule: ScheduleConfig, seed: int) -> None:
        super().__init__(optim, schedule, seed)
        self.task_config = cast(TaskConfig, from_plain(TaskConfig, task))
        self.validation: Sequence[Any] = ()
        self.scores: dict[str, float] = {}
        self.teacher_names: tuple[str, ...] = ()
        self.register_buffer("row", None, persistent=False)
        self._facts: dict[str, Any] | None = None  # of the task, from a checkpoint
        self._served: Task[Any, Any] | None = None  # as a saved model has it
        self._tested: dict[int, Any] = {}  # predictions for the items of the test set, by number
        self.register_state_dict_post_hook(_give_all_entries)
        self.register_load_state_dict_pre_hook(_take_used_entries)

    def start(self, task: Task[Any, Any]) -> Start:
        """The model to begin with, with a head for a task."""
        raise NotImplementedError

    def begin(self, start: Start, task: Task[Any, Any], max_length: int) -> None:
        """Take a model with a head for a task; windows have at most `max_length` tokens."""
        check_length(max_length, start.config)
        self.config, self.tokenizer, self.max_length = start.config, start.tokenizer, max_length
        self.teacher_names = start.teachers
        start.model.encoder.activation_checkpointing = self.activation_checkpointing
        if self.frozen_layers is not None:
            start.model.encoder.freeze(self.frozen_layers)
        self.take(start.model, task)

    def take(self, model: EncoderWithHead, task: Task[Any, Any]) -> None:
        """Take a model with a head for a task; `DomainbertError` if `r_drop` cannot compare its predictions."""
        if self.r_drop is not None:
            check_r_drop(task)
        self.task = task
        self.set_models(model)
        task.attach_head(model.head)

    def validate_on(self, items: Sequence[Any]) -> None:
        """Take the items whose numbers the validation batches carry."""
        self.validation, self.metric, self.slices = items, self.task.metric(), SlicedMetric(self.task, items)

    def learn(self, task: Task[Any, Any]) -> None:
        """Take the task of a training set with the same labels in place of what a folder or a checkpoint says."""
        if task is self.task:
            return
        if task.scaling.output_scale(task) != self.task.scaling.output_scale(self.task):
            self.model.load_state_dict(dict(self.task.scaling.folder_weights(self.task, self.model.state_dict())))
            task.scaling.init_head(task, self.model.head)
        self.task, self._facts = task, None
        task.attach_head(self.model.head)

    @property
    def _name(self) -> str:
        return str(self.folder.path if isinstance(self.folder, ModelFolder) else self.folder)

    def park(self, ids: Tensor | None) -> None:
        """Keep the embeddings of these entries alone in the model, while it is trained; None puts all back."""
        if self.entries is not None:
            self.entries.restore(self.model)
        self.entries = None if ids is None else UsedEntries(self.model, ids)
        self.row = None if self.entries is None else self.entries.row
        self.num_parked = 0
        if self.row is not None:
            self.num_parked = int((self.row < 0).sum()) * self.model.encoder.input_embeddings.embedding_dim

    def teardown(self, stage: str) -> None:
        """Put all entries of the vocabulary back, for whatever text comes next."""
        if stage == "fit" and self.is_built and not is_sharded(self):
            self.park(None)

    def test_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Predict some items of the test set, as `evaluate` does."""
        numbers, scoring = batch["items"].tolist(), copy(self._data.scoring)
        scoring.test = replace(scoring.test, items=[scoring.test.items[number] for number in numbers])
        self._tested.update(zip(numbers, scoring.predict(self.predictor), strict=True))

    def on_test_epoch_end(self) -> None:
        """Log the scores of the test set, or of the part of it that was read."""
        found = gathered(self._tested)
        self._tested.clear()
        numbers, known = sorted(found), self.task_config.known_labels(self.task.labels)
        scores = self._data.scoring_of(numbers).scores_of([found[number] for number in numbers], known)
        self.log_dict({f"test/{name}": value for name, value in numbers_of(scores).items()})

    def predict_step(self, batch: dict[str, Any], batch_idx: int) -> list[dict[str, Any]]:
        """The prediction for each content of a batch, as `domainbert predict` writes it; in the order of the data."""
        contents, predictor = self._data.contents, self.predictor
        found = predictor.predict([contents[number] for number in batch["items"].tolist()])
        return [predictor.as_json(one) for one in found]

    @property
    def predictor(self) -> Any:
        """Predictor with the current weights, such as a `Tagger`; equal to `load_predictor` of the saved folder."""
        if self._served is None:
            self._served = self._task_of(self.task.labels, self._fields(self._task_facts(self.scores)))
            self._served.attach_head(self.model.head)
        precision = self.trainer.precision if self._trainer is not None else "32-true"
        return self._served.predictor(self._served, ModuleRuntime(self, str(precision)))

    def _task_of(self, labels: Sequence[str], fields: Mapping[str, Any]) -> Task[Any, Any]:
        """Task of a model folder with these fields."""
        task = task_class(type(self.task_config)).of_folder(labels, fields)
        task.headline, task.head_config = self.task_config.headline, HeadConfig.from_json(task.head, fields)
        if (splitting := fields.get(SPLITTING_KEY)) is not None:
            task.word_splitting = check_splitting(splitting)
        return task

    def _fields(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """The `config.json` of the model."""
        described = (self.model, self.config, self.tokenizer, self.task.head, self.task.labels)
        return folder_fields(*described, self.teacher_names, facts)

    @property
    def _data(self) -> LabelledData:
        return cast("LabelledData", self.trainer.datamodule)  # type: ignore[attr-defined]

    def save_pretrained(
        self, folder: str | Path, card: str | None = None, scores: Mapping[str, float] | None = None
    ) -> None:
        """Write a model folder that `load_predictor`, `transformers` and every stage read; each process calls it.

        Args:
            folder: made if there is none.
            card: text of the model card; None writes a default card.
            scores: metrics of the validation that the model comes from; None takes the last one.

        Raises:
            DomainbertError: the model does not exist yet; a weight is not finite.
        """
        if not self.is_built:
            raise DomainbertError("save_pretrained: the model has no head yet; expected trainer.fit before it")
        weights = whole_weights(self.model)
        scores = self.scores if scores is None else scores
        with self.writing() as writes:
            if writes:
                self._write(Path(folder), weights, self._card(scores) if card is None else card, scores)

    def _write(self, folder: Path, weights: Mapping[str, Tensor], card: str, scores: Mapping[str, float]) -> None:
        head = (self.task.head, card, self.task.labels, self.max_length)
        whole = weights if self.entries is None else self.entries.put_back(weights)
        facts = self.task.scaling.folder_weights(self.task, whole), self.teacher_names, self._task_facts(scores)
        save_model(folder, self.model, self.config, self.tokenizer, *head, *facts)

    def _card(self, scores: Mapping[str, float]) -> str:
        facts = {"labels": ", ".join(self.task.labels), "started from": f"{self.init} weights, seed {self.seed}"}
        facts |= {f"validation {name}": f"{value:.4f}" for name, value in scores.items()}
        head = card_head(self.task_config.title, self.task_config.pipeline_tag, base=None)
        usage = f"from domainbert import {self.task.predictor.loader}"
        return model_card("Fine-tuned domain model", "Fine-tuned with domainbert.", facts, usage, head)

    def _task_facts(self, scores: Mapping[str, float]) -> dict[str, Any]:
        """Keys of `config.json` that say which task the model is for."""
        if self._facts is not None:
            return self._facts
        facts = {TASK_KEY: self.task.name, **self.task.folder_facts(scores)}
        splitting = self.task.word_splitting
        return facts if splitting is None else {**facts, SPLITTING_KEY: splitting}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Note the labels and all else that `load_from_checkpoint` needs, as plain values."""
        facts = self._task_facts(self.scores)
        weights = {name.removeprefix("model."): value for name, value in checkpoint["state_dict"].items()}
        finished = self.task.scaling.folder_weights(self.task, weights)
        changed = {f"model.{name}": value for name, value in finished.items() if value is not weights.get(name)}
        checkpoint[_CHECKPOINT_KEY] = {
            "labels": list(self.task.labels),
            "max_length": self.max_length,
            "scores": self.scores,
            "facts": facts,
            "fields": self._fields(facts),
            "finished": changed,
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Build the model of a checkpoint where there is none yet; `DomainbertError` if its labels are others."""
        found = checkpoint.get(_CHECKPOINT_KEY)
        if found is None:
            raise DomainbertError(f"ckpt_path: no labels in it; expected a checkpoint of {type(self).__name__}")
        labels = found["labels"]
        if self.is_built and list(self.task.labels) != labels:
            known = ", ".join(self.task.labels)
            raise DomainbertError(f"ckpt_path: found the labels {', '.join(labels)}; expected {known}")
        self.scores = dict(found["scores"])
        if not self.is_built:
            task = self._task_of(labels, found["fields"])
            self.begin(self.start(task), task, found["max_length"])
            checkpoint["state_dict"] |= found["finished"]
        fits = self._trainer is not None and self.trainer.state.fn == TrainerFn.FITTING
        self._facts = None if fits else found["facts"]
        self._serve_anew()

    def _serve_anew(self) -> None:
        """Build the predictor's task again, outside of inference mode: it may change the head's buffers."""
        self._served = None
        _ = self.predictor


def _give_all_entries(module: nn.Module, state: dict[str, Any], prefix: str, _: Any) -> None:
    """Let a state dict have the embeddings of all entries, whatever a training keeps in the model."""
    entries = cast(TaskModule, module).entries
    name = "" if entries is None else f"{prefix}model.{entries.name}"
    if entries is not None and name in state and not isinstance(state[name], DTensor):
        state[name] = entries.whole(state[name])


def _take_used_entries(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """The reverse of `_give_all_entries`."""
    entries = cast(TaskModule, module).entries
    name = "" if entries is None else f"{prefix}model.{entries.name}"
    if entries is not None and name in state and len(state[name]) == len(entries.row):
        state[name] = entries.used(state[name])


def check_r_drop(task: Task[Any, Any]) -> None:
    """`DomainbertError` where two predictions of a task cannot be compared output by output."""
    if task.comparing is None:
        reason = f"predictions of {task.name} cannot be compared output by output; expected no r_drop"
        raise DomainbertError(f"r_drop: {OF_A_CRF if task.head == 'crf' else reason}")
