from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState, create_trial

from domainbert.runner.stage_table import Stage
from domainbert.settings.yaml_files import to_node
from domainbert.tuning.config import Parameter, TuneConfig
from domainbert.tuning.results import closing_lines, print_outcome, progress_line, summarise, write_results
from domainbert.tuning.search import Search
from domainbert.tuning.space import Dimension, Space, optuna_value

CONFIG = TuneConfig(stage="learn", settings={}, space={"x": Parameter(0, 1)}, objective=("validation/f1",), trials=5)


def trial(number: int, state: TrialState, value: float | None = None, **changes: object) -> optuna.trial.FrozenTrial:
    made = create_trial(
        state=state,
        value=value,
        params={"x": 0.25},
        distributions={"x": optuna.distributions.FloatDistribution(0, 1)},
        **changes,
    )
    made.number = number
    return made


def space(*choices: Any) -> Space:
    """The setting x with choices."""
    dimension = Dimension("x", Parameter(choices=choices or (0.25, 0.5)), to_node({}, ""))
    return Space(Stage("learn", lambda: {}), to_node({}, ""), (dimension,))


TRIALS = [
    trial(0, TrialState.COMPLETE, 0.5, user_attrs={"seconds": 10}, intermediate_values={1: 0.25, 4: 0.5}),
    trial(1, TrialState.PRUNED, user_attrs={"seconds": 4}, intermediate_values={1: 0.125}),
    trial(2, TrialState.COMPLETE, 0.75, user_attrs={"seconds": 10}),
    trial(3, TrialState.FAIL, user_attrs={"error": "out of memory", "seconds": 1}),
]


def test_the_summary_counts_and_estimates() -> None:
    line = progress_line(TRIALS, CONFIG, num_new=2, seconds=60)
    assert line == "4/5 done (1 pruned, 1 failed), 0 running, best 0.7500 (trial 2), 1m00s, 30s left"


def test_a_log_has_a_line_for_each_trial(capsys: pytest.CaptureFixture[str]) -> None:
    for one in (TRIALS[0], TRIALS[1], TRIALS[3]):
        print_outcome(one, CONFIG.objective, space())
    assert capsys.readouterr().out.splitlines() == [
        "trial 0: validation/f1 0.5000 in 10s; x 0.25",
        "trial 1: pruned at 0.1250 after evaluation 1, 4s; x 0.25",
        "trial 3: failed: out of memory; x 0.25",
    ]


def test_the_end_says_what_was_spent_and_saved() -> None:
    summary = summarise(TRIALS, CONFIG, space())
    assert (summary["trials"], summary["pruned_share"]) == (4, 0.25)
    assert (summary["seconds"], summary["seconds_saved_by_pruning"]) == (25, 6)
    lines = closing_lines({**summary, "pareto_front": []}, Path("out"))
    assert lines[0] == (
        "trials: 4 (2 complete, 1 pruned, 1 failed), 25s of trial time, 6s (19%) saved by pruning (estimated)"
    )
    assert lines[1] == "1 of 5 trials are left: max_hours is exceeded; run the same command to resume"
    assert lines[2] == "best: trial 2, validation/f1 0.7500; x 0.25"
    nothing = {**summary, "pareto_front": [], "best": {**summary["best"], "values": [0.0]}}
    assert closing_lines(nothing, Path("out"))[3].startswith(
        "no trial has a validation/f1 above 0, so none learned the task; try"
    )


def test_lists_and_mappings_stand_as_in_the_space(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    choices = ([64, 128], {"radius": 2, "a": 1})
    distribution = optuna.distributions.CategoricalDistribution([optuna_value(choice) for choice in choices])
    study = optuna.create_study(direction="maximize")
    for value, choice in zip((0.5, 0.75), choices, strict=True):
        user_attrs = {"settings": {}}
        facts = {"params": {"x": optuna_value(choice), "old": 3}, "user_attrs": user_attrs}
        distributions = {"x": distribution, "old": optuna.distributions.IntDistribution(1, 4)}
        study.add_trial(create_trial(value=value, distributions=distributions, **facts))
    summary = write_results(study, Search(CONFIG, space(*choices), tmp_path))
    assert summary["best"]["settings"] == {"x": {"radius": 2, "a": 1}, "old": 3}
    assert closing_lines(summary, tmp_path)[2].endswith('; x {"radius": 2, "a": 1}, old 3')
    with open(tmp_path / "trials.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [json.loads(row["x"]) for row in rows] == list(choices) and rows[0]["old"] == "3"
    print_outcome(study.trials[0], CONFIG.objective, space(*choices))
    assert capsys.readouterr().out == "trial 0: validation/f1 0.5000 in 0s; x [64, 128], old 3\n"
