"""Studies in their storage, without the processes of trials."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState

from domainbert.base.errors import DomainbertError
from domainbert.base.files import write_json
from domainbert.tuning import trials
from domainbert.tuning.config import Parameter, StorageConfig, TuneConfig
from domainbert.tuning.results import check_folder, check_study, importance
from domainbert.tuning.study import build_pruner, build_sampler, open_study
from domainbert.tuning.trials import open_storage
from tests.refusals import refused

CONFIG = TuneConfig(
    stage="learn",
    settings={},
    space={"x": Parameter(0, 1)},
    objective=("validation/f1",),
    trials=14,
    study="s",
)


def terms(objective: str = "validation/f1", direction: str = "maximize", **dimension: Any) -> dict[str, Any]:
    space = {"x": {"low": 0, "high": 1, "choices": None, "log": False, "integer": False, **dimension}}
    return {"objective": {objective: direction}, "space": space, "settings": {}}


def opened(folder: Path, known: dict[str, Any], extend: bool = False) -> optuna.Study:
    return open_study(CONFIG, open_storage(StorageConfig(), folder), known, extend)


def test_a_folder_keeps_the_trials_of_its_storage(tmp_path: Path) -> None:
    study, other = opened(tmp_path / "one", terms()), opened(tmp_path / "two", terms())
    check_study(study, tmp_path)
    write_json(tmp_path / "study.json", {"study": "s", "id": opened(tmp_path / "one", terms()).user_attrs["id"]})
    check_study(study, tmp_path)
    with refused(file=tmp_path, problem="holds the study 's' of another storage", hint="use another out, ..."):
        check_study(other, tmp_path)


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ({}, {"log": True}, "log was False, is now True"),
        ({}, {"integer": True}, "integer was False, is now True"),
        ({}, {"choices": [1]}, "choices was not set, is now [1]"),
        ({"choices": ["linear", "wsd"]}, {"choices": ["linear"]}, "choices: dropped wsd; kept linear"),
        ({"choices": [1]}, {"choices": [1, 2]}, "choices: new 2; kept 1"),
    ],
)
@pytest.mark.parametrize("extend", [False, True])
def test_what_optuna_cannot_extend_is_refused_at_once(
    tmp_path: Path, before: dict[str, Any], after: dict[str, Any], found: str, extend: bool
) -> None:
    opened(tmp_path, terms(**before))
    with pytest.raises(DomainbertError) as caught:
        opened(tmp_path, terms(**after), extend=extend)
    why = "which Optuna cannot change, even with --extend (it can change low, high and step)"
    expected = "undo the change, or start a new study (another out and study name)"
    assert str(caught.value) == f"study 's': space.x.{found}, {why}; {expected}"


GRID: dict[str, Any] = {"x": {"low": 0, "high": 1, "step": 0.5}, "y": {"choices": [1, 2]}}


@pytest.mark.parametrize(
    ("space", "found"),
    [
        ({**GRID, "x": {"low": 0, "high": 2, "step": 0.5}}, "space.x.high was 1, is now 2"),
        ({**GRID, "z": {"choices": [1]}}, "space.z.choices was not set, is now [1]"),
        ({"x": GRID["x"]}, "space.y.choices was [1, 2], is now not set"),
        ({"y": GRID["y"], "x": GRID["x"]}, "order of space was ['x', 'y'], is now ['y', 'x']"),
    ],
)
def test_a_grid_is_not_extended(tmp_path: Path, space: dict[str, Any], found: str) -> None:
    """Optuna's sampler would fail at the next trial, after the new terms were recorded."""
    config, known = replace(CONFIG, sampler="grid"), {**terms(), "space": GRID}
    storage = open_storage(StorageConfig(), tmp_path)
    recorded = open_study(config, storage, known, extend=False).user_attrs
    with refused(problem=f"study 's': {found}, which the sampler 'grid' cannot change...", hint="undo the change..."):
        open_study(config, storage, {**known, "space": space}, extend=True)
    assert open_study(config, storage, {**known, "settings": {"epochs": 2}}, extend=True).user_attrs != recorded
    assert (
        open_study(CONFIG, storage, {**known, "space": space}, extend=True).user_attrs["domainbert"]["space"] == space
    )


def test_a_grid_passes_over_a_trial_that_died_before_its_last_value() -> None:
    study = optuna.create_study(sampler=build_sampler(replace(CONFIG, sampler="grid"), 0))
    points = []
    for number in range(6):
        trial = study.ask()
        x = trial.suggest_float("x", 0, 1, step=0.5)
        if number == 1:
            trials.queue_again(study, study.trials[1], trials.DIED)
            continue
        points.append((x, trial.suggest_categorical("y", [1, 2])))
        if number == 3:
            trials.queue_again(study, trial, "its worker stopped")
            points.pop()
        elif number == 4:
            trial.set_user_attr(trials.ERROR, "incompatible values")
            study.tell(trial, state=TrialState.FAIL)
        else:
            trial.set_user_attr(trials.SETTINGS, {})
            study.tell(trial, 0.5)
    assert len(points) == len(set(points)) == 4


