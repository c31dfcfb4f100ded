from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import optuna
import pytest
import yaml
from optuna.distributions import FloatDistribution
from optuna.trial import FixedTrial, create_trial

from domainbert.base.errors import DomainbertError
from domainbert.metrics.headline import Headline
from domainbert.runner.stage_table import STAGES
from domainbert.serving.cost import Cost
from domainbert.tuning.config import COSTS
from domainbert.tuning.results import write_results
from domainbert.tuning.search import Search, limit_to_grid, read_search, warn_unfair_comparison
from domainbert.tuning.space import optuna_value
from domainbert.tuning.trials import SETTINGS
from tests.refusals import refused


@pytest.fixture(autouse=True)
def stages(fake_stages: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STAGES, "learn", "fake_stages:learn")
    monkeypatch.chdir(tmp_path)


def search(*options: tuple[str, str], **changes: Any) -> Search:
    usual: dict[str, Any] = {"out": "study", "stage": "learn", "settings": {}, "space": {"x": {"low": 0, "high": 1}}}
    Path("tune.yaml").write_text(yaml.safe_dump({**usual, **changes}, sort_keys=False))
    return read_search([Path("tune.yaml")], options)


def test_the_stage_says_which_ranges_are_of_whole_numbers() -> None:
    space = {"x": {"low": 0, "high": 1}, "epochs": {"low": 1, "high": 5}, "seconds": {"low": 0, "high": 4, "step": 2}}
    found = search(space=space).space
    assert [(one.key, one.integer) for one in found.dimensions] == [("x", False), ("epochs", True), ("seconds", False)]
    values = found.draw(FixedTrial({"x": 0.5, "epochs": 3, "seconds": 2.0}))
    assert values == {"x": 0.5, "epochs": 3, "seconds": 2.0}
    plain = found.settings(values).plain
    assert (plain["x"], plain["epochs"], plain["seconds"]) == (0.5, 3, 2.0) and type(plain["epochs"]) is int


def vary(**dimensions: Any) -> dict[str, Any]:
    return {"space": {key.replace("__", "."): dimension for key, dimension in dimensions.items()}}


RANGE = {"low": 0, "high": 1}
TWICE = {"x": {**RANGE, "when": {"epochs": 2}}, "epochs": {"choices": [1, 2]}}
CYCLE = {"x": {"choices": [0, 1], "when": {"epochs": 1}}, "epochs": {"choices": [1, 2], "when": {"x": 0}}}
F1 = "validation/f1"


