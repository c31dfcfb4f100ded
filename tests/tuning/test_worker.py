"""One worker on a fake stage, from the command line."""

from __future__ import annotations

import csv
import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest

from domainbert.settings.yaml_files import load_yaml
from domainbert.tuning import trials
from domainbert.tuning.config import Parameter, TuneConfig
from domainbert.tuning.trials import open_storage
from domainbert.tuning.worker import Worker
from tests.forked import SECONDS


def rows_of(fake: Any, out: str = "study") -> list[dict[str, str]]:
    with open(fake.folder / out / "trials.csv", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_the_end_repeats_the_warnings_of_the_best_training(fake: Any) -> None:
    fake.config(trials=2, settings={"epochs": 1}, enqueue=[{"x": 0.3}])
    code, said = fake.run("tune", "-c", "tune.yaml")
    assert code == 0 and said.splitlines()[-1] == "warning: trial 0: it learned nothing", said


@pytest.mark.slow
def test_the_best_settings_give_the_best_value_again(fake: Any) -> None:
    fake.config(out="a study", trials=2, enqueue=[{"x": 0.25}], pruner="none")
    code, said = fake.run("tune", "-c", "tune.yaml")
    assert code == 0, said
    (fake.folder / "study").symlink_to("a study")
    rows = rows_of(fake)
    assert (fake.folder / "study" / "best.yaml").read_text().splitlines()[1].endswith("learn -c 'a study/best.yaml'")
    assert [row["trial"] for row in rows] == list("01") and rows[0]["x"] == "0.25"
    assert {row["state"] for row in rows} == {"complete"}
    with sqlite3.connect(fake.folder / "study" / "study.db") as database:
        ((first,),) = database.execute("select min(datetime_start) from trials").fetchall()
    best = load_yaml(fake.folder / "study" / "best.yaml").plain()
    summary = json.loads((fake.folder / "study" / "study.json").read_text())
    assert best["x"] == summary["best"]["settings"]["x"] and best["out"] == "a study/best"
    assert datetime.fromisoformat(summary["started"]).replace(tzinfo=None) == datetime.fromisoformat(first)
    assert fake.run("learn", "-c", "study/best.yaml")[0] == 0
    manifest = json.loads((fake.folder / "study" / "best" / "run.json").read_text())
    assert manifest["metrics"]["validation_f1"] == summary["best"]["values"][0]
    assert summary["best"]["values"][0] == max(float(row["validation/f1"] or 0) for row in rows)
    assert {path.name for path in (fake.folder / "study" / "pictures").glob("*.svg")} >= {"history.svg", "slice.svg"}
    assert said.splitlines()[-1].endswith("train with these settings, and run evaluate on the test set.")
    with sqlite3.connect(fake.folder / "study" / "study.db") as database:
        assert database.execute("select study_name from studies").fetchall() == [("a study",)]


@pytest.mark.slow
def test_a_finished_study_goes_on_where_it_ended_and_draws_the_same(fake: Any) -> None:
    fake.config(trials=2)
    assert fake.run("tune", "-c", "tune.yaml")[0] == 0
    code, said = fake.run("tune", "-c", "tune.yaml")
    assert (code, said.splitlines()[0].startswith("2/2 done")) == (0, True)
    assert fake.run("tune", "-c", "tune.yaml", "--trials", "4")[0] == 0
    assert fake.run("tune", "-c", "tune.yaml", "--trials", "4", "--out", "whole")[0] == 0
    ours, theirs = rows_of(fake), rows_of(fake, "whole")
    keys = ("trial", "state", "x", "validation/f1", "evaluations")
    assert [[row[key] for key in keys] for row in ours] == [[row[key] for key in keys] for row in theirs]


@pytest.mark.slow
def test_another_space_has_to_be_asked_for(fake: Any) -> None:
    fake.config(trials=1)
    assert fake.run("tune", "-c", "tune.yaml")[0] == 0
    fake.config(trials=2, space={"x": {"low": -1, "high": 2}})
    code, said = fake.run("tune", "-c", "tune.yaml")
    assert (code, said) == (
        2,
        "domainbert: study 'study': was started with other settings or inputs (space.x.high was 1.0, is now 2.0); undo "
        "the change, or use --extend to resume with the new settings and keep the earlier trials\n",
    )
    code, said = fake.run("tune", "-c", "tune.yaml", "--extend")
    assert code == 0 and "extended (space.x.high was 1.0, is now 2.0)" in said
    assert len(rows_of(fake)) == 2
    fake.config(trials=2, objective="validation/loss", space={"x": {"low": -1, "high": 2}})
    code, said = fake.run("tune", "-c", "tune.yaml", "--extend")
    assert code == 2 and "its objective was validation/f1 (maximize), is now validation/loss (minimize)" in said


@pytest.mark.slow
def test_the_best_settings_of_an_extended_study_are_those_that_the_trial_ran_with(fake: Any) -> None:
    fake.config(trials=1, settings={"epochs": 1, "seeds": [9]}, enqueue=[{"x": 0.25}])
    assert fake.run("tune", "-c", "tune.yaml")[0] == 0
    before = load_yaml(fake.folder / "study/best.yaml").plain()
    space = {
        "optim.lr": {"low": 0.1, "high": 1}
    }  # x of trial 0 is no longer of the space, and the settings have another
    settings = {"epochs": 2, "x": -0.5, "seeds": [1]}
    fake.config(trials=2, settings=settings, space=space)
    code, said = fake.run("tune", "-c", "tune.yaml", "--extend")
    assert code == 0, said
    best = load_yaml(fake.folder / "study/best.yaml").plain()
    assert best == before and (best["x"], best["epochs"], best["seeds"]) == (0.25, 1, [9])
    rows = rows_of(fake)
    assert (rows[0]["x"], rows[1]["x"]) == ("0.25", "") and rows[1]["optim.lr"]
    assert fake.run("learn", "-c", "study/best.yaml")[0] == 0
    manifest = json.loads((fake.folder / "study/best/run.json").read_text())
    assert manifest["metrics"]["validation_f1"] == float(rows[0]["validation/f1"])


def test_a_trial_that_fails_is_recorded_and_the_study_goes_on(fake: Any) -> None:
    fake.config(trials=3, settings={"epochs": 1, "fail_above": 0.5}, enqueue=[{"x": 0.75}, {"x": 0.25}])
    code, said = fake.run("tune", "-c", "tune.yaml")
    assert code == 0, said
    rows = rows_of(fake)
    assert (rows[0]["state"], rows[1]["state"]) == ("fail", "complete")
    assert rows[0]["error"] == "the loss is not finite at x = 0.75"
    assert "trial 0: failed: the loss is not finite at x = 0.75; x 0.75" in said


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_no_fault_of_a_trial(fake: Any) -> None:
    """Else the trial would have failed for good after four starts."""
    fake.config(trials=1)
    (fake.folder / "study").mkdir()
    (fake.folder / "study/trials").write_text("")
    for _ in range(5):
        code, said = fake.run("tune", "-c", "tune.yaml")
        assert code == 2 and "its worker could not start it; queued again" in said, said
        assert "Traceback" not in said and said.splitlines()[-1].startswith("domainbert: study/trials")
    (fake.folder / "study/trials").unlink()
    assert fake.run("tune", "-c", "tune.yaml")[0] == 0
    assert [row["state"] for row in rows_of(fake)] == [*["queued again"] * 5, "complete"]


@pytest.mark.slow
def test_a_study_without_a_complete_trial_is_an_error(fake: Any) -> None:
    fake.config(trials=1, settings={"fail_above": -5})
    code, said = fake.run("tune", "-c", "tune.yaml")
    assert code == 2 and "no trial was completed" in said and not (fake.folder / "study" / "best.yaml").exists()


@pytest.mark.slow
def test_an_objective_that_is_not_measured_ends_the_study_at_once_and_may_be_corrected(fake: Any) -> None:
    slow = {"epochs": 1000, "seconds": 0.2}
    fake.config(objective="validation/f2", pruner="none", settings=slow, enqueue=[{"x": 0.5}])
    code, said = fake.run("tune", "-c", "tune.yaml")
    assert code == 2
    assert "objective: the stage learn does not measure 'validation/f2'; did you mean 'validation/f1'?" in said
    fake.config(trials=1, settings={"epochs": 1}, pruner="none", enqueue=[{"x": 0.5}])
    code, said = fake.run("tune", "-c", "tune.yaml", "--extend")
    assert code == 0 and "objective was validation/f2 (maximize), is now validation/f1 (maximize)" in said
    assert [(row["state"], row["x"]) for row in rows_of(fake)] == [("queued again", "0.5"), ("complete", "0.5")]


@pytest.mark.slow
def test_a_trial_that_is_worse_at_a_rung_is_ended_there(fake: Any) -> None:
    points = [{"x": 0.9}, {"x": 0.3}, {"x": 0.0}, {"x": 0.5}]
    fake.config(enqueue=points, settings={"epochs": 6, "seconds": 0.4}, pruner="asha", min_evaluations=2, reduction=2)
    code, said = fake.run("tune", "-c", "tune.yaml")
    assert code == 0, said
    found = [(row["state"], row["evaluations"]) for row in rows_of(fake)]
    assert found == [("complete", "6"), ("complete", "6"), ("pruned", "2"), ("pruned", "4")]
    trained = {file.parent.name for file in fake.folder.glob("study/trials/*/runs.txt")}
    assert trained == {"00000", "00001"}  # the others were pruned, the second best of four at the next rung


@pytest.mark.slow
def test_trials_that_are_killed_or_measure_no_number_fail_with_their_reason(fake: Any) -> None:
    kinds = ["error", "kill", "nan"]
    points = [{"x": 0.75, "trouble": kind} for kind in kinds]
    space = {"x": {"low": -1, "high": 1}, "trouble": {"choices": kinds}}
    settings = {"epochs": 1, "fail_above": 0.5}
    fake.config(space=space, enqueue=[*points, {"x": 0.25}], settings=settings, pruner="none")
    fake.environment["OMP_NUM_THREADS"] = "1"
    code, said = fake.run("tune", "-c", "tune.yaml")
    assert code == 0, said
    assert [(row["state"], row["error"]) for row in rows_of(fake)] == [
        ("fail", "the loss is not finite at x = 0.75"),
        ("fail", "killed by SIGKILL, perhaps out of memory"),
        ("fail", "an objective is not finite: {'validation/f1': nan}"),
        ("complete", ""),
    ]
    head = (fake.folder / "study/best.yaml").read_text().splitlines()[1]
    assert head.startswith("#   OMP_NUM_THREADS=") and head.endswith("domainbert learn -c study/best.yaml")


@pytest.mark.slow
def test_a_signal_puts_the_running_trial_back_and_the_same_command_goes_on(fake: Any) -> None:
    fake.config(trials=2, settings={"epochs": 3, "seconds": 0.5}, pruner="none")
    worker = fake.start("tune", "-c", "tune.yaml", "--seed", "7")
    log = fake.folder / "study/trials/00000/run/seed-1/logs/metrics.jsonl"
    end = time.monotonic() + SECONDS
    while not log.exists():
        assert time.monotonic() < end
        time.sleep(0.05)
    worker.send_signal(signal.SIGTERM)
    said, _ = worker.communicate(timeout=SECONDS)
    assert worker.returncode == 75
    assert said.endswith("stopped by SIGTERM; to resume: domainbert tune -c tune.yaml --seed=7\n")
    code, said = fake.run("tune", "-c", "tune.yaml", "--seed", "7")
    assert code == 0, said
    rows = rows_of(fake)
    assert (rows[0]["state"], rows[0]["error"]) == ("queued again", "its worker stopped")
    assert [row["state"] for row in rows].count("complete") == 2 and rows[1]["x"] == rows[0]["x"]


@pytest.mark.slow
def test_a_trial_that_is_stopped_again_and_again_is_no_failure(fake: Any) -> None:
    fake.config(trials=1, settings={"epochs": 1000, "seconds": 0.1}, pruner="none")
    for _ in range(4):
        worker = fake.start("tune", "-c", "tune.yaml")
        folder, end = fake.folder / "study/trials/00000", time.monotonic() + SECONDS
        while not (folder / "run/seed-1").exists():
            assert time.monotonic() < end
            time.sleep(0.05)
        worker.send_signal(signal.SIGTERM)
        assert "its worker stopped; queued again" in worker.communicate(timeout=SECONDS)[0]
        shutil.rmtree(folder / "run")
    fake.config(trials=1, settings={"epochs": 1, "seconds": 0.1}, pruner="none")
    assert fake.run("tune", "-c", "tune.yaml", "--extend")[0] == 0
    assert [row["state"] for row in rows_of(fake)] == ["queued again"] * 4 + ["complete"]


@pytest.mark.slow
def test_a_trial_with_changed_settings_reports_no_value_of_its_earlier_attempt(fake: Any) -> None:
    usual: dict[str, Any] = {"trials": 1, "pruner": "none", "enqueue": [{"x": 0.3}]}
    fake.config(settings={"epochs": 1000, "seconds": 0.1, "seeds": [1]}, **usual)
    worker = fake.start("tune", "-c", "tune.yaml")
    log, end = fake.folder / "study/trials/00000/run/seed-1/logs/metrics.jsonl", time.monotonic() + SECONDS
    while not log.exists() or log.read_text().count("\n") < 5:
        assert time.monotonic() < end
        time.sleep(0.05)
    worker.send_signal(signal.SIGTERM)
    assert "its worker stopped; queued again" in worker.communicate(timeout=SECONDS)[0]
    fake.config(settings={"epochs": 2, "seconds": 0.5, "seeds": [2]}, **usual)
    code, said = fake.run("tune", "-c", "tune.yaml", "--extend")
    assert code == 0, said
    with sqlite3.connect(fake.folder / "study/study.db") as database:
        values = "select step, intermediate_value from trial_intermediate_values where trial_id = 2 order by step"
        found = database.execute(values).fetchall()
    assert found == [(1, pytest.approx(0.502)), (2, pytest.approx(1.002))]


@pytest.mark.slow
def test_no_trial_begins_when_the_time_is_over(fake: Any) -> None:
    fake.config(trials=50, settings={"epochs": 4, "seconds": 0.5}, max_hours=1 / 3600)
    code, said = fake.run("tune", "-c", "tune.yaml")
    assert code == 0 and "trials: 1 (1 complete" in said
    assert "49 of 50 trials are left: max_hours is exceeded; run the same command to resume" in said
    assert [row["state"] for row in rows_of(fake)] == ["complete"]


@pytest.mark.slow
def test_a_changed_queue_is_asked_for_too(fake: Any) -> None:
    fake.config(trials=1, settings={"epochs": 1}, enqueue=[{"x": 0.5}])
    assert fake.run("tune", "-c", "tune.yaml")[0] == 0
    fake.config(trials=2, settings={"epochs": 1}, enqueue=[{"x": 0.5}, {"x": 0.25}])
    code, said = fake.run("tune", "-c", "tune.yaml")
    assert code == 2 and "enqueue[1].x was not set, is now 0.25" in said
    assert fake.run("tune", "-c", "tune.yaml", "--extend")[0] == 0
    assert [row["x"] for row in rows_of(fake)] == ["0.5", "0.25"]


@pytest.mark.slow
def test_several_seeds_are_one_trial_with_their_mean(fake: Any) -> None:
    fake.config(trials=1, settings={"epochs": 2, "seeds": [1, 4]}, enqueue=[{"x": 0.3}])
    code, said = fake.run("tune", "-c", "tune.yaml")
    assert code == 0, said
    (row,) = rows_of(fake)
    assert float(row["validation/f1"]) == pytest.approx(1.0025) and row["evaluations"] == "2"


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["random", "cmaes", "tpe"])
def test_samplers_by_name(fake: Any, sampler: str) -> None:
    fake.config(trials=2, sampler=sampler, pruner="median", settings={"epochs": 1})
    code, said = fake.run("tune", "-c", "tune.yaml")
    assert code == 0, said
    assert len({row["x"] for row in rows_of(fake)}) == 2


