"""Pictures show the numbers of their pages."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_ladder_is_drawn_from_its_table() -> None:
    drawing = runpy.run_path(str(ROOT / "docs/ladder_picture.py"))
    page = (ROOT / "docs/results.md").read_text(encoding="utf-8")
    systems = drawing["systems_of"](page)
    (taught,) = (one for one in systems if one.name == "MiniLM-L6, CRF, taught by MPNet")
    assert (taught.parameters, taught.words_per_second, taught.f1, taught.interval) == (23, 3735, 64.09, (62.61, 65.54))
    assert all(page.count(f"{one.f1:.2f}") >= 2 for one in systems if one.interval), "as in the tables of the page"
    stored = (ROOT / "docs/pictures/ladder.svg").read_text(encoding="utf-8")
    assert stored == drawing["ladder"](systems), "as `python docs/ladder_picture.py` writes it"
