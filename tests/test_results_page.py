"""The pages of results have the tables of benchmarks/results/quality, and the first page stays short."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = runpy.run_path(str(ROOT / "docs/results_tables.py"))
DATA = sorted((ROOT / "benchmarks/results/quality").glob("*.json"))
RESULTS, APPENDIX = (page.read_text(encoding="utf-8") for page in SCRIPT["PAGES"])


@pytest.mark.parametrize("page", [RESULTS, APPENDIX], ids=["results.md", "results-appendix.md"])
def test_tables_are_as_the_script_writes_them(page: str) -> None:
    assert SCRIPT["rewrite"](page) == page, "python docs/results_tables.py"


def test_the_page_has_a_table_per_question_and_no_other_table() -> None:
    sections = re.split(r"^## ", RESULTS, flags=re.MULTILINE)[1:]
    assert len(sections) >= 13
    for section in sections:
        assert section.partition("\n")[0].endswith("?") and section.count("<!-- table: ") == 1, section
    assert not re.search(r"^\|", SCRIPT["REGION"].sub("", RESULTS), re.MULTILINE)
    assert len(RESULTS.split()) <= 2500


def test_a_cell_has_one_number() -> None:
    for line in re.findall(r"^\|.*[0-9].*$", RESULTS, re.MULTILINE):
        for cell in line.strip("|").split("|")[1:]:
            assert len(re.findall(r"(?<![\w.,])[+-]?\d[\d.,]*", re.sub(r"\[.*\]|`.*`", "", cell))) <= 1, line


@pytest.mark.parametrize("file", DATA, ids=lambda file: file.stem)
def test_a_file_of_results_is_complete_and_used(file: Path) -> None:
    """Every cell has a column, every number a format and an interval around it; a page shows or names the file."""
    results = json.loads(file.read_text(encoding="utf-8"))
    columns = {column["name"]: column for column in results["columns"]}
    assert results["metric"] and len(columns) == len(results["columns"])
    assert not re.search(r"/(work|home|tmp)/", file.read_text(encoding="utf-8"))
    for row in results["rows"]:
        assert set(row) - {"detail", "signed"} <= set(columns)
        for name in set(row) & set(columns):
            assert isinstance(row[name], dict) == ("format" in columns[name]), (row, name)
            if isinstance(row[name], dict) and "interval" in row[name]:
                low, high = row[name]["interval"]
                assert low <= row[name]["value"] <= high and results["interval"], (row, name)
    assert f": {file.stem} -->" in RESULTS + APPENDIX or f"`{file.name}`" in APPENDIX


def test_intervals_of_speed_are_the_lowest_and_highest_round() -> None:
    rows = json.loads((ROOT / "benchmarks/results/quality/speed.json").read_text(encoding="utf-8"))["rows"]
    for row in rows:
        measured = json.loads((ROOT / "benchmarks/results" / row["measured in"].strip("`")).read_text(encoding="utf-8"))
        ratios = [
            (round(one["ratio"], 2), [round(end(one["by_round"]), 2) for end in (min, max)])
            for one in measured["ratios"].values()
        ]
        for cell in (cell for cell in row.values() if isinstance(cell, dict)):
            assert (cell["value"], cell["interval"]) in ratios, row


def test_scores_of_the_readme_are_in_a_table() -> None:
    scores = re.findall(r"[+-]?\d+\.\d\d \[[^\]a-z]+\]", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(scores) >= 4 and all(f"| {score} |" in RESULTS for score in scores), scores
