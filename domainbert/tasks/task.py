"""What a labelled task offers to fine-tuning and prediction. One module a task: `ner`, `classification`."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor, nn
from torchmetrics import Metric

from domainbert.base.errors import DomainbertError
from domainbert.data.examples import Example
from domainbert.tasks.config import TaskConfig
from domainbert.tokenization.load import DomainTokenizer

Batch = Mapping[str, Any]


class Task(ABC):
    """A task with its labels.

    Args:
        labels: names of the head's outputs, in order.

    Attributes:
        head: kind of head, one of `encoders.families.head_kinds`.
    """

    head: ClassVar[str]

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = tuple(labels)

    def bind(self, head: nn.Module) -> None:
        """Take note of the head whose logits will come, where the loss needs more of it."""
        return None

    def folder_facts(self) -> dict[str, str]:
        """Keys for the `config.json` of a trained model, from which prediction reads what it has to know."""
        return {}

    @abstractmethod
    def encode(self, items: Sequence[Any], tokenizer: DomainTokenizer, max_length: int) -> list[Example]:
        """Labelled items as token ids and label ids."""

    @abstractmethod
    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """The loss of a micro-batch, summed, over the count of targets in the whole *global* batch. A scalar."""

    @abstractmethod
    def metric(self) -> Metric:
        """Computes the validation metrics; the best epoch is the one with the highest `f1` among them."""

    @abstractmethod
    def update(self, metric: Metric, logits: Tensor, batch: Batch, items: Sequence[Any]) -> None:
        """Add a batch to `metric`; `batch["items"]` are numbers in `items`."""


class TaskFiles(ABC):
    """How a task's labelled files are read."""

    @abstractmethod
    def read(self, path: Path) -> list[Any]:
        """The items of a file, after printing what was found; `DomainbertError` for anything wrong with it."""

    @abstractmethod
    def task(self, train: Sequence[Any]) -> Task:
        """The task with the labels of the training items."""

    @abstractmethod
    def check(self, items: Sequence[Any], task: Task, path: Path) -> None:
        """`DomainbertError` for labels in `items` that the task does not have."""


def task_files(config: TaskConfig) -> TaskFiles:
    """The reader of a task's files: `Files` in `task.py` beside the module of its configuration.

    Raises:
        DomainbertError: a task of the user's own has no such module.
    """
    module = ".".join(filter(None, (type(config).__module__.rpartition(".")[0], "task")))
    try:
        files: TaskFiles = importlib.import_module(module).Files(config)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise DomainbertError(
            f"{type(config).__name__}: no module {module}; expected one with a class Files"
        ) from error
    return files