@pytest.mark.slow
def test_a_grid_is_searched_whole_and_once(fake: Any) -> None:
    space: dict[str, Any] = {"x": {"low": 0, "high": 0.5, "step": 0.5}, "optim.name": {"choices": ["adamw", "muon"]}}
    fake.config(sampler="grid", pruner="none", settings={"epochs": 1}, trials=20, space=space)
    code, said = fake.run("tune", "-c", "tune.yaml")
    assert code == 0, said
    points = [(row["x"], row["optim.name"]) for row in rows_of(fake)]
    assert sorted(points) == [("0.0", "adamw"), ("0.0", "muon"), ("0.5", "adamw"), ("0.5", "muon")]
    assert "sampler: trials is limited to the points of the grid: 4, not 20" in said


@pytest.mark.slow
def test_conditions_decide_what_varies(fake: Any) -> None:
    space: dict[str, Any] = {
        "shape.radius": {"low": 1, "high": 2, "when": {"shape.class_path": "Circle"}},
        "shape.side": {"low": 1, "high": 9, "when": {"shape.class_path": ["Square"]}},
        "shape.class_path": {"choices": ["Circle", "Square"]},
    }
    fake.config(space=space, settings={"epochs": 1}, trials=6, sampler="random", pruner="none")
    code, said = fake.run("tune", "-c", "tune.yaml")
    assert code == 0, said
    kinds = {}
    for row in rows_of(fake):
        kinds.setdefault(row["shape.class_path"], set()).add((row["shape.radius"] != "", row["shape.side"] != ""))
    assert kinds == {"Circle": {(True, False)}, "Square": {(False, True)}}


