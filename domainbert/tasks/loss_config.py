"""Settings of losses: weights of labels. Does not import torch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Annotated, Literal

from domainbert.base.errors import DomainbertError, format_names
from domainbert.base.fields import Range

Positive = Annotated[float, Range(0, 1e6, exclude_low=True)]

LabelWeights = Literal["balanced"] | dict[str, Positive]
"""Weights from the label counts of the training set, or by label name."""


def check_weighted(weights: LabelWeights | None, labels: Collection[str], setting: str) -> None:
    """Raise `DomainbertError` if a weight names a label that training does not have.

    `setting` is the key of the weights in the message.
    """
    if weights is None or isinstance(weights, str):  # "balanced" names no labels
        return
    unknown = sorted(set(weights) - set(labels))
    if unknown:
        expected = f"labels of the training set: {format_names(sorted(labels))}"
        raise DomainbertError(where=setting, found=format_names(unknown), expected=expected)


def resolve_weights(
    weights: LabelWeights | None, labels: Sequence[str], balanced: Callable[[str], float]
) -> list[float] | None:
    """Return the weight of each label, 1 if the settings do not name it; None without weights.

    For the setting "balanced", `balanced` returns the weight of a label.
    """
    if weights is None:
        return None
    if isinstance(weights, str):
        return [balanced(label) for label in labels]
    return [weights.get(label, 1.0) for label in labels]
