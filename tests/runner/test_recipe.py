from __future__ import annotations

import errno
import functools
import importlib.metadata
import itertools
import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from domainbert.base import freshness
from domainbert.base.errors import DomainbertError, TrainingStopped
from domainbert.base.files import hash_json
from domainbert.base.run_record import read_record
from domainbert.cli import main
from domainbert.runner import jobs, stage_table
from domainbert.runner.recipe import read_recipe
from domainbert.runner.recipe_plan import Recipe, Selection, make_plan
from domainbert.runner.recipe_run import run_plan
from tests.refusals import command_refused, refused

RECIPE = """\
out: runs/test
vars: {words: plain, folder: texts}
stages:
  make: {words: ["${words}", b]}
  again: {stage: make, words: [c], texts: {files: ["${folder}/a.txt"]}}
  use: {source: "@make/words.txt", shape: {class_path: Circle}}
  use-file: {stage: use, source: "${folder}/a.txt"}
  score: {models: {ours: "@use", theirs: "@use-file"}}
"""
ALL = Selection()
NAMES = ["make", "again", "use", "use-file", "score"]


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("texts").mkdir()
    Path("texts/a.txt").write_text("text")
    Path("recipe.yaml").write_text(RECIPE)


def read(*options: tuple[str, str], environment: dict[str, str] | None = None) -> Recipe:
    return read_recipe(Path("recipe.yaml"), options, environment or {})


def to_run(*options: tuple[str, str], selection: Selection = ALL) -> dict[str, str]:
    """Names of the stages that would run, with the reasons."""
    return {step.name: step.reason for step in make_plan(read(*options), selection) if step.run}


def run(*options: tuple[str, str], selection: Selection = ALL) -> dict:
    recipe = read(*options)
    return run_plan(recipe, make_plan(recipe, selection), "domainbert run recipe.yaml")


