"""Divergence of two distributions, as distillation compares what models predict."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def full(tensor: Tensor) -> Tensor:
    """At least fp32: losses are small differences of large numbers."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def softmax_divergence(teacher: Tensor, student: Tensor) -> Tensor:
    """Kullback-Leibler divergence of softmax(teacher) from softmax(student) over the last dimension, which is gone."""
    log_teacher, log_student = full(teacher).log_softmax(dim=-1), full(student).log_softmax(dim=-1)
    return functional.kl_div(log_student, log_teacher, reduction="none", log_target=True).sum(dim=-1)
