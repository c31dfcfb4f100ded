"""Prediction with a model in training, and collection of predictions from several processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributed import all_gather_object, get_world_size, is_initialized

from domainbert.base.errors import DomainbertError
from domainbert.data.packing import Example
from domainbert.tasks.packed_logits import packed_logits

if TYPE_CHECKING:
    from domainbert.tasks.task_module import TaskModule

_DTYPES = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}


class ModuleRuntime:
    """Runtime of a predictor for the model of a LightningModule; the encoder has the precision of the Trainer."""

    def __init__(self, module: TaskModule, precision: str) -> None:
        self.model, self.tokenizer, self.max_length = module.model, module.tokenizer, module.max_length
        self.config, self.labels, self.device = module.config, module.task.labels, module.device
        self.dtype = None if module.task.scaling.full_precision else _DTYPES.get(precision)
        scale = module.task.scaling.output_scale(module.task)
        self.shift, self.factor = scale or (0.0, 1.0)
        self.is_scaled = scale is not None

    def logits(self, examples: Sequence[Example]) -> Iterator[tuple[dict[str, Any], Tensor]]:
        """Yield each batch with the logits (N, labels) at its positions, in the units of the saved model.

        Raise `DomainbertError` if logits are not finite.
        """
        was_training = self.model.training
        self.model.eval()
        try:
            with torch.autocast(self.device.type, enabled=False):  # `packed_logits` applies its own autocast
                for batch, logits in packed_logits(self.model, self.tokenizer, examples, self.device, self.dtype):
                    if not logits.isfinite().all():
                        raise DomainbertError("the logits of the model are NaN or infinite; train it again")
                    yield batch, logits * self.factor + self.shift if self.is_scaled else logits
        finally:
            self.model.train(was_training)


def gather_predictions(predictions: Mapping[int, Any]) -> dict[int, Any]:
    """Return the predictions of all processes, by index of the item."""
    if not is_initialized():
        return dict(predictions)
    parts: list[dict[int, Any]] = [{} for _ in range(get_world_size())]
    all_gather_object(parts, dict(predictions))
    return {index: prediction for part in parts for index, prediction in part.items()}


def flatten_scores(scores: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Return the numbers in nested scores by path, such as `f1` or `per_type/GENE/f1`; other values are omitted."""
    numbers: dict[str, float] = {}
    for name, value in scores.items():
        if isinstance(value, Mapping):
            numbers |= flatten_scores(value, f"{prefix}{name}/")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            numbers[f"{prefix}{name}"] = float(value)
    return numbers