@pytest.mark.slow
def test_two_objectives_give_a_front(fake: Any) -> None:
    fake.config(
        objective=["validation/f1", "validation/loss"], settings={"epochs": 1}, trials=3, direction=["maximize"] * 2
    )
    code, said = fake.run("tune", "-c", "tune.yaml")
    assert code == 0, said
    summary = json.loads((fake.folder / "study" / "study.json").read_text())
    assert summary["pareto_front"] == [0, 1, 2]  # the loss is 1 - F1, so every trial is best at something
    files = sorted(path.name for path in (fake.folder / "study" / "pareto").iterdir())
    assert files == ["trial-00000.yaml", "trial-00001.yaml", "trial-00002.yaml"]
    assert (fake.folder / "study" / "pictures" / "pareto.svg").exists()


def test_a_worker_takes_its_own_trial_for_alive_after_the_machine_was_suspended(tmp_path: Path) -> None:
    """The clock of heartbeats goes on meanwhile, the clock of the worker does not."""
    config = TuneConfig(stage="learn", settings={}, space={"x": Parameter(0, 1)}, objective=("validation/f1",))
    storage = open_storage(config.storage, tmp_path, {})
    study = optuna.create_study(storage=storage, study_name="s")
    search: Any = SimpleNamespace(config=config, space=SimpleNamespace(stage=None), headline=None, out=tmp_path)
    worker = Worker(search, study, storage, {})
    own, of_another = study.ask(), study.ask()
    for trial in (own, of_another):
        trials.record_heartbeat(storage, trial)
    with closing(sqlite3.connect(tmp_path / "study.db")) as database:
        database.execute("update trial_heartbeats set heartbeat = datetime('now', '-1 hour')")
        database.commit()
    own.set_user_attr(trials.WORKER, trials.worker_name())
    worker._running = SimpleNamespace(trial=own)  # type: ignore[assignment]
    worker._queue_dead_trials()
    states = [trial.state.name for trial in study.get_trials()]
    assert states == ["RUNNING", "FAIL", "WAITING"]


def test_the_worker_imports_no_torch(fake: Any) -> None:
    code = "import sys, domainbert.tuning.worker, domainbert.tuning.command, optuna; "
    code += (
        "optuna.samplers.TPESampler(seed=1); print([name for name in ('torch', 'lightning') if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=fake.environment, check=True
    )
    assert result.stdout == "[]\n"
