"""Predictions of a module: a predictor computes logits itself, or takes the logits of a batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from domainbert.base.errors import DomainbertError
from domainbert.data.packing import Example
from domainbert.tasks.packed_logits import packed_logits
from domainbert.tasks.saving import config_fields
from domainbert.tasks.slices import select_examples
from domainbert.tasks.task import Task, task_from_fields
from domainbert.training.precision import autocast_dtype

if TYPE_CHECKING:
    from domainbert.tasks.finetuning import FineTuning


class ModuleRuntime:
    """Runtime of a predictor (see `serving.predictor.FineTuned`) with the current weights of a module."""

    def __init__(self, module: FineTuning) -> None:
        self.module, self.model, self.config = module, module.model, module.config
        self.tokenizer, self.max_length = module.tokenizer, module.max_length

    def need_full_precision(self) -> None:
        """Do nothing: the weights of a module have full precision."""

    def logits(self, examples: Sequence[Example]) -> Iterator[tuple[dict[str, Any], Tensor]]:
        """Yield each batch with the logits (N, labels) at its positions, in the precision of the Trainer."""
        module = self.module
        dtype = None if module.task.scaling.full_precision else autocast_dtype(module.precision)
        was_training = self.model.training
        self.model.eval()
        try:
            with torch.autocast(module.device.type, enabled=False):  # `packed_logits` applies its own autocast
                for batch, logits in packed_logits(self.model, self.tokenizer, examples, module.device, dtype):
                    check_finite(logits)
                    yield batch, logits
        finally:
            self.model.train(was_training)


class BatchRuntime(ModuleRuntime):
    """Runtime that has the logits (N, labels) of one batch, whose examples a predictor decodes."""

    def __init__(self, module: FineTuning, batch: dict[str, Any], logits: Tensor) -> None:
        super().__init__(module)
        check_finite(logits)
        self.batch, self.computed = batch, logits

    def logits(self, examples: Sequence[Example]) -> Iterator[tuple[dict[str, Any], Tensor]]:
        """Yield the batch and its logits; `examples` are its examples with outputs, in order."""
        batch = {name: self.batch[name] for name in ("items", "example", "positions", "outputs", "targets")}
        has_outputs = torch.zeros_like(batch["items"], dtype=torch.bool)
        has_outputs[batch["example"]] = True
        logits, selected = select_examples(self.computed, batch, has_outputs)
        if len(examples):
            yield {**selected, "items": torch.arange(len(examples))}, logits


def saved_task(module: FineTuning) -> Task[Any, Any]:
    """Return the task that would be read from the saved `config.json` of a module, with the head of the module."""
    given = module.task
    task = task_from_fields(type(given.config), given.labels, config_fields(module))  # type: ignore[arg-type]
    task.headline, task.config = given.headline, given.config
    with torch.inference_mode(False):  # a CRF sets buffers of the head
        task.attach_head(module.model.head)
    return task


def predictor_of(task: Task[Any, Any], runtime: ModuleRuntime) -> Any:
    """Return a predictor of a task, see `saved_task`."""
    return task.predictor(task, runtime)


def check_finite(logits: Tensor) -> None:
    """Raise `DomainbertError` if logits are not finite."""
    if not logits.isfinite().all():
        raise DomainbertError("the logits are NaN or infinite", hint="train again with a lower optim.lr")
