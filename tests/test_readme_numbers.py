"""README and docs/ claim no speed but what a file in benchmarks/results says."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
ROWS = [
    (page.name, row)
    for page in PAGES
    for row in re.findall(r"^\|.*\d\.\d\dx.*$", page.read_text(encoding="utf-8"), re.MULTILINE)
]


def ratios(found):
    """Return all values under a key `ratio`, formatted as in the pages."""
    if not isinstance(found, dict):
        return set()
    here = {f"{found['ratio']:.2f}x"} if isinstance(found.get("ratio"), float) else set()
    return here.union(*map(ratios, found.values()))


def test_there_are_rows():
    assert [name for name, _ in ROWS] == ["README.md"] * 4 + ["results.md"] * 8 + ["speed.md"] * 29


@pytest.mark.parametrize(("name", "row"), ROWS)
def test_every_ratio_of_a_row_is_in_the_file_that_it_names(name, row):
    (file,) = re.findall(r"benchmarks/results/([\w-]+\.json)" if name == "README.md" else r"`([\w-]+\.json)`", row)
    claimed = set(re.findall(r"\d+\.\d\dx", row))
    assert claimed <= ratios(json.loads((ROOT / "benchmarks/results" / file).read_text(encoding="utf-8")))
