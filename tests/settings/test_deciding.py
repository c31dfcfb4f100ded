"""The key of a part of a stage: other results, other keys; the same result, the same key."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from domainbert.base.marks import PARTS, SPEED_ONLY
from domainbert.corpus.config import CorpusConfig, Source
from domainbert.settings.deciding import part_key
from domainbert.training.optim_config import OptimConfig


@dataclass(frozen=True, kw_only=True)
class Learn:
    """Settings of a stage that makes its output seed by seed."""

    model: Path
    train: Path
    unlabelled: CorpusConfig
    optim: OptimConfig = OptimConfig(lr=1e-3)
    seeds: tuple[int, ...] = field(default=(1, 2), metadata=PARTS)
    num_workers: int = field(default=0, metadata=SPEED_ONLY)
    trainer: dict[str, Any] | None = None


@pytest.fixture
def settings(tmp_path: Path) -> Learn:
    for name in ("train.jsonl", "model/weights", "texts/a.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    unlabelled = CorpusConfig([Source(str(tmp_path / "texts/*.txt"))])
    files = {"model": tmp_path / "model", "train": tmp_path / "train.jsonl"}
    return Learn(**files, unlabelled=unlabelled, trainer={"devices": 1})


def key(settings: Learn, **changes: Any) -> str:
    return part_key(replace(settings, **changes))


def test_what_changes_no_result_does_not_count(settings: Learn, tmp_path: Path) -> None:
    before = key(settings)
    assert key(settings, seeds=(3,), num_workers=2, trainer={"devices": 2}) == before
    assert {key(settings, trainer=none) for none in (None, {})} == {before}
    assert key(settings, trainer={"devices": 1, "deterministic": True}) != before
    (tmp_path / "model").rename(tmp_path / "moved")
    (tmp_path / "deep").mkdir()
    (tmp_path / "moved").rename(tmp_path / "deep/model")
    (tmp_path / "deep/model/status.json").write_text("{}")
    assert key(settings, model=tmp_path / "deep/model") == before


def test_a_setting_that_has_its_default_does_not_count(settings: Learn) -> None:
    """A later version has more of them, and goes on with the parts that are done."""

    @dataclass(frozen=True, kw_only=True)
    class Later(Learn):
        patience: int | None = None

    assert part_key(Later(**vars(settings))) == part_key(settings)
    assert part_key(Later(**vars(settings), patience=3)) != part_key(settings)


def test_settings_and_contents_of_inputs_count(settings: Learn, tmp_path: Path) -> None:
    keys = [key(settings), key(settings, optim=OptimConfig(lr=1e-2)), key(settings, trainer={"benchmark": True})]
    for name in ("train.jsonl", "model/weights", "texts/a.txt"):
        (tmp_path / name).write_text("other")
        keys.append(key(settings))
    assert len(set(keys)) == len(keys)
