"""The key of a part of a stage: other results, other keys; the same result, the same key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from domainbert.corpus.config import CorpusConfig
from domainbert.corpus.source import Source
from domainbert.settings.deciding import part_key
from domainbert.training.optim_config import OptimConfig


@pytest.fixture
def arguments(tmp_path: Path) -> dict[str, Any]:
    for name in ("train.jsonl", "model/weights", "texts/a.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    return {
        "out": tmp_path / "out",
        "model": tmp_path / "model",
        "train": tmp_path / "train.jsonl",
        "unlabelled": CorpusConfig([Source(str(tmp_path / "texts/*.txt"))]),
        "optim": OptimConfig(lr=1e-3),
        "seeds": (1, 2),
        "num_workers": 0,
        "trainer": {"devices": 1},
    }


def key(arguments: dict[str, Any], **changes: Any) -> str:
    return part_key({**arguments, **changes}, "seeds", {"num_workers"})


def test_what_changes_no_result_does_not_count(arguments: dict[str, Any], tmp_path: Path) -> None:
    before = key(arguments)
    assert key(arguments, out=tmp_path / "x", seeds=(3,), num_workers=2, trainer={"devices": 2}) == before
    (tmp_path / "model").rename(tmp_path / "moved")
    (tmp_path / "deep").mkdir()
    (tmp_path / "moved").rename(tmp_path / "deep/model")
    (tmp_path / "deep/model/status.json").write_text("{}")
    assert key(arguments, model=tmp_path / "deep/model") == before


def test_settings_and_contents_of_inputs_count(arguments: dict[str, Any], tmp_path: Path) -> None:
    keys = [key(arguments), key(arguments, optim=OptimConfig(lr=1e-2)), key(arguments, trainer={"benchmark": True})]
    for name in ("train.jsonl", "model/weights", "texts/a.txt"):
        (tmp_path / name).write_text("other")
        keys.append(key(arguments))
    assert len(set(keys)) == len(keys)