def test_a_run_runs_everything_once(fake_stages: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    results = run()
    assert fake_stages.CALLS == NAMES
    assert results == json.loads(Path("runs/test/results.json").read_text())
    assert results["stages"]["use"]["metrics"] == {"source": "plain b plain b", "area": 3.0}
    printed = capsys.readouterr().out
    row = r"score +theirs +entity F1 +40\.00 +\[40\.00, 60\.00\] +3 +\+10\.00 +\[\+5\.00, \+15\.00\]"
    assert re.search(row, printed)
    assert run() == results
    assert fake_stages.CALLS == NAMES  # nothing ran
    assert capsys.readouterr().out.count("skipped (done)") == 5


def test_warnings_of_all_stages_stand_at_the_end(
    fake_stages: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also when the stage that gave them was done before."""
    make = fake_stages.make

    @functools.wraps(make)
    def warn(out: Path, **given: Any) -> dict[str, Any]:
        return {**make(out, **given), "warnings": [f"{given['settings'].words[0]} is short", "all is vain"]}

    monkeypatch.setattr(fake_stages, "make", warn)
    Path("recipe.yaml").write_text(RECIPE.replace(', texts: {files: ["${folder}/a.txt"]}', ""))
    expected = [f"{name}: {text}" for name in ("make", "again") for text in ("x is short", "all is vain")]
    expected[0], expected[2] = "make: plain is short", "again: c is short"
    for _ in range(2):
        assert run()["warnings"] == expected
        assert capsys.readouterr().out.endswith("\n".join(["\nwarnings:", *(f"  {one}" for one in expected)]) + "\n")


def test_a_changed_value_runs_what_depends_on_it_and_nothing_else(fake_stages: ModuleType) -> None:
    run()
    assert to_run(("stages.make.size", "3")) == {
        "make": "size was 2, is now 3",
        "use": "@make changed",
        "score": "@use changed",
    }
    assert to_run(("stages.use.shape.radius", "9")) == {
        "use": "shape.radius was 1.0, is now 9.0",
        "score": "@use changed",
    }
    assert to_run(("stages.again.num_workers", "9"), ("stages.use.trainer", "{devices: 2}")) == {}
    assert to_run(("stages.use.trainer", "{}")) == {}
    assert to_run(("stages.use.trainer", "{devices: 2, deterministic: true}")) == {
        "use": "trainer.deterministic was not set, is now True",
        "score": "@use changed",
    }
    assert to_run(("vars.words", "other")) == {
        "make": "words: new other; dropped plain; kept b",
        "use": "@make changed",
        "score": "@use changed",
    }


def update(fake_stages: ModuleType, *changes: tuple[str, str]) -> None:
    """Load the stages again, with changes to their source."""
    assert fake_stages.__file__ is not None
    source = Path(fake_stages.__file__).read_text(encoding="utf-8")
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    exec(compile(source, fake_stages.__file__, "exec"), vars(fake_stages))


def test_an_update_with_new_settings_runs_nothing_again(
    fake_stages: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a stage, of a group, of a choice, and of what they are in; unless they are given, or a default has changed."""
    run()
    fields = (
        ("    size: int = 2\n", "    size: int = 2\n    upper: bool = False\n"),
        ("    lr: float = 1e-3\n", "    lr: float = 1e-3\n    eps: float = 1e-8\n"),
        ("    radius: float = 1.0\n", "    radius: float = 1.0\n    colours: tuple[str, ...] = ('red',)\n"),
    )
    update(fake_stages, *fields)
    before = importlib.metadata.version("domainbert")
    monkeypatch.setattr("domainbert.runner.job_state.version_of", lambda package: "9.9")
    assert to_run() == {}
    assert {step.reason for step in make_plan(read(), ALL)} == {f"done, by domainbert {before}"}
    assert to_run(("stages.use.optim.eps", "1e-6"))["use"] == "optim.eps was not set, is now 1e-06"
    assert to_run(("stages.make.upper", "true"))["use"] == "@make changed"
    update(fake_stages, *fields, ("size: int = 2", "size: int = 3"))
    changed = to_run()
    assert changed.pop("make") == changed.pop("again") == "size was 2, is now 3"
    assert changed == {"use": "@make changed", "score": "@use changed"}, "a default that has changed"


def test_what_is_made_again_counts_as_of_the_version_that_made_it(fake_stages: ModuleType) -> None:
    """A default of a setting that came with an update changes later: seen where the stage was made after the update."""
    run()
    field = "    size: int = 2\n"
    update(fake_stages, (field, f"{field}    upper: bool = False\n"))
    assert to_run() == {}
    run(selection=Selection(force=("make",)))
    assert to_run() == {}
    assert read().jobs["make"].freshness.facts["upper"] is False
    update(fake_stages, (field, f"{field}    upper: bool = True\n"))
    assert to_run() == {
        "make": "upper was False, is now True",
        "use": "@make changed",
        "score": "@use changed",
    }, "again, made before there was the setting, is done"
    run(selection=Selection(only=("again",), force=()))
    update(fake_stages, (field, f"{field}    upper: bool = False\n"))
    assert to_run() == {"again": "upper was True, is now False"}


def test_a_run_that_is_done_may_be_read_only(fake_stages: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    results = run()

    def refuse(path: Path, text: str) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr("domainbert.base.files.write_text", refuse)
    assert run() == results
    with pytest.raises(OSError, match="Read-only"):
        run(selection=Selection(force=("score",)))


def test_a_changed_input_file_is_seen_by_its_content(fake_stages: ModuleType) -> None:
    run()
    shutil.copytree("texts", "moved")
    assert to_run(("vars.folder", "moved")) == {}  # the same content elsewhere
    Path("texts/a.txt").write_text("other")
    assert to_run() == {
        "again": "texts.files: changed a.txt",
        "use-file": "source changed",
        "score": "@use-file changed",
    }


def test_an_input_file_that_changes_while_an_earlier_stage_runs_stops_the_next(
    fake_stages: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record of the next stage would have the hash of the earlier file."""
    Path("source.txt").write_text("one")
    Path("recipe.yaml").write_text(
        "out: runs\nstages:\n  make: {words: [a]}\n  use: {source: source.txt}\n", encoding="utf-8"
    )
    run_job = jobs.run_job

    def edit(job: Any, *arguments: Any, **options: Any) -> Any:
        if job.stage.name == "use":
            Path("source.txt").write_text("other")
        return run_job(job, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(jobs, "run_job", edit)
        assert main(["run", "recipe.yaml"]) == 2
    assert "stage use: source.txt changed after the command began" in capsys.readouterr().err
    assert main(["run", "recipe.yaml"]) == 0 and fake_stages.CALLS == ["make", "use"]


def test_a_file_beside_one_of_an_earlier_stage_counts(fake_stages: ModuleType) -> None:
    recipe = """\
out: runs/test
stages:
  make: {words: [a]}
  both: {stage: make, words: [c], texts: {files: ["@make/words.txt", texts/a.txt]}}
"""
    Path("recipe.yaml").write_text(recipe)
    run()
    assert to_run() == {}
    Path("texts/a.txt").write_text("other")
    assert to_run() == {"both": "texts.files: changed a.txt; kept @make/words.txt"}


def test_a_moved_run_is_still_done(fake_stages: ModuleType) -> None:
    run()
    Path("runs/test").rename("elsewhere")
    assert to_run(("out", "elsewhere")) == {}


def test_only_from_and_force(fake_stages: ModuleType) -> None:
    assert to_run(selection=Selection(only=("make", "again"))) == {"make": "never run", "again": "never run"}
    with refused(where="stage use", problem="needs stage make, which is not up to date (never run)"):
        to_run(selection=Selection(only=("use",)))
    run()
    assert to_run(selection=Selection(force=("use",))) == {"use": "forced", "score": "forced"}
    assert list(to_run(selection=Selection(force=()))) == NAMES
    assert list(to_run(selection=Selection(first="use-file", force=()))) == ["use-file", "score"]
    with refused(where="--only", problem="no stage 'mke' in the recipe", hint="did you mean 'make'..."):
        to_run(selection=Selection(only=("mke",)))


def test_a_stage_that_is_not_needed_may_lack_its_files(
    fake_stages: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("recipe.yaml").write_text(RECIPE.replace('use, source: "${folder}/a.txt', 'use, source: "${folder}/no.txt'))
    problem = "recipe.yaml:7: stages.use-file.source: 'texts/no.txt' does not exist; expected a file or folder"
    for words in ([], ["--only", "score"], ["--only", "use-file"], ["--from", "use"], ["--only", "mke"]):
        assert main(["run", "recipe.yaml", *words]) == 2
        assert capsys.readouterr().err == f"domainbert: {problem}\n"
    assert main(["run", "recipe.yaml", "--only", "make,use"]) == 0
    assert fake_stages.CALLS == ["make", "use"]
    assert capsys.readouterr().out.startswith(
        f"{problem}; the stage is left out, because it is not selected\nmake: running"
    )
    Path("texts/no.txt").write_text("text")
    Path("texts/a.txt").rename("a.txt")  # a file that a configuration names, not a setting
    assert main(["run", "recipe.yaml", "--only", "make"]) == 0
    assert "texts/a.txt: no such file" in (said := capsys.readouterr().out) and said.count("left out") == 1
    Path("a.txt").rename("texts/a.txt")
    assert list(to_run()) == ["again", "use-file", "score"]
    Path("recipe.yaml").write_text(RECIPE + "  last: {stage: make, wrds: [a]}\n")
    assert main(["run", "recipe.yaml", "--only", "make"]) == 2
    assert "stages.last.wrds: unknown key" in capsys.readouterr().err, "mistakes in the YAML itself are always reported"


def test_what_was_forced_and_did_not_come_to_its_turn_is_forced_still(
    fake_stages: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its dependents would be taken as done: their keys are the same."""
    run()
    with monkeypatch.context() as patch, refused(problem="no such thing"):
        patch.setattr(fake_stages, "use", functools.wraps(fake_stages.use)(_fails))
        run(selection=Selection(force=("make",)))
    assert to_run() == {"use": "never run", "score": "forced"}
    run(selection=Selection(only=("again",)))
    assert to_run() == {"use": "never run", "score": "forced"}, "it was not selected"
    run()
    assert to_run() == {}


def test_a_stage_that_was_left_out_meanwhile_is_forced_still(fake_stages: ModuleType) -> None:
    Path("texts/b.txt").write_text("text")
    Path("recipe.yaml").write_text(RECIPE + '  last: {stage: score, models: {ours: "@use", theirs: texts/b.txt}}\n')
    run()
    run(selection=Selection(only=("make",), force=("make",)))
    Path("texts/b.txt").rename("b.txt")
    assert main(["run", "recipe.yaml", "--only", "again"]) == 0
    Path("b.txt").rename("texts/b.txt")
    assert to_run() == {"use": "forced", "score": "forced", "last": "forced"}


def test_what_depends_on_a_forced_stage_and_was_not_asked_for_is_forced_next(
    fake_stages: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    run()
    capsys.readouterr()
    run(selection=Selection(only=("make",), force=("make",)))
    assert capsys.readouterr().out.startswith("forced, but not selected, and so left for a later command: use, score\n")
    assert to_run() == {"use": "forced", "score": "forced"}
    run(selection=Selection(only=("use",)))
    assert to_run() == {"score": "forced"}
    run(selection=Selection(first="use-file"))
    assert to_run() == {}
    run(selection=Selection(only=("use",), force=()))
    assert to_run() == {"score": "forced"}


def test_what_depends_on_a_forced_stage_does_not_resume_its_earlier_run(fake_stages: ModuleType) -> None:
    """It was interrupted, and would go on from a checkpoint of what was made from the earlier stage."""
    run()
    out = Path("runs/test/use")
    record = read_record(out)
    assert record is not None
    shutil.rmtree(out)
    (out / "checkpoints/step-00000001").mkdir(parents=True)
    (out / "running.lock").touch()
    (out / "config.yaml").write_text("# domainbert use\n")
    replace(record, state="stopped", outputs={}).write(out)
    assert to_run().keys() == {"use"} and "forced" not in to_run().values()
    run(selection=Selection(only=("make",), force=("make",)))
    run(selection=Selection(only=("again",)))
    assert to_run() == {"use": "forced", "score": "forced"}
    run()
    assert to_run() == {} and not (out / "checkpoints").exists()


def _fails(**_: Any) -> dict[str, Any]:
    raise DomainbertError("no such thing")


def test_a_stage_that_another_process_has_finished_meanwhile_stays(fake_stages: ModuleType) -> None:
    recipe = read()
    plan = make_plan(recipe, ALL)
    run()
    made = Path("runs/test/use/run.json").stat().st_mtime_ns
    run_plan(recipe, plan, "domainbert run recipe.yaml")
    assert fake_stages.CALLS == NAMES and Path("runs/test/use/run.json").stat().st_mtime_ns == made


def test_results_have_what_another_process_has_finished_meanwhile(fake_stages: ModuleType) -> None:
    recipe = read()
    plan = make_plan(recipe, Selection(only=("again",)))
    run(selection=Selection(only=("make", "use")))
    results = run_plan(recipe, plan, "domainbert run recipe.yaml")
    assert list(results["stages"]) == ["make", "again", "use"]
    assert results == json.loads(Path("runs/test/results.json").read_text())


def test_results_have_no_scores_of_a_damaged_stage(fake_stages: ModuleType) -> None:
    run()
    with Path("runs/test/use/arguments.txt").open("a") as file:
        file.write("x")
    assert "use" not in run(selection=Selection(only=("make",)))["stages"]


def test_what_another_process_was_to_force_meanwhile_is_forced_still(
    fake_stages: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    run()
    again = fake_stages.make

    def meanwhile(**arguments: Any) -> dict[str, Any]:
        with monkeypatch.context() as patch, refused(problem="no such thing"):
            patch.setattr(fake_stages, "use", functools.wraps(fake_stages.use)(_fails))
            run(selection=Selection(only=("use",), force=("use",)))
        return again(**arguments)

    monkeypatch.setattr(fake_stages, "make", functools.wraps(again)(meanwhile))
    run(selection=Selection(only=("again",), force=("again",)))
    assert set(json.loads(Path("runs/test/recipe.json").read_text())["forced"]) == {"use", "score"}


@contextmanager
def run_elsewhere(fake_stages: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Another process that runs the recipe's first stage, until there is a file `go`; later stages would be a race."""
    process = os.fork()
    if not process:
        monkeypatch.setattr(fake_stages, "make", functools.wraps(fake_stages.make)(_makes_when_told(fake_stages.make)))
        with suppress(BaseException):
            run(selection=Selection(only=("make",)))
        os._exit(0)
    while not Path("runs/test/make/run.json").exists():
        time.sleep(0.01)
    try:
        yield process
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


def act_when_waiting(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Call `act` when this process begins to wait for another one."""
    wait = jobs._wait_until

    def act_and_wait(condition: Callable[[], bool]) -> None:
        act()
        wait(condition)

    monkeypatch.setattr(jobs, "_wait_until", act_and_wait)


def _makes_when_told(make: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    def waiting(**arguments: Any) -> dict[str, Any]:
        while not Path("go").exists():
            time.sleep(0.01)
        return make(**arguments)

    return waiting


@pytest.mark.parametrize("ends", ["finished", "killed"])
def test_a_stage_that_another_process_runs_is_waited_for(
    fake_stages: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ends: str
) -> None:
    """Its finished output is used; an unfinished one is made here."""
    with run_elsewhere(fake_stages, monkeypatch) as process:
        end = Path("go").touch if ends == "finished" else functools.partial(os.kill, process, signal.SIGKILL)
        act_when_waiting(monkeypatch, end)
        assert set(run()["stages"]) == set(NAMES)
    assert ("make" in fake_stages.CALLS) is (ends == "killed")
    assert "runs/test/make: another process runs this stage; waiting for it" in capsys.readouterr().out
    assert Path("runs/test/make/words.txt").read_text() == "plain b plain b" and to_run() == {}


def test_a_stage_that_another_process_runs_is_called_so(
    fake_stages: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    with run_elsewhere(fake_stages, monkeypatch):
        for folder in ([], ["checkpoints/step-00000010"]):  # without and with progress
            for path in folder:
                Path("runs/test/make", path).mkdir(parents=True)
            assert to_run()["make"] == "another process is writing it"
            with refused(problem="...not up to date (another process is writing it)", hint="add make..."):
                to_run(selection=Selection(only=("use",)))


def test_another_stage_in_the_same_folder_is_not_waited_for(
    fake_stages: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("domainbert.runner.jobs._SETTLING_SECONDS", 0.5)
    with run_elsewhere(fake_stages, monkeypatch):
        for options, selection in (([("vars.words", "fancy")], ALL), ([], Selection(force=()))):
            with refused(context="stage make", file="runs/test/make", problem="another process is writing this folder"):
                run(*options, selection=selection)
    assert fake_stages.CALLS == []


def test_a_signal_ends_the_waiting(fake_stages: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    with run_elsewhere(fake_stages, monkeypatch):
        act_when_waiting(monkeypatch, functools.partial(os.kill, os.getpid(), signal.SIGTERM))
        with pytest.raises(TrainingStopped, match="SIGTERM while waiting for another process; to resume: domainbert"):
            run()
    assert fake_stages.CALLS == []


def test_what_a_user_has_put_into_a_folder_meanwhile_stays_whatever_is_forced(fake_stages: ModuleType) -> None:
    recipe = read()
    plan = make_plan(recipe, Selection(force=()))
    Path("runs/test/make").mkdir(parents=True)
    Path("runs/test/make/thesis.txt").write_text("né")
    with refused(problem="holds files that domainbert did not write"):
        run_plan(recipe, plan, "domainbert run recipe.yaml")
    assert Path("runs/test/make/thesis.txt").read_text() == "né"


def test_the_command_that_resumes_has_the_variables_of_the_environment(
    fake_stages: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOMAINBERT_WORDS", "né so")
    assert main(["run", "recipe.yaml", "--vars.folder", "texts"]) == 0
    command = json.loads(Path("runs/test/recipe.json").read_text())["command"]
    assert command == "domainbert run recipe.yaml '--vars.words=né so' --vars.folder=texts"


@pytest.mark.parametrize(
    ("words", "where", "problem", "expected"),
    [
        (["--force="], "--force", "found ''", "names of stages: NAME,NAME"),
        (["--only", ","], "--only", "found ','", "names of stages: NAME,NAME"),
        (["--only", "make", "--from", "use"], "--only", "found 'make'", "at least one stage from 'use' on (--from)"),
        (["--resume", "auto"], "--resume", "unknown key", "one of out, vars, check, stages; domainbert run..."),
        (["--only", "make", "--force", "use"], "--force", "the stage 'use' is not selected by --only or --from", "..."),
    ],
)
def test_names_of_stages_that_mean_nothing_are_refused(
    fake_stages: ModuleType, words: list[str], where: str, problem: str, expected: str
) -> None:
    command_refused("run", "recipe.yaml", *words, where=where, problem=problem, expected=expected)
    assert fake_stages.CALLS == []


def test_nothing_is_said_of_stages_that_were_not_asked_for(
    fake_stages: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    run()
    capsys.readouterr()
    results = run(selection=Selection(only=("use",)))
    printed = capsys.readouterr().out
    assert [line for line in printed.splitlines() if "skipped" in line or "selected" in line] == ["use: skipped (done)"]
    assert list(results["stages"]) == NAMES, "their results count"


def test_variables_from_file_environment_and_command_line(fake_stages: ModuleType) -> None:
    environment = {"DOMAINBERT_WORDS": "from-environment"}

    def word(recipe: Recipe) -> str:
        return recipe.jobs["make"].settings.arguments["words"][0]

    assert word(read()) == "plain"
    assert word(read(environment=environment)) == "from-environment"
    assert word(read(("vars.words", "typed"), environment=environment)) == "typed"
    assert word(read(("stages.make.words", "['${words}!']"))) == "plain!"
    assert word(read(("vars.words", "${folder} of ${made}"), ("vars.made", "${by} us"), ("vars.by", "by"))) == (
        "texts of by us"
    )
    assert word(read(("vars.words", "[v1] x: y #2"))) == "[v1] x: y #2"
    for text in ("2024_01", "01", "1.10", "true", "1e-3"):  # not 202401, 1, 1.1, True, 0.001
        Path("recipe.yaml").write_text(RECIPE.replace("words: plain", f"words: {text}"))
        assert word(read(("stages.make.words", "['v${words}']"))) == f"v{text}"
    Path("recipe.yaml").write_text(RECIPE)
    with refused(where="vars.words", problem="leads to ${words}, which refers to itself", expected="plain..."):
        read(("vars.words", "${folder}"), ("vars.folder", "${words}"))
    with refused(where="--vars.wrds", problem="${wrds} is not used", hint="did you mean 'words'..."):
        read(("vars.wrds", "typed"))
    for typed in ([("out", "~/runs")], [("out", "${folder}"), ("vars.folder", "~/runs")]):
        with refused(where="out", found="'~/runs'", expected="the whole path..."):
            read(*typed)


def test_a_key_and_what_is_below_it_may_be_typed_in_any_order(fake_stages: ModuleType) -> None:
    options = [("stages.use.optim", "{lr: 0.5}"), ("stages.use.optim.lr", "0.25")]
    found = {read(*order).jobs["use"].settings.arguments["optim"].lr for order in (options, options[::-1])}
    assert found == {0.25}


def test_all_problems_of_all_stages_come_at_once(fake_stages: ModuleType) -> None:
    Path("recipe.yaml").write_text("""\
out: runs/test
vars: {folder: null}
stages:
  make: {wrds: [a]}
  use: {source: "@mke/words.txt", steps: x}
  other: {stage: mak}
  missing: {stage: use, source: "${foldr}/nope.txt"}
""")
    with pytest.raises(DomainbertError) as caught:
        read()
    assert str(caught.value).splitlines() == [
        "recipe.yaml: 2 problems",
        "  recipe.yaml:2: vars.folder: found null; expected text here, or --vars.folder, or the environment "
        "variable DOMAINBERT_FOLDER",
        "  recipe.yaml:7: ${foldr} is not defined in vars; did you mean 'folder'?",
    ]
    Path("recipe.yaml").write_text(Path("recipe.yaml").read_text().replace("foldr", "folder"))
    with pytest.raises(DomainbertError) as caught:
        read(("vars.folder", "texts"), ("stages.use.optim.lr", "abc"))
    assert str(caught.value).splitlines() == [
        "recipe.yaml: 7 problems",
        "  recipe.yaml:4: stages.make.wrds: unknown key; did you mean 'words'?",
        "  recipe.yaml:4: stages.make.words: missing; expected a list, each item text",
        "  recipe.yaml:5: found '@mke/words.txt', but no earlier stage is named 'mke'; did you mean 'make'?",
        "  --stages.use.optim.lr: found 'abc'; expected a number",
        "  recipe.yaml:5: stages.use.steps: found 'x'; expected an integer",
        "  recipe.yaml:6: stages.other.stage: found 'mak'; did you mean 'make'?",
        "  recipe.yaml:7: stages.missing.source: 'texts/nope.txt' does not exist; expected a file or folder",
    ]
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("text", "line", "where", "problem", "expected"),
    [
        ("out: a\nstages: {}\n", 2, "stages", "found no stage", "a mapping..."),
        ("out: [a]\nstages: {make: {words: [a]}}\n", 1, "out", "found a list", "a folder..."),
        ("stages: {make: {words: [a]}}\n", "...", "out", "missing", "a folder..."),
        ("out: a\nstage: {make: {words: [a]}}\n", 2, "stage", "unknown key", "did you mean 'stages'..."),
        ("out: a\nstages: {make: [a]}\n", 2, "stages.make", "found a list", "..."),
        ("out: a\nstages: {../make: {stage: make}}\n", "...", "stages", "found name '../make'", "letters, digits..."),
        ("out: a\nstages: {one: {stage: {a: 1}}}\n", 2, "stages.one.stage", "found a mapping", "..."),
        ("out: a\nstages: {Make: {}}\n", "...", "stages.Make.stage", "...domainbert has no stage 'Make'", "did you..."),
        ("out: a\nstages: {one: {stage: Make}}\n", 2, "stages.one.stage", "found 'Make'", "did you mean..."),
        ("out: a\nstages: {make: {words: [a], out: b}}\n", "...", "stages.make.out", "unknown key", "a stage of a..."),
        ("out: a\nstages: {use: {source: '@use'}}\n", 2, "...", "found '@use', but no earlier...", "this stage is..."),
    ],
)
def test_broken_recipes(
    fake_stages: ModuleType, text: str, line: object, where: str, problem: str, expected: str
) -> None:
    Path("recipe.yaml").write_text(text)
    with refused(file="recipe.yaml", line=line, where=where, problem=problem, expected=expected):
        read()


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        (("stages.make", "1"), "^--stages.make: found 1; expected a mapping of settings"),
        (("stages.a/b.stage", "make"), "stages: found name 'a/b'; expected letters"),
        (("stages.mak.size", "3"), "--stages.mak.size: the recipe has no stage 'mak'; did you mean 'make'?"),
        (("stages.", "1"), "expected letters|found 1; expected a mapping"),
    ],
)
def test_broken_options(fake_stages: ModuleType, option: tuple[str, str], expected: str) -> None:
    with pytest.raises(DomainbertError, match=expected):
        read(option)


@pytest.mark.parametrize("name", ["2024", "try #2", "law: 2", "été\n1"])
def test_the_folder_of_an_option_is_what_was_typed(fake_stages: ModuleType, name: str) -> None:
    assert read(("out", name)).out == Path(name)


def test_a_failing_stage_leaves_nothing_and_is_named(fake_stages: ModuleType) -> None:
    with refused(where="stage make", problem="words: 'bad' is bad"):
        run(("vars.words", "bad"))
    assert not Path("runs/test/make").exists()


def test_an_unfinished_stage_runs_again(fake_stages: ModuleType) -> None:
    with pytest.raises(RuntimeError):
        run(("vars.words", "crash"))
    assert (Path("runs/test/make") / "running.lock").exists()
    assert to_run()["make"] == "not finished"
    run()
    assert sorted(path.name for path in Path("runs/test/make").iterdir()) == [
        "config.yaml",
        "run.json",
        "words.txt",
    ]


def test_foreign_folders_are_found_before_anything_runs(fake_stages: ModuleType) -> None:
    for name in ("use", "score"):
        Path("runs/test", name).mkdir(parents=True)
        Path("runs/test", name, "thesis.tex").write_text("mine")
    with pytest.raises(DomainbertError, match=r"(?s)2 problems.*use: holds files that.*score: holds files that"):
        run()
    assert fake_stages.CALLS == [] and Path("runs/test/use/thesis.tex").read_text() == "mine"


@pytest.mark.parametrize("broken", ["", '{"stages": '])
def test_a_broken_note_of_the_run_may_be_deleted(
    fake_stages: ModuleType, capsys: pytest.CaptureFixture[str], broken: str
) -> None:
    run()
    Path("runs/test/recipe.json").write_text(broken)
    assert main(["run", "recipe.yaml"]) == 2
    assert "expected the stages of a recipe; delete the file, and use --force for stages" in capsys.readouterr().err
    Path("runs/test/recipe.json").unlink()
    assert to_run() == {}


def test_variables_that_multiply_are_refused_before_they_fill_the_memory(fake_stages: ModuleType) -> None:
    names = "abcdefghijkl"
    lines = [f"  {name}: '{f'${{{following}}}' * 10}'\n" for name, following in itertools.pairwise(names)]
    stage = "stages:\n  make: {words: ['${a}']}\n"
    Path("recipe.yaml").write_text(f"out: runs/test\nvars:\n{''.join(lines)}  {names[-1]}: café\n{stage}")
    problem, expected = "... make the texts ... characters long...", "at most 1,000,000..."
    with refused(file="recipe.yaml", where="vars", problem=problem, expected=expected) as caught:
        read()
    assert len(str(caught.value)) < 200
    words = ", ".join(["'${a}'"] * 300)
    Path("recipe.yaml").write_text(
        f"out: runs/test\nvars: {{a: {'é' * 9000}}}\nstages:\n  make: {{words: [{words}]}}\n"
    )
    with refused(file="recipe.yaml", line=4, where="stages", expected="at most 1,000,000"):
        read()


def test_each_stage_of_a_long_recipe_is_hashed_once(fake_stages: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []
    monkeypatch.setattr(freshness, "hash_json", lambda facts: hashed.append(facts["stage"]) or hash_json(facts))
    stages = [f"  make-{number}: {{stage: make, words: [a]}}\n" for number in range(100)]
    Path("recipe.yaml").write_text(
        f"out: runs/test\nstages:\n{''.join(stages)}  use: {{source: '@make-99/words.txt'}}\n"
    )
    assert list(to_run())[-2:] == ["make-99", "use"]
    assert len(hashed) <= 101


def test_a_reference_names_a_seed_that_its_stage_writes(
    fake_stages: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(stage_table.STAGES, "learn", "fake_stages:learn")
    text = "out: runs\nstages:\n  learn: {x: 0.1, seeds: [1, 3]}\n  use: {source: '@learn/seed-2/logs'}\n"
    Path("recipe.yaml").write_text(text)
    with refused(
        file="recipe.yaml", line=4, found="'@learn/seed-2/logs'", expected="a seed of the stage 'learn': 1, 3"
    ):
        read()
    assert list(to_run(("stages.learn.seeds", "[2]"))) == ["learn", "use"]


@pytest.mark.parametrize("path", ["@make/../secret.txt", "@make/..", "@make/a/../../b"])
def test_a_reference_stays_in_the_folder_of_its_stage(fake_stages: ModuleType, path: str) -> None:
    """Files outside would not be compared by content."""
    Path("recipe.yaml").write_text(RECIPE.replace("@make/words.txt", path))
    with refused(file="recipe.yaml", line=6, found="'@make/...", expected="a path in @make, without..."):
        read()
