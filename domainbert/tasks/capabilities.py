"""Optional parts of a task, in class attributes of `Task`; None where a task has no such part.

They hold no state: a method that needs the task takes it first:
`task.example_formatter.notes(task, item, window)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from torch import Tensor, nn

from domainbert.base.errors import DomainbertError
from domainbert.data.batches import GlobalOrder
from domainbert.data.packing import IGNORE_INDEX, Window
from domainbert.encoders.crf import label_logits
from domainbert.labelled.contents import Content, text_of
from domainbert.tasks.decoding import output_logits
from domainbert.training.divergence import softmax_divergence

if TYPE_CHECKING:
    from torchmetrics import Metric

    from domainbert.tasks.task import Task

Batch = Mapping[str, Any]
AnyTask = TypeVar("AnyTask", bound="Task[Any, Any]")


class ExampleFormatter(Generic[AnyTask]):
    """Text rendering of targets, for `--show`."""

    def notes(self, task: AnyTask, item: Any, window: Window) -> list[tuple[str, str]]:
        """Return a pair of strings (description, target) for each position of a window that the head reads.

        The description is empty for a position without output, such as a position inside a word.
        """
        names = self.output_names(task, item)
        # the index of the output is -1 at a position without output
        descriptions = [names[output] if 0 <= output < len(names) else "" for output in window.outputs.tolist()]
        targets = [self.format_target(task, target) for target in window.targets]
        return list(zip(descriptions, targets, strict=True))

    def output_names(self, task: AnyTask, item: Any) -> Sequence[str]:
        """Return a description of each output of an item; by default the words of a list, or "the whole text"."""
        return item.content if isinstance(item.content, list) else ["the whole text"]

    def format_target(self, task: AnyTask, target: Any) -> str:
        """Return one element of `Window.targets` as text; by default the label, or "none" for an ignored target."""
        return task.labels[int(target)] if int(target) != IGNORE_INDEX else "none"


def _divergence_of_outputs(teacher: Tensor, student: Tensor, example: Tensor) -> Tensor:
    """Return the Kullback-Leibler divergence (N,) of each output, whose logits have a softmax. `example` is unused:
    other tasks need it to compare all outputs of an example together."""
    return softmax_divergence(teacher, student)


@dataclass(frozen=True)
class DistillationTargets(Generic[AnyTask]):
    """Distillation: a student is compared with its teachers output by output, each a word or a text."""

    is_softmax: bool = True
    """Whether the logits of an output are normalised by a softmax, so that a cache may omit small logits."""

    softmax_over: Literal["outputs", "examples"] = "outputs"
    """Distributions that `SoftTargets` averages over: of each output, or of all outputs of an example together."""

    divergence: Callable[[Tensor, Tensor, Tensor], Tensor] = _divergence_of_outputs
    """Divergence (N,), to be summed, of a student's `teacher_logits` from its teacher's, both divided by the
    temperature; the third argument (M,) is the example of each output, or -1 where no window reads the output."""

    def num_outputs(self, task: AnyTask) -> int:
        """Return the number of columns of `teacher_logits`; by default one for each label."""
        return len(task.labels)

    def teacher_logits(self, task: AnyTask, head: nn.Module, logits: Tensor, batch: Batch) -> Tensor:
        """Return the logits or log-probabilities (M, columns) of all M outputs in a batch, ordered by example.

        By default the logits of the labels, averaged over the windows that decide an output. For a CRF, the
        log-marginals of the labels: posterior distillation (Wang et al. 2020, arXiv:2004.03846).

        Args:
            task: task of the student.
            head: head of the model that computed the logits.
            logits: (N, C) at the positions of the batch.
            batch: with `output_index` (N,), the index of the output of each position among the M outputs (-1 for a
                position without output), and M as `num_outputs_here`.
        """
        labels = label_logits(head, logits, batch["example"], batch["outputs"])
        return output_logits(labels, batch["output_index"], batch["num_outputs_here"])

    def facts(self, task: AnyTask, head: nn.Module) -> dict[str, Any]:
        """Return what the logits of a teacher with `head` depend on besides model and texts, as part of their cache
        key: settings of the student's task."""
        scale = task.scaling.output_scale(task)
        return {} if scale is None else {"scale": scale}


def require_distillation_targets(task: Task[Any, Any]) -> DistillationTargets[Any]:
    """Return `task.distillation_targets`; raise `DomainbertError` if it is None."""
    if task.distillation_targets is None:
        raise DomainbertError(
            f"{type(task).__name__} has no `distillation_targets`",
            where="losses",
            expected="HardTargets or losses on layers",
        )
    return task.distillation_targets


class Scaling(Generic[AnyTask]):
    """Units of the outputs; a model folder may have other units than training, as in regression."""

    full_precision: ClassVar[bool] = False
    """Whether models always predict in full precision; 16-bit floats keep only about three digits."""

    def output_scale(self, task: AnyTask) -> tuple[float, float] | None:
        """Return (shift, factor) from training outputs to outputs of a model folder; None (default) if equal."""
        return None

    def set_units(self, task: AnyTask, head: nn.Module) -> None:
        """Register the units of training as buffers of a head to train; by default do nothing."""

    def init_head(self, task: AnyTask, head: nn.Module) -> None:
        """Rescale the head of a finished model in place to the units of training; by default do nothing."""

    def folder_weights(self, weights: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return the weights of a trained model in units of its folder, without the buffers of `set_units`; by default
        unchanged."""
        return weights


class Inputs(Generic[AnyTask]):
    """Contents that the models of a task read."""

    def kinds(self, task: AnyTask) -> tuple[str, ...]:
        """Return the kinds of content that models read, as nouns; teacher and student must read the same kinds."""
        return ("texts",)

    def content_of(self, task: AnyTask, row: Mapping[str, Any], text_key: str) -> Content:
        """Return the content of a JSONL object to predict; raise `DomainbertError` if a key is missing."""
        return text_of(row, text_key)

    def call(self, task: AnyTask) -> str:
        """Return Python code that calls the predictor with an example, for model cards."""
        return 'predict(["A text."])'

    def added_tokens(self, task: AnyTask) -> Sequence[str]:
        """Return tokens that the vocabulary must contain, by default none; training adds missing tokens."""
        return ()


class TrainingHooks(Generic[AnyTask]):
    """Order of the items, scores of slices and advice of a training."""

    def order(self, task: AnyTask, items: Sequence[Any], batch_size: int, seed: int) -> GlobalOrder:
        """Return the order in which the items are read; by default each item once per epoch."""
        return GlobalOrder(len(items), batch_size, seed)

    def metric_of_slice(self, task: AnyTask) -> Metric:
        """Return a metric for one slice of the items; `score_of_slice` reads its scores."""
        metric: Metric = task.metric()
        return metric

    def score_of_slice(self, task: AnyTask, scores: Mapping[str, Any], whole: Mapping[str, Any]) -> float:
        """Return the score of a slice, by default its value of the metric in the headline, a mean over slices.

        `scores` are the results of `metric_of_slice`; `whole` are the scores of the whole set.
        """
        assert task.headline is not None  # as only a headline asks for slices
        return float(scores[task.headline.averaged_key])

    def remarks(self, task: AnyTask, scores: Mapping[str, float]) -> list[str]:
        """Return lines to print about the selected model, which has these validation scores; by default []."""
        return []

    def warnings(self, task: AnyTask, items: Sequence[Any], scores: Mapping[str, float]) -> list[str]:
        """Return warnings if the best validation scores are no better than a trivial baseline; otherwise []."""
        return []
