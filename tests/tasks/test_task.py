from __future__ import annotations

import importlib
import sys

import pytest

from domainbert.base.errors import DomainbertError
from domainbert.tasks.ner.config import Ner
from domainbert.tasks.ner.task import Files
from domainbert.tasks.task import task_files

CONFIG = """\
from dataclasses import dataclass
from domainbert.tasks.ner.config import Ner

@dataclass(frozen=True)
class Keyphrases(Ner):
    name = "keyphrases"
"""


def test_a_task_of_ones_own_is_the_module_beside_its_configuration(tmp_path, monkeypatch):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "__init__.py").write_text("")
    for folder in ("keyphrases", "lone"):
        (tmp_path / "own" / folder).mkdir()
        (tmp_path / "own" / folder / "__init__.py").write_text("")
        (tmp_path / "own" / folder / "config.py").write_text(CONFIG)
    (tmp_path / "own" / "keyphrases" / "task.py").write_text("from domainbert.tasks.ner.task import Files\n")
    monkeypatch.syspath_prepend(tmp_path)
    config, lone = (importlib.import_module(f"own.{folder}.config") for folder in ("keyphrases", "lone"))
    assert type(task_files(config.Keyphrases())) is Files and "own.keyphrases.task" in sys.modules
    with pytest.raises(
        DomainbertError, match=r"Keyphrases: no module own\.lone\.task; expected one with a class Files"
    ):
        task_files(lone.Keyphrases())
    assert type(task_files(Ner())) is Files
