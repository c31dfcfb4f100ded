"""Validation metrics by slice, a subgroup of items: the headline as the mean over the values of a key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import SumMetric

from domainbert.tasks.task import Batch, Task


class SlicedMetric(nn.Module):
    """Validation metrics of a task, one for each value of the key `headline.over`; none if this key is None.

    Args:
        task: task with its `headline`.
        values: values of the key in the whole validation set, which are equal in all processes.
    """

    def __init__(self, task: Task[Any, Any], values: Sequence[str]) -> None:
        super().__init__()
        self.task, self.headline, self.values = task, task.headline, tuple(values)
        self.metrics = [task.training_hooks.metric_of_slice(task) for _ in values]
        self.counts = [SumMetric(nan_strategy="disable") for _ in values]  # of the items, over all ranks
        self.modules_of_slices = nn.ModuleList([*self.metrics, *self.counts])  # moves them to the device of the module

    def update(self, logits: Tensor, batch: Batch, items: Sequence[Any]) -> None:
        """Add each example of a batch, with the labelled items of the batch, to the metric of its slice."""
        if self.headline is None or not self.metrics:
            return
        values = [item.slices[self.headline.over] for item in items]
        for value, metric, count in zip(self.values, self.metrics, self.counts, strict=True):
            is_in_slice = torch.tensor([other == value for other in values])
            count.update(int(is_in_slice.sum()))
            if is_in_slice.any():
                slice_logits, slice_batch = select_examples(logits, batch, is_in_slice.to(logits.device))
                selected = [item for item, other in zip(items, values, strict=True) if other == value]
                self.task.update(metric, slice_logits, slice_batch, selected)

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


def slice_values(task: Task[Any, Any], items: Sequence[Any]) -> tuple[str, ...]:
    """Return the values of the key `headline.over` in labelled items, sorted; () if the headline has no such key."""
    key = None if task.headline is None else task.headline.over
    return tuple(sorted({item.slices[key] for item in items})) if key else ()


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
