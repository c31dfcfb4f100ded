"""Base classes for settings of distillation losses. Imports no torch.

To add a loss, write a frozen dataclass that inherits `LossConfig` in a module `*_config.py` of this package, and a
`DistillationLoss` in `losses.py`, which the method `build` imports.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from domainbert.base.errors import DomainbertError
from domainbert.base.fields import Items, Range, check_fields

if TYPE_CHECKING:
    from domainbert.distillation.losses import DistillationLoss

Layers = Annotated[tuple[Annotated[int, Range(-1000, 1000)], ...], Items()]
"""Numbers of layers; negative numbers count from the end."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of an encoder that a loss compares."""

    num_layers: int
    hidden_size: int
    num_heads: int


@dataclass(frozen=True)
class LossConfig(ABC):
    """Settings of one loss of a student."""

    weight: Annotated[float, Range(0, 10_000, exclude_low=True)] = 1.0
    """Factor of the loss in the weighted sum."""

    def __post_init__(self) -> None:
        """Validate the fields, including the fields of a subclass."""
        check_fields(self)

    @abstractmethod
    def build(self, student: Sizes, teacher: Sizes) -> DistillationLoss:
        """Return the loss for two encoders; raise `DomainbertError` if it cannot compare them."""


@dataclass(frozen=True)
class LayerLossConfig(LossConfig):
    """Settings of a loss that compares layers. 0 is the output of the embeddings, 1 the first layer, -1 the last."""

    student_layers: Layers | None = None
    """Layers of the student to compare. None: see the loss."""

    teacher_layers: Layers | None = None
    """The layer of the teacher for each of `student_layers`."""

    def pairs(
        self, student: Sizes, teacher: Sizes, default: Sequence[tuple[int, int]], lowest: int = 0
    ) -> list[tuple[int, int]]:
        """Return the layers to compare as pairs (student layer, teacher layer), or `default` if no layers are set.

        Layer 0 is the output of the embeddings. `lowest` is 1 for losses on attention, which the embeddings do not
        have.

        Raises:
            DomainbertError: only one side is set, the numbers of layers differ, a layer does not exist, or a layer is
                below `lowest`.
        """
        if self.student_layers is None and self.teacher_layers is None:
            return list(default)
        student_layers, teacher_layers = self.student_layers or (), self.teacher_layers or ()
        if len(student_layers) != len(teacher_layers) or not student_layers:
            raise DomainbertError(
                f"student_layers has length {len(student_layers)} and teacher_layers length {len(teacher_layers)}",
                expected="lists of the same length",
            )
        student_indices = [_layer_index("student_layers", layer, student, lowest) for layer in student_layers]
        teacher_indices = [_layer_index("teacher_layers", layer, teacher, lowest) for layer in teacher_layers]
        return list(zip(student_indices, teacher_indices, strict=True))


def check_ensemble(num_teachers: int, losses: Sequence[LossConfig]) -> None:
    """Raise `DomainbertError` if there is no teacher, or if there are several and a loss on layers."""
    if not num_teachers:
        raise DomainbertError(
            where="teachers", found="none", expected="at least one, even if no loss compares with a teacher"
        )
    if num_teachers > 1 and any(isinstance(loss, LayerLossConfig) for loss in losses):
        raise DomainbertError(
            where="teachers",
            found=f"{num_teachers} with losses on layers",
            expected="one teacher, or only losses on predictions, such as SoftTargets",
        )


def uniform_pairs(student: Sizes, teacher: Sizes, first: int) -> list[tuple[int, int]]:
    """Return the pairs (student layer, teacher layer) of TinyBERT (Jiao et al. 2020, arXiv:1909.10351, section 3).

    With M student layers and N teacher layers, student layer m learns from teacher layer m * N / M, rounded. `first` is
    0 to include the output of the embeddings, else 1.
    """
    ratio = teacher.num_layers / student.num_layers
    return [(layer, max(first, int(layer * ratio + 0.5))) for layer in range(first, student.num_layers + 1)]


def check_equal(name: str, student: int, teacher: int, expected: str) -> None:
    """Raise `DomainbertError` if a size differs between student and teacher."""
    if student != teacher:
        raise DomainbertError(f"the {name} is {student} in the student and {teacher} in the teacher", expected=expected)


def _layer_index(name: str, layer: int, sizes: Sizes, lowest: int) -> int:
    """Return 0 for the embeddings, 1 for the first layer; a negative `layer` counts from the end. `name` is its
    setting, for the message."""
    index = layer + sizes.num_layers + 1 if layer < 0 else layer
    if not 0 <= index <= sizes.num_layers:
        raise DomainbertError(found=f"{layer} in {name}", expected=f"0 to {sizes.num_layers}, or -1 for the last layer")
    if index < lowest:
        raise DomainbertError(found=f"layer 0 in {name}, the embeddings, without attention", expected="layers from 1")
    return index
