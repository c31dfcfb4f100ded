"""Interface of a labelled task for training, prediction and scoring; `config` says how a task is laid out.

Imports neither Lightning nor torchmetrics, which prediction does without: they take seconds to load.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from torch import Tensor, nn

from domainbert.base.choices import beside, class_beside, class_path
from domainbert.base.errors import DomainbertError
from domainbert.data.examples import Example
from domainbert.encoders.head_config import HeadConfig
from domainbert.labelled.contents import Content, told_where
from domainbert.labelled.items import Labelled, find_labels, label_set
from domainbert.labelled.sets import LabelledSet, check_set_known, read_set
from domainbert.metrics.headline import Headline
from domainbert.tasks.capabilities import Batch, Comparing, Explaining, Fitting, Inputs, Scaling, Showing, Teaching
from domainbert.tasks.config import TaskConfig, folder_name, task_kind
from domainbert.tasks.predictor import Predictor
from domainbert.tasks.scoring import Scoring
from domainbert.tokenization.load import DomainTokenizer
from domainbert.tokenization.splitting import SPLITTING_KEY, WordSplitting, check_splitting, infer_splitting

if TYPE_CHECKING:
    from torchmetrics import Metric
    from typing_extensions import Self

    from domainbert.models.folder import ModelFolder

ADVICE = "try another optim.lr (lower if the loss jumps, higher if it stands still) or more epochs"
"""Advice where a training came to nothing."""

Item = TypeVar("Item")
Prediction = TypeVar("Prediction")


class Task(ABC, Generic[Item, Prediction]):
    """A task with its labels, which are the names of the head's outputs.

    Attributes:
        head: kind of head, one of `encoders.families.head_kinds`.
        outputs: names of the head's outputs, if they are no labels of the training set.
        head_config: configuration of the head of models that are trained; a model folder has its own.
        counted: which count of the *global* batch the loss is a mean over: of examples, or of targets.
        predictor: what predicts with a finished model.
        scoring: the scores of a test set, if it has any; takes configuration, test set and training set.
        headline: the metric by which its validation is judged; None of a task that only predicts.
        word_splitting: how raw text is split into words, as the training words are; None means `punctuation`.
        comparing, explaining, fitting, inputs, scaling, showing, teaching: see `capabilities`.
    """

    head: ClassVar[str]
    counted: ClassVar[Literal["num_targets", "num_examples"]]
    outputs: ClassVar[Sequence[str]] = ()
    predictor: ClassVar[type[Predictor[Any]]] = Predictor
    scoring: ClassVar[type[Scoring] | None] = None
    comparing: ClassVar[Comparing | None] = None
    explaining: ClassVar[Explaining[Any] | None] = None
    fitting: ClassVar[Fitting[Any]] = Fitting()
    inputs: ClassVar[Inputs[Any]] = Inputs()
    scaling: ClassVar[Scaling[Any]] = Scaling()
    showing: ClassVar[Showing[Any]] = Showing()
    teaching: ClassVar[Teaching[Any] | None] = None

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = tuple(labels)
        self.head_config = HeadConfig(self.head)
        self.headline: Headline | None = None
        self.word_splitting: WordSplitting | None = None

    @property
    def name(self) -> str:
        """The task's name, as that of its configuration."""
        return folder_name(type(self))

    @classmethod
    def of_training(cls, config: Any, train: Labelled[Any]) -> Self:
        """Return the task with `outputs`, or the labels of a training set; `DomainbertError` if there are none."""
        labels = cls.outputs or label_set(train.items)
        if not labels:
            raise DomainbertError(f"{train.path}: no labels; expected at least one")
        return cls(labels)

    @classmethod
    def of_folder(cls, labels: Sequence[str], fields: Mapping[str, Any]) -> Self:
        """The task of a model folder, of its outputs' names and its `config.json` with what `folder_facts` gave."""
        return cls(labels)

    def folder_facts(self, scores: Mapping[str, float]) -> dict[str, Any]:
        """Further keys for the `config.json` of a model, which `of_folder` reads; the scores are of its validation."""
        return {}

    def attach_head(self, head: nn.Module) -> None:
        """Keep the head whose logits the loss will get, where the loss needs more of it, such as a CRF."""
        return None

    @abstractmethod
    def encode(self, items: Sequence[Item], tokenizer: DomainTokenizer, max_length: int) -> list[Example]:
        """Labelled items as token ids and targets."""

    @abstractmethod
    def encode_contents(
        self, contents: Sequence[Content], tokenizer: DomainTokenizer, max_length: int
    ) -> list[Example]:
        """Texts to predict as token ids; their targets are left out of the loss."""

    @abstractmethod
    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """The loss summed over a micro-batch, a scalar; whoever calls it divides by `counted`."""

    @abstractmethod
    def metric(self) -> Metric:
        """Computes the validation metrics, the task's headline among them."""

    @abstractmethod
    def update(self, metric: Metric, logits: Tensor, batch: Batch, items: Sequence[Item]) -> None:
        """Add a batch to `metric`; `batch["items"]` are numbers in `items`."""

    @abstractmethod
    def decode(self, logits: Tensor, batch: Batch) -> Sequence[Any]:
        """Predictions for each example of a batch, for the task's predictor."""