def test_an_objective_may_be_corrected_as_long_as_there_is_no_value_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    opened(tmp_path, terms("validation/f2"))
    study = opened(tmp_path, terms())
    said = "study 's': extended (objective was validation/f2 (maximize), is now validation/f1 (maximize))\n"
    assert capsys.readouterr().out == said
    with refused(problem="...was validation/f1 (maximize), is now validation/loss (minimize)"):
        opened(tmp_path, terms("validation/loss", "minimize"), extend=True)
    study.tell(study.ask(), 0.5)
    with refused(problem="...its objective was validation/f1 (maximize), is now validation/f3..."):
        opened(tmp_path, terms("validation/f3"), extend=True)


def test_a_value_that_was_changed_in_the_storage_is_not_believed(tmp_path: Path) -> None:
    study = opened(tmp_path, terms())
    trial = study.ask()
    trial.set_user_attr(trials.VALUES, [0.25])
    study.tell(trial, 0.25)
    assert opened(tmp_path, terms()).best_value == 0.25
    with sqlite3.connect(tmp_path / "study.db") as database:
        database.execute("update trial_values set value = 0.75")
    with refused(problem="...trial 0 has the values [0.75], but its worker recorded [0.25]..."):
        opened(tmp_path, terms())


@pytest.mark.parametrize(
    "change",
    [
        """UPDATE trial_params SET distribution_json = '{"name": "NewDistribution", "attributes": {}}'""",
        "UPDATE trial_params SET distribution_json = 'x'",
        "UPDATE study_user_attributes SET value_json = 'x'",
    ],
)
def test_a_study_that_optuna_cannot_read_is_refused(tmp_path: Path, change: str) -> None:
    study = opened(tmp_path, terms())
    trial = study.ask()
    trial.suggest_float("x", 0, 1)
    study.tell(trial, 0.5)
    with closing(sqlite3.connect(tmp_path / "study.db")) as database:
        database.execute(change)
        database.commit()
    with refused(problem="study 's': this version of Optuna cannot read it (...)"):
        opened(tmp_path, terms())


def test_a_setting_that_is_null_now_is_a_change(tmp_path: Path) -> None:
    opened(tmp_path, {**terms(), "settings": {"stop": 3}})
    with refused(problem="...other settings or inputs (settings.optim.warmup_steps changed)"):
        opened(tmp_path, {**terms(), "settings": {"stop": 3, "optim": {"warmup_steps": None}}})


def searched(config: TuneConfig, interrupted: int = -1) -> list[tuple[float, str, int | None]]:
    """What became of the trials of one worker; one is interrupted after its first evaluation."""
    # Hyperband draws the bracket of a trial from the name of the study, which is random by default
    study = optuna.create_study(study_name="s", direction="maximize", pruner=build_pruner(config))
    while len(trials.counted_trials(study.get_trials())) < config.trials:
        trial = study.ask()
        study.sampler = build_sampler(config, trials.number_without_retries(study, trial.number))
        x, steps = trial.suggest_float("x", 0, 1), 0
        trial.suggest_float("y", 0, 1)
        pruned = False
        while steps < 9 and not pruned:
            steps += 1
            trial.report((1 - (x - 0.3) ** 2) * steps, steps)
            pruned = steps < 9 and trial.should_prune()
            if trial.number == interrupted:
                break
        if trial.number == interrupted:
            trials.queue_again(study, trial, "its worker stopped")
        else:
            study.tell(trial, None if pruned else 9 * (1 - (x - 0.3) ** 2), TrialState.PRUNED if pruned else None)
    return [(one.params["x"], one.state.name, one.last_step) for one in trials.counted_trials(study.get_trials())]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("sampler", "pruner"),
    [
        ("tpe", "hyperband"),
        ("cmaes", "asha"),
        ("random", "median"),
    ],
)
def test_methods_draw_and_prune(sampler: Any, pruner: Any) -> None:
    found = searched(replace(CONFIG, sampler=sampler, pruner=pruner))
    assert len({x for x, _, _ in found}) == 14
    assert {state for _, state, _ in found} == {"COMPLETE", "PRUNED"}
    assert all((step == 9) == (state == "COMPLETE") for _, state, step in found)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", [1, 2, 3])
