"""Pictures by matplotlib as SVG inside the page: the same bytes twice, colours of the page, texts that stay texts.

matplotlib writes `style` attributes, which the page's policy forbids, and ids that other pictures have, too. Both are
mended here: styles become attributes of SVG, and ids are made from the picture's name. The style of the page sets the
colours below anew for a dark background.
"""

from __future__ import annotations

import io
import logging
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, SOFT, RULE = "#1c2128", "#57606a", "#d9dee4"
SERIES = ("#0072b2", "#c2500a", "#00795a", "#a3417c", "#856a00", "#5c6670")
"""Told apart by people who see colours otherwise (after Okabe and Ito, 2008), each on white with a contrast of 4.5;
markers and dashes differ, too."""

MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)), (0, (3, 1)), (0, (8, 3)))

_POINTS = 1.3  # pixels of the page to a point of the picture
_SPACE = re.compile(r"\{.*\}")
_ID = re.compile(r"#([\w-]+)")
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
    """An SVG element of what `draw` draws on a figure of this size, width and height in inches.

    `name` differs from picture to picture; `label` says what a screen reader reads out.

    What has a gid of `tip:TEXT` gets TEXT as its tooltip.
    """
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it tells of its font cache
    import matplotlib
    from matplotlib.figure import Figure

    stream = io.BytesIO()
    settings: Any = {**_RC, "svg.hashsalt": name}
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=size, layout="constrained")
        figure.patch.set_visible(False)
        draw(figure)
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    root = _for_page(ElementTree.fromstring(stream.getvalue()), name)
    root.attrib |= {"role": "img", "aria-label": label}
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def style_of(number: int) -> dict[str, Any]:
    """Colour, marker and dashes of the series of this number."""
    return {
        "color": SERIES[number % len(SERIES)],
        "marker": MARKERS[number % len(MARKERS)],
        "linestyle": DASHES[number % len(DASHES)],
    }


def _for_page(root: ElementTree.Element, name: str) -> ElementTree.Element:
    for parent in list(root.iter()):
        for child in [one for one in parent if _SPACE.sub("", str(one.tag)) in ("metadata", "style")]:
            parent.remove(child)
    used = {found for one in root.iter() for value in one.attrib.values() for found in _ID.findall(value)}
    for element in root.iter():
        element.tag = _SPACE.sub("", str(element.tag))
        _mend(element, used, name)
    _, _, width, height = root.get("viewBox", "").split()
    root.attrib |= {"width": f"{_POINTS * float(width):.0f}", "height": f"{_POINTS * float(height):.0f}"}
    root.attrib |= {"stroke-linejoin": "round", "stroke-linecap": "butt"}
    return root


def _mend(element: ElementTree.Element, used: set[str], name: str) -> None:
    """Attributes without namespaces and styles, and with an id only where something refers to it."""
    attributes = {_SPACE.sub("", key): value for key, value in element.attrib.items()}
    identity, style = attributes.pop("id", ""), attributes.pop("style", "")
    if identity.startswith("tip:"):
        attributes["data-tip"] = identity.removeprefix("tip:")
        title = ElementTree.Element("title")
        title.text = attributes["data-tip"]
        element.insert(0, title)
    elif identity in used:
        attributes["id"] = f"{name}-{identity}"
    element.attrib.clear()
    for key, value in [*attributes.items(), *_declarations(style)]:
        if "#" in value and (key == "href" or value.startswith("url(")):
            value = _ID.sub(rf"#{name}-\1", value)
        if (key, value) not in (("stroke-linejoin", "round"), ("stroke-linecap", "butt")):
            element.set(key, value)


def _declarations(style: str) -> list[tuple[str, str]]:
    """The declarations of a style as attributes of SVG; a font is cut down to its size, for the page has its own."""
    found = []
    for declaration in filter(str.strip, style.split(";")):
        key, _, value = (part.strip() for part in declaration.partition(":"))
        if key == "font":
            size = re.search(r"[\d.]+px", value)
            key, value = "font-size", size[0] if size else ""
        if key != "font-family" and value:
            found.append((key, value))
    return found
