"""Names of a model's outputs: one per relation, or one per relation and entity. Free of torch."""

from __future__ import annotations

from collections.abc import Sequence

_SUFFIXES = (" at head", " at tail")


def outputs_at_starts(classes: Sequence[str]) -> tuple[str, ...]:
    """Return two output names per class: first of all classes at the head, then of all classes at the tail.

    >>> outputs_at_starts(["part-of", "used-for"])
    ('part-of at head', 'used-for at head', 'part-of at tail', 'used-for at tail')
    """
    return tuple(label + suffix for suffix in _SUFFIXES for label in classes)


def classes_of(outputs: Sequence[str]) -> tuple[str, ...]:
    """Return the classes of a model from the names of its outputs, with one or two outputs per class."""
    classes = [name.removesuffix(_SUFFIXES[0]) for name in outputs[: len(outputs) // 2]]
    return tuple(classes) if classes and outputs_at_starts(classes) == tuple(outputs) else tuple(outputs)
