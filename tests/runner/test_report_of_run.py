"""The page that `domainbert run` leaves behind: written when something ran, and never in the way of the run."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from domainbert import cli
from domainbert.report import page

RECIPE = """\
out: runs/test
stages:
  make: {words: [a, b]}
  score: {models: {ours: "@make", theirs: "@make"}}
"""


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("recipe.yaml").write_text(RECIPE)


@pytest.mark.usefixtures("fake_stages")
def test_a_run_ends_with_a_page_and_says_where(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "recipe.yaml"]) == 0
    file = Path("runs/test/report.html")
    assert capsys.readouterr().out.endswith(f"report: {file} (open it in a browser)\n")
    written = file.stat().st_mtime_ns
    assert "Report: test" in file.read_text()
    assert cli.main(["run", "recipe.yaml"]) == 0
    assert "report" not in capsys.readouterr().out and file.stat().st_mtime_ns == written, "nothing ran"
    file.unlink()
    assert cli.main(["run", "recipe.yaml"]) == 0
    assert file.is_file()


@pytest.mark.usefixtures("fake_stages")
def test_a_fault_in_the_page_is_a_line_and_the_run_is_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> str:
        raise RuntimeError("no\nroom")

    monkeypatch.setattr(page, "page_text", broken)
    assert cli.main(["run", "recipe.yaml"]) == 0
    said = capsys.readouterr().out.splitlines()[-1]
    assert (
        said == "warning: report.html was not written: RuntimeError: no room; to try again: domainbert report runs/test"
    )


def test_the_command_writes_where_it_is_told(fake_stages: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "recipe.yaml"]) == 0
    assert cli.main(["report", "runs/test", "--out", "pages/one.html"]) == 0
    assert capsys.readouterr().out.endswith("report: pages/one.html\n")
    assert Path("pages/one.html").read_bytes() == Path("runs/test/report.html").read_bytes()
    assert cli.main(["report", "nowhere"]) == 2
    assert cli.main(["report", "--help"]) == 0
    assert "domainbert report RUN... [--out FILE]" in capsys.readouterr().out
