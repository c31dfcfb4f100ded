"""Scores of a module in validation and test, from its batches, and whether its weights have changed since then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import all_gather_object, get_world_size, is_initialized
from torch.distributed.fsdp import FSDPModule
from torchmetrics import Metric, SumMetric

from domainbert.labelled.contents import located_errors
from domainbert.metrics.headline import LOSS
from domainbert.metrics.summary import Resampling
from domainbert.tasks.scoring import Scoring, flatten_scores
from domainbert.tasks.slices import SlicedMetric
from domainbert.tasks.source_batches import Sources
from domainbert.tasks.task import Batch, Task
from domainbert.tasks.tested_card import add_test_scores


class ValidationScores(nn.Module):
    """Metrics of a task, of its slices, and optionally the loss, over the batches of a validation.

    Attributes:
        not_finite: number of batches with non-finite logits.
    """

    def __init__(self, task: Task[Any, Any]) -> None:
        super().__init__()
        self.task, self.metric = task, task.metric()
        self.slices: SlicedMetric | None = None  # created when a validation begins
        self.not_finite = SumMetric(nan_strategy="disable")
        # not MeanMetric: with nan_strategy="disable" it ignores its weights
        self._loss_sum, self._loss_count = (SumMetric(nan_strategy="disable") for _ in range(2))
        self._measures_loss = False

    @property
    def has_begun(self) -> bool:
        """Whether a validation has begun that `compute` has not ended."""
        return self.slices is not None

    def begin(self, slice_values: Sequence[str], measures_loss: bool, device: torch.device) -> None:
        """Begin a validation of a set with these values of the slices."""
        self.slices = SlicedMetric(self.task, slice_values).to(device)
        self._measures_loss = measures_loss

    def reset(self) -> None:
        """Reset all metrics."""
        for module in self.modules():
            if isinstance(module, Metric):
                module.reset()

    def update(self, logits: Tensor, batch: Batch, items: Sequence[Any]) -> None:
        """Add a batch with its labelled items; `logits` are (N, labels) at its positions."""
        assert self.slices is not None
        self.not_finite.update((~logits.isfinite()).any())
        self.task.update(self.metric, logits, batch, items)
        self.slices.update(logits, batch, items)
        if self._measures_loss:
            self._loss_sum.update(self.task.loss(logits, batch))
            counted = "items" if self.task.loss_divisor == "num_examples" else "targets"
            self._loss_count.update(len(batch[counted]))

    def compute(self) -> dict[str, float]:
        """Return the scores by name over the batches of all processes, and end the validation."""
        overall = self.metric.compute()
        scores = dict(overall)
        if self.slices is not None:
            scores |= self.slices.compute(overall)
        self.slices = None
        if self._measures_loss:
            scores[LOSS.key] = self._loss_sum.compute() / self._loss_count.compute()
        return {name: float(value) for name, value in scores.items()}


class TestScores:
    """Scores of the predictions for a test set, as `domainbert evaluate` computes them.

    Attributes:
        scored: the last test set that was predicted as a whole, with its predictions.
        weights: sums of the weights in the last test.
    """

    def __init__(self) -> None:
        self._predicted: dict[int, tuple[Any, Any]] = {}  # items and predictions, by index
        self._scoring: Scoring | None = None
        self.scored: Scoring | None = None
        self.weights: Tensor | None = None

    def clear(self) -> None:
        """Forget the predictions of an interrupted test."""
        self._predicted.clear()

    def update(self, predictor: Any, sources: Sources, indices: Sequence[int]) -> None:
        """Predict the items of a batch; `indices` are their numbers in the test set."""
        assert sources.scoring is not None
        if not self._predicted:
            self.scored, self._scoring, self.weights = None, sources.scoring, sums_of_weights(predictor.model)
        test, scoring = sources.scoring.test, copy(sources.scoring)
        scoring.test = replace(test, items=list(sources.items))  # the copy has only the items of the batch
        with located_errors(lambda position: test.location(indices[position])):
            predictions = scoring.predict(predictor)
        for index, item, prediction in zip(indices, sources.items, predictions, strict=True):
            self._predicted[index] = item, prediction

    def compute(self, predictor: Any) -> dict[str, float]:
        """Return the scores by name over the items of all processes, and reset."""
        predicted = _gather_by_item(self._predicted)
        in_order = [predicted[index] for index in sorted(predicted)]
        items, predictions = zip(*in_order, strict=True)
        assert self._scoring is not None
        scoring, self._scoring = self._scoring, None
        self.clear()
        is_whole = len(items) == len(scoring.test.items)
        if not is_whole:  # limit_test_batches
            scoring = type(scoring)(scoring.config, replace(scoring.test, items=list(items)), scoring.train)
        scores = flatten_scores(scoring.scores_of(list(predictions), predictor))
        self.scored = copy(scoring) if is_whole else None  # a copy, because other modules use the data as well
        return scores

    def add_to(self, card: str, name: str, model: nn.Module) -> str:
        """Return a model card with the scores of the last test of a model called `name`, and with the intervals of
        `domainbert evaluate`; without a test of its present weights, return it unchanged."""
        if self.scored is None or weights_differ(model, self.weights):
            return card
        (system,) = self.scored.summary(Resampling())["systems"].values()
        return add_test_scores(card, name, self.scored.config, self.scored.test.file_names, system)


def _gather_by_item(values: Mapping[int, Any]) -> dict[int, Any]:
    if not is_initialized():
        return dict(values)
    parts: list[dict[int, Any]] = [{} for _ in range(get_world_size())]
    all_gather_object(parts, dict(values))
    return {index: value for part in parts for index, value in part.items()}


def sums_of_weights(module: nn.Module) -> Tensor:
    """Return the sum of each parameter, and of its absolute values, on the CPU: (parameters, 2), in double precision.

    A sharded module has none: (0, 2).
    """
    # not by the type of the parameters: some layers keep whole weights between two batches
    is_sharded = any(isinstance(child, FSDPModule) for child in module.modules())
    weights = [] if is_sharded else [parameter.detach() for parameter in module.parameters()]
    sums = [torch.stack([weight.sum(dtype=torch.float64), weight.abs().sum(dtype=torch.float64)]) for weight in weights]
    return torch.stack(sums).cpu() if sums else torch.zeros(0, 2, dtype=torch.float64)


def weights_differ(module: nn.Module, sums: Tensor | None) -> bool:
    """Return whether the weights have other `sums_of_weights`, apart from the order of the additions; False without
    `sums`."""
    if sums is None:
        return False
    present = sums_of_weights(module)
    if present.shape != sums.shape:
        return True
    tolerance = 1e-10 * present[:, 1:]  # relative to the sum of the absolute values
    return not bool(((present - sums).abs() <= tolerance).all())
