"""Draw small-tagger.json: F1 against parameters and against speed, published scores as lines.

python docs/ladder_picture.py
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from domainbert.report.svg import INK, SERIES, SOFT, svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DOCS = Path(__file__).parent
_DATA = _DOCS.parent / "benchmarks/results/quality"
_NEAR, _LINES = 2, 3  # a system with so near a neighbour, to the right and in points of F1, has its name on the left


@dataclass(frozen=True)
class System:
    """A row of the table; published ones have neither size nor interval there."""

    name: str
    parameters: float | None
    words_per_second: float | None
    f1: float
    interval: tuple[float, float] | None


def systems_of(rows: Sequence[Mapping[str, Any]]) -> list[System]:
    """The rows of small-tagger.json."""
    return [
        System(
            row["ECON-IE"],
            row.get("parameters", {}).get("value"),
            row.get("words/s", {}).get("value"),
            row["F1" if "F1" in row else "published F1"]["value"],
            tuple(row["F1"]["interval"]) if "F1" in row else None,
        )
        for row in rows
    ]


def ladder(systems: Sequence[System]) -> str:
    """The picture as the text of an SVG file."""

    def draw(figure: Figure) -> None:
        left, right = figure.subplots(1, 2, sharey=True)
        _panel(left, systems, "parameters", "parameters, millions", (2, 5, 10, 20, 50, 100, 200, 500))
        _panel(
            right, systems, "words_per_second", "words a second, one core", (200, 500, 1000, 2000, 5000, 10000, 20000)
        )
        left.set_ylabel("strict entity F1, ECON-IE test")
        for one in systems:
            if one.interval is None:
                label = f"{one.name.partition(' (')[0]} {one.f1:g}"
                beside: Any = {"xycoords": ("axes fraction", "data"), "xytext": (4, 0), "textcoords": "offset points"}
                right.annotate(label, (1, one.f1), va="center", color=SOFT, fontsize=7, **beside)

    return svg("ladder", (9.0, 5.0), draw)


def _panel(axes: Axes, systems: Sequence[System], key: str, title: str, ticks: Sequence[int]) -> None:
    axes.set_xscale("log")
    axes.set_xlim(ticks[0], ticks[-1])
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlabel(title)
    shown = {one: getattr(one, key) for one in systems if one.interval is not None and getattr(one, key) is not None}
    for one, x in shown.items():
        colour = SERIES[systems.index(one) % len(SERIES)]
        axes.plot([x, x], one.interval, color=colour, linewidth=1.2)
        axes.plot(x, one.f1, "o", color=colour, markersize=6)
        crowded = any(x < other < _NEAR * x and abs(its.f1 - one.f1) < _LINES for its, other in shown.items())
        place: Any = {"xytext": (-7, 0), "ha": "right"} if crowded else {"xytext": (7, 0), "ha": "left"}
        axes.annotate(one.name, (x, one.f1), color=INK, fontsize=8, va="center", textcoords="offset points", **place)
    for one in systems:
        if one.interval is None:
            axes.axhline(one.f1, color=SOFT, linewidth=0.8, linestyle=(0, (4, 3)))


if __name__ == "__main__":
    rows = json.loads((_DATA / "small-tagger.json").read_text(encoding="utf-8"))["rows"]
    (_DOCS / "pictures" / "ladder.svg").write_text(ladder(systems_of(rows)), encoding="utf-8")
