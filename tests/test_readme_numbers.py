"""The README claims no speed but what a file in benchmarks/results says."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROWS = re.findall(r"^\|.*\(benchmarks/results/.*$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)


def ratios(found):
    """All that stands under a key `ratio`, as the README writes it."""
    if not isinstance(found, dict):
        return set()
    here = {f"{found['ratio']:.2f}x"} if isinstance(found.get("ratio"), float) else set()
    return here.union(*map(ratios, found.values()))


def test_there_are_rows():
    assert ROWS


@pytest.mark.parametrize("row", ROWS)
def test_every_ratio_of_a_row_is_in_its_file(row):
    (name,) = re.findall(r"\((benchmarks/results/[\w-]+\.json)\)", row)
    claimed = set(re.findall(r"\d+\.\d\dx", row))
    assert claimed
    assert claimed <= ratios(json.loads((ROOT / name).read_text(encoding="utf-8")))
