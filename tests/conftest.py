"""Fixtures for all tests: real data where there is any, and no network."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"  # before any library reads it: no test downloads


def _data_folder(name: str) -> Path:
    root = os.environ.get("DOMAINBERT_DATA")
    if not root:
        pytest.skip("DOMAINBERT_DATA is not set; it names the folder with the real data")
    folder = Path(root) / name
    if not folder.is_dir():
        pytest.skip(f"{folder} does not exist")
    return folder


@pytest.fixture(scope="session")
def econ_data() -> Path:
    """The economics data: `corpus.jsonl.gz`, `ner/`, `stance/`."""
    return _data_folder("econ")


@pytest.fixture(scope="session")
def bio_data() -> Path:
    """The biomedical data: `corpus.jsonl.gz`, `ner/`, `citation/`, `chemprot/`."""
    return _data_folder("bio")


@pytest.fixture
def fake_stages(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The stage table holds `make`, `use` and `score` of `fake_stages.py` only."""
    from domainbert.stage_table import STAGES

    spec = importlib.util.spec_from_file_location("fake_stages", Path(__file__).with_name("fake_stages.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "fake_stages", module)
    spec.loader.exec_module(module)
    for name in list(STAGES):
        monkeypatch.delitem(STAGES, name)
    for name in ("make", "use", "score"):
        monkeypatch.setitem(STAGES, name, f"fake_stages:{name}")
    return module
