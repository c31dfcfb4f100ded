"""Text regression: a linear head with one output on the pooled state, averaged over the windows of a long text.

In training, the output is standardised by the mean and standard deviation of the training set, so that learning rates
do not depend on the unit. Both are buffers of the head, `shift` and `factor`. A model folder has weights and bias of
the last layer rescaled instead, so that its output, also in `transformers`, is in the units of the files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.labelled.items import Labelled
from domainbert.metrics.regression import STATISTICS, regression_terms
from domainbert.metrics.summary import collapse_warnings
from domainbert.tasks.capabilities import (
    DistillationTargets,
    ExampleFormatter,
    Scaling,
    TrainingHooks,
)
from domainbert.tasks.counted_scoring import CountedScoring
from domainbert.tasks.decoding import mean_over_windows
from domainbert.tasks.mistakes import Mark, Mistake
from domainbert.tasks.regression.config import PROBLEM_TYPE
from domainbert.tasks.regression.files import NumberedText
from domainbert.tasks.task import ADVICE, MIN_GAIN, Batch
from domainbert.tasks.text_task import TextTask

if TYPE_CHECKING:
    from torchmetrics import Metric

OUTPUT = "value"
"""Name of the only output."""

_LAST_LAYER = "classifier"  # name of the last layer in the head
_MIN_RELATIVE_SPREAD = 1e-5  # relative to the largest number; float32 has seven digits
_MIN_SPREAD = 1e-30  # the smallest normal float32 is 1e-38


@dataclass(frozen=True)
class Estimate:
    """Predicted number of a text."""

    value: float


class RegressionScoring(CountedScoring):
    """Scoring of text regression: correlations and errors."""

    statistics = STATISTICS
    titles: ClassVar[Mapping[str, str]] = {
        "pearson": "Pearson",
        "spearman": "Spearman",
        "rmse": "RMSE",
        "mae": "MAE",
        "r2": "R2",
    }

    @override
    def row(self, item: NumberedText, prediction: Estimate) -> dict[str, Any]:
        return {**item.as_row, "gold": item.number, "predicted": prediction.value}

    @override
    def mistake(self, item: NumberedText, prediction: Estimate) -> Mistake | None:
        """Return the difference of predicted and gold number as an error; None if they are equal.

        The severity of a difference e is |e| / (|e| + s), where s is `deviation`.
        """
        error = prediction.value - item.number
        if error == 0:
            return None
        gold = Mark(_format_number(item.number))
        predicted = Mark(_format_number(prediction.value), kind="too high" if error > 0 else "too low")
        severity = abs(error) / (abs(error) + self.deviation)
        return Mistake(item.text, [gold], [predicted], severity, item.text_pair, labels=())

    @cached_property
    def deviation(self) -> float:
        """Return the standard deviation of the gold numbers."""
        return float(np.std([item.number for item in self.test.items]))

    @override
    def count(self, predictions: Sequence[Estimate]) -> NDArray[Any]:
        """Return the counts of `metrics.regression.regression_terms`, with a row per text."""
        return regression_terms(
            [item.number for item in self.test.items], [prediction.value for prediction in predictions]
        )

    @override
    def undefined(self, counts: NDArray[Any]) -> dict[str, str]:
        """Return the reasons for undefined scores by name: equal numbers have no correlation."""
        # the last two columns of `regression_terms`; in a slice, equal numbers may have any rank
        for name, dense_ranks in (("true numbers", counts[:, 0, -2]), ("predictions", counts[:, 0, -1])):
            if np.ptp(dense_ranks) == 0:
                return dict.fromkeys(("pearson", "spearman"), f"all {name} are equal")
        return {}

    def warnings(self) -> list[str]:
        """Return warnings about models that predict a single number although gold has several; otherwise []."""
        gold = [item.number for item in self.test.items]
        return collapse_warnings(
            self.predictions, lambda text: [text.value], gold, "predicts one number for every text"
        )


def _format_number(number: float) -> str:
    return f"{number:.6g}"


def squared_difference(first: Tensor, second: Tensor) -> Tensor:
    """Return the squared difference (N,) of standardised numbers (N, 1)."""
    return (first - second).square().sum(dim=-1)


class NumberScaling(Scaling["RegressionTask"]):
    """Standardised numbers in training, units of the files in a model folder."""

    full_precision = True

    @override
    def output_scale(self, task: RegressionTask) -> tuple[float, float]:
        """Return the mean and standard deviation that convert outputs to the units of the files."""
        return task.mean, task.deviation

    @override
    def set_units(self, task: RegressionTask, head: nn.Module) -> None:
        head.register_buffer("shift", torch.tensor(task.mean, dtype=torch.float64))
        head.register_buffer("factor", torch.tensor(task.deviation, dtype=torch.float64))

    @override
    def init_head(self, task: RegressionTask, head: nn.Module) -> None:
        """Rescale the last layer of a head, whose output is in the units of the files, to standardised numbers."""
        weight, bias = (head.get_parameter(f"{_LAST_LAYER}.{name}") for name in ("weight", "bias"))
        with torch.no_grad():
            weight.copy_(weight.double() / task.deviation)
            bias.copy_((bias.double() - task.mean) / task.deviation)

    @override
    def folder_weights(self, weights: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return the weights with a last layer whose output is in the units of the files, without `shift` and
        `factor`."""
        layers = dict(weights)
        shift, factor = (layers.pop(f"head.{name}") for name in ("shift", "factor"))
        weight, bias = (f"head.{_LAST_LAYER}.{name}" for name in ("weight", "bias"))
        scaled = {name: layers[name].double() * factor for name in (weight, bias)}
        return {**layers, weight: scaled[weight].float(), bias: (scaled[bias] + shift).float()}


