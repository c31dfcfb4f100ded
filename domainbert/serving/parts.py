"""A long text in parts: more windows than are computed at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from domainbert.data.examples import Example

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
