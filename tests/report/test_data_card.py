"""Data of runs, as their checks have written it down."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from domainbert.base.table import Number, Table
from domainbert.report.data_card import data_tables, findings, fit_table
from domainbert.report.runs import read_runs
from tests.report.hand_made import put, stage


def labelled(items: int, **labels: int) -> dict[str, Any]:
    return {"items": items, "labels": labels}


def checked(folder: Path, data: dict[str, Any], bits: float | None = None) -> None:
    fit = None if bits is None else {"corpora": {"corpus": {"bits_per_word": bits}}}
    put(stage(folder, "check") / "check.json", {"findings": [], "data": data, "fit": fit})


def test_sets_of_a_check_stand_side_by_side_and_those_of_two_checks_apart(tmp_path: Path) -> None:
    source = {"path": "a.txt", "read": 3}
    corpus = {"documents": 3, "sources": [source, source], "alphabets": ["LATIN", "GREEK"]}
    checked(
        tmp_path / "run/check-ner",
        {"corpus": corpus, "train": labelled(40, né=7), "test": labelled(9, né=2, x=1)},
        11.4,
    )
    checked(tmp_path / "run/check-stance", {"train": labelled(2_000, dovish=30)}, 6.25)
    of_corpus, of_sets, of_stance = data_tables(read_runs([tmp_path / "run"]))
    assert of_corpus.caption == of_sets.caption == "check-ner"
    assert of_corpus.rows[1:4] == [
        ["sources, 1, path", "a.txt"],
        ["sources, 1, read", Number("3", 3)],
        ["sources, 2, path", "a.txt"],
    ]
    assert of_corpus.rows[-1] == ["alphabets", "LATIN, GREEK"]
    assert of_sets.heads == ["fact", "train", "test"]
    assert of_sets.rows == [
        ["items", Number("40", 40), Number("9", 9)],
        ["labels, né", Number("7", 7), Number("2", 2)],
        ["labels, x", "", Number("1", 1)],
    ]
    assert of_stance == Table(
        ["fact", "train"], [["items", Number("2,000", 2000)], ["labels, dovish", Number("30", 30)]], "check-stance"
    )
    fit = fit_table(read_runs([tmp_path / "run"]))
    assert fit is not None and fit.heads == ["fact", "check-ner", "check-stance"]
    assert fit.rows == [["corpora, corpus, bits per word", Number("11.4", 11.4), Number("6.25", 6.25)]]


def test_a_prepared_corpus_is_told_by_split_in_parts_too(tmp_path: Path) -> None:
    def splits(documents: int) -> dict[str, Any]:
        return {name: {"documents": documents, "tokens": 7, "characters": 30} for name in ("train", "validation")}

    whole, parted = (stage(tmp_path / "run" / name, "prepare") for name in ("a", "b"))
    put(whole / "prepared.json", {"splits": splits(2_000)})
    put(parted / "prepared.json", {"parts": [{"splits": splits(1)}, {"splits": splits(2)}]})
    (table,) = data_tables(read_runs([tmp_path / "run"]))
    assert [[row[0], row[1], row[2]] for row in table.rows] == [
        [f"{whole}: {split}", Number("2,000", 2000), Number("7", 7)] for split in ("train", "validation")
    ] + [[f"{parted}: {split}", Number("3", 3), Number("14", 14)] for split in ("train", "validation")]


def test_the_same_check_of_two_runs_is_told_once(tmp_path: Path) -> None:
    checked(tmp_path / "one/check", {"train": labelled(40)})
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    checked(tmp_path / "three/check", {"train": labelled(41)})
    runs = read_runs([tmp_path / name for name in ("one", "two", "three")])
    assert [table.caption for table in data_tables(runs)] == ["check (one)", "check (three)"]
    assert fit_table(runs) is None


def test_a_damaged_result_of_check_is_not_a_check_without_findings(tmp_path: Path) -> None:
    checked(tmp_path / "run/check", {})
    assert findings(read_runs([tmp_path / "run"])) == []
    (tmp_path / "run/check/check.json").write_text("{", encoding="utf-8")
    assert findings(read_runs([tmp_path / "run"])) is None
