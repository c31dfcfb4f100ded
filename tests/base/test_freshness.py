"""`Freshness`: facts are compared by name, and differences described in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from domainbert.base.freshness import Freshness, flatten

DIGESTS = [f"{digit}" * 64 for digit in "abc"]


def test_nested_settings_are_facts_with_dotted_names() -> None:
    losses = [{"class_path": "LogitMSE", "init_args": {"weight": 0.5}}, {"class_path": "HardTargets", "init_args": {}}]
    found = flatten({"lr": 1, "trainer": {}, "seeds": [1, 2], "none": [], "task": {"a": {"b": None}}, "losses": losses})
    assert found == {
        "lr": 1,
        "trainer": None,
        "seeds": [1, 2],
        "none": [],
        "task.a.b": None,
        "losses[0].class_path": "LogitMSE",
        "losses[0].weight": 0.5,
        "losses[1].class_path": "HardTargets",
        "losses[1]": None,
    }
    assert flatten(found) == found


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (1, 1.5, "x was 1, is now 1.5"),
        (None, "é", "x was not set, is now é"),
        ("a" * 61, "b", "x changed"),
        ([1, 2], [2, 3], "x: new 3; dropped 1; kept 2"),
        (["a", "b"], ["b", "a"], "order of x changed"),
        (["a"], ["a", "a"], "x changed"),
        (["a" * 300], [], "x changed"),
        ([f"{one} {DIGESTS[0]}" for one in "abcdef"], [f"f {DIGESTS[1]}"], "x: changed f; dropped a, b, c and 2 more"),
        (f"f {DIGESTS[0]}", f"f {DIGESTS[1]}", "x changed"),
        # compared item by item, lists of this length would take many minutes
        ([*range(400_000)], [*range(1, 400_000), -1], "x: new -1; dropped 0; kept 1, 2, 3 and 399,996 more"),
    ],
    ids=lambda value: f"{value!r:.40}",
)
def test_a_difference_names_what_has_changed(before: Any, after: Any, words: str) -> None:
    now = Freshness({"x": after, "same": [1]})
    assert now.changes({"x": before, "same": [1]}) == {"x": words} and now.stale_reason(now.facts) == ""
    assert now.key == Freshness(now.facts).key != Freshness({"x": before, "same": [1]}).key


def test_a_fact_that_is_optional_may_be_absent_before_not_now() -> None:
    now = Freshness({"old": 1, "new": 2}, {"new"})
    assert now.changes({"old": 1}) == {}
    assert now.changes({"old": 1, "new": 3}) == {"new": "new was 3, is now 2"}
    assert now.changes({"old": 1, "new": 2, "gone": 0}) == {"gone": "gone was 0, is now not set"}
    assert now.stale_reason("its hash") == "made by an older version"


def test_a_null_counts_if_it_is_new_not_if_it_is_gone() -> None:
    assert Freshness({"x": None}).changes({}) == {"x": "x changed"} and Freshness({}).changes({"x": None}) == {}
    assert Freshness({"x": {"y": 1}}).changes({"x": None}) == {"x.y": "x.y was not set, is now 1"}


def test_a_key_of_a_mapping_whose_order_counts_is_reported_once() -> None:
    now = Freshness({"models": ["a", "c"], "models.a": "x", "models.c": "z"})
    before = {"models": ["a", "b"], "models.a": "x", "models.b": "y"}
    assert now.changes(before) == {"models": "models: new c; dropped b; kept a"}
    changed = {"models": "models: new c; kept a", "models.a": "models.a was y, is now x"}
    assert now.changes({"models": ["a"], "models.a": "y"}) == changed


def test_a_record_tells_why_its_result_is_not_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "secret-of-mine")
    now, path = Freshness({"url": "https://x?secret-of-mine", "lr": 1}), tmp_path / "record.json"
    assert now.read_if_current(path) == (None, "")
    (tmp_path / "model.bin").write_text("weights")
    now.record(path, {"f1": 0.5})
    assert "secret-of-mine" not in path.read_text()
    assert now.read_if_current(path) == ({"f1": 0.5}, "")
    assert Freshness({**now.facts, "lr": 2}).read_if_current(path) == (None, "lr was 1, is now 2")
    (tmp_path / "model.bin").write_text("Weights")
    assert now.read_if_current(path) == (None, "model.bin has changed")
    path.write_text(json.dumps({**json.loads(path.read_text()), "f1": 0.9}))
    assert now.read_if_current(path) == (None, "record.json has changed")
    path.write_text("{")
    assert now.read_if_current(path) == (None, "record.json cannot be read, or was written by an earlier version")
