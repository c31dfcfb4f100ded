"""Divergence between the distributions that teacher and student predict."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def at_least_fp32(tensor: Tensor) -> Tensor:
    """Return a tensor in fp32, or unchanged if it has more bits: losses are small differences of large numbers."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def softmax_divergence(teacher: Tensor, student: Tensor) -> Tensor:
    """Return KL(softmax(teacher) || softmax(student)), summed over the last dimension."""
    log_teacher, log_student = at_least_fp32(teacher).log_softmax(dim=-1), at_least_fp32(student).log_softmax(dim=-1)
    return functional.kl_div(log_student, log_teacher, reduction="none", log_target=True).sum(dim=-1)
