"""Optional parts of a task, in class attributes of `Task`; None where a task has no such part.

They hold no state: a method that needs the task takes it first, as in `task.showing.notes(task, item, window)`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from torch import Tensor

from domainbert.data.examples import Window
from domainbert.data.types import IGNORED
from domainbert.tasks.claims import Claim

if TYPE_CHECKING:
    from domainbert.tasks.task import Task

Batch = Mapping[str, Any]
AnyTask = TypeVar("AnyTask", bound="Task[Any, Any]")


class Explaining(ABC, Generic[AnyTask]):
    """Attributions: which words a prediction comes from."""

    @abstractmethod
    def explanations(self, task: AnyTask, logits: Tensor, batch: Batch) -> list[Claim]:
        """Return the predictions for the one text of a batch as functions of the logits (N, C) at its positions."""

    def text_read(self, task: AnyTask, text: str) -> str:
        """Return the text that is tokenized; by default `text` itself."""
        return text


class Showing(Generic[AnyTask]):
    """Targets in words, for `--show`."""

    def notes(self, task: AnyTask, item: Any, window: Window) -> list[tuple[str, str]]:
        """Return for each place (k,) that the head reads in a window what it is about, and the target in words; the
        target is empty where there is nothing to say."""
        words = self.output_names(task, item)
        names = [words[output] if 0 <= output < len(words) else "" for output in window.outputs.tolist()]
        return [(name, self.shown_target(task, target)) for name, target in zip(names, window.targets, strict=True)]

    def output_names(self, task: AnyTask, item: Any) -> Sequence[str]:
        """Return what each output of an item is about, such as the words of a sentence."""
        return item.content if isinstance(item.content, list) else ["the whole text"]

    def shown_target(self, task: AnyTask, target: Any) -> str:
        """Return the target of one place, an item of `Window.targets`, in words; by default the name of a label."""
        return task.labels[int(target)] if int(target) != IGNORED else "none"
