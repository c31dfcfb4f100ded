"""What every labelled task offers in a YAML. Free of torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass


@dataclass(frozen=True)
class TaskConfig(ABC):
    """What is predicted, and how the labelled files say it."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The task's name. `task.py` beside this configuration's module holds the task."""
