"""The state of a training as tensors and plain values, the same however many processes hold it.

Weights and optimiser states are kept by parameter name and whole, so one process resumes what several saved,
sharded or not, and the other way round. Order, masks and dropout need no state: they are functions of (seed, step).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import lightning
import torch
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
from domainbert.training.lightning_internals import begin_at
from domainbert.training.optimisers import CombinedOptimizer

_WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


def whole_weights(module: nn.Module) -> dict[str, Tensor]:
    """A copy of a module's weights on the CPU; of a sharded module only the first process gets them, the others {}.

    Of a sharded module all processes have to ask at the same time.
    """
    if is_sharded(module):
        return cast("dict[str, Tensor]", get_model_state_dict(module, options=_WHOLE))
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in module.state_dict().items()}


def load_whole_weights(module: nn.Module, weights: Mapping[str, Any]) -> None:
    """The reverse of `whole_weights`: of a sharded module the first process's weights count."""
    if is_sharded(module):
        for part in module.modules():
            if isinstance(part, FSDPModule):
                part.reshard()  # the outermost one's weights stay gathered after a validation
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        set_model_state_dict(module, dict(weights), options=options)
    else:
        module.load_state_dict(weights)


def is_sharded(module: nn.Module) -> bool:
    """Whether the parameters are spread over several processes."""
    return any(isinstance(parameter, DTensor) for parameter in module.parameters())


def can_be_saved(trainer: lightning.Trainer) -> bool:
    """Whether there is a state: of sharded optimisers torch would make one up before their first step."""
    sharded = is_sharded(trainer.lightning_module)
    return trainer.global_step > 0 and not (sharded and any(not optimizer.state for optimizer in _optimizers(trainer)))


def training_state(trainer: lightning.Trainer) -> dict[str, Any]:
    """Everything from which a training that `can_be_saved` resumes. All processes have to ask; the first's is whole.

    Callbacks take part by their `state_dict`.
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


def load_training_state(trainer: lightning.Trainer, file: Path) -> None:
    """Put a training where `training_state` was taken, in every process.

    To be called when model and optimiser stand, before Lightning asks for the training batches: these begin at
    `trainer.global_step`.
    """
    module = trainer.lightning_module
    state = _read(file)
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
    begin_at(trainer, state["step"])


def _optimizer_state(module: nn.Module, optimizers: list[Optimizer]) -> dict[str, Any]:
    """By parameter name, as torch gives it for sharded modules; a parameter that was never stepped has no state."""
    if is_sharded(module):
        return dict(get_optimizer_state_dict(module, optimizers, options=_WHOLE))
    names = _names(module)
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    return {
        "state": {names[parameter]: state for one in optimizers for parameter, state in one.state.items()},
        "param_groups": [{**group, "params": [names[one] for one in group["params"]]} for group in groups],
    }


def _names(module: nn.Module) -> dict[Tensor, str]:
    return {parameter: name for name, parameter in module.named_parameters()}


def _load_optimizer_state(module: nn.Module, optimizers: list[Optimizer], saved: dict[str, Any]) -> None:
    if is_sharded(module):
        set_optimizer_state_dict(module, optimizers, saved, options=StateDictOptions(full_state_dict=True))
        return
    groups, names = iter(saved["param_groups"]), _names(module)
    for optimizer in optimizers:
        numbered = optimizer.state_dict()["param_groups"]
        loaded = [{**next(groups), "params": group["params"]} for group in numbered]
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        numbers = [number for group in numbered for number in group["params"]]
        states = {n: saved["state"].get(names[parameter]) for n, parameter in zip(numbers, parameters, strict=True)}
        state = {number: one for number, one in states.items() if one is not None}
        optimizer.load_state_dict({"state": state, "param_groups": loaded})


def _read(file: Path) -> dict[str, Any]:
    try:
        state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # it depends on what is wrong with the file
        raise DomainbertError(f"{file}: not a checkpoint that can be read: {error}") from error
    return state


def _optimizers(trainer: lightning.Trainer) -> list[Optimizer]:
    optimizer = trainer.optimizers[0]
    return optimizer.optimizers if isinstance(optimizer, CombinedOptimizer) else [optimizer]


def _callbacks(trainer: lightning.Trainer) -> dict[str, lightning.Callback]:
    callbacks: list[lightning.Callback] = trainer.callbacks  # type: ignore[attr-defined]
    return {type(callback).__name__: callback for callback in callbacks}
