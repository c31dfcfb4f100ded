"""A grade for each text: settings, files and headline of the task. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from domainbert.base.errors import Problems
from domainbert.corpus.rows import json_rows
from domainbert.labelled.items import Labelled
from domainbert.labelled.row_values import problem_with_text, shown
from domainbert.metrics.headline import Headline
from domainbert.tasks.config import TaskConfig


@dataclass(frozen=True)
class GradedText:
    """A text and its grade."""

    content: str
    grade: float
    line: int
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Grade(TaskConfig):
    """A grade from 0 to 1 for each text."""

    grade_key: str = "grade"
    """Key of the grade in JSONL."""

    title = "Grader"
    headline = Headline("mae", "mean absolute error", "minimize", percent=False)

    def read(self, path: Path) -> Labelled[GradedText]:
        """JSONL with `text` and the grade."""
        problems, items = Problems(str(path)), []
        for line, row in json_rows(path, problems):
            grade, problem = row.get(self.grade_key), problem_with_text(row, "text")
            if not problem and not (isinstance(grade, (int, float)) and 0 <= grade <= 1):
                problem = f"{self.grade_key!r} is {shown(grade)}; expected a number from 0 to 1"
            if problem:
                problems.add(f"{path}:{line}: {problem}")
            else:
                items.append(GradedText(row["text"], float(grade), line))
        problems.raise_if_any()
        return Labelled(path, items, "jsonl")
