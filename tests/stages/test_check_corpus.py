"""`check` with a corpus: its findings and facts, and how well it and others predict the labelled texts."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from domainbert.stages.check import check
from tests.interface.snapshot import check_folder
from tests.refusals import refused

WORDS = ["Zinsen", "fielen", "the", "bank", "café", "rate", "prévu", "rose", "on", "Tuesday", "while", "prices"]


def lines(path: Path, texts: list[str], **more: str) -> Path:
    path.write_text("".join(json.dumps({"text": text, **more}) + "\n" for text in texts), encoding="utf-8")
    return path


def drawn(seed: int, words: list[str], count: int = 120) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choice(words) for _ in range(30)) for _ in range(count)]


def checked(folder: Path, **settings: Any) -> dict[str, Any]:
    (folder / "out").mkdir(exist_ok=True)
    metrics = check(folder / "out", **settings)
    return json.loads((folder / "out/check.json").read_text()) | {"metrics": metrics}


@pytest.fixture
def given(tmp_path: Path) -> dict[str, Any]:
    """A corpus whose first document is a text of the test set, and one of other words."""
    train, test = (
        [f"{one} {name} {number % 2}" for number, one in enumerate(drawn(seed, WORDS, 60))]
        for seed, name in ((1, "train"), (2, "test"))
    )
    for name, texts in (("train", train), ("test", test)):
        rows = [json.dumps({"text": text, "label": text[-1]}) for text in texts]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows), encoding="utf-8")
    lines(tmp_path / "corpus.jsonl", [f"Also: {test[0]}", *drawn(3, WORDS)])
    lines(tmp_path / "other.jsonl", drawn(4, ["protein", "binds", "to", "the", "receptor", "in", "cells", "β"]))
    labelled = {name: tmp_path / f"{name}.jsonl" for name in ("train", "test")}
    return {"corpus": str(tmp_path / "corpus.jsonl"), "labelled": labelled, "task": "Classification"}


def test_a_corpus_is_looked_at_and_compared(
    tmp_path: Path, given: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    others = {"proteins": str(tmp_path / "other.jsonl")}
    found = checked(tmp_path, **given, other_corpora=others)
    (one,) = [one for one in found["findings"] if one["rule"] == "labelled-text-in-corpus"]
    assert (one["severity"], one["count"], one["ignored"]) == ("warning", 1, None)
    assert [(Path(spot["path"]).name, spot["line"]) for spot in one["places"]] == [("test.jsonl", 1)]
    assert found["data"]["corpus"]["documents"] == 121 and {"train", "test"} < found["data"].keys()
    corpora = found["fit"]["corpora"]
    assert (
        list(corpora) == ["corpus", "proteins"]
        and corpora["proteins"]["unseen_share"] > corpora["corpus"]["unseen_share"]
    )
    assert found["fit"]["task_texts"] == 60 and found["metrics"]["fit"] == found["fit"]
    assert "words of each corpus:" in capsys.readouterr().out
    assert checked(tmp_path, **given, other_corpora=others) == found
    check_folder("check", tmp_path / "out")


def test_other_corpora_that_cannot_be_compared(tmp_path: Path, given: dict[str, Any]) -> None:
    other = str(tmp_path / "other.jsonl")
    with refused(where="other_corpora", found="the name 'corpus', as of...", expected="another name"):
        checked(tmp_path, **given, other_corpora={"corpus": other})
    with refused(where="other_corpora", found="no labelled set to predict", expected="at least labelled.train"):
        checked(tmp_path, corpus=given["corpus"], other_corpora={"proteins": other})
    alone = {key: value for key, value in given.items() if key != "corpus"}
    assert list(checked(tmp_path, **alone, other_corpora={"corpus": other})["fit"]["corpora"]) == ["corpus"]


def test_rules_on_a_corpus_are_ignored_and_have_thresholds(tmp_path: Path, given: dict[str, Any]) -> None:
    rules = {"labelled-text-in-corpus": "we report scores on the rest, too"}
    found = checked(tmp_path, **given, ignore=rules, thresholds={"repeated-lines": 0.5})
    (one,) = [one for one in found["findings"] if one["rule"] in rules]
    assert one["ignored"] == rules[one["rule"]]


def test_a_corpus_alone_has_no_fit(tmp_path: Path, given: dict[str, Any]) -> None:
    found = checked(tmp_path, corpus=given["corpus"])
    assert found["fit"] is None and found["findings"] == [] and found["data"].keys() == {"corpus"}