@pytest.mark.parametrize("pruner", ["median", "asha"])
def test_the_first_evaluation_that_may_prune_is_the_one_that_is_asked_for(pruner: Any, first: int) -> None:
    study = optuna.create_study(
        direction="maximize", pruner=build_pruner(replace(CONFIG, pruner=pruner, min_evaluations=first))
    )
    for _ in range(9):
        good = study.ask()
        for step in range(1, 10):
            good.report(1.0, step)
            assert not good.should_prune()  # which notes the value, too
        study.tell(good, 1.0)
    poor, pruned = study.ask(), []
    for step in range(1, 10):
        poor.report(0.0, step)
        pruned.append(poor.should_prune())
    assert pruned.index(True) + 1 == first


@pytest.mark.parametrize("pruner", ["asha", "hyperband"])
def test_attempts_that_were_queued_again_are_no_competitors(pruner: Any) -> None:
    """Forty good attempts that were interrupted would prune a trial that is better than the only complete one."""
    study = optuna.create_study(
        study_name="s", direction="maximize", pruner=build_pruner(replace(CONFIG, pruner=pruner))
    )
    complete = study.ask()
    for step in range(1, 10):
        complete.report(0.25, step)
        assert not complete.should_prune()
    study.tell(complete, 0.25)
    for _ in range(40):
        interrupted = study.ask()
        interrupted.report(1.0, 1)
        interrupted.should_prune()
        trials.queue_again(study, interrupted, "its worker stopped")
        retry = study.ask()
        study.tell(retry, state=TrialState.FAIL)
    for _ in range(8):  # in different brackets
        trial = study.ask()
        trial.report(0.5, 1)
        assert not trial.should_prune()
        study.tell(trial, state=TrialState.FAIL)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_gaussian_process_finds_the_place() -> None:
    pytest.importorskip("torch")
    found = searched(replace(CONFIG, sampler="gp", pruner="none", trials=16))
    assert {state for _, state, _ in found} == {"COMPLETE"} and len({x for x, _, _ in found}) == 16
    drawn = [abs(x - 0.3) for x, _, _ in found]  # the first ten at random
    assert sum(drawn[10:]) / 6 < sum(drawn[:10]) / 10


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("sampler", ["random", "tpe"])
@pytest.mark.parametrize("interrupted", [0, 1, 11])
def test_an_interrupted_study_comes_out_as_one_that_was_not(sampler: Any, interrupted: int) -> None:
    config = replace(CONFIG, sampler=sampler, pruner="asha")
    assert searched(config, interrupted) == searched(config)


def test_what_matters_is_what_makes_the_first_objective_good_also_with_several() -> None:
    """Setting `a` separates the best trials from the others, `b` the worst."""
    study = optuna.create_study(directions=["maximize", "minimize"])
    uniform = optuna.distributions.FloatDistribution(0, 1)
    draws = np.random.default_rng(0).random((200, 2))
    for a, b in draws.tolist():
        f1 = 1.0 + a if a > 0.8 else -1.0 - b if b > 0.8 else 0.0
        found = {"params": {"a": a, "b": b}, "distributions": {"a": uniform, "b": uniform}}
        study.add_trial(optuna.trial.create_trial(values=[f1, 1.0], **found))
    config = replace(CONFIG, objective=("validation/f1", "cost/latency_1"))
    shares = importance(study, config)
    assert shares["a"] > 0.8 > 0.2 > shares["b"]


def test_plots_name_the_metrics_also_of_an_extended_study(tmp_path: Path) -> None:
    assert opened(tmp_path, terms()).metric_names == ["validation/f1"]
    storage, changed = open_storage(StorageConfig(), tmp_path), replace(CONFIG, objective=("validation/recall",))
    study = open_study(changed, storage, terms("validation/recall"), extend=True)
    assert study.metric_names == ["validation/recall"]


def test_a_folder_holds_one_study(tmp_path: Path) -> None:
    check_folder(CONFIG, tmp_path)
    write_json(tmp_path / "study.json", {"study": opened(tmp_path, terms()).study_name})
    check_folder(CONFIG, tmp_path)
    with refused(where="out", problem=f"{tmp_path} holds the study 's'", hint="use another out for 'second'"):
        check_folder(replace(CONFIG, study="second"), tmp_path)


def test_another_seed_is_another_search() -> None:
    def draws(seed: int) -> list[float]:
        config = replace(CONFIG, sampler="random", seed=seed)
        distribution = optuna.distributions.FloatDistribution(0, 1)
        study = optuna.create_study()
        trial = study.ask()
        frozen = study._storage.get_trial(trial._trial_id)
        return [
            build_sampler(config, number).sample_independent(study, frozen, "x", distribution) for number in range(20)
        ]

    assert draws(0) == draws(0)
    assert not set(draws(0)) & set(draws(1))
