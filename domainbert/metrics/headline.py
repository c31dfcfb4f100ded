"""The primary metric, by which epochs, seeds and models are compared. Does not import NumPy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal


@dataclass(frozen=True)
class Headline:
    """The metric by which epochs, seeds and models are compared."""

    key: str
    """Key in the scores of a test set, and in validation metrics (`f1` of `validation/f1`)."""

    name: str
    """Name in tables, such as "macro F1"."""

    direction: Literal["maximize", "minimize"] = "maximize"

    percent: bool = True
    """Whether its values are formatted as percentages."""

    over: str | None = None
    """Key, such as "language", whose slices are scored and averaged; None: computed on the whole set."""

    def mean_over(self, key: str | None) -> Headline:
        """Return the mean of this metric over the slices of a key, or this metric if the key is None."""
        if key is None:
            return self
        return replace(self, key=f"{self.key}_over_{key}", name=f"{self.name}, mean over {key}", over=key)

    @property
    def averaged_key(self) -> str:
        """Key of the metric in a slice: `f1` for `f1_over_language`; for other metrics `key`."""
        return self.key.removesuffix(f"_over_{self.over}")

    @property
    def monitor(self) -> str:
        """Name of the metric in the validation: `validation/f1`."""
        return f"validation/{self.key}"

    @property
    def higher_is_better(self) -> bool:
        """Whether a higher value is better."""
        return self.direction == "maximize"

    @property
    def worst(self) -> float:
        """Value that is worse than all others: -inf, or inf if lower is better."""
        return float("-inf") if self.higher_is_better else float("inf")

    def is_better(self, value: float, than: float) -> bool:
        """Return whether `value` is better than `than`; False if one of them is NaN."""
        return value > than if self.higher_is_better else value < than

    def best(self, values: Sequence[float]) -> int:
        """Return the index of the best value (ties: the first); NaN is the worst value."""
        comparable = [self.worst if math.isnan(value) else value for value in values]
        return comparable.index(max(comparable) if self.higher_is_better else min(comparable))

    def as_json(self) -> dict[str, Any]:
        """Return the fields for `metrics.json`, from which tables are formatted."""
        return {"key": self.key, "name": self.name, "direction": self.direction, "percent": self.percent}


LOSS = Headline("loss", "loss", "minimize", percent=False)
"""Loss of the task on the validation set, per text or word as in training; computed only on request."""