def scores_of_rows(scores: Callable[[Any], Mapping[str, Any]], width: int) -> Metric:
    """A validation metric whose scores need a row of so many numbers of each item: see `ScoresOfRows`."""
    from domainbert.metrics.validation import ScoresOfRows

    return ScoresOfRows(scores, width)


def scoring_of(config: TaskConfig, test: Labelled[Any], train: Labelled[Any] | None) -> Scoring:
    """Return a test set that collects the predictions of models; `train` is for tasks that score seen items apart.

    `DomainbertError` for a task without scores of a test set.
    """
    scoring = task_class(type(config)).scoring
    if scoring is None:
        raise DomainbertError(f"task: {config.name} has no scores of a test set; expected a task with `scoring`")
    return scoring(config, test, train)


def task_class(kind: type[TaskConfig]) -> type[Task[Any, Any]]:
    """Return the task of a configuration: `GradeTask` in `task.py` for `Grade`, in the same folder."""
    task: type[Task[Any, Any]] = class_beside(kind, beside(kind, "task", "task"), "Task", class_path(Task))
    return task


def read_task(
    config: TaskConfig,
    train: LabelledSet,
    validation: LabelledSet,
    read: Callable[[TaskConfig, LabelledSet], Labelled[Any]] = read_set,
) -> tuple[Labelled[Any], Labelled[Any], Task[Any, Any]]:
    """Training and validation set, which `read` reads, and the task with the labels of the former.

    What was found in the files is printed.

    Raises:
        DomainbertError: anything wrong with a file; labels in the latter, or in the settings of the task, that the
            former does not have.
    """
    learnt, checked = (read(config, one) for one in (train, validation))
    print(f"{learnt.describe()}\n{checked.describe()}")
    task = task_of_training(config, learnt)
    check_set_known(checked, config.known_labels(task.labels))
    return learnt, checked, task


def task_of_training(config: TaskConfig, train: Labelled[Any]) -> Task[Any, Any]:
    """The task with the labels of a training set; `DomainbertError` if its settings name others."""
    config.check_labels(tuple(find_labels(train.items)))
    task = task_class(type(config)).of_training(config, train)
    task.headline = config.headline
    if sentences := [content for content in train.contents if isinstance(content, list)]:
        task.word_splitting = infer_splitting(sentences)
    return task


def encode_file(
    task: Task[Any, Any], file: Labelled[Any], tokenizer: DomainTokenizer, max_length: int
) -> list[Example]:
    """The items of a labelled file as examples; `DomainbertError` with the lines of those that no model can read."""
    with told_where(file.place):
        return task.encode(file.items, tokenizer, max_length)


def task_of_folder(folder: ModelFolder) -> Task[Any, Any]:
    """The task that a model folder is for; `DomainbertError` if it is for none, or `config.json` says nonsense."""
    try:
        if kind := task_kind(folder.head, folder.fields):
            task = task_class(kind).of_folder(folder.labels, folder.fields)
            if (splitting := folder.fields.get(SPLITTING_KEY)) is not None:
                task.word_splitting = check_splitting(splitting)
            return task
    except DomainbertError as error:
        raise DomainbertError(f"{folder.path / 'config.json'}: {error}") from error
    raise DomainbertError(f"{folder.path}: the model has no head for a task; expected one that finetune wrote")
