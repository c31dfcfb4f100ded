"""Settings of a student. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from domainbert.base.errors import DomainbertError
from domainbert.base.fields import Items, Range, check_fields, renamed_from
from domainbert.encoders.config import EncoderConfig, Layers
from domainbert.encoders.families import family_names


@dataclass(frozen=True)
class StudentConfig:
    """Architecture of a student, and the weights that it copies from its teacher.

    >>> from domainbert import StudentConfig
    >>> StudentConfig(layers=(0, 2, 4)).layers
    (0, 2, 4)
    """

    encoder: EncoderConfig | None = None
    """Architecture, of any size. None takes the teacher's architecture, with the layers selected below."""

    family: str | None = None
    """Family to build if `encoder` is None, such as `distilbert`; None takes the teacher's family."""

    layers: Annotated[tuple[Annotated[int, Range(0, 999)], ...], Items()] | None = None
    """Layers of the teacher from which the student's layers start, numbered from 0; DistilBERT: [0, 2, 4, 7, 9, 11]."""

    every_nth_layer: Layers | None = field(default=None, metadata=renamed_from("every"))
    """Instead of `layers`: every n-th layer of the teacher, from the first; 2 selects 0, 2, 4, ..."""

    first_layers: Layers | None = field(default=None, metadata=renamed_from("first"))
    """Instead of `layers`: the number of lowest layers of the teacher to select."""

    embedding_projection: Literal["pca", "svd", "random"] = field(default="pca", metadata=renamed_from("narrow"))
    """Initial embeddings of a student that is narrower than its teacher. `pca`: the teacher's embeddings projected on
    their principal directions about the mean, as in XtremeDistil; `svd`: the same about 0; `random`. The layers of such
    a student always start at random."""

    init: Literal["teacher", "random"] = "teacher"
    """`teacher` copies weights of the teacher; `random` copies nothing."""

    def __post_init__(self) -> None:
        """Validate the fields, and check that at most one way to select layers is set."""
        check_fields(self)
        selectors = [name for name in ("layers", "every_nth_layer", "first_layers") if getattr(self, name) is not None]
        if len(selectors) > 1:
            raise DomainbertError(
                where=selectors[1], found=f"next to {selectors[0]!r}", expected="only one of these keys"
            )
        if self.encoder is not None and self.family is not None:
            raise DomainbertError(
                where="family", found="next to encoder, which sets the family", expected="only one of the two"
            )
        if self.layers is not None and len(set(self.layers)) < len(self.layers):
            raise DomainbertError(where="layers", found=list(self.layers), expected="each layer once")
        if self.family is not None and self.family not in family_names():
            raise DomainbertError(
                where="family", found=repr(self.family), expected=f"one of {', '.join(family_names())}"
            )

    def chosen_layers(self, num_layers: int) -> tuple[int, ...] | None:
        """Return the layers to take of a teacher with `num_layers` layers; None if no setting selects layers.

        Raise `DomainbertError` if a selected layer does not exist.
        """
        if self.every_nth_layer is not None:
            return tuple(range(0, num_layers, self.every_nth_layer))
        if self.first_layers is not None:
            if self.first_layers > num_layers:
                expected = f"at most {num_layers}, the layers of the teacher"
                raise DomainbertError(where="student.first_layers", found=self.first_layers, expected=expected)
            return tuple(range(self.first_layers))
        if self.layers is not None and max(self.layers) >= num_layers:
            expected = f"layers from 0 to {num_layers - 1}"
            raise DomainbertError(where="student.layers", found=max(self.layers), expected=expected)
        return self.layers
