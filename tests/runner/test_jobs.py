from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from domainbert.base.files import hash_file, write_text
from domainbert.base.process import launch_id, process_rank
from domainbert.base.run_record import read_record
from domainbert.cli import main
from domainbert.runner import jobs, stage_table
from domainbert.runner.claim import is_running
from domainbert.settings.yaml_files import load_yaml
from tests.refusals import command_refused


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("source.txt").write_text("x")


def test_the_record_says_how_a_folder_was_made(fake_stages: ModuleType) -> None:
    assert main(["use", "--source", "source.txt", "--out", "out", "--steps=7"]) == 0
    manifest = json.loads(Path("out/run.json").read_text())
    assert manifest["stage"] == "use"
    assert manifest["inputs"] == {"source.txt": hash_file(Path("source.txt"))}
    assert manifest["config"] == load_yaml(Path("out/config.yaml")).plain()
    assert manifest["config"]["steps"] == 7
    assert manifest["seed"] == [1, 2]
    assert manifest["metrics"] == {"source": "x", "area": 12.0}
    assert set(manifest["versions"]) == {
        "python",
        "domainbert",
        "torch",
        "lightning",
        "tokenizers",
        "datasets",
        "numpy",
    }
    assert manifest["wall_seconds"] >= 0 and len(manifest["key"]) == 64 and "git_commit" in manifest
    assert not Path("out/running.lock").exists()


def test_the_resolved_yaml_gives_the_same_result(fake_stages: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["use", "--source", "source.txt", "--shape", "Square", "--shape.side", "3", "--out", "one"]) == 0
    assert main(["use", "-c", "one/config.yaml", "--out", "two"]) == 0
    one, two = (json.loads(Path(name, "run.json").read_text()) for name in ("one", "two"))
    assert one["key"] == two["key"]
    assert Path("one/arguments.txt").read_text() == Path("two/arguments.txt").read_text()
    assert main(["use", "-c", "one/config.yaml"]) == 0
    assert "is already done" in capsys.readouterr().out


def test_other_work_is_replaced_only_by_force(fake_stages: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["make", "--words", "[a]", "--out", "out"]) == 0
    assert main(["make", "--words", "[b]", "--out", "out"]) == 2
    assert (
        "out: holds output of an earlier run (words: new b; dropped a); use another --out, or --force"
        in capsys.readouterr().err
    )
    assert Path("out/words.txt").read_text() == "a a"
    assert main(["make", "--words", "[b]", "--out", "out", "--force"]) == 0
    assert Path("out/words.txt").read_text() == "b b"
    fake_stages.CALLS.clear()
    for words in ("b", "c", "c"):
        assert main(["make", "--words", f"[{words}]", "--out", "out", "--resume", "or-replace"]) == 0
    assert Path("out/words.txt").read_text() == "c c" and fake_stages.CALLS == ["out"]
    Path("out/words.txt").write_text("d d")
    assert main(["make", "--words", "[c]", "--out", "out", "--resume", "or-replace"]) == 0
    assert Path("out/words.txt").read_text() == "c c"


@pytest.mark.parametrize("option", [[], ["--force"], ["--resume", "or-replace"]])
def test_output_of_another_stage_is_never_replaced(fake_stages: ModuleType, option: list[str]) -> None:
    assert main(["make", "--words", "[a]", "--out", "out"]) == 0
    words = ("use", "--source", "source.txt", "--out", "out", *option)
    expected = "a new folder, or one of the stage use"
    command_refused(*words, file="out", problem="holds output of the stage make", expected=expected)
    assert Path("out/words.txt").read_text() == "a a"


def test_the_folder_of_a_recipe_is_not_that_of_a_stage(fake_stages: ModuleType) -> None:
    Path("recipe.yaml").write_text("out: runs\nstages: {make: {words: [a]}}\n")
    assert main(["run", "recipe.yaml"]) == 0
    words = ("make", "--words", "[a]", "--out", "runs", "--force")
    expected = "an empty or a new folder, or the..."
    command_refused(*words, where="runs", problem="is the folder of a recipe", expected=expected)


