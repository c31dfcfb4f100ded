"""Scores of a task without special tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from domainbert.labelled.items import Labelled
from domainbert.metrics.summary import Resampling
from domainbert.tasks.counted_scoring import CountedScoring, mean_value
from mine.grade.config import Grade, GradedText


class TwoErrors(CountedScoring):
    """The headline is not the first of the statistics; the other one is ten times as large."""

    statistics: ClassVar[dict[str, Any]] = {"tenfold": lambda counts: 10 * mean_value(counts), "mae": mean_value}

    def row(self, item: Any, prediction: Any) -> dict[str, Any]:
        return {"grade": prediction}

    def count(self, predictions: Sequence[float]) -> Any:
        errors = [abs(item.grade - one) for item, one in zip(self.test.items, predictions, strict=True)]
        return np.stack([errors, np.ones(len(errors))], axis=-1)[:, None]


@pytest.mark.parametrize("names", [("tenfold", "mae"), ("mae", "tenfold")])
def test_each_score_stands_beside_its_own_interval(names: tuple[str, str]) -> None:
    items = [GradedText("text", grade, 1) for grade in (0.0, 0.25, 0.5, 1.0)]
    scoring = TwoErrors(Grade(), Labelled(Path("a.jsonl"), items, "jsonl"))
    scoring.statistics = {name: TwoErrors.statistics[name] for name in names}  # type: ignore[misc]
    scoring.predictions = {"one": {"model": [0.5] * 4}, "other": {"model": [0.25] * 4}}
    summary = scoring.summary(Resampling(500, 0))
    one = summary["systems"]["one"]
    assert (one["mae"], one["tenfold"]) == (0.3125, 3.125)
    assert one["tenfold_interval"] == pytest.approx([10 * bound for bound in one["interval"]])
    header, row, *rest = scoring.lines(summary)
    assert header.index("mean absolute error") < header.index("tenfold")
    low, high = one["interval"]
    assert row.split() == [
        "one",
        "0.3125",
        f"[{low:.4f},",
        f"{high:.4f}]",
        "3.1250",
        f"[{10 * low:.4f},",
        f"{10 * high:.4f}]",
        "1",
    ]
    assert [line.split("  ")[0] for line in rest if line.startswith("paired")] == [
        "paired difference, mean absolute error",
        "paired difference, tenfold",
    ]


def test_a_task_need_not_say_what_is_wrong(tmp_path: Path) -> None:
    scoring = TwoErrors(Grade(), Labelled(Path("a.jsonl"), [GradedText("text", 0.25, 1)], "jsonl"))
    scoring.predictions = {"one": {"model": [0.5]}}
    scoring.write_mistakes("one", "model", tmp_path / "one" / "model.jsonl")
    assert list(tmp_path.iterdir()) == [] and scoring.facts("one") == {}
