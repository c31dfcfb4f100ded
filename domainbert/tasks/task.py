"""Interface of a labelled task for training, prediction and scoring; `config` describes the files of a task.

Does not import Lightning or torchmetrics, which take seconds to load and which prediction does not need.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from torch import Tensor, nn

from domainbert.base.choices import class_path, import_sibling, sibling_class
from domainbert.base.errors import FINETUNED, NO_TASK_HEAD, DomainbertError
from domainbert.base.layout import printable
from domainbert.base.table import Table
from domainbert.data.batches import GlobalOrder
from domainbert.data.formatting import INDENT, format_pieces, format_window, with_special_tokens
from domainbert.data.packing import Example
from domainbert.encoders.head_config import HeadConfig
from domainbert.labelled.contents import Content, located_errors
from domainbert.labelled.items import Labelled, check_set_known, label_set
from domainbert.labelled.sets import LabelledSet, read_set
from domainbert.metrics.headline import Headline
from domainbert.tasks.capabilities import (
    Batch,
    DistillationTargets,
    ExampleFormatter,
    Inputs,
    Scaling,
    TrainingHooks,
)
from domainbert.tasks.config import TaskConfig, folder_name
from domainbert.tasks.lookup import task_kind
from domainbert.tasks.predictor import Predictor
from domainbert.tasks.scoring import Scoring
from domainbert.tokenization.load import DomainTokenizer
from domainbert.tokenization.splitting import SPLITTING_KEY, WordSplitting, check_splitting, infer_splitting

if TYPE_CHECKING:
    from torchmetrics import Metric
    from typing_extensions import Self

    from domainbert.models.folder import ModelFolder

ADVICE = "try another optim.lr (lower if the loss jumps, higher if it stagnates) or a larger max_epochs"
"""Advice in warnings about a training without result."""

MIN_GAIN = 0.02
"""Validation score above a trivial baseline up to which a model does not count as better."""

Item = TypeVar("Item")
Prediction = TypeVar("Prediction")


class Task(ABC, Generic[Item, Prediction]):
    """A task with its labels, the names of the head's outputs.

    Attributes:
        head: kind of head, one of `encoders.families.head_kinds`.
        outputs: names of the outputs of the head, if they are not the labels of the training set.
        head_config: configuration of a new head; a model folder contains the configuration of its head.
        loss_divisor: the denominator of the loss: number of examples or of targets in the *global* batch.
        predictor: class that predicts with a finished model.
        scoring: class that scores a test set, or None; takes configuration, test set and training set.
        headline: the main validation metric; None for a task that only predicts.
        word_splitting: how raw text is split into words to match the training words; None means `punctuation`.
        tokenizer: tokenizer of the model, which the metric of a task may need; `encode` and a module set it.
        config: the settings of the task; None for a task whose model folder does not record all of them.
        learned: names of the attributes with plain values from the training set, which a checkpoint contains.
        has_learned: whether these attributes have values from a training set.
        training_hooks, inputs, scaling, example_formatter, distillation_targets:
            see `capabilities`.
    """

    head: ClassVar[str]
    loss_divisor: ClassVar[Literal["num_targets", "num_examples"]]
    outputs: ClassVar[Sequence[str]] = ()
    learned: ClassVar[tuple[str, ...]] = ("word_splitting", "has_learned")
    predictor: ClassVar[type[Predictor[Any]]] = Predictor
    scoring: ClassVar[type[Scoring] | None] = None
    training_hooks: ClassVar[TrainingHooks[Any]] = TrainingHooks()
    inputs: ClassVar[Inputs[Any]] = Inputs()
    scaling: ClassVar[Scaling[Any]] = Scaling()
    example_formatter: ClassVar[ExampleFormatter[Any]] = ExampleFormatter()
    distillation_targets: ClassVar[DistillationTargets[Any] | None] = None

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = tuple(labels)
        self.head_config = HeadConfig(self.head)
        self.headline: Headline | None = None
        self.word_splitting: WordSplitting | None = None
        self.has_learned = False
        self.config: TaskConfig | None = None
        self.tokenizer: DomainTokenizer | None = None

    @property
    def name(self) -> str:
        """Return the task's name, as `TaskConfig.name`."""
        return folder_name(type(self))

    @property
    def needs_training_set(self) -> bool:
        """Return whether the loss depends on the items of the training set, as with class weights; by default False."""
        return False

    @classmethod
    def from_labels(cls, config: Any, labels: Sequence[str]) -> Self:
        """Return a task with new outputs for the labels of a training set; by default one for each, or `outputs`."""
        return cls(cls.outputs or labels)

    def learn_from(self, train: Labelled[Any]) -> None:
        """Set what depends on the items of a training set, such as weights of classes; by default the splitting that
        matches its words."""
        sentences = [content for content in train.contents if isinstance(content, list)]  # lists of words
        if sentences:
            self.word_splitting = infer_splitting(sentences)

    @classmethod
    def from_model_folder(cls, labels: Sequence[str], fields: Mapping[str, Any]) -> Self:
        """Return the task of a model folder; `labels` are its output names, `fields` its `config.json`."""
        return cls(labels)

    def card_facts(self) -> dict[str, str]:
        """Return rows of a model card, by name: the labels; a task adds what `transformers` does not do."""
        return {"labels": ", ".join(self.labels)}

    def model_config_fields(self, scores: Mapping[str, float]) -> dict[str, Any]:
        """Return `config.json` entries for `from_model_folder`; `scores` are the validation scores of the model.

        By default {}.
        """
        return {}

    def attach_head(self, head: nn.Module) -> None:
        """Store the head, if the loss or decoding needs more than logits, such as a CRF; by default do nothing."""

    @abstractmethod
    def encode(self, items: Sequence[Item], tokenizer: DomainTokenizer, max_length: int) -> list[Example]:
        """Return labelled items as token ids and targets, one example per item."""

    @abstractmethod
    def encode_contents(
        self, contents: Sequence[Content], tokenizer: DomainTokenizer, max_length: int
    ) -> list[Example]:
        """Return contents without labels as token ids, one example per content, with targets that the loss ignores."""

    @abstractmethod
    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the loss summed over a micro-batch, a scalar; the caller divides by `loss_divisor`."""

    @abstractmethod
    def metric(self) -> Metric:
        """Return the metric that computes the validation scores, including the headline."""

    @abstractmethod
    def update(self, metric: Metric, logits: Tensor, batch: Batch, items: Sequence[Item]) -> None:
        """Add a batch to `metric`; `items` are the labelled items of the batch, in its order."""

    @abstractmethod
    def decode(self, logits: Tensor, batch: Batch) -> Sequence[Any]:
        """Return a prediction for each example of a batch, for the task's predictor."""


