"""Interface of a labelled task for training, prediction and scoring; `config` says how a task is laid out.

Imports neither Lightning nor torchmetrics, which prediction does without: they take seconds to load.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from torch import Tensor, nn

from domainbert.base.errors import DomainbertError
from domainbert.data.examples import Example
from domainbert.data.order import GlobalOrder
from domainbert.labelled.contents import Content, text_of, told_where
from domainbert.labelled.items import Labelled, find_labels, label_set
from domainbert.labelled.sets import LabelledSet, check_set_known, read_set
from domainbert.metrics.headline import Headline
from domainbert.tasks.capabilities import Batch, Comparing, Explaining, Showing, Teaching
from domainbert.tasks.config import TaskConfig, beside, folder_name, task_kind
from domainbert.tasks.predictor import Predictor
from domainbert.tasks.scoring import Scoring
from domainbert.tokenization.load import DomainTokenizer
from domainbert.tokenization.splitting import SPLITTING_KEY, WordSplitting, check_splitting, infer_splitting

if TYPE_CHECKING:
    from torchmetrics import Metric

    from domainbert.models.folder import ModelFolder

ADVICE = "try another optim.lr (lower if the loss jumps, higher if it stands still) or more epochs"
"""Advice where a training came to nothing."""

Item = TypeVar("Item")
Prediction = TypeVar("Prediction")


class Task(ABC, Generic[Item, Prediction]):
    """A task with its labels, which are the names of the head's outputs.

    Attributes:
        head: kind of head, one of `encoders.families.head_kinds`.
        head_sizes: sizes of such a head that are settings, see `encoders.families.build_model`; most have none.
        counted: which count of the *global* batch the loss is a mean over: of examples, or of targets.
        predictor: what predicts with a finished model.
        exact: whether its models predict in full precision whatever is asked: 16 bits hold three digits of a number.
        scored_as: the scores of a test set, if it has any.
        headline: the metric by which its validation is judged; None of a task that only predicts.
        word_splitting: how raw text is split into words, as the training words are; None means `punctuation`.
        comparing, explaining, showing, teaching: see `capabilities`.
    """

    head: ClassVar[str]
    head_sizes: Mapping[str, int] = MappingProxyType({})
    counted: ClassVar[Literal["num_targets", "num_examples"]]
    exact: ClassVar[bool] = False
    predictor: ClassVar[type[Predictor[Any]]] = Predictor
    scored_as: ClassVar[type[Scoring] | None] = None
    comparing: ClassVar[Comparing | None] = None
    explaining: ClassVar[Explaining[Any] | None] = None
    showing: ClassVar[Showing[Any]] = Showing()
    teaching: ClassVar[Teaching[Any] | None] = None

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = tuple(labels)
        self.headline: Headline | None = None
        self.word_splitting: WordSplitting | None = None

    @property
    def name(self) -> str:
        """The task's name, as that of its configuration."""
        return folder_name(type(self))

    @classmethod
    def of_training(cls, config: Any, train: Labelled[Any]) -> Task[Item, Prediction]:
        """The task with the labels of a training set; `DomainbertError` if it has none."""
        labels = label_set(train.items)
        if not labels:
            raise DomainbertError(f"{train.path}: no labels; expected at least one")
        return cls(labels)

    @classmethod
    def of_folder(cls, labels: Sequence[str], fields: Mapping[str, Any]) -> Task[Item, Prediction]:
        """The task of a model folder, of its outputs' names and its `config.json` with what `folder_facts` gave."""
        return cls(labels)

    def folder_facts(self, scores: Mapping[str, float]) -> dict[str, Any]:
        """Further keys for the `config.json` of a model, which `of_folder` reads; the scores are of its validation."""
        return {}

    def order(self, items: Sequence[Item], batch_size: int, seed: int) -> GlobalOrder:
        """The order in which a training reads its items: passes that have each of them once, unless a task says so."""
        return GlobalOrder(len(items), batch_size, seed)

    @property
    def reads(self) -> tuple[str, ...]:
        """Kinds of content that its models read, in the plural; another task of this name may read other things."""
        return ("texts",)

    @property
    def scale(self) -> tuple[float, float] | None:
        """Shift and factor from outputs while they are trained to those of a folder; None where these are the same."""
        return None

    def begin(self, head: nn.Module) -> None:
        """Change the head of a finished model, in place, so that it gives what is trained; `finish` undoes it."""
        return None

    def finish(self, weights: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The weights of a trained model, an `EncoderWithHead`, as they stand in its folder."""
        return weights

    def bind(self, head: nn.Module) -> None:
        """Note the head whose logits will come, where the loss needs more of it."""
        return None

    def content_of(self, row: Mapping[str, Any], text_key: str) -> Content:
        """The content of a row to predict, an object of JSONL; `DomainbertError` tells what it lacks."""
        return text_of(row, text_key)

    @property
    def added_tokens(self) -> Sequence[str]:
        """Strings that have to be entries of the vocabulary, found in any text; a training adds those that it lacks."""
        return ()

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

    def metric_of_slice(self) -> Metric:
        """As `metric`, for the slices that the headline is a mean over; `score_of_slice` alone reads it."""
        return self.metric()

    def score_of_slice(self, scores: Mapping[str, Any], whole: Mapping[str, Any]) -> float:
        """The score that the headline is a mean of, from the scores of a slice, and from those of the whole set."""
        assert self.headline is not None
        return float(scores[self.headline.of_slice])

    @abstractmethod
    def update(self, metric: Metric, logits: Tensor, batch: Batch, items: Sequence[Item]) -> None:
        """Add a batch to `metric`; `batch["items"]` are numbers in `items`."""

    @abstractmethod
    def decode(self, logits: Tensor, batch: Batch) -> Sequence[Any]:
        """Predictions for each example of a batch, for the task's predictor."""

    def remarks(self, scores: Mapping[str, float]) -> list[str]:
        """Lines for a person about the model that is kept, whose validation gave these scores."""
        return []

    def warnings(self, items: Sequence[Item], scores: Mapping[str, float]) -> list[str]:
        """Warnings about a training that came to nothing: the validation set, and scores of its best epoch."""
        return []

    @classmethod
    def scoring(cls, config: Any, test: Labelled[Any], train: Labelled[Any] | None) -> Scoring:
        """A test set that collects the predictions of models; `train` is for tasks that tell apart what it holds."""
        if cls.scored_as is None:
            raise DomainbertError(
                f"task: {folder_name(cls)} has no scores of a test set; expected a task with `scoring`"
            )
        return cls.scored_as(config, test)


def scores_of_rows(scores: Callable[[Any], Mapping[str, Any]], width: int) -> Metric:
    """A validation metric whose scores need a row of so many numbers of each item: see `ScoresOfRows`."""
    from domainbert.metrics.validation import ScoresOfRows

    return ScoresOfRows(scores, width)


def task_class(kind: type[TaskConfig]) -> type[Task[Any, Any]]:
    """The task of a configuration: in `task.py` beside it, the class of its name with `Task` behind it."""
    name, module = f"{kind.__name__}Task", beside(kind, "task")
    found = getattr(module, name, None)
    if not isinstance(found, type) or not issubclass(found, Task):
        raise DomainbertError(f"{module.__name__}: no class {name}; expected one that inherits {Task.__module__}.Task")
    return found


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
    config.check_labels(tuple(find_labels(learnt.items)))
    task = task_class(type(config)).of_training(config, learnt)
    task.headline = config.headline
    if sentences := [content for content in learnt.contents if isinstance(content, list)]:
        task.word_splitting = infer_splitting(sentences)
    check_set_known(checked, config.known_labels(task.labels))
    return learnt, checked, task


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
