"""Training state as tensors and plain values, independent of the number of processes.

Weights and optimiser states are saved unsharded, by parameter name, so a training can resume with another number of
processes, sharded or not. Order, masks and dropout need no state: they are functions of (seed, step).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from lightning import Callback, Trainer
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from domainbert.base.errors import DomainbertError
from domainbert.training.lightning_internals import set_progress
from domainbert.training.optimisers import CombinedOptimizer

_WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


def whole_weights(module: nn.Module) -> dict[str, Tensor]:
    """Return a copy of the weights of a module on the CPU, by name.

    For a sharded module this is a collective operation: the first process gets the weights, the others {}.
    """
    if is_sharded(module):
        return cast("dict[str, Tensor]", get_model_state_dict(module, options=_WHOLE))
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in module.state_dict().items()}


def load_whole_weights(module: nn.Module, weights: Mapping[str, Any]) -> None:
    """Load a result of `whole_weights`; a sharded module takes the weights of the first process."""
    if is_sharded(module):
        for part in module.modules():
            if isinstance(part, FSDPModule):
                part.reshard()  # the weights of the outermost module stay gathered after a validation
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        set_model_state_dict(module, dict(weights), options=options)
    else:
        module.load_state_dict(weights)


def is_sharded(module: nn.Module) -> bool:
    """Return whether the parameters are sharded over several processes."""
    return any(isinstance(parameter, DTensor) for parameter in module.parameters())


def can_be_saved(trainer: Trainer) -> bool:
    """Return whether `training_state` can be called: after the first optimiser step.

    Before its first step, torch would invent a state of a sharded optimiser.
    """
    sharded = isinstance(trainer.strategy, ModelParallelStrategy)  # faster than `is_sharded`; runs in each step
    return trainer.global_step > 0 and not (sharded and any(not optimizer.state for optimizer in _optimizers(trainer)))


def training_state(trainer: Trainer) -> dict[str, Any]:
    """Return the state to resume from, which is complete in the first process; a collective operation.

    Call it only if `can_be_saved`.
    """
    module = trainer.lightning_module
    return {
        "step": trainer.global_step,
        "model": get_model_state_dict(module, options=_WHOLE) if is_sharded(module) else module.state_dict(),
        "optimizer": _optimizer_state(module, _optimizers(trainer)),
        "schedule": [config.scheduler.state_dict() for config in trainer.lr_scheduler_configs],
        "precision": trainer.precision_plugin.state_dict(),
        "callbacks": {name: callback.state_dict() for name, callback in _callbacks(trainer).items()},
    }


def load_training_state(trainer: Trainer, file: Path) -> None:
    """Restore a `training_state` in every process.

    Call it when model and optimiser exist, before Lightning requests training batches, which begin at
    `trainer.global_step`.
    """
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # the type depends on the damage
        raise DomainbertError(f"{file}: not a checkpoint that can be read: {error}") from error
    module = trainer.lightning_module
    if is_sharded(module):
        set_model_state_dict(module, state["model"], options=StateDictOptions(full_state_dict=True))
    else:
        module.load_state_dict(state["model"])
    _load_optimizer_state(module, _optimizers(trainer), state["optimizer"])
    if isinstance(trainer.optimizers[0], CombinedOptimizer):
        trainer.optimizers[0].share_groups()
    for config, schedule in zip(trainer.lr_scheduler_configs, state["schedule"], strict=True):
        config.scheduler.load_state_dict(schedule)
    trainer.precision_plugin.load_state_dict(state["precision"])
    for name, callback in _callbacks(trainer).items():
        callback.load_state_dict(state["callbacks"].get(name, {}))
    set_progress(trainer, state["step"])


def _optimizer_state(module: nn.Module, optimizers: list[Optimizer]) -> dict[str, Any]:
    """Return the state by parameter name, as torch does for sharded modules; unstepped parameters have no state."""
    if is_sharded(module):
        return dict(get_optimizer_state_dict(module, optimizers, options=_WHOLE))
    names: dict[Tensor, str] = {parameter: name for name, parameter in module.named_parameters()}
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    return {
        "state": {names[parameter]: state for o in optimizers for parameter, state in o.state.items()},
        "param_groups": [{**group, "params": [names[parameter] for parameter in group["params"]]} for group in groups],
    }


def _load_optimizer_state(module: nn.Module, optimizers: list[Optimizer], saved: dict[str, Any]) -> None:
    if is_sharded(module):
        options = StateDictOptions(full_state_dict=True, strict=False)
        set_optimizer_state_dict(module, optimizers, saved, options=options)
        unstepped = {parameter for name, parameter in module.named_parameters() if name not in saved["state"]}
        for optimizer in optimizers:  # torch invents a state for them, with a step count
            for parameter in unstepped & optimizer.state.keys():
                del optimizer.state[parameter]
        return
    groups, names = iter(saved["param_groups"]), {parameter: name for name, parameter in module.named_parameters()}
    for optimizer in optimizers:
        current_groups = optimizer.state_dict()["param_groups"]
        loaded_groups = [{**next(groups), "params": group["params"]} for group in current_groups]
        # torch numbers the parameters of all groups from 0 on
        named = enumerate(names[parameter] for group in optimizer.param_groups for parameter in group["params"])
        state = {number: saved["state"][name] for number, name in named if name in saved["state"]}
        optimizer.load_state_dict({"state": state, "param_groups": loaded_groups})


def _optimizers(trainer: Trainer) -> list[Optimizer]:
    """Return the optimisers of the training; the parts of a `CombinedOptimizer`."""
    optimizer = trainer.optimizers[0]
    return optimizer.optimizers if isinstance(optimizer, CombinedOptimizer) else [optimizer]


def _callbacks(trainer: Trainer) -> dict[str, Callback]:
    return {type(callback).__name__: callback for callback in trainer.callbacks}  # type: ignore[attr-defined]
