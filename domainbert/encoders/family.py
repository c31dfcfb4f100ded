"""The interface of a family of encoders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Generic, TypeVar

from torch import Tensor, nn

from domainbert.encoders.base import Encoder
from domainbert.encoders.config import EncoderConfig, VocabularyFacts
from domainbert.encoders.names import NameMap

C = TypeVar("C", bound=EncoderConfig)


class Family(ABC, Generic[C]):
    """A family, which its `model.py` holds as `FAMILY`; what needs no torch stands in its configuration.

    Attributes:
        prefix: what Hugging Face's base model is called in a model with a head: `bert.`.
        unread: tensors of the base model that no head here reads, such as a pooler.
    """

    prefix: ClassVar[str]
    unread: ClassVar[Sequence[str]] = ()

    @abstractmethod
    def encoder(self, config: C, vocabulary: VocabularyFacts) -> Encoder:
        """A freshly initialised encoder."""

    @abstractmethod
    def head(self, kind: str, config: C, encoder: Encoder, num_labels: int) -> nn.Module:
        """A freshly initialised head of one of the kinds in `config.architectures`."""

    @abstractmethod
    def names(self, config: C, kind: str | None) -> NameMap:
        """Our parameters to the tensors of Hugging Face, for the encoder with a head of this kind, or without one.

        A shared one is named once.
        """

    @abstractmethod
    def tied(self, config: C) -> Mapping[str, str]:
        """Tensors of Hugging Face that are copies, to what they are copies of: not written, and read where they are."""

    @abstractmethod
    def per_entry(self, config: C) -> Sequence[str]:
        """The tensors of Hugging Face with a row for each vocabulary entry, the word embeddings first."""

    def with_padding(self, tensors: Mapping[str, Tensor], config: C, pad_id: int) -> dict[str, Tensor]:
        """The tensors of a model for another id of the padding: the same, unless positions are counted from it."""
        return dict(tensors)
