"""The command `domainbert demo`, which tests/test_wheel.py runs from an installed wheel."""

from __future__ import annotations

from pathlib import Path

import pytest

from domainbert.cli import main
from domainbert.runner import run_command
from domainbert.runner.demo_command import RECIPE


def test_the_demo_is_a_run_of_the_recipe_in_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--dry-run", "--only", "sample,vocab"]) == 0
    plan = capsys.readouterr().out
    assert main(["run", str(RECIPE), "--dry-run", "--only", "sample,vocab"]) == 0
    assert capsys.readouterr().out == plan
    assert plan.splitlines()[0] == "run   sample (never run) -> runs/quickstart/sample"


def test_the_command_that_resumes_a_demo_names_no_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[str] = []
    monkeypatch.setattr(run_command, "run_plan", lambda recipe, plan, command: commands.append(command))
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--out", "runs/a b", "--force", "sample", "--stages.vocab.vocab_size", "1024"]) == 0
    assert commands == ["domainbert demo '--out=runs/a b' --stages.vocab.vocab_size=1024"]


@pytest.mark.parametrize("words", [["mine.yaml"], ["-c", "mine.yaml"]])
def test_the_demo_takes_no_recipe(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", *words]) == 2
    assert capsys.readouterr().err == (
        "domainbert: demo: expected options only; domainbert run RECIPE runs a recipe of your own\n"
    )
