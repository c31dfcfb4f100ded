"""The library works where the experiment (settings, stages, recipes, tuning, checks, reports) cannot be imported."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.forked import run_script

BLOCKED = ("settings", "stages", "runner", "tuning", "checks", "report")

BLOCK = f"""
import importlib.abc, sys

class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if any((name + ".").startswith("domainbert." + part + ".") for part in {BLOCKED!r}):
            raise ImportError(name + " is blocked")

sys.meta_path.insert(0, Blocked())
"""

CHECKS = """
import domainbert

assert domainbert.open_prepared(["prepared"]).train.num_tokens == summary.splits["train"]["tokens"] > 1000
assert states.shape == (200, 16)
assert f1.compute()["f1"] == f1.compute()["f1/law"] == 0.5
low, high = bootstrap_interval(count_entities(gold, predicted, ["law"]))
assert 0.5 < low < 2 / 3 < high < 0.8
assert len(domainbert.load_predictor("model").predict(texts[:3])) == 3
for name in dir(domainbert):
    getattr(domainbert, name)
"""


def snippet() -> str:
    """The components as docs/python.md shows them."""
    page = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
    (found,) = re.findall(r"^```python\n(# components\n.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return str(found)


def test_components_run_without_the_experiment(folder: Path) -> None:
    said = run_script(BLOCK + snippet() + CHECKS, folder, reimport=True)
    assert "train: 1" in said and "0.5" in said


def test_the_experiment_is_what_is_blocked(tmp_path: Path) -> None:
    for name in BLOCKED:
        with pytest.raises(AssertionError, match=f"ImportError: domainbert.{name} is blocked"):
            run_script(f"{BLOCK}\nimport domainbert.{name}", tmp_path, reimport=True)
