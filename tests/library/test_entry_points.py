"""Installed packages register tasks, families, objectives and tokenizers by Python entry points."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

USER_PACKAGE = Path(__file__).parents[1] / "user_package" / "mine"
ENTRY_POINTS = """
[domainbert.tasks]
grade = mine.grade.config:Grade

[domainbert.families]
pre_norm = mine.pre_norm.config:PreNormConfig

[domainbert.objectives]
replaced_tokens = mine.replaced_tokens:ReplacedTokens

[domainbert.tokenizers]
whole_words = mine.whole_words.config:WholeWords
"""


def install(folder: Path, entry_points: str) -> None:
    """Install a package as pip does: its folder, and its metadata folder."""
    shutil.copytree(USER_PACKAGE, folder / "mine")
    metadata = folder / "mine-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text(entry_points, encoding="utf-8")


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(folder), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": paths}
    return subprocess.run([sys.executable, "-c", code], env=environment, cwd=folder, capture_output=True, text=True)


def test_registered_classes_are_choices_by_their_names(tmp_path: Path) -> None:
    install(tmp_path, ENTRY_POINTS)
    config = (tmp_path / "mine/random_tokens/config.py").read_text(encoding="utf-8")
    (tmp_path / "mine/replaced_tokens.py").write_text(
        config.replace("RandomTokens", "ReplacedTokens"), encoding="utf-8"
    )
    code = """
from domainbert.base.choices import choices_of, find_choice, is_user_class
from domainbert.encoders.families import family_names
from domainbert.pretraining.config import ObjectiveConfig
from domainbert.tasks.config import TaskConfig
from domainbert.tasks.lookup import task_kind
from domainbert.tokenization.config import TokenizerKindConfig
from domainbert.tokenization.kind import registered_kinds

assert find_choice(TaskConfig, "grade").__module__ == "mine.grade.config"
assert task_kind(None, {"domainbert_task": "grade"}).__name__ == "Grade"
assert "pre_norm" in [name.replace("-", "_") for name in family_names()]
assert find_choice(TokenizerKindConfig, "WholeWords")().build().name in [kind.name for kind in registered_kinds()]
# a class with the name of one of ours is found only by its class path
assert find_choice(ObjectiveConfig, "ReplacedTokens").__module__.startswith("domainbert.")
assert find_choice(ObjectiveConfig, "mine.replaced_tokens.ReplacedTokens").__module__.startswith("mine.")
assert not is_user_class("mine.replaced_tokens.ReplacedTokens")
"""
    result = run(code, tmp_path)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("mine.nothing:Grade", " cannot be loaded: ModuleNotFoundError: No module named 'mine.nothing'"),
        ("mine.grade.config:GradedText", " is not valid: mine.grade.config.GradedText: not a subclass of"),
    ],
)
def test_a_broken_entry_point_is_one_sentence_that_names_its_package(tmp_path: Path, value: str, message: str) -> None:
    install(tmp_path, f"[domainbert.tasks]\ngrade = {value}\n")
    result = run(
        "from domainbert.tasks.lookup import task_kind; task_kind('tokens', {})",
        tmp_path,
    )
    assert (
        f"DomainbertError: domainbert.tasks: the entry point 'grade = {value}' of the package mine{message}"
        in result.stderr
    )


def test_a_package_without_entry_points_needs_allow_import(tmp_path: Path) -> None:
    install(tmp_path, "")
    code = """
from domainbert.base.choices import allow_imports, find_choice
from domainbert.tasks.config import TaskConfig
assert find_choice(TaskConfig, "grade") is None and find_choice(TaskConfig, "mine.grade.config.Grade") is None
allow_imports("mine")
assert find_choice(TaskConfig, "mine.grade.config.Grade").__name__ == "Grade"
"""
    result = run(code, tmp_path)
    assert result.returncode == 0, result.stderr
