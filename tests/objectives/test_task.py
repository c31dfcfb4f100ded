from __future__ import annotations

import importlib
import sys

import pytest

from domainbert.errors import DomainbertError
from domainbert.objectives.ner import Files
from domainbert.objectives.task import task_files
from domainbert.objectives.task_config import Ner

CONFIG = """\
from dataclasses import dataclass
from domainbert.objectives.task_config import Ner

@dataclass(frozen=True)
class Keyphrases(Ner):
    name = "keyphrases"

@dataclass(frozen=True)
class Lone(Ner):
    name = "lone"
"""


def test_a_task_of_ones_own_is_the_module_beside_its_configuration(tmp_path, monkeypatch):
    (tmp_path / "owntasks").mkdir()
    (tmp_path / "owntasks" / "__init__.py").write_text("")
    (tmp_path / "owntasks" / "config.py").write_text(CONFIG)
    (tmp_path / "owntasks" / "keyphrases.py").write_text("from domainbert.objectives.ner import Files\n")
    monkeypatch.syspath_prepend(tmp_path)
    config = importlib.import_module("owntasks.config")
    assert type(task_files(config.Keyphrases())) is Files and "owntasks.keyphrases" in sys.modules
    with pytest.raises(DomainbertError, match=r"Lone: no module owntasks\.lone; expected one with a class Files"):
        task_files(config.Lone())
    assert type(task_files(Ner())) is Files
