"""`--force` restarts an interrupted stage from its first step."""

from __future__ import annotations

import json
from typing import Any

import pytest

from domainbert.cli import main
from domainbert.settings.yaml_files import dump_yaml
from tests.resuming import Work, pretraining


def settings(runs: Any) -> dict[str, Any]:
    return pretraining(runs / "prepare", batch_size=8, budget={"max_steps": 6}, validate_every=2)


def test_a_stage_of_a_recipe(runs: Any, work: Work, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = work / "recipe.yaml"
    recipe.write_text(dump_yaml({"out": str(work / "runs"), "stages": {"pretrain": settings(runs)}}))
    with work.watched(stop=(0, 3)):
        assert main(["run", str(recipe)]) == 75
        capsys.readouterr()
        assert main(["run", str(recipe), "--dry-run"]) == 0
        assert capsys.readouterr().out.startswith("run   pretrain (interrupted) -> ")
        work.trained.clear()
    with work.watched():
        assert main(["run", str(recipe), "--force", "pretrain"]) == 0
    assert work.trained == [(0, step) for step in range(6)]
    assert not json.loads((work / "runs/pretrain/run.json").read_text())["resumed"]
