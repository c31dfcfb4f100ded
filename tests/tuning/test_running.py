from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from domainbert.base import choices
from domainbert.metrics.headline import Headline
from domainbert.runner.stage_table import Stage
from domainbert.tuning.trial_process import RunningTrial, make_plan


def running(values: list[float], last: int | None) -> Any:
    """Return a trial whose every report leads to pruning."""
    reported: list[int] = []
    stream: Any = SimpleNamespace(values=[])

    def new_values() -> list[float]:
        stream.values += values
        return values

    stream.new_values = new_values
    trial = SimpleNamespace(report=lambda value, step: reported.append(step), should_prune=lambda: True)
    process = SimpleNamespace(stop=lambda: reported.append(-1), started=0.0)
    plan = SimpleNamespace(stream=stream, last_evaluation=last)
    one: Any = RunningTrial(trial, plan, process)  # type: ignore[arg-type]
    return one, reported


@pytest.mark.parametrize(
    ("last", "ended", "reported"),
    [
        (None, False, [1, -1]),
        (2, False, [1, -1]),  # whether it has gone further meanwhile does not count
        (1, False, [1, 2, -1]),
        (None, True, [1, -1]),
    ],
)
def test_a_trial_is_pruned_at_the_first_evaluation_that_asks_for_it(
    last: int | None, ended: bool, reported: list[int]
) -> None:
    one, found = running([0.5, 0.25], last)
    one.report(single_objective=True, ended=ended)
    assert one.pruned and found == reported


@pytest.mark.parametrize(("last", "ended"), [(1, False), (None, True)])
def test_nothing_is_pruned_at_the_last_evaluation(last: int | None, ended: bool) -> None:
    one, found = running([0.5], last)
    one.report(single_objective=True, ended=ended)
    assert not one.pruned and found == [1]


F1 = Headline("f1", "F1")


def stage(out: Path, seeds: tuple[int, ...] = (1,), max_epochs: int = 3) -> dict[str, Any]:
    return {}


def early(out: Path, patience: int | None = None) -> dict[str, Any]:
    return {}


def test_the_last_evaluation_is_known_where_a_trial_is_one_training(tmp_path: Path) -> None:
    plain: dict[str, Any] = {"seeds": [4], "max_epochs": 7}
    kept = [
        make_plan(Stage("s", function), ["cost/parameters", "validation/f1"], {}, headline, plain, tmp_path)
        for function, headline in ((stage, None), (early, F1))
    ]
    assert [(one.last_evaluation, one.stream.selection_metric) for one in kept] == [(7, None), (7, F1)]
    assert kept[0].stream.metrics == ["validation/f1"]
    several = make_plan(Stage("s", stage), ["validation/f1"], {}, None, {**plain, "seeds": [1, 2]}, tmp_path)
    assert several.last_evaluation is None


def test_a_cost_is_measured_with_the_packages_that_the_trial_may_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choices, "_allowed_modules", ("mypkg", "other"))
    plan = make_plan(Stage("s", stage), ["validation/f1", "cost/parameters"], {}, None, {}, tmp_path)
    for command in plan.commands:
        assert command[-2:] == ["--allow-import", "mypkg,other"]
    from domainbert.tuning.trial_values import main

    assert main([str(tmp_path / "run.yaml"), str(tmp_path / "cost.json"), "--allow-import", "no_such_package"]) == 2
