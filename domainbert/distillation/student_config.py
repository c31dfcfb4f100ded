"""Settings of a student in a YAML. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from domainbert.base.errors import DomainbertError
from domainbert.base.ranges import Items, Range
from domainbert.base.validation import check_fields
from domainbert.encoders.config import EncoderConfig, Layers
from domainbert.encoders.families import family_names


@dataclass(frozen=True)
class StudentConfig:
    """The architecture of a student, and what it takes over from its teacher.

    >>> from domainbert import StudentConfig
    >>> StudentConfig(layers=(0, 2, 4)).layers
    (0, 2, 4)
    """

    encoder: EncoderConfig | None = None
    """Its architecture, of any size; None takes the teacher's, with as many layers as are chosen below."""

    family: str | None = None
    """The family to build where `encoder` is None, such as `distilbert`; None is the teacher's."""

    layers: Annotated[tuple[Annotated[int, Range(0, 999)], ...], Items()] | None = None
    """The teacher's layers that the student's start from, as their weights are numbered, from 0: DistilBERT's are
    [0, 2, 4, 7, 9, 11]."""

    every: Layers | None = None
    """Every n-th of the teacher's layers instead, from the first: 2 takes 0, 2, 4, ..."""

    first: Layers | None = None
    """The first so many of the teacher's layers instead."""

    narrow: Literal["pca", "svd", "random"] = "pca"
    """Embeddings of a student that is narrower than its teacher: the teacher's along their principal directions (`pca`
    about their mean, `svd` about 0), as in XtremeDistil, or random; its layers start at random."""

    init: Literal["teacher", "random"] = "teacher"
    """`random` takes nothing over from the teacher."""

    def __post_init__(self) -> None:
        """Check that the layers are chosen in one way."""
        check_fields(self)
        chosen = [name for name in ("layers", "every", "first") if getattr(self, name) is not None]
        if len(chosen) > 1:
            raise DomainbertError(f"{chosen[1]}: found with {chosen[0]}; expected only one of layers, every, first")
        if self.encoder is not None and self.family is not None:
            raise DomainbertError("family: found with encoder, which sets the family; expected only one of them")
        if self.layers is not None and len(set(self.layers)) < len(self.layers):
            raise DomainbertError(f"layers: found {list(self.layers)}; expected each layer once")
        if self.family is not None and self.family not in (known := family_names()):
            raise DomainbertError(f"family: found {self.family!r}; expected one of {', '.join(known)}")

    def chosen_layers(self, num_layers: int) -> tuple[int, ...] | None:
        """The layers of a teacher of `num_layers` that are chosen, which it has to have; None where nothing is said."""
        if self.every is not None:
            return tuple(range(0, num_layers, self.every))
        chosen = tuple(range(self.first)) if self.first is not None else self.layers
        if chosen is not None and max(chosen) >= num_layers:
            name = "layers" if self.first is None else "first"
            raise DomainbertError(
                f"student.{name}: found layer {max(chosen)}; expected layers of the teacher, 0 to {num_layers - 1}"
            )
        return chosen
