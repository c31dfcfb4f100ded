"""Logits of examples, packed, in batches by a budget of tokens; a long text in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor

from domainbert.data.batches import LabelledBatches
from domainbert.data.examples import Example, collate
from domainbert.data.types import Share
from domainbert.encoders.heads import EncoderWithHead
from domainbert.encoders.packed import Packed
from domainbert.tokenization.load import DomainTokenizer

_MAX_TOKENS, _MAX_TOKENS_ON_CPU = 8_192, 2_048  # of a batch; those of a CPU stay in its caches
_OF_OUTPUTS = ("example", "outputs", "targets")  # what a task reads of a batch beside `items`, see `examples.collate`

Computed = tuple[dict[str, Any], Tensor]  # a batch, and the logits (N, C) at its positions


def compute_in_parts(
    compute: Callable[[Sequence[Example]], Computed], examples: Sequence[Example], max_tokens: int
) -> Computed:
    """Compute the values of a batch that a task reads, and the logits (N, C); a single example of more than
    `max_tokens` tokens is computed in several parts of its windows.

    The rows of a part have at most `max_tokens` with padding, unless a window alone has more.
    """
    parts = [examples]
    if len(examples) == 1 and examples[0].num_tokens > max_tokens:
        (example,) = examples
        at_once = max(max_tokens // max(window.num_tokens for window in example.windows), 1)
        groups = (example.windows[begin : begin + at_once] for begin in range(0, len(example.windows), at_once))
        parts = [[Example(windows, example.num_outputs)] for windows in groups]
    positions = sum(len(window.positions) for example in examples for window in example.windows)
    whole, end = list[Tensor](), 0
    for part in parts:
        batch, logits = compute(part)
        values = [*(batch[name] for name in _OF_OUTPUTS), logits]
        # the results of thousands of parts, kept one by one, would fragment the memory of the next part's layers
        whole = whole or [value.new_empty(positions, *value.shape[1:]) for value in values]
        for joined, value in zip(whole, values, strict=True):
            joined[end : end + len(value)] = value
        end += len(logits)
    return {"items": batch["items"], **dict(zip(_OF_OUTPUTS, whole, strict=False))}, whole[-1]


def packed_logits(
    model: EncoderWithHead,
    tokenizer: DomainTokenizer,
    examples: Sequence[Example],
    device: torch.device,
    dtype: torch.dtype | None = None,
) -> Iterator[tuple[dict[str, Any], Tensor]]:
    """For each packed batch the batch and the logits (N, C) at its positions; batches are not in order.

    A batch is yielded when the next one has been queued, so that a GPU computes while the caller decodes. The model is
    in eval mode, on the device. `dtype` is the `torch.autocast` dtype of its encoder, None full precision.
    """
    max_tokens = _MAX_TOKENS_ON_CPU if device.type == "cpu" else _MAX_TOKENS
    cast = torch.autocast(device.type, dtype) if dtype else nullcontext()

    def compute(items: Sequence[int], part: Sequence[Example]) -> Computed:
        batch = collate(part, items, tokenizer)
        moved = {name: _moved(torch.from_numpy(values), device) for name, values in batch.items()}
        with torch.inference_mode():
            with cast:
                states = model.head_input(Packed.of(moved), moved["positions"])
            return moved, model.read(states.float())  # logits rounded to 8 bits would change labels

    queued: list[Computed] = []
    for items in LabelledBatches(examples, tokenizer, max_tokens, Share()).batches:
        queued.append(compute_in_parts(partial(compute, items), [examples[item] for item in items], max_tokens))
        if len(queued) > 1:
            yield queued.pop(0)
    yield from queued


def _moved(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on the device; a copy from pinned memory does not wait for what a GPU still computes."""
    return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)
