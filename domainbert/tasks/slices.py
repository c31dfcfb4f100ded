"""Validation metrics by slice, a subgroup of items: the headline as the mean over the values of a key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torchmetrics import SumMetric

from domainbert.tasks.task import Batch, Task


class SlicedMetric(nn.Module):
    """Validation metrics of a task, one for each value of the key `headline.over`; none if this key is None.

    Args:
        task: task with its `headline`.
        items: validation set; batches contain indices of its items.
    """

    def __init__(self, task: Task[Any, Any], items: Sequence[Any]) -> None:
        super().__init__()
        self.task, self.items, self.headline = task, items, task.headline
        # without a headline that is the mean over the slices of a key, there are no slices and no metrics
        key = None if task.headline is None else task.headline.over
        value_of_item = [item.slices[key] for item in items] if key else []
        values, self.slice_of = np.unique(value_of_item, return_inverse=True)  # index of the value of each item
        self.metrics = [task.training_hooks.metric_of_slice(task) for _ in values]
        self.counts = [SumMetric(nan_strategy="disable") for _ in values]  # of the items, over all ranks
        self.modules_of_slices = nn.ModuleList([*self.metrics, *self.counts])  # moves them to the device of the module

    def update(self, logits: Tensor, batch: Batch) -> None:
        """Add each example of a batch to the metric of its slice."""
        for index, metric in enumerate(self.metrics):
            is_in_slice = torch.from_numpy(self.slice_of[batch["items"].cpu().numpy()] == index)
            self.counts[index].update(int(is_in_slice.sum()))
            if is_in_slice.any():
                slice_logits, slice_batch = select_examples(logits, batch, is_in_slice.to(logits.device))
                self.task.update(metric, slice_logits, slice_batch, self.items)

    def compute(self, whole: Mapping[str, Any]) -> dict[str, float]:
        """Return {headline key: mean of the scores of the slices}, or {} without slices, and reset the metrics.

        A slice without items in the batches is omitted: Lightning's sanity check and `limit_val_batches` read only some
        batches. `whole` are the scores of the whole set.
        """
        if self.headline is None or not self.metrics:
            return {}
        task = self.task
        slice_scores = [
            task.training_hooks.score_of_slice(task, metric.compute(), whole)
            for metric, count in zip(self.metrics, self.counts, strict=True)
            if count.compute() > 0
        ]
        for metric in (*self.metrics, *self.counts):
            metric.reset()
        return {self.headline.key: sum(slice_scores) / len(slice_scores)}


def select_examples(logits: Tensor, batch: Batch, is_selected: Tensor) -> tuple[Tensor, Batch]:
    """Return the logits of the examples in the mask `is_selected` (E,), and a batch with the fields for validation."""
    positions = is_selected[batch["example"]]  # mask of the positions of these examples
    new_index = is_selected.cumsum(0) - 1  # by index of the example in the whole batch
    fields = {name: batch[name][positions] for name in ("positions", "outputs", "targets")}
    return logits[positions], {
        **fields,
        "items": batch["items"][is_selected],
        "example": new_index[batch["example"][positions]],
    }
