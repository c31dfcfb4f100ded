"""A long text in parts: more windows than are computed at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from domainbert.data.examples import Example

_OF_OUTPUTS = ("example", "outputs", "targets")  # what a task reads of a batch beside `items`, see `examples.collate`


def in_parts(examples: Sequence[Example], max_tokens: int) -> list[list[Example]]:
    """The examples of a batch; a single one of more than `max_tokens` tokens in several parts of its windows.

    The rows of a part have at most `max_tokens` with padding, unless a window alone has more.
    """
    if len(examples) > 1 or examples[0].num_tokens <= max_tokens:
        return [list(examples)]
    (example,) = examples
    at_once = max(max_tokens // max(window.num_tokens for window in example.windows), 1)
    groups = (example.windows[begin : begin + at_once] for begin in range(0, len(example.windows), at_once))
    return [[Example(windows, example.num_outputs)] for windows in groups]


def joined(parts: Sequence[tuple[dict[str, Any], Tensor]]) -> tuple[dict[str, Any], Tensor]:
    """The batches of the parts of an example as one, without its tokens, and the logits (N, C)."""
    if len(parts) == 1:
        return parts[0]
    outputs = {name: torch.cat([batch[name] for batch, _ in parts]) for name in _OF_OUTPUTS}
    return {"items": parts[0][0]["items"], **outputs}, torch.cat([logits for _, logits in parts])
