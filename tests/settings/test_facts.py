"""The facts of a stage: other results, other facts; the same result, the same facts."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from domainbert.base.errors import Problems
from domainbert.base.fields import SPEED_ONLY, CheckedFields
from domainbert.base.files import FileHashes
from domainbert.base.freshness import Freshness
from domainbert.corpus.config import CorpusConfig
from domainbert.settings.facts import check_out, hashes_of_inputs, stage_facts
from domainbert.settings.reader import read_settings
from domainbert.settings.yaml_files import to_node
from domainbert.training.config import OptimConfig
from tests.refusals import refused


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


@dataclass(frozen=True, kw_only=True)
class Group(CheckedFields):
    size: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Grouped(Learn):
    group: Group | None = None


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
    after = facts(given)
    (tmp_path / "texts/train.jsonl.txt").write_text("c")
    before, given = after, given | {"train": str(tmp_path / "texts/b.txt")}  # also a file of the pattern
    (tmp_path / "texts/c.txt").write_text("b")
    (tmp_path / "texts/c.txt").rename(tmp_path / "deep.txt")
    assert facts(given).changes(before.facts).keys() == {"train", "input files", "unlabelled.sources[0].num_files"}


def test_a_file_counts_in_its_source(given: dict[str, Any], tmp_path: Path) -> None:
    """In the order of all files nothing has changed."""
    for name in ("one/a.txt", "one/b.txt", "two/c.txt", "two/d.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    given["unlabelled"] = {"sources": [{"path": str(tmp_path / "one")}, {"path": str(tmp_path / "two"), "weight": 2}]}
    before = facts(given)
    (tmp_path / "two/c.txt").rename(tmp_path / "one/c.txt")
    changes = facts(given).changes(before.facts)
    assert changes.keys() == {"unlabelled.sources[0].num_files", "unlabelled.sources[1].num_files"}


def test_a_file_of_a_folder_counts_next_to_an_equal_file_of_a_setting(given: dict[str, Any], tmp_path: Path) -> None:
    given["unlabelled"] = {"sources": str(tmp_path / "texts")}
    before = facts(given)
    (tmp_path / "texts/train.jsonl").write_text("train.jsonl")
    assert facts(given).changes(before.facts)["input files"] == "input files: new train.jsonl; kept a.txt"


def test_a_group_of_defaults_is_not_null(given: dict[str, Any]) -> None:
    """But a setting that came later in the group does not count."""

    null, group = (facts(given, Grouped, group=value) for value in (None, {"size": 1.0}))
    assert group.changes(null.facts) and null.changes(group.facts)
    earlier = {name: fact for name, fact in group.facts.items() if name != "group.size"} | {"group.other": 1}
    assert Freshness(group.facts, group.optional, removed={"group.other": 1}).changes(earlier) == {}


@pytest.mark.parametrize(
    ("source", "out", "is_read"),
    [
        ("texts", "texts/run", True),
        ("texts", "texts/.run", False),
        ("texts", "run", False),
        ("texts/*.txt", "texts/run", False),
        ("texts/*", "texts/run/deep", True),
        ("*/*.txt", "run", True),
        ("**/*.txt", "deep/er/run", True),
        ("texts/a.txt", "texts/run", False),
    ],
)
def test_the_output_of_a_stage_is_not_its_input(
    given: dict[str, Any], tmp_path: Path, source: str, out: str, is_read: bool
) -> None:
    problems = Problems("learn")
    node = to_node(given | {"unlabelled": {"sources": str(tmp_path / source)}}, "learn")
    settings = read_settings(Learn, node, problems)
    problems.raise_if_any()
    check_out(settings, tmp_path.parent / "elsewhere")
    with refused(where="out", found="...", expected="a folder outside it"):
        check_out(settings, tmp_path / "model/run")
    with refused(where="out", found="...", expected="...") if is_read else nullcontext():
        check_out(settings, tmp_path / out)
