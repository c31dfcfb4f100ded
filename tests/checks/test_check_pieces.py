"""Rules on a labelled set as a vocabulary reads it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from domainbert.stages.check import check
from domainbert.tasks.classification.config import Classification, ClassificationFormat
from domainbert.tokenization.kinds.wordpiece.kind import SPECIAL_TOKENS, bert_backend
from domainbert.tokenization.load import DomainTokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz"


@pytest.fixture
def tokenizer(tmp_path: Path) -> Callable[[bool], Path]:
    """A folder with a vocabulary of single letters, lowercasing or not."""

    def make(lowercase: bool) -> Path:
        letters = LETTERS if lowercase else LETTERS + LETTERS.upper()
        pieces = [*SPECIAL_TOKENS.values(), *letters, *(f"##{letter}" for letter in letters)]
        backend = bert_backend({token: number for number, token in enumerate(pieces)}, {"do_lower_case": lowercase})
        folder = tmp_path / f"letters-{lowercase}"
        folder.mkdir()
        DomainTokenizer(backend, model_max_length=64).save(folder)
        return folder

    return make


def found_in(folder: Path, rows: list[dict[str, Any]], tokenizer: Path, **settings: Any) -> dict[str, str]:
    """The messages of findings by their rules."""
    train = folder / "train.jsonl"
    train.write_text("".join(json.dumps(row) + "\n" for row in rows))
    off = {"rare-label": 0}
    check(folder / "out", labelled={"train": str(train)}, tokenizer=str(tokenizer), thresholds=off, **settings)
    findings = json.loads((folder / "out/check.json").read_text())["findings"]
    return {one["rule"]: one["message"] for one in findings}


def texts(*given: str) -> list[dict[str, Any]]:
    return [{"text": text, "label": label} for text, label in zip(given, ("up", "down") * len(given), strict=False)]


def test_texts_that_are_longer_than_a_window(tmp_path: Path, tokenizer: Callable[[bool], Path]) -> None:
    rows = texts("ab cd", "abc", "abcdef", "abcdefghi")
    found = found_in(tmp_path, rows, tokenizer(True), task="Classification", max_length=8)
    message = "1 of 4 texts of train have more than 8 tokens (max_length), the longest 11"
    assert found == {"longer-than-window": message}
    assert found_in(tmp_path, rows, tmp_path / "letters-True", task="Classification") == {}


def test_pairs_that_are_longer_than_a_window(tmp_path: Path, tokenizer: Callable[[bool], Path]) -> None:
    """A pair has three special tokens."""
    pairs = [{"text": "abcd", "text_b": letters, "label": label} for letters, label in (("a", "up"), ("ab", "down"))]
    task = Classification(format=ClassificationFormat(text_pair_key="text_b"))
    found = found_in(tmp_path, pairs, tokenizer(True), task=task, max_length=8)
    message = "1 of 2 texts of train have more than 8 tokens (max_length), the longest 9"
    assert found == {"longer-than-window": message}
