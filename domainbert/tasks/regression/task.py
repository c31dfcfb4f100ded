"""A number for each text: the one output of a linear head on the pooled [CLS]; the windows of a long one are averaged.

In training the output is standardised: 0 stands for the mean of the training set, 1 for a standard deviation above it,
so that learning rates do for any unit. In a model folder the last layer's weights and bias have taken that in, and the
output is the number as the files have it, for `transformers` too.
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
from typing_extensions import Self, override

from domainbert.base.errors import DomainbertError
from domainbert.labelled.items import Labelled
from domainbert.metrics.bootstrap import Statistic
from domainbert.metrics.regression import STATISTICS, count_numbers
from domainbert.metrics.summary import Summary, collapsed
from domainbert.metrics.table import regression_lines
from domainbert.tasks.capabilities import Comparing, Explaining, Fitting, Scaling, Showing, Teaching
from domainbert.tasks.claims import Claim
from domainbert.tasks.decoding import mean_over_windows
from domainbert.tasks.mistakes import Mark, Mistake
from domainbert.tasks.regression.config import PROBLEM_TYPE
from domainbert.tasks.regression.files import NumberedText
from domainbert.tasks.scoring import CountedScoring
from domainbert.tasks.task import ADVICE, Batch
from domainbert.tasks.text_task import TextTask

if TYPE_CHECKING:
    from torchmetrics import Metric

OUTPUT = "value"
"""Name of the one output."""

_LAST = "classifier"  # module of the head
_TOO_NEAR = 1e-5  # spread as a share of the largest number, of which single precision holds seven digits
_LEAST = 1e-30  # single precision ends at 1e-38
_NEAR = 0.02  # of R2: as good as no better


@dataclass(frozen=True)
class Estimate:
    """The number that a model gives a text."""

    value: float


class RegressionScoring(CountedScoring):
    """Texts with a number each as a test set."""

    statistics: ClassVar[Mapping[str, Statistic]] = STATISTICS

    @override
    def row(self, item: NumberedText, prediction: Estimate) -> dict[str, Any]:
        return {**item.as_row, "gold": item.number, "predicted": prediction.value}

    def mistake(self, item: NumberedText, prediction: Estimate) -> Mistake | None:
        """Any error, for no number is quite right; `severity` is 1/2 for one of a standard deviation of the test set,
        and 1 for an endless one."""
        error = prediction.value - item.number
        if error == 0:
            return None
        gold = Mark(_shown(item.number))
        found = Mark(_shown(prediction.value), kind="too high" if error > 0 else "too low")
        severity = abs(error) / (abs(error) + self.deviation)
        return Mistake(item.text, [gold], [found], severity, item.text_pair, labels=())

    @cached_property
    def deviation(self) -> float:
        """That of the true numbers."""
        return float(np.std([item.number for item in self.test.items]))

    @override
    def count(self, predictions: Sequence[Estimate]) -> NDArray[Any]:
        """Counts of `metrics.regression.count_numbers`."""
        return count_numbers([item.number for item in self.test.items], [one.value for one in predictions])

    @override
    def undefined(self, counts: NDArray[Any]) -> dict[str, str]:
        """Scores that are undefined: equal values have no correlation."""
        for values, places in (("true numbers", counts[:, 0, -2]), ("predictions", counts[:, 0, -1])):
            if not places.any():
                return dict.fromkeys(("pearson", "spearman"), f"all {values} are equal")
        return {}

    def warnings(self) -> list[str]:
        """Models that give every text the same number."""
        same = collapsed(
            self.predictions, lambda found: len({one.value for one in found}) == 1, "predicts one number for every text"
        )
        return same if len({item.number for item in self.test.items}) > 1 else []

    @override
    def lines(self, summary: Summary) -> list[str]:
        return regression_lines(summary, self.headline.key, self.headline.name)


def _shown(number: float) -> str:
    return f"{number:.6g}"


def squared_difference(one: Tensor, other: Tensor) -> Tensor:
    """Return the squared difference (N,) of standardised numbers (N, 1)."""
    return (one - other).square().sum(dim=-1)


class NumberScaling(Scaling["RegressionTask"]):
    """Standardised numbers in training, the numbers of the files in a folder."""

    full_precision = True

    @override
    def output_scale(self, task: RegressionTask) -> tuple[float, float]:
        return task.mean, task.deviation

    @override
    def init_head(self, task: RegressionTask, head: nn.Module) -> None:
        weight, bias = (head.get_parameter(f"{_LAST}.{name}") for name in ("weight", "bias"))
        with torch.no_grad():
            weight.copy_(weight.double() / task.deviation)
            bias.copy_((bias.double() - task.mean) / task.deviation)

    @override
    def folder_weights(self, task: RegressionTask, weights: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        weight, bias = (f"head.{_LAST}.{name}" for name in ("weight", "bias"))
        scaled = {name: weights[name].double() * task.deviation for name in (weight, bias)}
        return {**weights, weight: scaled[weight].float(), bias: (scaled[bias] + task.mean).float()}


class NumberFitting(Fitting["RegressionTask"]):
    """Warns about a model that is no better than the mean of the validation set for every text."""

    @override
    def warnings(self, task: RegressionTask, items: Sequence[NumberedText], scores: Mapping[str, float]) -> list[str]:
        spread = float(np.std([item.number for item in items]))
        if scores["r2"] > _NEAR or spread == 0:
            return []
        found = f"RMSE {scores['rmse']:.4g} and R2 {scores['r2']:.2f} on validation"
        return [f"{found}, while the mean for every text gets {spread:.4g} and 0; {ADVICE}"]


class NumberExplaining(Explaining["RegressionTask"]):
    """Explains the number of a text, in the units of the files."""

    @override
    def explanations(self, task: RegressionTask, logits: Tensor, batch: Batch) -> list[Claim]:
        return [Claim(task.labels[0], lambda changed: task.numbers(changed, batch)[0], unit="units of the files")]


class NumberShowing(Showing["RegressionTask"]):
    """Shows the number of a text, and the standardised number that is the target."""

    @override
    def shown_target(self, task: RegressionTask, target: Any) -> str:
        return f"{float(target) * task.deviation + task.mean:g}, standardised {float(target):+.3f}"


class RegressionTask(TextTask[NumberedText, Estimate]):
    """Gives each text a number.

    Attributes:
        mean, deviation: the numbers that an output of 0, and of 1 beside it, stand for; 0 and 1 of a model folder.
    """

    outputs = (OUTPUT,)
    scoring = RegressionScoring
    comparing = Comparing(mean_over_windows, squared_difference)
    explaining = NumberExplaining()
    fitting = NumberFitting()
    scaling = NumberScaling()
    showing = NumberShowing()
    teaching = Teaching[Any](False, divergence=lambda teacher, student, _: squared_difference(teacher, student))
    unknown = float("nan")
    mean, deviation = 0.0, 1.0

    @classmethod
    @override
    def of_training(cls, config: Any, train: Labelled[Any]) -> Self:
        """`DomainbertError` if the numbers of the training set do not differ."""
        task = super().of_training(config, train)
        numbers = np.asarray([item.number for item in train.items])
        task.mean, task.deviation = float(numbers.mean()), float(numbers.std())
        if task.deviation <= max(_TOO_NEAR * float(np.abs(numbers).max()), _LEAST):
            found = f"{len(numbers):,} numbers from {numbers.min():.10g} to {numbers.max():.10g}"
            raise DomainbertError(
                f"{train.path}: {found}; expected some that differ by more than {_TOO_NEAR:g} of the largest"
            )
        return task

    @override
    def folder_facts(self, scores: Mapping[str, float]) -> dict[str, Any]:
        """Facts for `config.json` that `transformers` reads."""
        return {**super().folder_facts(scores), "problem_type": PROBLEM_TYPE}

    def target(self, item: NumberedText) -> float:
        """The standardised number."""
        return (item.number - self.mean) / self.deviation

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Squared error of the standardised numbers, summed over the texts; one without a number is left out."""
        errors = mean_over_windows(logits, batch)[:, 0] - self.targets(batch).float()
        return errors[~errors.isnan()].square().sum()

    def metric(self) -> Metric:
        """Correlations, errors and R2, in the units of the files."""
        from domainbert.metrics.modules import RegressionScores

        return RegressionScores()

    @override
    def update(self, metric: Metric, logits: Tensor, batch: Batch, items: Sequence[NumberedText]) -> None:
        gold = [items[item].number for item in batch["items"].tolist()]
        metric.update(self.numbers(logits, batch), gold)

    def decode(self, logits: Tensor, batch: Batch) -> list[Estimate]:
        """The number of each text."""
        return [Estimate(value) for value in self.numbers(logits, batch).tolist()]

    def numbers(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the numbers (E,) of the texts, in the units of the files."""
        return mean_over_windows(logits, batch)[:, 0].double() * self.deviation + self.mean