def test_files_of_the_user_in_the_folder_of_a_stage_are_never_deleted_without_force(
    fake_stages: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were deleted without notice when a setting had changed."""
    monkeypatch.setitem(stage_table.STAGES, "learn", "fake_stages:learn")
    Path("recipe.yaml").write_text("out: runs\nstages: {learn: {x: 0.1, seeds: [1, 3]}}\n")
    assert main(["run", "recipe.yaml"]) == 0
    out = Path("runs/learn")
    (out / "cards/one").mkdir(parents=True)  # as `evaluate` writes: a model card is not recorded
    (out / "cards/one/README.md").write_text("a card")
    changed = ["run", "recipe.yaml", "--stages.learn.x=0.2"]
    assert main([*changed, "--dry-run"]) == 0
    mine = ["annotated.jsonl", "mine/README.md", "mine/notes.md", "onnx/model.onnx", "onnx/run.json", "seed-1/notes.md"]
    for name in mine:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(f"my {name}")
    assert main(["run", "recipe.yaml"]) == 0, "nothing has to run"
    names = "annotated.jsonl, mine, onnx and 1 more"
    problem = f"has to run again, but its folder has files that it did not write ({names})"
    hint = "move them out of runs/learn, or use --force learn to delete them"
    for words in (changed, [*changed, "--dry-run"]):
        command_refused(*words, where="stage learn", problem=problem, hint=hint)
    assert all((out / name).read_text() == f"my {name}" for name in mine)
    assert main([*changed, "--force", "learn"]) == 0
    assert not any((out / name).exists() for name in mine)


@pytest.mark.parametrize("name", ["thesis.tex", "run.json"])
def test_foreign_content_is_never_touched(fake_stages: ModuleType, name: str) -> None:
    Path("out").mkdir()
    Path("out", name).write_text('{"start_url": "mine"}')
    for force in ([], ["--force"]):
        assert main(["make", "--words", "[a]", "--out", "out", *force]) == 2
    assert [path.name for path in Path("out").iterdir()] == [name]
    assert main(["make", "--words", "[a]", "--out", "source.txt"]) == 2


def test_an_error_leaves_the_place_as_it_was(fake_stages: ModuleType) -> None:
    assert main(["make", "--words", "[bad]", "--out", "new/out"]) == 2
    assert not Path("new/out").exists()
    Path("empty").mkdir()
    assert main(["make", "--words", "[bad]", "--out", "empty"]) == 2
    assert list(Path("empty").iterdir()) == []


def test_a_stage_that_does_not_notice_a_signal_is_ended_with_its_status_and_how_to_resume(
    fake_stages: ModuleType, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("domainbert.base.process._MAX_SECONDS", 0.5)
    monkeypatch.setattr(jobs, "raise_if_stopped", lambda: time.sleep(60))  # as a slow import
    child = os.fork()
    if not child:
        os._exit(main(["make", "--words", "[stop]", "--out", "out"]))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 75
    assert "domainbert: out: stopped by SIGTERM; to resume: domainbert make" in capfd.readouterr().err
    status = json.loads(Path("out/run.json").read_text())
    assert (status["state"], status["reason"]) == ("stopped", "stopped by SIGTERM")


@pytest.mark.parametrize(("word", "name"), [("stop", "SIGTERM"), ("ctrl-c", "SIGINT")])
def test_a_signal_ends_a_stage_that_does_not_train_with_the_code_that_requeues(
    fake_stages: ModuleType, capsys: pytest.CaptureFixture[str], word: str, name: str
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    # a job that a script starts in the background ignores SIGINT, and so would the tests
    ignored_or_not = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert main(["make", "--words", f"[{word}]", "--out", "out"]) == 75
    finally:
        signal.signal(signal.SIGINT, ignored_or_not)
    assert f"out: stopped by {name}; to resume: domainbert make" in capsys.readouterr().err
    status = json.loads(Path("out/run.json").read_text())
    assert (status["state"], status["reason"]) == ("stopped", f"stopped by {name}")
    assert signal.getsignal(signal.SIGTERM) == before
    assert main(["make", "--words", "[a]", "--out", "out", "--resume", "auto"]) == 0, "as the message says"
    assert Path("out/words.txt").read_text() == "a a"


def test_another_process_of_a_launch_waits_until_a_finished_stage_has_run_again(
    fake_stages: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["make", "--words", "[a]", "--out", "out", "--force"]
    assert main(words) == 0
    launch = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "law", "RANK": "1"}
    for name, value in launch.items():
        monkeypatch.setenv(name, value)

    def first_process(seconds: float) -> None:
        with monkeypatch.context() as patch:
            patch.setenv("RANK", "0")
            patch.setattr(jobs.time, "sleep", lambda seconds: None)  # the stage sleeps, too
            assert main(words) == 0

    monkeypatch.setattr(jobs.time, "sleep", first_process)
    fake_stages.CALLS.clear()
    assert main(words) == 0
    assert fake_stages.CALLS == ["out"]


def test_a_process_that_a_stage_starts_runs_the_same_stage(
    fake_stages: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "_CLAIM_SECONDS", 5.0)
    exit_codes = []

    def area(shape: object) -> float:
        """Start the second process, as Lightning does, in the middle of the stage."""
        if process_rank() == 0:
            child = os.fork()
            if not child:
                os.environ["LOCAL_RANK"] = "1"
                os._exit(main(sys.argv[1:]))
            exit_codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            return 1.0
        Path("second.txt").write_text(launch_id())
        return 2.0

    monkeypatch.setattr(fake_stages.Circle, "area", area)
    assert main(["use", "--source", "source.txt", "--out", "out"]) == 0
    assert exit_codes == [0]
    record = read_record(Path("out"))
    assert record is not None and record.metrics["area"] == 1.0, "the record is of the first process"
    assert record.launch == Path("second.txt").read_text() != ""


def test_a_folder_that_another_process_writes_is_not_taken_for_an_interrupted_one(
    fake_stages: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["make", "--words", "[a]", "--out", "out"]) == 0
    interrupt(Path("out"))
    locked = (
        "import fcntl; file = open('out/running.lock', 'w'); fcntl.lockf(file, fcntl.LOCK_EX); print(1, flush=True)"
    )
    command = [sys.executable, "-c", f"{locked}; input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None and process.stdout.readline()
        for words in ("[a]", "[b]"):
            assert main(["make", "--words", words, "--out", "out"]) == 2
            assert "another process is writing this folder; wait for it, or end it" in capsys.readouterr().err
        process.stdin.close()
    assert main(["make", "--words", "[b]", "--out", "out"]) == 2
    assert "interrupted, and its settings or inputs have changed (words: new b; dropped a)" in capsys.readouterr().err


def test_what_a_killed_process_was_about_to_write_is_no_output(
    fake_stages: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, pytest.raises(KeyError):
        patch.setattr(Path, "replace", lambda path, target: (_ for _ in ()).throw(KeyError(path.name)))
        patch.setattr(Path, "unlink", lambda *_, **__: None)  # as after a kill
        write_text(Path("left.json"), "{")
    assert [path.name.startswith(".left.json.") for path in Path().glob("*.tmp")] == [True]
    assert main(["make", "--words", "[a]", "--out", "out"]) == 0
    interrupt(Path("out"))
    Path("out/part").mkdir()
    left = next(Path().glob("*.tmp"))
    for folder in ("out", "out/part"):
        shutil.copy(left, folder)
    assert main(["make", "--words", "[a]", "--out", "out"]) == 0
    assert list(json.loads(Path("out/run.json").read_text())["outputs"]) == ["words.txt"]
    assert not list(Path("out").rglob("*.tmp"))


def interrupt(out: Path) -> None:
    """Make a finished stage one that was killed after a checkpoint."""
    record = read_record(out)
    assert record is not None
    (out / "running.lock").touch()
    (out / "checkpoints/step-00000010").mkdir(parents=True)
    replace(record, state="running").write(out)


def test_a_signal_outside_a_stage_has_the_code_that_requeues(
    fake_stages: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """While inputs are hashed, and while what a stage has made is recorded."""
    for name in ("folder_state", "replace"):
        with monkeypatch.context() as patch:
            real = getattr(jobs, name)
            patch.setattr(
                jobs,
                name,
                lambda *given, real=real, **more: os.kill(os.getpid(), signal.SIGUSR1) or real(*given, **more),
            )
            assert main(["make", "--words", "[a]", "--out", "out"]) == 75
        assert "stopped by SIGUSR1" in capsys.readouterr().err
    assert json.loads(Path("out/run.json").read_text())["state"] == "stopped"
    assert main(["make", "--words", "[a]", "--out", "out"]) == 0


@pytest.mark.parametrize(("force", "other_job"), [(False, False), (True, False), (False, True)])
def test_what_another_process_finishes_after_the_look_is_not_cleared(
    fake_stages: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    force: bool,
    other_job: bool,
) -> None:
    words, plain = ["make", "--words", "[a]", "--out", "out"], jobs.dump_yaml

    def meanwhile(value: object) -> str:
        monkeypatch.setattr(jobs, "dump_yaml", plain)
        assert main(words) == 0
        return plain(value)

    monkeypatch.setattr(jobs, "dump_yaml", meanwhile)
    command = ["make", "--words", "[b]" if other_job else "[a]", "--out", "out", *(["--force"] if force else [])]
    refused = force or other_job
    assert main(command) == (2 if refused else 0)
    assert ("another process has just finished this folder" in capsys.readouterr().err) == refused
    assert Path("out/words.txt").read_text() == "a a"
    assert main(words) == 0 and "is already done" in capsys.readouterr().out
    assert fake_stages.CALLS.count("out") == 1 and not Path("out/running.lock").exists()


def test_a_folder_that_another_process_writes_is_refused(
    fake_stages: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("out").mkdir()
    Path("out/words.txt").write_text("of the other process")
    assert not is_running(Path("out")) and not is_running(Path("none"))
    lock = "import fcntl; file = open('out/running.lock', 'w'); fcntl.lockf(file, fcntl.LOCK_EX)"
    code = f"{lock}; print(1, flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"1\n"
        assert main(["make", "--words", "[a]", "--out", "out", "--force"]) == 2
        assert is_running(Path("out"))
        other.communicate(b"\n")
    assert not is_running(Path("out"))
    assert "another process is writing this folder" in capsys.readouterr().err
    assert Path("out/words.txt").read_text() == "of the other process"


@pytest.mark.parametrize(
    ("number", "is_held", "said"),
    [
        (errno.EACCES, True, "out: another process is writing this folder; wait for it, or end it"),
        (errno.EAGAIN, True, "out: another process is writing this folder; wait for it, or end it"),
        (
            errno.ENOLCK,
            False,
            "out: this file system has no locks (ENOLCK: No locks available); use a folder on another file system",
        ),
    ],
)
def test_a_file_system_without_locks_is_not_another_process(
    fake_stages: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: int,
    is_held: bool,
    said: str,
) -> None:
    """As NFS without lockd; every errno was said to be another process."""

    def lockf(file: object, flags: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.lockf", lockf)
    assert main(["make", "--words", "[a]", "--out", "out"]) == 2
    assert capsys.readouterr().err == f"domainbert: {said}\n"
    assert is_running(Path("out")) == is_held