@pytest.mark.parametrize(
    ("changes", "line", "where", "problem", "expected"),
    [
        (vary(y=RANGE), 6, "y", "unknown key", "one of x, epochs..."),
        (vary(optim__lrr=RANGE), 6, "optim.lrr", "unknown key", "did you mean 'lr'?"),
        (
            vary(optim__name={"choices": ["adamw", "sgd"]}),
            "...",
            "optim.name",
            "found 'sgd'",
            "one of 'adamw', 'muon'",
        ),
        (vary(epochs={"low": 0.5, "high": 2}), 6, "epochs", "found 0.5", "an integer"),
        (vary(epochs={"low": 1, "high": 3, "step": 0.5}), "...", "space.epochs.step", "found 0.5", "an integer..."),
        (vary(x={"low": 1, "high": 1}), "...", "space.x.high", "found 1.0", "more than 1.0, the value of low"),
        (vary(x={**RANGE, "log": True}), "...", "space.x.log", "found low 0", "low above 0 and no step"),
        (vary(x={"low": 0}), "...", "space.x", "found neither choices nor both...", "..."),
        (vary(x={"low": 0, "choices": [1]}), "...", "space.x.choices", "...with low, high, step or log", "..."),
        (vary(), "...", "space", "no settings", "one or more, such as..."),
        ({"settings": {"epoch": 3}}, 4, "epoch", "unknown key", "did you mean 'epochs'?"),
        ({"settings": {"out": "x"}}, "...", "settings.out", "remove this key", "each trial has..."),
        ({"stage": "lern"}, 2, "stage", "no stage 'lern'", "did you mean 'learn'?"),
        ({"enqueue": [{"x": 3}]}, "...", "enqueue[0].x", "found 3", "a number from 0.0 to 1.0"),
        ({"enqueue": [{"z": 3}]}, "...", "enqueue[0]", "'z' is not in the space", "x"),
        (
            {"space": TWICE, "enqueue": [{"x": 0.5, "epochs": 1}]},
            "...",
            "enqueue[0].x",
            "found together with epochs 1, which space.x.when excludes",
            "remove x here",
        ),
        ({"sampler": "grid"}, "...", "space.x", "is a range without step", "add step, or use..."),
        (
            {"settings": {"loggers": []}},
            "...",
            "...",
            "asha needs jsonl in settings.loggers",
            "add it, or set pruner...",
        ),
        ({"objective": "f1"}, "...", "objective", "found ['f1']", "names that begin with..."),
        (
            {"objective": [F1, "cost/parameters"]},
            "...",
            "objective",
            "only finetune measures cost/parameters",
            "use...",
        ),
        ({"objective": [F1, "cost/latency"]}, "...", "...", "'cost/latency' is not measured", "did you mean..."),
        (vary(x={"low": 0, "high": float("inf")}), "...", "space.x.high", "found inf", "a number that is finite"),
        ({"k_folds": 3}, "...", "k_folds", "found with stage learn", "remove it, or set stage:..."),
        ({"trials": 0}, "...", "trials", "found 0", "an integer from 1 to 1,000,000"),
        ({"storage": {"url": "postgresql://a:secret@b/c"}}, "...", "storage.url", "contains a password", "..."),
        ({"storage": {"heartbeat": 9, "grace": 9}}, "...", "storage.grace", "found 9", "more than the heartbeat, 9"),
        (
            {"space": {**TWICE, "epochs": {"low": 1, "high": 3}}},
            "...",
            "space.x.when.epochs",
            "space.epochs is a range",
            "use choices there, or remove this condition",
        ),
        ({"space": CYCLE}, "...", "space", "the conditions 'when' of x, epochs form a cycle", "..."),
        ({"space": {**TWICE, "epochs": {"choices": [1, 3]}}}, "...", "space.x.when.epochs", "found 2", "one of [1, 3]"),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(
    changes: dict[str, Any], line: int | str, where: str, problem: str, expected: str
) -> None:
    with refused(line=line, where=where, problem=problem, expected=expected):
        search(**changes)
    assert not Path("study").exists()


@pytest.mark.parametrize(("low", "high"), [(1, 101), (0, 1000), (100, 500), (1, 2)])
def test_a_range_of_whole_numbers_is_one_whatever_its_width(low: int, high: int) -> None:
    (found,) = search(space={"epochs": {"low": low, "high": high}}).space.dimensions
    assert found.integer


def test_the_terms_of_a_study_tell_other_folds_and_other_kinds_of_ranges() -> None:
    found = search(space={"epochs": {"low": 1, "high": 5}})
    assert found.terms["space"]["epochs"]["integer"] and found.terms["k_folds"] is None
    folds = [replace(found, config=replace(found.config, k_folds=2, seed=seed)).terms["k_folds"] for seed in (1, 2)]
    assert folds[0] != folds[1]


def test_the_terms_of_a_study_tell_other_contents_of_the_files_that_trials_read() -> None:
    for number, text in enumerate(("a", "b", "a")):
        Path("texts.txt").write_text(text)
        settings, space = {"texts": {"files": ["texts.txt"]}}, {"words": {"choices": [["a"], ["b"]]}}
        Path(f"{number}.json").write_text(json.dumps(search(stage="make", settings=settings, space=space).terms))
    first, second, third = (json.loads(Path(f"{number}.json").read_text()) for number in range(3))
    assert first == third and first["inputs"].keys() == second["inputs"].keys() == {"texts.txt"}
    assert {key for key in first if first[key] != second[key]} == {"inputs"}
    Path("b.txt").write_text("b")
    space = {"texts": {"choices": [{"files": ["texts.txt"]}, {"files": ["b.txt"]}]}}
    assert search(stage="make", settings={"words": ["a"]}, space=space).terms["inputs"].keys() == {"texts.txt", "b.txt"}


def test_the_terms_of_a_study_tell_other_contents_of_yaml_files_in_settings_and_space() -> None:
    """A search that is resumed reads these files again."""
    for name in ("optim", "other"):
        Path(f"{name}.yaml").write_text("lr: 1e-4\n")
    space = {"x": {"low": 0, "high": 1}, "optim": {"choices": ["optim.yaml", "other.yaml"]}}
    for settings, names in (({"optim": "optim.yaml"}, {"optim.yaml"}), ({}, {"optim.yaml", "other.yaml"})):
        given = {"settings": settings, "space": space if not settings else {"x": space["x"]}}
        first = search(**given).terms["inputs"]
        Path("optim.yaml").write_text("lr: 2e-4\n")
        second = search(**given).terms["inputs"]
        Path("optim.yaml").write_text("lr: 1e-4\n")
        assert first.keys() == names and {name for name in names if first[name] != second[name]} == {"optim.yaml"}


def test_a_mapping_takes_the_place_of_what_the_settings_have_there() -> None:
    settings = {"shape": {"class_path": "Circle", "init_args": {"radius": 7}}}
    shapes = [{"class_path": "Circle"}, {"class_path": "Circle", "init_args": {"radius": 2}}]
    found = search(settings=settings, space={"shape": {"choices": shapes}}).space
    areas = [found.settings({"shape": shape}).arguments["shape"] for shape in shapes]
    assert [one.radius for one in areas] == [1, 2], "nothing of the 7"
    both = {"shape.init_args.radius": {"low": 2, "high": 9}, "shape": {"choices": [{"class_path": "Circle"}]}}
    found = search(settings=settings, space=both).space
    shape = found.settings({"shape.init_args.radius": 5, "shape": {"class_path": "Circle"}}).arguments["shape"]
    assert shape.radius == 5, "in any order of the keys"


def test_a_grid_says_that_it_makes_fewer_trials_than_were_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    space = {"epochs": {"low": 1, "high": 3}, "x": {"choices": [0.5, 1.0]}}
    assert limit_to_grid(search(space=space, sampler="grid")).config.trials == 6
    assert capsys.readouterr().out == "sampler: trials is limited to the points of the grid: 6, not 20\n"
    assert limit_to_grid(search(space=space, sampler="grid", trials=4)).config.trials == 4
    assert capsys.readouterr().out == ""


def test_a_pruner_is_no_judge_of_schedules_of_different_lengths(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(STAGES, "finetune", "domainbert.stages.finetune:finetune")
    monkeypatch.setattr("domainbert.stages.finetune.check_arguments", None)  # there is nothing in the files
    settings = {"model": "model", "task": "Ner", "train": "train.conll", "validation": "dev.conll"}
    for name in ("model", "train.conll", "dev.conll"):
        Path(name).touch()
    usual = {"stage": "finetune", "settings": settings}
    lengths = {"optim.lr": {"low": 1e-5, "high": 1e-3}, "max_epochs": {"low": 4, "high": 10}}
    warn_unfair_comparison(search(**usual, space=lengths, objective="validation/f1"))
    assert capsys.readouterr().out == (
        "space.max_epochs: the pruner asha compares trials at equal numbers of evaluations, where longer schedules "
        "score worse; remove this key from space, or set pruner: none\n"
    )
    warn_unfair_comparison(search(**usual, space=lengths, objective="validation/f1", pruner="none"))
    del lengths["max_epochs"]
    warn_unfair_comparison(search(**usual, space=lengths, objective="validation/f1"))
    assert capsys.readouterr().out == ""


def test_costs_are_those_that_are_measured() -> None:
    assert {field.name for field in fields(Cost)} == {*COSTS, "spread"}


def test_all_problems_of_the_space_at_once() -> None:
    with pytest.raises(DomainbertError) as caught:
        search(space={"optim.name": {"choices": ["adamw", "a", "b"]}, "epochs": {"low": 1, "high": 2.5}})
    assert sorted(error.found for error in caught.value.errors) == ["'a'", "'b'", "2.5"]


def test_choices_may_be_lists_and_mappings_and_are_drawn_as_they_stand() -> None:
    shapes = [{"class_path": "Circle", "init_args": {"radius": 2}}, {"class_path": "Square", "init_args": {"side": 3}}]
    found = search(space={"shape": {"choices": shapes}, "seeds": {"choices": [[1], [1, 2]]}}).space
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    for _ in range(8):
        trial = study.ask()
        values = found.draw(trial)
        assert values["shape"] in shapes and values["seeds"] in ([1], [1, 2])
        assert found.values_of(trial.params) == values
        assert found.settings(values).arguments["seeds"] == tuple(values["seeds"])


def test_a_condition_may_stand_before_what_it_looks_at() -> None:
    space = {
        "shape.side": {"low": 1, "high": 4, "when": {"shape.class_path": "Square"}},
        "shape.class_path": {"choices": ["Circle", "Square"]},
    }
    found = search(space=space).space
    assert [one.key for one in found.dimensions] == ["shape.class_path", "shape.side"]
    assert found.dimensions[1].integer
    assert found.draw(FixedTrial({"shape.class_path": "Circle"})) == {"shape.class_path": "Circle"}
    square = found.draw(FixedTrial({"shape.class_path": "Square", "shape.side": 2}))
    assert found.settings(square).arguments["shape"].side == 2


def test_a_condition_on_a_setting_that_has_no_value_yet() -> None:
    """An enqueued point may leave it to the sampler; a setting that does not vary fulfils no condition."""
    space = {
        "x": {"low": 0, "high": 1, "when": {"epochs": 2}},
        "epochs": {"choices": [1, 2], "when": {"optim.name": "muon"}},
        "optim.name": {"choices": ["adamw", "muon"]},
    }
    found = search(space=space, enqueue=[{"x": 0.5}, {"x": 0.5, "optim.name": "muon"}]).space
    assert found.draw(FixedTrial({"optim.name": "adamw"})) == {"optim.name": "adamw"}
    point = {"optim.name": "muon", "epochs": 2, "x": 0.5}
    assert found.draw(FixedTrial(point)) == point


def test_variables_and_options_override(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOMAINBERT_SPEED", "0.5")
    found = search(("settings.epochs", "9"), ("trials", "3"), vars={"speed": "1"}, settings={"seconds": "${speed}"})
    plain = found.space.settings({"x": 1.0}).plain
    assert (plain["seconds"], plain["epochs"], found.config.trials, found.config.study) == (0.5, 9, 3, "study")


def test_settings_may_stand_in_a_file_of_their_own() -> None:
    Path("learn.yaml").write_text("epochs: 7\nseconds: ${speed}\n")
    found = search(("settings.epochs", "8"), vars={"speed": "0.5"}, settings="learn.yaml")
    plain = found.space.settings(found.space.first_point()).plain
    assert (plain["epochs"], plain["seconds"], plain["x"]) == (8, 0.5, 0.0)


def test_a_stage_that_opens_the_test_set_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STAGES, "evaluate", "domainbert.stages.evaluate:evaluate")
    with refused(
        file="tune.yaml",
        line=2,
        where="stage",
        problem="evaluate reads the test set",
        hint="use another stage, such as finetune...",
    ):
        search(stage="evaluate")


def test_lower_is_better_for_losses_and_costs() -> None:
    objectives = ["validation/f1", "validation/loss", "validation/general_loss"]
    config = search(objective=objectives).config
    assert config.directions == ("maximize", "minimize", "minimize")
    calibration = replace(config, objective=("validation/ece", "validation/uncalibrated_nll", "validation/brier"))
    assert set(calibration.directions) == {"minimize"}
    assert replace(config, stage="distill", objective=("validation/SoftTargets",)).directions == ("minimize",)


def test_a_trial_that_is_beaten_in_everything_leaves_the_front() -> None:
    found = search(objective=["validation/f1", "validation/loss"])
    study, uniform = optuna.create_study(directions=found.config.directions), {"x": FloatDistribution(0, 1)}
    for f1, loss in ((0.5, 0.5), (0.6, 0.4), (0.5, 0.3)):
        facts = {"params": {"x": f1}, "distributions": uniform, "user_attrs": {SETTINGS: {"x": f1}}}
        study.add_trial(create_trial(values=[f1, loss], **facts))
        front = write_results(study, found)["pareto_front"]
        assert sorted(path.name for path in Path("study/pareto").iterdir()) == [f"trial-0000{n}.yaml" for n in front]
    assert front == [1, 2]


def test_the_task_says_the_direction_of_its_headline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Search, "headline", Headline("mae", "mean absolute error", "minimize", percent=False))
    objective = ["validation/mae", "validation/rank", "validation/own_loss"]
    assert search(objective=objective).config.directions == ("minimize", "maximize", "minimize")
    given = ("maximize", "minimize", "maximize")
    assert search(objective=objective, direction=list(given)).config.directions == given


def test_a_metric_that_is_asked_for_takes_the_place_of_the_headline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STAGES, "finetune", "domainbert.stages.finetune:finetune")
    monkeypatch.setattr("domainbert.stages.finetune.check_arguments", None)  # there is nothing in the files
    settings = {"model": "model", "task": "Classification", "train": "train.jsonl", "validation": "dev.jsonl"}
    for name in ("model", "train.jsonl", "dev.jsonl"):
        Path(name).touch()
    usual = {"stage": "finetune", "space": {"optim.lr": {"low": 1e-5, "high": 1e-3}}, "objective": "validation/f1"}
    assert search(**usual, settings=settings).headline == Headline("f1", "macro F1")
    chosen = search(**usual, settings={**settings, "select_by": "loss"}).headline
    assert chosen is not None and (chosen.monitor, chosen.direction) == ("validation/loss", "minimize")
    del usual["objective"]  # then it is that metric, here of a task whose headline has another name
    found = search(**usual, settings={**settings, "task": "Regression"}).config
    assert (found.objective, found.directions) == (("validation/pearson",), ("maximize",))
    found = search(**usual, settings={**settings, "select_by": "loss"}).config
    assert (found.objective, found.directions) == (("validation/loss",), ("minimize",))
    with refused(problem="finetune measures validation/loss only with select_by: loss"):
        search(**usual, settings=settings, objective="validation/loss")  # not after the first training
    sets = {"train": {"choices": ["train.jsonl", "dev.jsonl"]}}
    with refused(where="space.train", found="together with k_folds, which sets train"):
        search(**{**usual, "space": sets}, settings=settings, k_folds=2)


def test_without_a_task_the_objective_is_the_loss() -> None:
    assert search().config.objective == ("validation/loss",) and search().config.directions == ("minimize",)


@pytest.mark.parametrize(("log", "median"), [(True, 0.01), (False, 0.5)])
def test_a_logarithmic_range_is_drawn_evenly_in_its_logarithm(log: bool, median: float) -> None:
    """Half of the draws lie below the geometric mean, a quarter in each quarter of the exponents."""
    space = {"x": {"low": 1e-4, "high": 1, "log": log}, "epochs": {"low": 1, "high": 10_000, "log": log}}
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    found = search(space=space).space
    points = [found.draw(study.ask()) for _ in range(400)]
    for values, scale in (([point["x"] for point in points], 1), ([point["epochs"] for point in points], 10_000)):
        below = sum(value < scale * median for value in values) / len(values)
        assert abs(below - 0.5) < 4 * 0.5 / 400**0.5
        quarter = scale * (1e-3 if log else 0.25)
        assert abs(sum(value < quarter for value in values) / len(values) - 0.25) < 4 * 0.433 / 400**0.5
        assert all(scale * 1e-4 <= value <= scale for value in values)
    assert {type(point["epochs"]) for point in points} == {int}


def test_steps_count_from_the_lowest_value() -> None:
    space = {"epochs": {"low": 1, "high": 10, "step": 3}}
    assert search(space=space, enqueue=[{"epochs": 4}, {"epochs": 10}]).config.enqueue
    with refused(found="5", expected="1.0 plus a multiple of 3.0"):
        search(space=space, enqueue=[{"epochs": 5}])


def test_the_first_point_is_that_of_first_choices_and_lowest_values() -> None:
    space = {"epochs": {"choices": [3, 2]}, "x": {"low": 0.25, "high": 1, "when": {"epochs": 3}}}
    assert search(space=space).space.first_point() == {"epochs": 3, "x": 0.25}
    other = search(space={"epochs": {"low": 2, "high": 5}, "x": {"low": 0, "high": 1}}).space.first_point()
    assert other == {"epochs": 2, "x": 0} and type(other["epochs"]) is int


def test_a_mapping_is_the_same_choice_in_any_order() -> None:
    assert optuna_value({"b": [1], "a": 2}) == optuna_value({"a": 2, "b": [1]}) == '{"a": 2, "b": [1]}'
    assert optuna_value([1, "x"]) == '[1, "x"]' and optuna_value("x") == "x"
