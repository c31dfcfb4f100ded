"""The facts of a stage: other results, other facts; the same result, the same facts."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from domainbert.base.errors import Problems
from domainbert.base.fields import SPEED_ONLY
from domainbert.base.files import FileHashes
from domainbert.base.freshness import Freshness
from domainbert.corpus.config import CorpusConfig
from domainbert.settings.facts import hashes_of_inputs, stage_facts
from domainbert.settings.reader import read_settings
from domainbert.settings.yaml_files import to_node
from domainbert.training.config import OptimConfig


@dataclass(frozen=True, kw_only=True)
class Learn:
    """Settings of a stage."""

    model: Path
    train: Path
    unlabelled: CorpusConfig
    optim: OptimConfig = OptimConfig(lr=1e-3)
    seeds: tuple[int, ...] = (1, 2)
    num_workers: int = field(default=0, metadata=SPEED_ONLY)
    trainer: dict[str, Any] | None = None


@pytest.fixture
def given(tmp_path: Path) -> dict[str, Any]:
    for name in ("train.jsonl", "model/weights", "texts/a.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    files = {"model": str(tmp_path / "model"), "train": str(tmp_path / "train.jsonl")}
    return {**files, "unlabelled": {"sources": str(tmp_path / "texts/*.txt")}, "trainer": {"devices": 1}}


def facts(given: dict[str, Any], kind: type = Learn, **changes: Any) -> Freshness:
    problems = Problems("learn")
    settings = read_settings(kind, to_node({**given, **changes}, "learn"), problems)
    problems.raise_if_any()
    return stage_facts("learn", kind, settings, hashes_of_inputs(settings, FileHashes()))


def test_what_changes_no_result_does_not_count(given: dict[str, Any], tmp_path: Path) -> None:
    before = facts(given)
    assert facts(given, num_workers=2, trainer={"devices": 2}).key == before.key
    assert {facts(given, trainer=none).key for none in (None, {})} == {before.key}
    (tmp_path / "deep").mkdir()
    (tmp_path / "model").rename(tmp_path / "deep/model")
    (tmp_path / "deep/model/run.json").write_text("{}")
    given |= {"model": str(tmp_path / "deep/model")}
    assert facts(given).key == before.key
    assert facts(given, seeds=[3]).without("seeds").key == before.without("seeds").key


def test_a_setting_that_came_later_does_not_count_while_it_has_its_default(given: dict[str, Any]) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Later(Learn):
        patience: int | None = None
        rate: int | None = 3

    before = facts(given).facts
    assert facts(given, Later).changes(before) == {}
    assert facts(given, Later, patience=3).changes(before) == {"patience": "patience was not set, is now 3"}
    assert facts(given, Later, rate=None).changes(before) == {"rate": "rate changed"}


def test_settings_and_contents_of_inputs_count(given: dict[str, Any], tmp_path: Path) -> None:
    before = facts(given)
    for changes, words in (
        ({"optim": {"lr": 1e-2}}, ["optim.lr was 0.001, is now 0.01"]),
        ({"trainer": {"benchmark": True}}, ["trainer.benchmark was not set, is now True"]),
        ({"seeds": [2, 3]}, ["seeds: new 3; dropped 1; kept 2"]),
    ):
        assert [*facts(given, **changes).changes(before.facts).values()] == words
    for name, words in (
        ("train.jsonl", "train changed"),
        ("model/weights", "model changed"),
        ("texts/a.txt", "input files: changed a.txt"),
    ):
        (tmp_path / name).write_text("other")
        after = facts(given)
        assert [*after.changes(before.facts).values()] == [words] and after.only_input_contents_changed(before.facts)
        before = after
    (tmp_path / "texts/b.txt").write_text("b")
    assert [*facts(given).changes(before.facts).values()] == ["input files: new b.txt; kept a.txt"]
    assert not facts(given, seeds=[1]).only_input_contents_changed(before.facts)
