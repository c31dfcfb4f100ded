"""Pictures show the numbers of the results."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_ladder_is_drawn_from_its_table() -> None:
    drawing = runpy.run_path(str(ROOT / "docs/ladder_picture.py"))
    data = ROOT / "benchmarks/results/quality"
    rows = json.loads((data / "small-tagger.json").read_text(encoding="utf-8"))["rows"]
    systems = drawing["systems_of"](rows)
    (taught,) = (one for one in systems if one.name == "MiniLM-L6, CRF, taught by MPNet")
    assert (taught.parameters, taught.words_per_second, taught.f1, taught.interval) == (23, 3735, 64.09, (62.61, 65.54))
    others = "".join(file.read_text(encoding="utf-8") for file in data.glob("*.json") if file.stem != "small-tagger")
    cells = [json.dumps(row["F1"]) for row in rows if "F1" in row]
    assert len(cells) == 7 and all(cell in others for cell in cells), "as in the tables that they come from"
    stored = (ROOT / "docs/pictures/ladder.svg").read_text(encoding="utf-8")
    assert stored == drawing["ladder"](systems), "as `python docs/ladder_picture.py` writes it"