def build_scoring(config: TaskConfig, test: Labelled[Any], train: Labelled[Any] | None) -> Scoring:
    """Return the scoring of a test set; `train` is for tasks that score items seen in training separately.

    Raise `DomainbertError` for a task without scoring.
    """
    scoring = task_class(type(config)).scoring
    if scoring is None:
        raise DomainbertError(
            f"{type(config).__name__}Task has no `scoring`", where="task", expected="a class that defines it"
        )
    return scoring(config, test, train)


def task_class(kind: type[TaskConfig]) -> type[Task[Any, Any]]:
    """Return the task class of a configuration: `NAMETask` in `task.py` of the same folder."""
    task: type[Task[Any, Any]] = sibling_class(kind, import_sibling(kind, "task", "task"), "Task", class_path(Task))
    return task


def read_task(
    config: TaskConfig,
    train: LabelledSet,
    validation: LabelledSet,
    read: Callable[[TaskConfig, LabelledSet], Labelled[Any]] = read_set,
) -> tuple[Labelled[Any], Labelled[Any], Task[Any, Any]]:
    """Return training set, validation set, and the task with the labels of the training set; print summaries."""
    train_set, validation_set = read(config, train), read(config, validation)
    print(f"{train_set.describe()}\n{validation_set.describe()}")
    task = task_from_training_set(config, train_set)
    check_set_known(validation_set, config.known_labels(task.labels))
    return train_set, validation_set, task


def has_fixed_outputs(config: TaskConfig) -> bool:
    """Return whether the outputs of a task do not depend on the labels of a training set."""
    return config.fixed_outputs or bool(task_class(type(config)).outputs)


