"""Logits of examples in packed batches with a token budget; a long text is computed in several parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from domainbert.base.process import call_glibc
from domainbert.data.batches import LabelledBatches, Share
from domainbert.data.packing import Example, collate
from domainbert.encoders.heads import EncoderWithHead
from domainbert.encoders.packed import Packed
from domainbert.tokenization.load import DomainTokenizer

_MAX_TOKENS, _MAX_TOKENS_ON_CPU = 8_192, 2_048  # per batch; a small batch fits the caches of a CPU
_OUTPUT_FIELDS = ("example", "outputs", "targets")  # read by tasks, together with `items`

Computed = tuple[dict[str, Any], Tensor]  # a batch, and the logits (N, C) at its positions


def compute_in_parts(
    compute: Callable[[Sequence[Example]], Computed], examples: Sequence[Example], max_tokens: int
) -> Computed:
    """Return the batch of some examples, reduced to the fields that tasks read, and the logits (N, C) of `compute`.

    If a single example has more than `max_tokens` tokens, its windows are computed in several parts of at most
    `max_tokens` tokens, including padding, but at least one window.
    """
    parts = [examples]
    if len(examples) == 1 and examples[0].num_tokens > max_tokens:
        (example,) = examples
        windows_per_part = max(max_tokens // max(window.num_tokens for window in example.windows), 1)
        starts = range(0, len(example.windows), windows_per_part)
        groups = (example.windows[start : start + windows_per_part] for start in starts)
        parts = [[Example(windows, example.num_outputs)] for windows in groups]
    num_positions = sum(len(window.positions) for example in examples for window in example.windows)
    outputs: list[Tensor] = []  # the fields and the logits of all parts
    num_filled = 0
    for part in parts:
        batch, logits = compute(part)
        values = [*(batch[name] for name in _OUTPUT_FIELDS), logits]
        if not outputs:  # allocated once: thousands of small results would fragment the memory
            outputs = [value.new_empty(num_positions, *value.shape[1:]) for value in values]
        for output, value in zip(outputs, values, strict=True):
            output[num_filled : num_filled + len(value)] = value
        num_filled += len(logits)
        if len(parts) > 1:  # glibc does not reuse all memory of earlier tensors: 3 MB of text would take 1 GB
            call_glibc("malloc_trim", 0)
    *fields, all_logits = outputs
    # `items` are equal in all parts
    return {"items": batch["items"], **dict(zip(_OUTPUT_FIELDS, fields, strict=True))}, all_logits


def logits_of_rows(
    model: EncoderWithHead, batch: Mapping[str, Any], max_tokens: int, full_precision: bool = False
) -> Tensor:
    """Return the logits (N, C) at the positions of a batch, computed in parts of at most `max_tokens` tokens, but at
    least one row: a long text needs no more memory than short texts.

    Logits have full precision, and with `full_precision` also the encoder, inside `torch.autocast`.
    """
    tokens, positions = Packed.of(batch), batch["positions"]
    num_rows, length = tokens.input_ids.shape
    rows_per_part = max(max_tokens // max(length, 1), 1)
    is_whole = num_rows <= rows_per_part  # a single part
    bounds = [0, len(positions)]  # of the positions of each part
    if not is_whole:
        first_rows = torch.arange(0, num_rows + rows_per_part, rows_per_part, device=positions.device)
        first_tokens = first_rows.clamp(max=num_rows) * length  # of each part, and the end
        bounds = torch.searchsorted(positions, first_tokens).tolist()  # `positions` ascend
    parts = []
    device = positions.device.type
    for number, (start, end) in enumerate(pairwise(bounds)):
        first_row = number * rows_per_part
        part = tokens if is_whole else _rows_of(tokens, slice(first_row, first_row + rows_per_part))
        with torch.autocast(device, enabled=not full_precision and torch.is_autocast_enabled(device)):
            parts.append(model.precise_logits(part, positions[start:end] - first_row * length))
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def _rows_of(tokens: Packed, rows: slice) -> Packed:
    types = tokens.token_type_ids
    fields = (tokens.input_ids[rows], tokens.position_ids[rows], tokens.segment_ids[rows])
    return Packed(*fields, None if types is None else types[rows])


def packed_logits(
    model: EncoderWithHead,
    tokenizer: DomainTokenizer,
    examples: Sequence[Example],
    device: torch.device,
    dtype: torch.dtype | None = None,
) -> Iterator[tuple[dict[str, Any], Tensor]]:
    """Yield each packed batch with the logits (N, C) at its positions; batches are not in order.

    A batch is yielded after the next batch has been queued, so that a GPU computes while the caller decodes. The model
    has to be in eval mode, on the device. `dtype` is the `torch.autocast` dtype of the encoder; None is full precision.
    """
    max_tokens = _MAX_TOKENS_ON_CPU if device.type == "cpu" else _MAX_TOKENS
    cast = torch.autocast(device.type, dtype) if dtype else nullcontext()

    def compute(items: Sequence[int], part: Sequence[Example]) -> Computed:
        """Compute one batch; `items` are the indices of the examples `part`."""
        batch = collate(part, items, tokenizer)
        on_device = {name: _to_device(torch.from_numpy(values), device) for name, values in batch.items()}
        with torch.inference_mode(), cast:
            return on_device, model.precise_logits(Packed.of(on_device), on_device["positions"])

    queued: list[Computed] = []
    for items in LabelledBatches(examples, tokenizer, max_tokens, Share()).batches:
        queued.append(compute_in_parts(partial(compute, items), [examples[item] for item in items], max_tokens))
        if len(queued) > 1:
            yield queued.pop(0)
    yield from queued


def _to_device(tensor: Tensor, device: torch.device) -> Tensor:
    # copies from pinned memory are asynchronous
    return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)
