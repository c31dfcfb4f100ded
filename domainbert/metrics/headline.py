"""The metric that counts: by which epochs, seeds and models are compared. Free of numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal


@dataclass(frozen=True)
class Headline:
    """The metric by which epochs, seeds and models are compared."""

    key: str
    """Its name among the validation metrics (`f1` of `validation/f1`) and the scores of a test set."""

    name: str
    """Its name in tables: "macro F1"."""

    direction: Literal["maximize", "minimize"] = "maximize"

    percent: bool = True
    """It is a share, and shown in percent."""

    over: str | None = None
    """The key over whose slices it is the mean; None where it is that of the whole set."""

    def mean_over(self, key: str | None) -> Headline:
        """Its mean over the slices of a key; itself where there is none."""
        if key is None:
            return self
        return replace(self, key=f"{self.key}_over_{key}", name=f"{self.name}, mean over {key}", over=key)

    @property
    def of_slice(self) -> str:
        """The key of what it is the mean of: `f1` for `f1_over_language`."""
        return self.key.removesuffix(f"_over_{self.over}")

    @property
    def monitor(self) -> str:
        """`validation/f1`."""
        return f"validation/{self.key}"

    @property
    def higher_is_better(self) -> bool:
        """Whether more of it is better."""
        return self.direction == "maximize"

    @property
    def worst(self) -> float:
        """A value that any other one is better than."""
        return float("-inf") if self.higher_is_better else float("inf")

    def is_better(self, value: float, than: float) -> bool:
        """Whether a value is better than another one; NaN never is."""
        return value > than if self.higher_is_better else value < than

    def best(self, values: Sequence[float]) -> int:
        """Index of the best value, of equal ones the first; NaN is the worst."""
        known = [value if value == value else self.worst for value in values]
        return known.index(max(known) if self.higher_is_better else min(known))

    def as_json(self) -> dict[str, Any]:
        """For `metrics.json`, where tables that are made of it find how it is shown."""
        return {"key": self.key, "name": self.name, "direction": self.direction, "percent": self.percent}


LOSS = Headline("loss", "loss", "minimize", percent=False)
"""The task's loss on the validation set, per text or word as in training; it is measured where it is asked for."""
