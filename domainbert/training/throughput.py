"""Model FLOP utilisation: training FLOPs per second relative to the matrix-multiplication peak of the device."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from functools import cache

import torch
from torch import nn

from domainbert.encoders.heads import EncoderWithHead, MaskedLMHead
from domainbert.encoders.layers import Attention
from domainbert.training.callbacks import Throughput
from domainbert.training.config import Training
from domainbert.training.precision import autocast_dtype, trains_on_gpu

_SIZES = (256, 512, 1024, 2048, 4096, 8192)  # rows and columns of the measured matrices


def throughput_callback(flops_per_token: Mapping[int, float], settings: Training) -> Throughput:
    """Return a callback that measures tokens per second and model FLOP utilisation on the device of a run.

    `flops_per_token` maps the first step (from 0) of each phase to the FLOPs of a token.
    """
    accelerator = (settings.trainer or {}).get("accelerator")
    device = torch.device("cuda" if trains_on_gpu(accelerator) else "cpu")
    dtype = autocast_dtype(settings.precision, accelerator) or torch.float32
    return Throughput(flops_per_token, measured_peak_flops(device, dtype))


def flops_per_token(model: EncoderWithHead, row_length: int, predicted_share: float) -> float:
    """Return the floating-point operations of a forward and a backward pass per token.

    Each use of a weight in a matrix product or convolution counts 6; attention counts `Encoder.attention_flops`
    (Chowdhery et al. 2022, PaLM, appendix B). The head (with the word embeddings if it predicts tokens) and the layers
    after the attention of the last block count for `predicted_share` of the positions. Embedding look-ups count 0.
    """
    encoder = model.encoder
    blocks = encoder.blocks()
    outside_blocks = set(encoder.parameters()) - {parameter for block in blocks for parameter in block.parameters()}
    outside_blocks -= {module.weight for module in encoder.modules() if isinstance(module, nn.Embedding)}
    layers = _num_weights(outside_blocks) + sum(_num_weights(block.parameters()) for block in blocks)
    after_last_attention = _num_weights(_after_attention(blocks[-1]))
    output_weights = encoder.input_embeddings.weight.numel() if isinstance(model.head, MaskedLMHead) else 0
    head = _num_weights(model.head.parameters()) + output_weights
    weights_per_token = layers - after_last_attention + predicted_share * (after_last_attention + head)
    return 6 * weights_per_token + encoder.attention_flops(row_length)


def _after_attention(block: nn.Module) -> set[nn.Parameter]:
    """Return the parameters that a block uses after its attention, including the attention's output projection."""
    # the module that contains the attention and its output projection
    (parent,) = (part for part in block.modules() if any(isinstance(child, Attention) for child in part.children()))
    after_parent = {*block.parameters()} - {*parent.parameters()}
    return after_parent | {*parent.get_submodule("output").parameters()}


def _num_weights(parameters: Iterable[nn.Parameter]) -> int:
    # without biases and norms
    return sum(parameter.numel() for parameter in parameters if parameter.ndim >= 2)


@cache
def measured_peak_flops(device: torch.device, dtype: torch.dtype) -> float:
    """Return the highest measured number of floating-point operations per second of a matrix product.

    The matrices grow until a product takes 50 ms, so that a slow data type (bf16 on many CPUs) takes no longer than a
    fast one. On a shared machine the result varies between runs.
    """
    best = 0.0
    for size in _SIZES:
        duration = _fastest_product(size, device, dtype)
        best = max(best, 2 * size**3 / duration)  # multiplications and additions
        if duration >= 0.05:
            break
    return best


def _fastest_product(size: int, device: torch.device, dtype: torch.dtype) -> float:
    """Return the seconds of the fastest matrix product of those made within a tenth of a second. All products use the
    same output memory, so that page faults do not count."""
    generator = torch.Generator(device).manual_seed(0)  # the global generator draws the weights of models
    left, right = (torch.randn(size, size, device=device, generator=generator).to(dtype) for _ in range(2))
    product = left @ right
    best, remaining = float("inf"), 0.1
    while remaining > 0:
        _synchronize(device)
        start = time.perf_counter()
        torch.mm(left, right, out=product)
        _synchronize(device)
        duration = time.perf_counter() - start
        best, remaining = min(best, duration), remaining - duration
    return best


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
