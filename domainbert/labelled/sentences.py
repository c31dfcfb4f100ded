"""A labelled file of sentences, which may stand in documents."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Protocol, TypeVar

from typing_extensions import override

from domainbert.labelled.items import Item, Labelled


class SentenceItem(Item, Protocol):
    """A labelled sentence."""

    @property
    def words(self) -> list[str]:
        """Its words."""

    @property
    def document(self) -> int:
        """Number of the document that holds it, from 0; each sentence its own where the file marks none."""


AnySentence = TypeVar("AnySentence", bound=SentenceItem)


@dataclass(frozen=True)
class SentenceFile(Labelled[AnySentence]):
    """Contents of a file of sentences."""

    @property
    @abstractmethod
    def marks_documents(self) -> bool:
        """Whether the file says where documents begin; of several, whether the first does."""

    @property
    def has_documents(self) -> bool:
        """Whether the file, or one of several, says where documents begin."""
        return self.marks_documents or any(getattr(part, "has_documents", False) for part in self.parts)

    @property
    @override
    def unit(self) -> str:
        return "documents" if self.has_documents else "sentences"

    @property
    @override
    def unit_numbers(self) -> list[int] | None:
        """The documents, if the file marks any."""
        if not self.has_documents:
            return None
        number = {document: place for place, document in enumerate(dict.fromkeys(one.document for one in self.items))}
        return [number[one.document] for one in self.items]

    @property
    def num_documents(self) -> int:
        """Documents, marked or not."""
        return len({sentence.document for sentence in self.items})

    @property
    def num_words(self) -> int:
        """Words of all sentences."""
        return sum(len(sentence.words) for sentence in self.items)

    @property
    def counted(self) -> str:
        """Sentences, documents and words, for a person."""
        grouped = f" in {self.num_documents:,} documents" if self.has_documents else ""
        return f"{len(self.items):,} sentences{grouped}, {self.num_words:,} words"
