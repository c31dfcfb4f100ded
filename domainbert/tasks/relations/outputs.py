"""Names of a model's outputs: the relations, or each of them at both of the entities. Free of torch."""

from __future__ import annotations

from collections.abc import Sequence

_PLACES = (" at head", " at tail")


def outputs_at_starts(classes: Sequence[str]) -> tuple[str, ...]:
    """Two outputs for each class, of which one is read at either entity: first all of the head, then of the tail.

    >>> outputs_at_starts(["part-of", "used-for"])
    ('part-of at head', 'used-for at head', 'part-of at tail', 'used-for at tail')
    """
    return tuple(label + place for place in _PLACES for label in classes)


def classes_of(outputs: Sequence[str]) -> tuple[str, ...]:
    """The classes of a model by the names of its outputs."""
    classes = [name.removesuffix(_PLACES[0]) for name in outputs[: len(outputs) // 2]]
    return tuple(classes) if classes and outputs_at_starts(classes) == tuple(outputs) else tuple(outputs)
