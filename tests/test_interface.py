"""A test names every change of what 1.x keeps: docs/reference/stability.md.

Metrics, files and keys are compared by the tests that have a run anyway, of `tests/golden` for most stages.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from domainbert.base.choices import choices_of
from domainbert.runner.stage_table import STAGES
from domainbert.tasks.config import TaskConfig
from tests.interface.current import keys_of, public_names, settings
from tests.interface.snapshot import HERE, check_interface


def test_public_names() -> None:
    check_interface("names", public_names())


def test_settings() -> None:
    check_interface("settings", settings())


def test_each_stage_has_files_and_each_task_metrics() -> None:
    files, metrics = (
        {line.partition(":")[0] for line in (HERE / f"{name}.txt").read_text(encoding="utf-8").splitlines()}
        for name in ("files", "metrics")
    )
    assert files >= {*STAGES, "run"}
    assert metrics >= {config().name for config in choices_of(TaskConfig).values()}


def test_a_change_is_named_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.interface.snapshot.HERE", tmp_path)
    monkeypatch.delenv("WRITE_INTERFACE", raising=False)
    file = tmp_path / "names.txt"
    file.write_text("a: f1\na: load(path)\na: size = 1\nb: other\n")
    check_interface("names", ["size = 1", "load(path)", "f1"], "a")
    new = ["load(path, *, size=)", "loss", "size = 1"]
    with pytest.raises(pytest.fail.Exception) as failed:
        check_interface("names", new, "a")
    assert str(failed.value).splitlines() == [
        "the interface has changed, see tests/interface/names.txt",
        "  removed: a: f1",
        "  changed: a: load(path)",
        "       to: a: load(path, *, size=)",
        "  added: a: loss",
        "A removal or change needs a deprecation first: docs/reference/stability.md. To accept the change:",
        "  WRITE_INTERFACE=1 python -m pytest 'tests/test_interface.py::test_a_change_is_named_and_written'",
    ]
    monkeypatch.setenv("WRITE_INTERFACE", "1")
    check_interface("names", new, "a")
    assert file.read_text() == "a: load(path, *, size=)\na: loss\na: size = 1\nb: other\n"


def test_names_from_the_data_are_left_out_of_keys(tmp_path: Path) -> None:
    (tmp_path / "predictions/mine").mkdir(parents=True)
    (tmp_path / "predictions/mine/seed-3.jsonl").write_text('{"text": "a"}\n{"scores": [{"label": "b"}]}\n')
    (tmp_path / "metrics.json").write_text('{"systems": {"mine": {"f1": 1, "per_type": {"LOC": {"f1": 1}}}}}')
    assert {*keys_of(tmp_path, "**/*")} == {
        *("predictions/*/seed-*.jsonl text", "predictions/*/seed-*.jsonl scores"),
        *("predictions/*/seed-*.jsonl scores[].label", "metrics.json systems", "metrics.json systems.*"),
        *("metrics.json systems.*.f1", "metrics.json systems.*.per_type", "metrics.json systems.*.per_type.*"),
        "metrics.json systems.*.per_type.*.f1",
    }
