"""Private operators and decorators of torch.

Checked with the source of torch 2.13, and run on a GPU with torch 2.11. Check them again for other versions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

without_compiler = torch._disable_dynamo
"""As `torch.compiler.disable`: the compiler skips the function. The decorator imports the compiler only when the
function is called, because that takes a second."""


def has_flash(index: int | None) -> bool:
    """Return whether torch has flash attention and GPU number `index` (None: the current GPU) supports it."""
    # compute capability 8.0 is Ampere
    return torch.backends.cuda.is_flash_attention_available() and torch.cuda.get_device_capability(index) >= (8, 0)


# As `torch.compiler.assume_constant_result`, which imports the compiler: it does not trace the function.
has_flash._dynamo_marked_constant = True  # type: ignore[attr-defined]


class SeededDraws(TorchDispatchMode):
    """Context manager: operators of this thread draw the random numbers of CPU tensors from a generator with a seed,
    not from torch's global generator, which all threads share."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call an operator; with `generator` if it draws random numbers."""
        options = dict(kwargs or {})
        first_tensor = args[0] if args else None  # a factory, such as `randn`, has the option `device` instead
        device = options.get("device") or getattr(first_tensor, "device", None) or "cpu"
        if torch.Tag.nondeterministic_seeded in func.tags and torch.device(device).type == "cpu":
            overload = str(func).rpartition(".")[2]
            # a factory accepts a generator only in a second overload, such as `randn.generator`
            with_generator = "generator" if overload == "default" else f"{overload}_generator"
            func = getattr(func.overloadpacket, with_generator, func)
            options["generator"] = self.generator
        return func(*args, **options)


def flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    boundaries: Tensor,
    longest: int,
    window: tuple[int | None, int | None],
    scale: float | None,
    dropout: float,
) -> Tensor:
    """Return the result of flash attention (Dao 2023, arXiv:2307.08691) within concatenated texts, (T, heads, D).

    `torch.nn.attention.varlen.varlen_attn` calls the same operator, without dropout.

    Args:
        query, key, value: (T, heads, D) in bf16 or fp16, on a GPU.
        boundaries: (N + 1,) int32, the start of each text, and T.
        longest: upper limit of the tokens of a text.
        window: visible tokens before and after a token; None is unlimited.
        scale: factor of the scores; None is 1 / sqrt(D).
        dropout: rate on the attention probabilities.
    """
    before, after = window
    ends = (boundaries, boundaries, longest, longest)
    options = {"scale": scale, "window_size_left": before, "window_size_right": after}
    is_causal, return_debug_mask = False, False
    results = torch.ops.aten._flash_attention_forward(
        query, key, value, *ends, dropout, is_causal, return_debug_mask, **options
    )
    mixed: Tensor = results[0]  # the others are for the backward pass
    return mixed
