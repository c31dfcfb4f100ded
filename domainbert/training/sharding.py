"""Shards models over the processes of a training (FSDP2), and reads and loads their whole states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from lightning import LightningModule
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from domainbert.base.errors import DomainbertError
from domainbert.encoders.heads import EncoderWithHead
from domainbert.training.optimisers import CombinedOptimizer

_WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


class FullySharded(ModelParallelStrategy):
    """FSDP2: shards each layer's weights, gradients and optimiser states over all devices of all nodes.

    Unlike Lightning's `fsdp` it also runs on CPUs, and its full state has the format of the other strategies.
    """

    def __init__(self) -> None:
        super().__init__(save_distributed_checkpoint=False)

    def setup_environment(self) -> None:
        """Set the mesh sizes, then initialise as in Lightning."""
        self._data_parallel_size, self._tensor_parallel_size = self.num_nodes * self.num_processes, 1
        super().setup_environment()

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        """Read a checkpoint. Lightning's would load the weights before the module can adapt them."""
        checkpoint: dict[str, Any] = torch.load(self.broadcast(checkpoint_path), "cpu", weights_only=True, mmap=True)
        return checkpoint

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        """Load the weights of a checkpoint that each process has read."""
        load_whole_weights(self._module, checkpoint["state_dict"])

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        """Return the whole state; Lightning's has no parameters without a state, and no `CombinedOptimizer`."""
        return whole_optimizer_state(self._module, optimizer)

    @property
    def lightning_restore_optimizer(self) -> bool:
        """Whether Lightning calls `load_optimizer_state_dict`."""
        return True

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Load the states of the optimizers."""
        for optimizer, state in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            load_whole_optimizer_state(self._module, optimizer, state)

    @property
    def _module(self) -> LightningModule:
        assert self.lightning_module is not None
        return self.lightning_module


def shard_models(models: Sequence[EncoderWithHead], mesh: DeviceMesh) -> None:
    """Shard the weights of each layer over the processes of `mesh`. Raise `DomainbertError` if models share parameters,
    which cannot be sharded twice."""
    parameters = [parameter for model in models for parameter in (*model.parameters(), *model.shared_parameters)]
    if len(set(parameters)) < len(parameters):
        raise DomainbertError(
            where="trainer.strategy", found="fsdp", expected="ddp, because the models share parameters"
        )
    for model in models:
        for block in dict.fromkeys(model.encoder.blocks()):  # a repeated block is sharded once
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        for method in ("hidden_states", "precise_logits"):
            register_fsdp_forward_method(model, method)  # gathers the weights, as `forward` does


def whole_weights(module: nn.Module) -> dict[str, Tensor]:
    """Return a copy of the weights of a module on the CPU, by name.

    For a sharded module this is a collective operation: the first process gets the weights, the others {}.
    """
    if is_sharded(module):
        weights = cast("dict[str, Tensor]", get_model_state_dict(module, options=_WHOLE))
        if torch.distributed.get_world_size() > 1:
            return weights
        return {name: tensor.clone() for name, tensor in weights.items()}  # a process alone got no copies
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


def optimizer_parts(optimizer: Any) -> list[Optimizer]:
    """Return the optimisers of a `CombinedOptimizer` or of its LightningOptimizer; of others only the optimiser."""
    optimizer = getattr(optimizer, "optimizer", optimizer)
    return optimizer.optimizers if isinstance(optimizer, CombinedOptimizer) else [optimizer]


def whole_optimizer_state(module: nn.Module, optimizer: Any) -> dict[str, Any]:
    """Return the state of an optimiser of a sharded module in torch's format for the whole module; a collective
    operation. The first process gets the state, the others one without parameters.

    Parameters that no step has changed have no state.
    """
    by_name = [get_optimizer_state_dict(module, part, options=_WHOLE) for part in optimizer_parts(optimizer)]
    parts = [_by_position({"state": {}, "param_groups": [], **part}) for part in by_name]
    return parts[0] if len(parts) == 1 else {"optimizers": parts}


def load_whole_optimizer_state(module: nn.Module, optimizer: Any, saved: Mapping[str, Any]) -> None:
    """Load a result of `whole_optimizer_state`, which each process has read."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in module.named_parameters()}
    options = StateDictOptions(full_state_dict=True, strict=False)  # accepts parameters without a state
    parts = optimizer_parts(optimizer)
    for part, state in zip(parts, saved.get("optimizers", [saved]), strict=True):
        names_in_order = [names[parameter] for group in part.param_groups for parameter in group["params"]]
        by_name = _renamed(state, dict(enumerate(names_in_order)))
        set_optimizer_state_dict(module, part, by_name, options=options)
        for parameter in list(part.state):
            if names[parameter] not in by_name["state"]:
                del part.state[parameter]  # torch invents a state for unstepped parameters, with a step count
    combined = getattr(optimizer, "optimizer", optimizer)
    if isinstance(combined, CombinedOptimizer):
        combined.share_groups()  # loading replaced the groups


def _by_position(state: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the names of parameters by their positions among all groups, as in `Optimizer.state_dict`."""
    names = [name for group in state["param_groups"] for name in group["params"]]
    return _renamed(state, {name: position for position, name in enumerate(names)})


def _renamed(state: Mapping[str, Any], names: Mapping[Any, Any]) -> dict[str, Any]:
    # `names` has the new key of each parameter
    states = {names[key]: value for key, value in state["state"].items()}
    groups = [{**group, "params": [names[key] for key in group["params"]]} for group in state["param_groups"]]
    return {"state": states, "param_groups": groups}