def task_from_labels(config: TaskConfig, labels: Sequence[str]) -> Task[Any, Any]:
    """Return a task with new outputs for the labels of a training set."""
    config.check_labels(labels)
    task = task_class(type(config)).from_labels(config, labels)
    task.headline = config.headline
    task.config = replace(config, labels=None if has_fixed_outputs(config) else tuple(labels))
    return task


def task_from_training_set(config: TaskConfig, train: Labelled[Any]) -> Task[Any, Any]:
    """Return the task with the labels of the settings or of a training set, and with values from its items.

    Raise `DomainbertError` if the training set has no labels, or labels that the settings do not have.
    """
    labels = config.labels or tuple(label_set(train.items))
    config.check_labels(labels)
    if not labels and not has_fixed_outputs(config):
        problem, expected = config.no_labels
        raise DomainbertError(problem, file=train.path, expected=expected)
    task = task_from_labels(config, labels)
    if config.labels is not None:
        check_set_known(train, config.labels)
    task.learn_from(train)
    task.has_learned = True
    return task


def encode_file(
    task: Task[Any, Any], file: Labelled[Any], tokenizer: DomainTokenizer, max_length: int
) -> list[Example]:
    """Return the items of a labelled file as token ids and targets; an error has the lines of its items."""
    with located_errors(file.location):
        return task.encode(file.items, tokenizer, max_length)


def format_items(
    task: Task[Any, Any], train: Labelled[Any], tokenizer: DomainTokenizer, window: int, order: GlobalOrder, count: int
) -> list[str]:
    """Return lines that show the first `count` training items in training order: windows, and targets by position.

    `window` is the window length in tokens.
    """
    indices: list[int] = []  # of the items
    for step in range(ceil(count / order.batch_size)):
        _, indices_of_batch = order.batch(step)
        indices += indices_of_batch.tolist()
    indices = indices[:count]
    with located_errors(lambda position: train.location(indices[position])):
        examples = task.encode([train.items[index] for index in indices], tokenizer, window)
    lines = []
    for number, (index, example) in enumerate(zip(indices, examples, strict=True), 1):
        lines.append(f"example {number}, {printable(train.location(index))}: {example.num_tokens:,} tokens")
        lines += _format_item(task, train.items[index], example, tokenizer)
    return lines


def _format_item(task: Task[Any, Any], item: Any, example: Example, tokenizer: DomainTokenizer) -> list[str]:
    lines = []
    for number, window in enumerate(example.windows, 1):
        if len(example.windows) > 1:
            lines.append(f"{INDENT}window {number} of {len(example.windows)}, {window.num_tokens} tokens")
        lines += format_window(window, tokenizer)
        pieces = format_pieces(tokenizer, with_special_tokens(window, tokenizer).tolist())
        rows = []
        notes = task.example_formatter.notes(task, item, window)
        for position, (description, target) in zip(window.positions.tolist(), notes, strict=True):
            if target:
                token = position + 1  # after the first special token
                rows.append((str(token), pieces[token], target, description))
        lines += [f"{INDENT}{line}" for line in Table(["token", "piece", "target", "of"], rows).lines()]
    return lines


def task_from_fields(
    config_class: type[TaskConfig], labels: Sequence[str], fields: Mapping[str, Any]
) -> Task[Any, Any]:
    """Return the task of a `config.json` with the content `fields`; `labels` are the names of the outputs."""
    task = task_class(config_class).from_model_folder(labels, fields)
    if (splitting := fields.get(SPLITTING_KEY)) is not None:
        task.word_splitting = check_splitting(splitting)
    return task


def task_from_model_folder(folder: ModelFolder) -> Task[Any, Any]:
    """Return the task of a model folder; raise `DomainbertError` if it has no task or an invalid `config.json`."""
    try:
        if config_class := task_kind(folder.head, folder.fields):
            return task_from_fields(config_class, folder.labels, folder.fields)
    except DomainbertError as error:
        raise error.within(file=folder.path / "config.json") from error
    raise DomainbertError(NO_TASK_HEAD, file=folder.path, expected=FINETUNED)
