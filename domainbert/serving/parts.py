"""Compute the windows of a long text in several parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from domainbert.data.examples import Example

_OUTPUT_FIELDS = ("example", "outputs", "targets")  # read by tasks, together with `items`; see `examples.collate`

Computed = tuple[dict[str, Any], Tensor]  # a batch, and the logits (N, C) at its positions


def compute_in_parts(
    compute: Callable[[Sequence[Example]], Computed], examples: Sequence[Example], max_tokens: int
) -> Computed:
    """Return the batch, reduced to the fields that tasks read, and the logits (N, C).

    If a single example has more than `max_tokens` tokens, its windows are computed in several parts of at most
    `max_tokens` tokens, including padding, but at least one window.
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
        values = [*(batch[name] for name in _OUTPUT_FIELDS), logits]
        # allocated once: thousands of small results would fragment the memory
        whole = whole or [value.new_empty(positions, *value.shape[1:]) for value in values]
        for joined, value in zip(whole, values, strict=True):
            joined[end : end + len(value)] = value
        end += len(logits)
    return {"items": batch["items"], **dict(zip(_OUTPUT_FIELDS, whole, strict=False))}, whole[-1]
