"""The labelled tasks there are, as the YAML names them. Free of torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Literal

from domainbert.data.formats import ClassificationFormat, NerFormat


@dataclass(frozen=True)
class TaskConfig(ABC):
    """What is predicted, and how the labelled files say it."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The task's name, and that of the module beside this configuration's that holds it (`objectives/ner.py`)."""


@dataclass(frozen=True)
class Ner(TaskConfig):
    """Named entities: a tag for each word."""

    format: NerFormat = field(default_factory=NerFormat)
    """Columns, tag scheme and repair of the labelled files."""

    head: Literal["linear", "crf"] = "linear"
    """`crf` puts a random field on the linear head, which weighs each tag with its neighbours and never leaves IOB2;
    `transformers` loads such a folder without it."""

    @property
    def name(self) -> str:
        """`ner`."""
        return "ner"


@dataclass(frozen=True)
class Classification(TaskConfig):
    """One of several classes for each text."""

    format: ClassificationFormat = field(default_factory=ClassificationFormat)
    """Keys of the labelled files."""

    @property
    def name(self) -> str:
        """`classification`."""
        return "classification"
