"""configs/tweets: four languages, one model each and one for all, checked as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import domainbert
from domainbert.cli import main

RECIPE = Path(domainbert.__file__).parent.parent / "configs" / "tweets" / "sentiment.yaml"
LANGUAGES = ("arabic", "english", "french", "german")
SHORT = [word for name in (*LANGUAGES, "all") for word in (f"--stages.{name}.max_length", "64")]
TWEETS = {"0": "Das war sehr schlecht.", "1": "Ein Zug fährt ab.", "2": "C'était génial !"}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with three made-up tweets in each file."""
    monkeypatch.chdir(tmp_path)
    for language in LANGUAGES:
        folder = tmp_path / "data" / "tweets" / language
        folder.mkdir(parents=True)
        for split in ("train", "dev", "test"):
            (folder / f"{split}_text.txt").write_text("\n".join(TWEETS.values()) + "\n", encoding="utf-8")
            (folder / f"{split}_labels.txt").write_text("\n".join(TWEETS) + "\n")
    return tmp_path / "data"


def dry_run(runs: Any) -> int:
    return main(["run", str(RECIPE), "--dry-run", "--vars.model", str(runs / "pretrain"), *SHORT])


def test_the_recipe_is_checked_as_a_whole(runs: Any, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dry_run(runs) == 0
    plan = capsys.readouterr().out
    assert all(f"result-{language}" in plan for language in LANGUAGES) and plan.count("never run") == 15
    labels = data / "tweets" / "french" / "dev_labels.txt"
    labels.write_text("0\n1\n")
    (data / "tweets" / "german" / "test_labels.txt").write_text("0\n1\n3\n")
    assert dry_run(runs) == 2
    said = capsys.readouterr().err
    found = "data/tweets/french/dev_text.txt:3: found 3 lines, but data/tweets/french/dev_labels.txt has 2; expected"
    assert said.count(found) == 1, "though two stages read it"
    assert "data/tweets/german/test_text.txt:3: " in said
