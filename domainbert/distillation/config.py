"""Settings of every distillation loss in a YAML. Free of torch.

To add a loss: a frozen dataclass that inherits `LossConfig`, in a module here called `*_config.py`, and the loss itself
in `losses.py`, which `build` imports.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from domainbert.base.errors import DomainbertError
from domainbert.base.ranges import Items, Range
from domainbert.base.validation import check_fields

if TYPE_CHECKING:
    from domainbert.distillation.losses import DistillationLoss

Layers = Annotated[tuple[Annotated[int, Range(-1000, 1000)], ...], Items()]


@dataclass(frozen=True)
class Sizes:
    """Sizes of an encoder that losses have to know."""

    num_layers: int
    hidden_size: int
    num_heads: int


@dataclass(frozen=True)
class LossConfig(ABC):
    """One term of the sum that a student learns from."""

    weight: Annotated[float, Range(0, 10_000, above=True)] = 1.0
    """Factor in the sum."""

    def __post_init__(self) -> None:
        """Check the numbers, those of subclasses too."""
        check_fields(self)

    @abstractmethod
    def build(self, student: Sizes, teacher: Sizes) -> DistillationLoss:
        """The loss between two encoders; `DomainbertError` if it cannot compare these two."""


@dataclass(frozen=True)
class LayerLossConfig(LossConfig):
    """A loss between layers of the two. 0 is the output of the embeddings, 1 the first layer, -1 the last."""

    student_layers: Layers | None = None
    """Layers of the student."""

    teacher_layers: Layers | None = None
    """As many layers of the teacher."""

    def pairs(
        self, student: Sizes, teacher: Sizes, usual: Sequence[tuple[int, int]], lowest: int = 0
    ) -> list[tuple[int, int]]:
        """Numbers of the layers that are compared, of student and teacher; `usual` where none are given.

        `DomainbertError` if one side alone is given, they are not as many, or a layer does not exist; or if `lowest` is
        1 and the embeddings, which have no attention, are among them.
        """
        if self.student_layers is None and self.teacher_layers is None:
            return list(usual)
        own, source = self.student_layers or (), self.teacher_layers or ()
        if len(own) != len(source) or not own:
            raise DomainbertError(
                f"student_layers: found {len(own)} with {len(source)} teacher_layers; expected the same number of both"
            )
        numbers = [_numbered("student_layers", layer, student) for layer in own]
        pairs = list(zip(numbers, [_numbered("teacher_layers", layer, teacher) for layer in source], strict=True))
        for name, side in zip(("student_layers", "teacher_layers"), zip(*pairs, strict=True), strict=True):
            if min(side) < lowest:
                raise DomainbertError(
                    f"{name}: found layer 0, the embeddings, which have no attention; expected layers from 1"
                )
        return pairs


def check_ensemble(num_teachers: int, losses: Sequence[LossConfig]) -> None:
    """`DomainbertError` for several teachers with a loss that looks into one."""
    if num_teachers > 1 and any(isinstance(loss, LayerLossConfig) for loss in losses):
        raise DomainbertError(
            f"teachers: found {num_teachers} with losses on layers; expected one teacher, or losses on predictions only"
        )


def uniform_pairs(student: Sizes, teacher: Sizes, first: int) -> list[tuple[int, int]]:
    """TinyBERT's map (Jiao et al. 2020, arXiv:1909.10351, section 3): layer m of M learns from m * N / M of N, to the
    nearest; `first` is 0 to compare the embeddings' output too, else 1."""
    ratio = teacher.num_layers / student.num_layers
    return [(layer, max(first, int(layer * ratio + 0.5))) for layer in range(first, student.num_layers + 1)]


def last_pair(student: Sizes, teacher: Sizes) -> list[tuple[int, int]]:
    """The last layer of both."""
    return [(student.num_layers, teacher.num_layers)]


def check_equal(name: str, student: int, teacher: int, advice: str) -> None:
    """`DomainbertError` where a loss needs a size to be the same in both."""
    if student != teacher:
        raise DomainbertError(f"{name}: found {student} in the student and {teacher} in the teacher; {advice}")


def _numbered(name: str, layer: int, sizes: Sizes) -> int:
    number = layer + sizes.num_layers + 1 if layer < 0 else layer
    if not 0 <= number <= sizes.num_layers:
        raise DomainbertError(f"{name}: found {layer}; expected from 0 to {sizes.num_layers}, or -1 for the last")
    return number
