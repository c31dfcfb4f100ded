"""Settings and labelled files of the task; does not import torch."""

from dataclasses import dataclass
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.labelled.formats import RowFormat
from domainbert.labelled.items import TextFile, TextItem
from domainbert.labelled.rows import read_texts
from domainbert.metrics.headline import Headline
from domainbert.tasks.config import TextTaskConfig


@dataclass(frozen=True)
class GradedText(TextItem):
    grade: float
    line: int
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Grade(TextTaskConfig):
    """Predict a grade from 0 to 1 for each text."""

    format: RowFormat = RowFormat(label_key="grade")
    """Keys of text and grade in the labelled files."""

    whole = Headline("mae", "mean absolute error", "minimize", percent=False)

    def read(self, file: Any) -> TextFile[GradedText]:
        return read_texts(file, self.format, self.graded_text)

    def graded_text(self, fields: dict[str, Any], grade: Any, line: int) -> GradedText:
        if not (isinstance(grade, (int, float)) and 0 <= grade <= 1):
            raise DomainbertError(f"{self.format.label_key!r} is {grade!r}", expected="a number from 0 to 1")
        return GradedText(**fields, grade=float(grade), line=line)
