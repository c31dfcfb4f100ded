"""A task, encoder family, objective or kind of vocabulary can be deleted with its folder: all other modules are
imported, the choices are listed, and the first tests of another folder pass. A copy of the project is tested, in forks
of one process, which imports the libraries once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.slow
PROJECT = Path(__file__).parents[1]


class Group(NamedTuple):
    """The folders of one base class: their place, their number, the base class, and the test file of a folder."""

    place: str
    count: int
    base: str
    tests: str


GROUPS = [
    Group("tasks", 8, "domainbert.tasks.config:TaskConfig", "tests/tasks/test_{}.py"),
    Group("encoders", 9, "domainbert.encoders.config:EncoderConfig", "tests/encoders/test_{}.py"),
    Group(
        "tokenization/kinds",
        3,
        "domainbert.tokenization.config:TokenizerKindConfig",
        "tests/tokenization/test_{}.py",
    ),
    Group("pretraining/objectives", 4, "domainbert.pretraining.config:ObjectiveConfig", "tests/pretraining/test_{}.py"),
]
TESTS = {
    "bert": "tests/encoders/test_parity.py::test_all_hidden_states_with_padding[bert-gelu]",
    "distilbert": "tests/encoders/test_parity.py::test_all_hidden_states_with_padding[distilbert-gelu]",
    "xlm_roberta": "tests/encoders/test_parity.py::test_all_hidden_states_with_padding[xlm-roberta-gelu]",
    "wordpiece": "tests/tokenization/test_train.py",
}
"""Tests of the folders that have no test file of their name."""

BUILT_ON = {"roberta": ["xlm_roberta"]}
"""XLM-RoBERTa is RoBERTa with another vocabulary, so it goes with it."""

KEPT = {"masked_lm", "wordpiece"}
"""Defaults: the other objectives and `Distillation` compute the loss of masked LM, and WordPiece is the default of a
setting of the stage `vocab`."""

RUNNER = """
import importlib, io, json, os, pkgutil, sys, traceback
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import datasets, lightning, optuna, pytest, torch, torchmetrics, transformers


class First:
    def pytest_collection_modifyitems(self, items):
        del items[5:]


def import_all():
    import domainbert

    names = [module.name for module in pkgutil.walk_packages(domainbert.__path__, "domainbert.")]
    for name in names:
        if not name.endswith("__main__"):
            importlib.import_module(name)
    assert len(names) > 300


def check(case):
    import_all()
    from domainbert.base.choices import choices_of
    from domainbert.cli import main

    module, _, name = case["base"].partition(":")
    found = {choice.__module__.split(".")[-2] for choice in choices_of(getattr(sys.modules[module], name)).values()}
    assert found == set(case["left"]), found
    with redirect_stdout(io.StringIO()) as said:
        assert main(["--help"]) in (0, None) and "finetune" in said.getvalue()
    assert pytest.main(["-q", "-x", "-m", "not slow", "-p", "no:cacheprovider", case["tests"]], plugins=[First()]) == 0


def run(case):
    for folder in case["deleted"]:
        Path(folder).rename(Path("deleted") / Path(folder).name)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            output = open(case["log"], "w")
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            check(case)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    for folder in case["deleted"]:
        (Path("deleted") / Path(folder).name).rename(folder)
    return os.waitstatus_to_exitcode(status)


Path("deleted").mkdir()
print(json.dumps({case["name"]: run(case) for case in json.loads(Path("cases.json").read_text())}))
"""


def folders_of(group: Group) -> list[str]:
    """Names of the folders, sorted."""
    return sorted(file.parent.name for file in (PROJECT / "domainbert" / group.place).glob("*/config.py"))


def selection_of_another(group: Group, deleted: list[str]) -> str:
    """Tests of the next folder whose tests do not use the deleted ones."""
    names = folders_of(group)
    start = names.index(deleted[0]) + 1
    package = f"domainbert.{group.place.replace('/', '.')}"
    for name in [*names[start:], *names[:start]]:
        selected = TESTS.get(name, group.tests.format(name))
        text = (PROJECT / selected.partition("::")[0]).read_text(encoding="utf-8")
        if name not in deleted and not any(f"{package}.{folder}." in text for folder in deleted):
            return selected
    raise AssertionError(f"each test of {group.place} uses {deleted}")


def case_of(group: Group, folder: str) -> dict[str, object]:
    """What the runner needs to know."""
    deleted = [folder, *BUILT_ON.get(folder, [])]
    return {
        "name": f"{group.place}/{folder}",
        "deleted": [f"domainbert/{group.place}/{name}" for name in deleted],
        "left": [name for name in folders_of(group) if name not in deleted],
        "base": group.base,
        "tests": selection_of_another(group, deleted),
        "log": f"{folder}.log",
    }


def test_the_others_work_without_a_folder(tmp_path: Path) -> None:
    assert [len(folders_of(group)) for group in GROUPS] == [group.count for group in GROUPS]
    cases = [case_of(group, folder) for group in GROUPS for folder in folders_of(group) if folder not in KEPT]
    for name in ("domainbert", "tests"):
        shutil.copytree(PROJECT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PROJECT / "pyproject.toml", tmp_path)
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", RUNNER]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-6000:]
    codes = json.loads(done.stdout.splitlines()[-1])
    assert len(codes) == 22
    failed = {case["name"]: (tmp_path / str(case["log"])).read_text()[-3000:] for case in cases if codes[case["name"]]}
    assert failed == {}, "\n\n".join(f"{name}:\n{output}" for name, output in failed.items())