class NumberTrainingHooks(TrainingHooks["RegressionTask"]):
    """Warns about a model that is no better than the mean of the validation set for every text."""

    @override
    def warnings(self, task: RegressionTask, items: Sequence[NumberedText], scores: Mapping[str, float]) -> list[str]:
        spread = float(np.std([item.number for item in items]))  # the RMSE of the mean, whose R2 is 0
        if scores["r2"] > MIN_GAIN or spread == 0:
            return []
        achieved = f"RMSE {scores['rmse']:.4g} and R2 {scores['r2']:.2f} on validation"
        return [f"{achieved}, while predicting the mean for every text gets {spread:.4g} and 0; {ADVICE}"]


class NumberFormatter(ExampleFormatter["RegressionTask"]):
    """Shows the number of a text and its standardised target."""

    @override
    def format_target(self, task: RegressionTask, target: Any) -> str:
        return f"{float(target):g}, standardised {(float(target) - task.mean) / task.deviation:+.3f}"


class RegressionTask(TextTask[NumberedText, Estimate]):
    """Text regression.

    Attributes:
        mean, deviation: mean and standard deviation that standardise the outputs of a new head; 0 and 1 for a model
            folder.
    """

    outputs = (OUTPUT,)
    learned = (*TextTask.learned, "mean", "deviation")
    scoring = RegressionScoring
    training_hooks = NumberTrainingHooks()
    scaling = NumberScaling()
    example_formatter = NumberFormatter()
    distillation_targets = DistillationTargets[Any](
        False, divergence=lambda teacher, student, _: squared_difference(teacher, student)
    )
    unlabelled_target = float("nan")
    mean, deviation = 0.0, 1.0
    _head: nn.Module | None = None

    @override
    def attach_head(self, head: nn.Module) -> None:
        self._head = head

    @property
    def _units(self) -> tuple[Tensor | float, Tensor | float]:
        """Shift and factor from outputs of the head to the units of the files."""
        head = self._head
        return getattr(head, "shift", self.mean), getattr(head, "factor", self.deviation)

    @property
    @override
    def needs_training_set(self) -> bool:
        return True

    @override
    def learn_from(self, train: Labelled[Any]) -> None:
        """Set mean and deviation of the training numbers; raise `DomainbertError` if these are (almost) equal."""
        super().learn_from(train)
        numbers = np.asarray([item.number for item in train.items])
        self.mean, self.deviation = float(numbers.mean()), float(numbers.std())
        min_deviation = max(_MIN_RELATIVE_SPREAD * float(np.abs(numbers).max()), _MIN_SPREAD)
        if self.deviation <= min_deviation:
            found = f"numbers from {numbers.min():.10g} to {numbers.max():.10g}"
            expected = f"numbers that differ by more than {_MIN_RELATIVE_SPREAD:g} of the largest"
            expected += " (format.label_key selects the numbers)"
            raise DomainbertError(file=train.path, found=found, expected=expected)

    @override
    def model_config_fields(self, scores: Mapping[str, float]) -> dict[str, Any]:
        """Return the key of the second text, and the `problem_type` for `transformers`."""
        return {**super().model_config_fields(scores), "problem_type": PROBLEM_TYPE}

    @override
    def target(self, item: NumberedText) -> float:
        return item.number

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the squared error of standardised numbers, summed over the texts with a number."""
        shift, factor = self._units
        targets = (self.targets(batch).double() - shift) / factor
        errors = mean_over_windows(logits, batch)[:, 0] - targets.float()
        return errors[~errors.isnan()].square().sum()  # the target of a text without a number is NaN

    def metric(self) -> Metric:
        """Return the metric of correlations, errors and R2, in the units of the files."""
        from domainbert.metrics.modules import RegressionScores  # imports torchmetrics, which takes seconds

        return RegressionScores()

    @override
    def update(self, metric: Metric, logits: Tensor, batch: Batch, items: Sequence[NumberedText]) -> None:
        metric.update(self.numbers(logits, batch), [item.number for item in items])

    @override
    def decode(self, logits: Tensor, batch: Batch) -> list[Estimate]:
        return [Estimate(value) for value in self.numbers(logits, batch).tolist()]

    def numbers(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the numbers (E,) of the texts, in the units of the files."""
        shift, factor = self._units
        return mean_over_windows(logits, batch)[:, 0].double() * factor + shift
