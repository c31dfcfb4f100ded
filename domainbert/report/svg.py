"""Embedded SVG images by matplotlib: deterministic output, text stays text."""

from __future__ import annotations

import base64
import io
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, SOFT, RULE = "#1c2128", "#57606a", "#d9dee4"
SERIES = ("#0072b2", "#c2500a", "#00795a", "#a3417c", "#856a00", "#5c6670")
"""Safe for colour-blind readers (after Okabe and Ito, 2008), with a contrast of 4.5 on white. Markers and dashes also
differ."""

MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)), (0, (3, 1)), (0, (8, 3)))

_RC: Mapping[str, Any] = {
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "text.parse_math": False,
    "axes.facecolor": "none",
    "axes.edgecolor": RULE,
    "axes.labelcolor": SOFT,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "xtick.color": RULE,
    "ytick.color": RULE,
    "xtick.labelcolor": SOFT,
    "ytick.labelcolor": SOFT,
    "text.color": INK,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "lines.markersize": 5.0,
}


def picture(name: str, label: str, size: tuple[float, float], draw: Callable[[Figure], None]) -> Markup:
    """Return an `<img>` element with the `alt` text `label` and an embedded SVG image; other arguments as for `svg`."""
    data = base64.b64encode(svg(name, size, draw).encode("utf-8")).decode("ascii")
    return Markup('<img alt="{}" src="data:image/svg+xml;base64,{}">').format(label, data)


def svg(name: str, size: tuple[float, float], draw: Callable[[Figure], None]) -> str:
    """Return the text of an SVG file with the figure that `draw` draws into. `size` is the width and height in inches.
    The ids in the file are derived from `name`."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # no message about the font cache
    import matplotlib
    from matplotlib.figure import Figure

    stream = io.StringIO()
    settings: Any = {**_RC, "svg.hashsalt": name}
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return stream.getvalue()


def style_of(index: int) -> dict[str, Any]:
    """Return colour, marker and dashes of the series with this index; they repeat after six series."""
    styles: dict[str, Sequence[Any]] = {"color": SERIES, "marker": MARKERS, "linestyle": DASHES}
    return {key: values[index % len(values)] for key, values in styles.items()}
