"""`domainbert runs`: the state of every stage on disk, in the words of `run --dry-run`."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from domainbert.base.run_record import read_record
from domainbert.cli import main
from domainbert.runner import claim
from domainbert.runner.listing import Run, StageStatus, inspect_stage, list_runs, runs_table
from domainbert.runner.results_table import SystemScore

RECIPE = """\
out: runs/law
stages:
  make: {words: [a]}
  crashes: {stage: make, words: [crash]}
  use: {source: "@make/words.txt"}
  compared: {stage: score, models: {ours: "@use", theirs: "@make"}}
"""
LOCKED = """\
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print(1, flush=True)
input()
"""


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake_stages: ModuleType) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    Path("recipe.yaml").write_text(RECIPE)


def listed(*words: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What the command prints as JSON."""
    capsys.readouterr()
    assert main(["runs", *words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_run_began_with_its_first_stage_and_a_check_with_errors_is_not_done() -> None:
    with pytest.raises(RuntimeError, match="crash"):
        main(["run", "recipe.yaml"])
    shutil.copytree("runs/law/make", "runs/law/use", dirs_exist_ok=True)
    note(Path("runs/law/make"), started="2026-11-01T10:00:00+00:00")
    errors = ["train.conll:3: café is labelled twice", "test.conll:1: no text"]
    note(Path("runs/law/use"), started="2026-11-02T10:00:00+00:00", metrics={"errors": errors})
    ((run,), _) = list_runs(Path("runs"))
    assert run.started == datetime(2026, 11, 1, 10, tzinfo=timezone.utc)
    seen = inspect_stage(Path("runs/law/use"))
    why = "errors in the data: train.conll:3: café is labelled twice, test.conll:1: no text"
    assert (seen.state, seen.why) == ("failed", why)


def note(folder: Path, **changes: Any) -> None:
    """Change the record of a stage."""
    record = read_record(folder)
    assert record is not None
    replace(record, **changes).write(folder)


def interrupted(folder: Path, **changes: Any) -> None:
    """Make a finished stage one that was interrupted, with a checkpoint."""
    (folder / "running.lock").touch()
    (folder / "checkpoints/step-00000010").mkdir(parents=True)
    note(folder, **{"state": "running", **changes})


def test_each_stage_of_a_recipe_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError):
        main(["run", "recipe.yaml"])
    found = listed(capsys=capsys)
    (run,) = found["runs"]
    assert (run["path"], run["state"]) == ("runs/law", "failed")
    assert [(one["name"], one["stage"], one["state"]) for one in run["stages"]] == [
        ("make", "make", "done"),
        ("crashes", "make", "failed"),
        ("use", "use", "never run"),
        ("compared", "score", "never run"),
    ]
    assert run["stages"][1]["why"] == "RuntimeError('crash'); not finished"
    manifest = json.loads(Path("runs/law/make/run.json").read_text())
    assert (run["stages"][0]["started"], run["stages"][0]["seconds"]) == (manifest["started"], manifest["wall_seconds"])
    assert main(["runs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].endswith("runs/law: 1 of 4 stages done")
    assert [line.split() for line in lines[2:]] == [
        ["crashes", "failed:", "RuntimeError('crash');", "not", "finished"],
        ["use", "never", "run"],
        ["compared", "never", "run"],
    ]


def test_scores_come_with_their_intervals(capsys: pytest.CaptureFixture[str]) -> None:
    Path("recipe.yaml").write_text(RECIPE.replace("crash]", "c]"))
    assert main(["run", "recipe.yaml"]) == 0
    (run,) = listed(capsys=capsys)["runs"]
    assert run["state"] == "done" and run["stages"][3]["scores"][1] == {
        "system": "theirs",
        "metric": "entity F1",
        "score": 0.4,
        "interval": [0.4, 0.6],
        "percent": True,
        "seeds": 3,
    }
    main(["runs"])
    brief = capsys.readouterr().out.splitlines()
    assert [line.strip() for line in brief[2:]] == [
        "compared  ours    entity F1  50.00  [40.00, 60.00]",
        "theirs  entity F1  40.00  [40.00, 60.00]",
    ]
    main(["runs", "runs/law"])
    whole = capsys.readouterr().out.splitlines()
    assert [line.split()[1:] for line in whole[2:5]] == [[name, "done"] for name in ("make", "crashes", "use")]


STATES = {
    "killed": ({"state": "running"}, "killed, or its machine went down; interrupted"),
    "stopped": ({"state": "stopped", "reason": "stopped by SIGTERM"}, "stopped by SIGTERM; interrupted"),
    "failed": ({"state": "failed", "reason": "no\n room"}, "failed: no room; interrupted"),
}


@pytest.mark.parametrize("state", STATES)
def test_an_interrupted_stage_says_how_to_go_on(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["run", "recipe.yaml", "--only", "make"])
    status, reason_text = STATES[state]
    interrupted(Path("runs/law/make"), resume_command="domainbert run recipe.yaml", **status)
    (run,) = listed(capsys=capsys)["runs"]
    one = run["stages"][0]
    assert (run["state"], one["state"], one["why"]) == (state, state, reason_text.removeprefix("failed: "))
    assert one["resume_command"] == "domainbert run recipe.yaml"
    main(["run", "recipe.yaml", "--only", "make", "--dry-run"])
    assert capsys.readouterr().out == "run   make (interrupted) -> runs/law/make\n"
    main(["runs"])
    text = " ".join(capsys.readouterr().out.split())
    assert f"make {reason_text}; to resume: domainbert run recipe.yaml" in text


def test_a_running_stage_tells_its_last_step(capsys: pytest.CaptureFixture[str]) -> None:
    main(["run", "recipe.yaml", "--only", "make"])
    folder = Path("runs/law/make")
    interrupted(folder, state="running")
    logs = {"seed-1": 100, "seed-2": 1250}
    for number, (seed, step) in enumerate(logs.items()):
        log = folder / seed / "logs/metrics.jsonl"
        log.parent.mkdir(parents=True)
        log.write_text("".join(f'{{"step": {one}}}\n' for one in range(0, step + 1, 50)) + '{"step": 9')
        os.utime(log, (number, number))
    command = [sys.executable, "-c", LOCKED, str(folder / "running.lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"1\n"
        (run,) = listed(capsys=capsys)["runs"]
        other.communicate(b"\n")
    assert (run["state"], run["stages"][0]["state"], run["stages"][0]["why"]) == (
        "running",
        "running",
        "seed-2, step 1,250",
    )
    assert inspect_stage(folder).state == "killed", "the process has ended"


def test_what_is_damaged_is_told_and_nothing_is_hashed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "gone", "edited", "unsealed", "broken", "nonsense"):
        main(["make", "--words", "[a]", "--out", f"runs/{name}"])
    Path("runs/gone/words.txt").unlink()
    manifest = Path("runs/edited/run.json")
    manifest.write_text(manifest.read_text().replace('"count": 2', '"count": 3'))
    Path("runs/unsealed/run.json").unlink()
    Path("runs/broken/run.json").write_text('{"stage": "ma')
    Path("runs/nonsense/run.json").write_text('{"stage": "make", "state": "done", "key": 7, "made_from": {}}')
    monkeypatch.setattr("domainbert.base.files.hash_file", None)
    found = listed(capsys=capsys)
    assert [(run["path"], run["state"]) for run in found["runs"]] == [
        ("runs/broken", "damaged"),
        ("runs/edited", "damaged"),
        ("runs/gone", "damaged"),
        ("runs/nonsense", "damaged"),
        ("runs/one", "done"),
        ("runs/unsealed", "damaged"),
    ]
    whys = [run["stages"][0]["why"] for run in found["runs"]]
    assert whys[1:3] == ["run.json has changed", "words.txt is missing"]
    assert whys[0].startswith("runs/broken/run.json: not valid JSON (")
    assert whys[3] == "run.json has changed"
    assert whys[5] == "its run.json was removed"


def test_a_stage_that_finishes_between_two_looks_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    main(["make", "--words", "[a]", "--out", "runs/one"])
    records = [None, claim.read_record(Path("runs/one"))]  # None: read just before the stage finished
    monkeypatch.setattr(claim, "read_record", lambda out: records.pop(0))
    assert claim.read_state(Path("runs/one"))[0] == claim.DONE


def test_what_is_not_ours_is_left_alone_and_told(capsys: pytest.CaptureFixture[str]) -> None:
    main(["make", "--words", "[a]", "--out", "runs/deep/er/made"])
    Path("runs/thesis/chapters").mkdir(parents=True)
    Path("runs/thesis/run.json").write_text('{"start_url": "/"}')
    Path("runs/thesis/results.json").write_text('{"stages": 3}')
    Path("runs/.hidden").mkdir()
    for number, text in enumerate(['{"stages": {"mix": "5 min"}}', '{"stages": {}, "command": "x"}', "[]"]):
        Path(f"runs/cake-{number}").mkdir()
        Path(f"runs/cake-{number}/recipe.json").write_text(text)
    Path("runs/deep/er/loop").symlink_to("..")
    Path("scratch").mkdir()
    main(["make", "--words", "[a]", "--out", "scratch/elsewhere"])
    Path("runs/linked").symlink_to(Path("scratch").resolve())
    found = listed(capsys=capsys)
    assert [run["path"] for run in found["runs"]] == ["runs/deep/er/made", "runs/linked/elsewhere"]
    assert found["unreadable"] == []
    assert main(["runs", "runs/thesis"]) == 0
    assert capsys.readouterr().out == "no runs\n"


def test_a_folder_that_cannot_be_looked_into_hides_no_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["make", "--words", "[a]", "--out", "runs/made"])
    Path("runs/closed").mkdir()
    scan, is_file = os.scandir, Path.is_file

    def refuse(path: Path | str) -> None:
        if "closed" in str(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(os, "scandir", lambda path: refuse(path) or scan(path))
    monkeypatch.setattr(Path, "is_file", lambda path: refuse(path) or is_file(path))
    found = listed(capsys=capsys)
    assert [run["path"] for run in found["runs"]] == ["runs/made"]
    assert found["unreadable"] == ["runs/closed: Permission denied"]


def test_a_stage_that_cannot_be_looked_into_is_not_called_never_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("recipe.yaml").write_text("out: runs/cake\nstages:\n  closed: {stage: make, words: [a]}\n")
    assert main(["run", "recipe.yaml"]) == 0
    scan, is_file, list_names = os.scandir, Path.is_file, os.listdir

    def refuse(path: Path | str) -> None:
        if "closed" in str(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(os, "scandir", lambda path: refuse(path) or scan(path))
    monkeypatch.setattr(os, "listdir", lambda path: refuse(path) or list_names(path))
    monkeypatch.setattr(Path, "is_file", lambda path: refuse(path) or is_file(path))
    (stage,) = listed(capsys=capsys)["runs"][0]["stages"]
    assert (stage["name"], stage["state"], stage["why"]) == ("closed", "damaged", "cannot be read (Permission denied)")


def test_a_folder_that_is_called_trials_is_like_any_other(capsys: pytest.CaptureFixture[str]) -> None:
    main(["make", "--words", "[a]", "--out", "runs/trials/phase-2"])
    assert [run["path"] for run in listed(capsys=capsys)["runs"]] == ["runs/trials/phase-2"]


def test_odd_names_and_numbers_come_through(capsys: pytest.CaptureFixture[str]) -> None:
    name = os.fsdecode(b"caf\xc3\xa9-\xff")
    main(["make", "--words", "[a]", "--out", "runs/coffee"])
    Path("runs/coffee").rename(f"runs/{name}")  # copied from a disk with names in another encoding
    (run,) = listed(capsys=capsys)["runs"]
    assert run["path"] == f"runs/{name}"
    assert main(["runs"]) == 0
    assert "runs/café-\\udcff: make, done" in capsys.readouterr().out
    folder = Path(f"runs/{name}")
    note(folder, metrics={"validation_f1": float("nan")})
    (run,) = listed(capsys=capsys)["runs"]
    assert run["stages"][0]["validation"] == {"validation_f1": None}


def test_the_command_line_is_checked(capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in {
        ("none",): "'none': no such folder; expected a run, or a folder that contains runs",
        ("a", "b"): "runs: found 'b'; expected at most one folder, and optionally --json",
        ("--sort", "time"): "runs: found '--sort'; expected at most one folder, and optionally --json",
    }.items():
        assert main(["runs", *words]) == 2
        assert capsys.readouterr().err == f"domainbert: {message}\n"
    assert main(["runs", "--help"]) == 0
    assert "usage: domainbert runs [FOLDER] [--json]" in capsys.readouterr().out


def test_a_search_is_one_run_whatever_its_trials_hold(capsys: pytest.CaptureFixture[str]) -> None:
    main(["make", "--words", "[a]", "--out", "runs/search/trials/00000/run"])
    assert listed(capsys=capsys)["runs"][0]["stages"][0]["why"] == "no trial is finished yet"
    best = {"trial": 1, "values": [0.75], "settings": {"lr": 1e-4}}
    summary = {"trials": 3, "requested_trials": 40, "seconds": 75.0, "objective": ["validation/f1"], "best": best}
    summary |= {"started": "2026-01-02T09:30:00+01:00"}
    Path("runs/search/study.json").write_text(json.dumps(summary))
    (run,) = listed(capsys=capsys)["runs"]
    (one,) = run["stages"]
    assert (run["path"], run["state"], one["stage"], one["why"]) == (
        "runs/search",
        "unfinished",
        "tune",
        "3 of 40 trials",
    )
    assert (one["validation"], one["seconds"]) == ({"validation/f1": 0.75}, 75.0)
    assert run["started"] == "2026-01-02T09:30:00+01:00", "not the end, when the file was written"
    main(["runs"])
    assert (
        capsys.readouterr()
        .out.splitlines()[1]
        .endswith("runs/search: tune, unfinished: 3 of 40 trials, validation/f1 0.7500")
    )
    Path("runs/search/study.json").write_text('{"trials": "many"}')
    assert listed(capsys=capsys)["runs"][0]["state"] == "damaged"


def test_the_table_is_aligned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    began = datetime(2026, 11, 22, 18, 14, tzinfo=timezone.utc)
    scores = [
        SystemScore("ours", "entity F1", 0.8209, [0.8023, 0.8391], True, 3),
        SystemScore("Ökonomie", "error", 1.25, None, False, 1),
    ]
    stages = [
        StageStatus("pretrain", "pretrain", "done", started=began, seconds=70),
        StageStatus("tagger", "finetune", "failed", "no room left"),
        StageStatus("ner", "evaluate", "done", started=began, seconds=5, scores=scores),
    ]
    assert runs_table([Run(Path("runs/a"), stages), Run(Path("b"), stages[:1], is_single=True)], Path("runs")) == [
        "started            time  run",
        "2026-11-22 18:14  1m15s  runs/a: 2 of 3 stages done",
        "                           tagger  failed: no room left",
        "                           ner     ours      entity F1   82.09  [80.23, 83.91]",
        "                                   Ökonomie  error      1.2500",
        "2026-11-22 18:14  1m10s  b: pretrain, done",
    ]


def test_nothing_is_changed_by_looking() -> None:
    main(["run", "recipe.yaml", "--only", "make"])
    interrupted(Path("runs/law/make"), state="running")
    before = sorted((path, path.stat().st_mtime_ns) for path in Path("runs").rglob("*"))
    list_runs(Path("runs"))
    assert sorted((path, path.stat().st_mtime_ns) for path in Path("runs").rglob("*")) == before
