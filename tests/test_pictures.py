"""Pictures of terminals are text that was printed, and nothing from elsewhere."""

from __future__ import annotations

import runpy
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return [(one.text or "").replace("\u00a0", " ") for one in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_a_terminal_shows_each_line_as_it_is() -> None:
    terminal = runpy.run_path(str(ROOT / "docs/terminal_picture.py"))["terminal"]
    lines = ["$ domainbert runs", "  <script>alert('&')</script>", "", "Ökonomie   1.5"]
    picture = terminal(lines)
    assert texts(picture) == [line for line in lines if line]
    assert picture == terminal(lines)
    root = ElementTree.fromstring(picture)
    rows = [float(one.get("y", 0)) for one in root.iter(f"{SVG}text")]
    assert [b - a for a, b in pairwise(rows)] == [20, 40], "an empty line has its room"
    width = float(root.get("width", 0))
    assert all(20 + float(one.get("textLength", 0)) <= width - 19 for one in root.iter(f"{SVG}text"))


def test_the_stored_picture_is_what_the_page_shows() -> None:
    file = ROOT / "docs/pictures/runs.svg"
    svg = file.read_text(encoding="utf-8")
    assert file.stat().st_size < 200_000 and not any(
        word in svg for word in ("href", "url(", "<script", "http://fonts")
    )
    command, *lines = texts(svg)
    page = (ROOT / "docs/reference/run-folder.md").read_text(encoding="utf-8")
    assert command == "$ domainbert runs"
    assert "```text\n" + "\n".join(lines) + "\n```" in page


def test_the_ladder_is_drawn_from_its_table() -> None:
    drawing = runpy.run_path(str(ROOT / "docs/ladder_picture.py"))
    page = (ROOT / "docs/results.md").read_text(encoding="utf-8")
    systems = drawing["systems_of"](page)
    (taught,) = (one for one in systems if one.name == "MiniLM-L6, CRF, taught by MPNet")
    assert (taught.parameters, taught.words_per_second, taught.f1, taught.interval) == (23, 3735, 64.09, (62.61, 65.54))
    assert all(page.count(f"{one.f1:.2f}") >= 2 for one in systems if one.interval), "as in the tables of the page"
    stored = (ROOT / "docs/pictures/ladder.svg").read_text(encoding="utf-8")
    assert stored == drawing["ladder"](systems), "as `python docs/ladder_picture.py` writes it"
