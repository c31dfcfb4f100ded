"""Checks that the data of a Trainer fits a module for a labelled task."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, NoReturn

from lightning.pytorch.trainer.states import TrainerFn

from domainbert.base.errors import DomainbertError, format_names
from domainbert.encoders.config import check_length
from domainbert.tasks.config import TaskConfig
from domainbert.tasks.labelled_data import LabelledData
from domainbert.training.data_module import TrainingData

if TYPE_CHECKING:
    from domainbert.tasks.finetuning import FineTuning


def check_data(module: FineTuning, data: Any, stage: str) -> None:
    """Raise `DomainbertError` if `data`, a data module of this package, has another task, other labels, another
    vocabulary or another window length than a module, or in training windows that exceed its positions; or if other
    data trains a task whose loss depends on the items of a training set."""
    if not isinstance(data, TrainingData):
        if stage == "fit":
            require_training_set(module, "LabelledData")
        return
    if not isinstance(data, LabelledData):
        found, expected = f"{type(data).__name__} with {type(module).__name__}", "LabelledData"
        raise DomainbertError(where=f"trainer.{TrainerFn(stage).value}", found=found, expected=expected)
    assert module.task.config is not None
    _check_same_settings(data.config, module.task.config, type(module).__name__)
    if data.task.labels != module.task.labels:
        expected = f"{format_names(module.task.labels)}, as in the module"
        raise DomainbertError(
            where="task", found=f"the labels {format_names(data.task.labels)} in the data", expected=expected
        )
    if data.tokenizer.fingerprint != module.tokenizer.fingerprint:  # of vocabulary and normalisation
        expected = "LabelledData(..., tokenizer=module.tokenizer)"
        raise DomainbertError("the data has another vocabulary than the model", where="tokenizer", expected=expected)
    if stage in ("fit", "validate"):
        check_length(data.window, module.config)
    if data.window != module.max_length:
        found = f"{data.window} in the data and {module.max_length} in {type(module).__name__}"
        raise DomainbertError(where="max_length", found=found, expected="the same")


def require_training_set(module: FineTuning, data: str) -> None:
    """Raise `DomainbertError` if the loss of the task needs values from a training set, and the task has none; `data`
    is the name of a class that reads them."""
    if module.task.needs_training_set and not module.task.has_learned:
        found = f"{type(module.task.config).__name__} without values from a training set, on which its loss depends"
        raise DomainbertError(where="task", found=found, expected=f"the task of {data}(..., train=...)")


def _check_same_settings(ours: TaskConfig, theirs: TaskConfig, module: str) -> None:
    def raise_difference(key: str, value: str, other: str) -> NoReturn:
        raise DomainbertError(where=key, found=f"{value} in the data and {other} in {module}", expected="the same")

    if type(ours) is not type(theirs):
        raise_difference("task", type(ours).__name__, type(theirs).__name__)
    for name in (field.name for field in fields(ours)):
        value, other = getattr(ours, name), getattr(theirs, name)
        if name not in ("format", "labels") and value != other:
            raise_difference(f"task.{name}", repr(value), repr(other))
