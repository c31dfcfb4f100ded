"""Shards models over the processes of a training (FSDP2)."""

from __future__ import annotations

from collections.abc import Sequence

from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from domainbert.base.errors import DomainbertError
from domainbert.encoders.heads import EncoderWithHead


def shard_models(models: Sequence[EncoderWithHead], mesh: DeviceMesh) -> None:
    """Shard the weights of each layer over the processes of `mesh`. Raise `DomainbertError` if models share parameters,
    which cannot be sharded twice."""
    parameters = [parameter for model in models for parameter in (*model.parameters(), *model.shared_parameters)]
    if len(set(parameters)) < len(parameters):
        raise DomainbertError("trainer.strategy: found fsdp; expected ddp, because the models share parameters")
    for model in models:
        for block in dict.fromkeys(model.encoder.blocks()):  # a repeated block is sharded once
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
