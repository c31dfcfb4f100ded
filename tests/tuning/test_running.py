from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from domainbert.base import choices
from domainbert.metrics.headline import Headline
from domainbert.runner.stage_table import Stage
from domainbert.tuning.trial_process import RunningTrial, make_plan


def running(values: list[float], num_continued: int, trains_once: bool = True, **facts: bool) -> Any:
    """Return a trial whose every report leads to pruning."""
    reported: list[int] = []
    stream: Any = SimpleNamespace(values=[], num_continued=0, has_started=facts.get("has_started", True))

    def new_values() -> list[float]:
        stream.values += values
        stream.num_continued = num_continued
        return values

    stream.new_values = new_values
    trial = SimpleNamespace(report=lambda value, step: reported.append(step), should_prune=lambda: True)
    first_finished = facts.get("first_finished", False)
    process = SimpleNamespace(stop=lambda: reported.append(-1), started=0.0, first_finished=first_finished)
    plan = SimpleNamespace(stream=stream, trains_once=trains_once)
    one: Any = RunningTrial(trial, plan, process)  # type: ignore[arg-type]
    return one, reported


@pytest.mark.parametrize(
    ("num_continued", "trains_once", "ended"),
    [
        (1, True, False),
        (1, True, True),  # whether it has ended meanwhile does not count
        (2, True, False),
        (0, False, False),  # a second training follows the last evaluation of the first
        (0, False, True),
    ],
)
def test_a_trial_is_pruned_at_the_first_evaluation_that_asks_for_it(
    num_continued: int, trains_once: bool, ended: bool
) -> None:
    one, found = running([0.5, 0.25], num_continued, trains_once)
    one.report(single_objective=True, ended=ended)
    assert one.pruned and found == [1, -1]


@pytest.mark.parametrize("trains_once", [True, False])
def test_nothing_is_pruned_at_the_last_evaluation(trains_once: bool) -> None:
    """Of a stage with a budget of steps, or that ends early by `patience`, too: its log has no later step."""
    one, found = running([0.5], 0, trains_once)
    if trains_once:
        one.report(single_objective=True, ended=False)
        assert not one.pruned and found == []
        one.plan.stream.values.clear()
    one.report(single_objective=True, ended=True)
    assert not one.pruned and found == [1]


@pytest.mark.parametrize(
    ("facts", "reported"),
    [
        ({"has_started": False}, []),  # a log of an earlier attempt
        ({"has_started": False, "first_finished": True}, [1, -1]),  # it was up to date
        ({"has_started": True}, [1, -1]),
    ],
)
def test_values_of_an_earlier_attempt_are_not_reported(facts: dict[str, bool], reported: list[int]) -> None:
    one, found = running([0.5, 0.25], 2, **facts)
    one.report(single_objective=True, ended=False)
    assert found == reported and one.pruned == bool(reported)


F1 = Headline("f1", "F1")


def stage(out: Path, seeds: tuple[int, ...] = (1,), max_epochs: int = 3) -> dict[str, Any]:
    return {}


def test_a_plan_knows_whether_a_trial_is_one_training(tmp_path: Path) -> None:
    plain: dict[str, Any] = {"seeds": [4], "max_epochs": 7}
    kept = [
        make_plan(Stage("s", stage), ["cost/parameters", "validation/f1"], {}, headline, plain, tmp_path)
        for headline in (None, F1)
    ]
    assert [(one.trains_once, one.stream.selection_metric) for one in kept] == [(True, None), (True, F1)]
    assert kept[0].stream.metrics == ["validation/f1"]
    for folds, seeds in (({}, [1, 2]), ({"fold-1": {}, "fold-2": {}}, [4])):
        several = make_plan(Stage("s", stage), ["validation/f1"], folds, None, {**plain, "seeds": seeds}, tmp_path)
        assert not several.trains_once


def test_a_cost_is_measured_with_the_packages_that_the_trial_may_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choices, "_allowed_modules", ("mypkg", "other"))
    plan = make_plan(Stage("s", stage), ["validation/f1", "cost/parameters"], {}, None, {}, tmp_path)
    for command in plan.commands:
        assert command[-2:] == ["--allow-import", "mypkg,other"]
    from domainbert.tuning.trial_values import main

    assert main([str(tmp_path / "run.yaml"), str(tmp_path / "cost.json"), "--allow-import", "no_such_package"]) == 2
