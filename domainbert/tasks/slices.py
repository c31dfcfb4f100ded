"""Slices of a validation set during training: the headline as the mean over the values of a key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from domainbert.tasks.task import Batch, Task


class SlicedMetric(nn.Module):
    """A task's validation metric for each slice of the key that its headline is a mean over; none where it is not.

    Args:
        task: with its `headline`.
        items: the validation set, whose numbers the batches carry.
    """

    def __init__(self, task: Task[Any, Any], items: Sequence[Any]) -> None:
        super().__init__()
        self.task, self.items, self.headline = task, items, task.headline
        key = None if task.headline is None else task.headline.over
        values, self.slice_of = np.unique([item.by[key] for item in items] if key else [], return_inverse=True)
        self.metrics = [task.fitting.metric_of_slice(task) for _ in values]
        self.modules_of_slices = nn.ModuleList(self.metrics)  # they go to the device with the rest

    def update(self, logits: Tensor, batch: Batch) -> None:
        """Add a batch, each example to the metric of its slice."""
        for number, metric in enumerate(self.metrics):
            chosen = torch.from_numpy(self.slice_of[batch["items"].cpu().numpy()] == number)
            if chosen.any():
                self.task.update(metric, *chosen_examples(logits, batch, chosen.to(logits.device)), self.items)

    def compute(self, whole: Mapping[str, Any]) -> dict[str, float]:
        """The mean over the slices, by the name of the headline; nothing where it is none. It begins anew then.

        `whole` are the scores of the whole set.
        """
        if self.headline is None or not self.metrics:
            return {}
        task = self.task
        found = [task.fitting.score_of_slice(task, metric.compute(), whole) for metric in self.metrics]
        for metric in self.metrics:
            metric.reset()
        return {self.headline.key: sum(found) / len(found)}


def chosen_examples(logits: Tensor, batch: Batch, chosen: Tensor) -> tuple[Tensor, Batch]:
    """The logits and the batch, as far as validation reads it, of some examples alone; `chosen` (E,) says of which."""
    read, number = chosen[batch["example"]], chosen.cumsum(0) - 1
    of_positions = {name: batch[name][read] for name in ("positions", "outputs", "targets")}
    return logits[read], {**of_positions, "items": batch["items"][chosen], "example": number[batch["example"][read]]}
