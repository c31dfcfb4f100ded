"""Sums of the weights of a model, which tell whether its weights have changed."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor


def sums_of_weights(module: nn.Module) -> Tensor:
    """Return the sum of each parameter, and of its absolute values, on the CPU: (parameters, 2), in double precision.

    A sharded module has none: (0, 2).
    """
    weights = [parameter.detach() for parameter in module.parameters() if not isinstance(parameter, DTensor)]
    sums = [torch.stack([weight.sum(dtype=torch.float64), weight.abs().sum(dtype=torch.float64)]) for weight in weights]
    return torch.stack(sums).cpu() if sums else torch.zeros(0, 2, dtype=torch.float64)


def equal_sums(first: Tensor, second: Tensor) -> bool:
    """Return whether two results of `sums_of_weights` are equal up to the order of their additions."""
    return first.shape == second.shape and bool(((first - second).abs() <= 1e-10 * first[:, 1:]).all())
