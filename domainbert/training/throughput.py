"""Model FLOP utilisation: the arithmetic that training needs against what this device does in a matrix product."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

import torch
from torch import nn

from domainbert.encoders.heads import EncoderWithHead, MaskedLMHead
from domainbert.encoders.layers import Attention
from domainbert.training.callbacks import Throughput
from domainbert.training.config import Runtime
from domainbert.training.precision import autocast_dtype, trains_on_gpu

_SIZE = {"cpu": 2048, "cuda": 8192}


def throughput_of(flops_per_token: Mapping[int, float], runtime: Runtime) -> Throughput:
    """A callback that measures tokens per second and model FLOP utilisation, for the device and precision of a run.

    `flops_per_token` as in `Throughput`.
    """
    accelerator = runtime.trainer.get("accelerator")
    device, dtype = "cuda" if trains_on_gpu(accelerator) else "cpu", autocast_dtype(runtime.precision, accelerator)
    return Throughput(flops_per_token, measured_peak_flops(torch.device(device), dtype or torch.float32))


def flops_per_token(model: EncoderWithHead, row_length: int, predicted_share: float) -> float:
    """Floating-point operations of a forward and a backward pass for one token.

    6 for each weight of a matrix product or convolution, as often as it is used, and what the encoder says of attention
    (Chowdhery et al. 2022, PaLM, appendix B). The head, with the word embeddings where it predicts entries, and what
    stands behind the attention of the last block, count at the share of positions they run at. Embedding look-ups are
    free.
    """
    encoder = model.encoder
    blocks = encoder.blocks()
    rest = set(encoder.parameters()) - {one for block in blocks for one in block.parameters()}
    rest -= {one.weight for one in encoder.modules() if isinstance(one, nn.Embedding)}
    layers = _weights(rest) + sum(_weights(block.parameters()) for block in blocks)
    late = _weights(_behind_attention(blocks[-1]))
    outputs = encoder.input_embeddings.weight.numel() if isinstance(model.head, MaskedLMHead) else 0
    head = _weights(model.head.parameters()) + outputs
    return 6 * (layers - late + predicted_share * (late + head)) + encoder.attention_flops(row_length)


def _behind_attention(block: nn.Module) -> set[nn.Parameter]:
    """See `Encoder.blocks`."""
    (owner,) = (one for one in block.modules() if any(isinstance(part, Attention) for part in one.children()))
    return {*block.parameters()} - {*owner.parameters()} | {*owner.get_submodule("output").parameters()}


def _weights(parameters: Iterable[nn.Parameter]) -> int:
    return sum(one.numel() for one in parameters if one.ndim >= 2)


def measured_peak_flops(device: torch.device, dtype: torch.dtype, seconds: float = 1.0) -> float:
    """Floating-point operations per second of a large matrix product here: the best of those done in some seconds.

    As many as fit, into the same memory, so that neither a slow moment nor new pages count. On a machine that others
    share it still differs from run to run.
    """
    size = _SIZE.get(device.type, 2048)
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    product = left @ right
    best, left_over = float("inf"), seconds
    while left_over > 0:
        _synchronize(device)
        start = time.perf_counter()
        torch.mm(left, right, out=product)
        _synchronize(device)
        took = time.perf_counter() - start
        best, left_over = min(best, took), left_over - took
    return 2 * size**3 / best


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
