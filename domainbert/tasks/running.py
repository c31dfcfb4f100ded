"""A model that is being trained, as predictors run it; and what several processes have predicted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributed import all_gather_object, get_world_size, is_initialized

from domainbert.base.errors import DomainbertError
from domainbert.data.examples import Example
from domainbert.tasks.packed_logits import packed_logits

if TYPE_CHECKING:
    from domainbert.tasks.task_module import TaskModule

_DTYPES = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}


class ModuleRuntime:
    """The model of a LightningModule as a predictor runs it: the encoder in the precision of the Trainer."""

    def __init__(self, module: TaskModule, precision: str) -> None:
        self.model, self.tokenizer, self.max_length = module.model, module.tokenizer, module.max_length
        self.config, self.labels, self.device = module.config, module.task.labels, module.device
        self.dtype = None if module.task.scaling.full_precision else _DTYPES.get(precision)
        scale = module.task.scaling.output_scale(module.task)
        self.shift, self.factor = scale or (0.0, 1.0)
        self.is_scaled = scale is not None

    def logits(self, examples: Sequence[Example]) -> Iterator[tuple[dict[str, Any], Tensor]]:
        """For each batch the batch and the logits (N, labels) at its positions, as a saved model gives them.

        `DomainbertError` if some logits are not finite.
        """
        trained = self.model.training
        self.model.eval()
        try:
            with torch.autocast(self.device.type, enabled=False):  # `packed_logits` says what is cast
                for batch, logits in packed_logits(self.model, self.tokenizer, examples, self.device, self.dtype):
                    if not logits.isfinite().all():
                        raise DomainbertError("the logits of the model are NaN or infinite; train it again")
                    yield batch, logits * self.factor + self.shift if self.is_scaled else logits
        finally:
            self.model.train(trained)


def gathered(found: Mapping[int, Any]) -> dict[int, Any]:
    """The entries of all processes together."""
    if not is_initialized():
        return dict(found)
    everything: list[dict[int, Any]] = [{} for _ in range(get_world_size())]
    all_gather_object(everything, dict(found))
    return {number: one for part in everything for number, one in part.items()}


def numbers_of(scores: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers in nested scores, by their path: `f1`, `per_type/GENE/f1`."""
    found: dict[str, float] = {}
    for name, value in scores.items():
        if isinstance(value, Mapping):
            found |= numbers_of(value, f"{prefix}{name}/")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found[f"{prefix}{name}"] = float(value)
    return found
