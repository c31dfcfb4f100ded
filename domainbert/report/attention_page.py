"""Page of `domainbert report MODEL --attend TEXT`: attention maps of each head."""

from __future__ import annotations

import base64
import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from domainbert.base.errors import DomainbertError
from domainbert.base.paths import check_home_expanded
from domainbert.report.page import Section, page_text, save_page
from domainbert.serving.attention_maps import AttentionMaps, attention_maps

FILE = "attention.html"

MAX_PIECES = 64
"""Maximum number of pieces, special tokens included, for attention maps."""

_MAX_ARROWS = 5  # connections listed for each head


def write_attention_report(folders: Sequence[str], text: str, out: str | None) -> str:
    """Write the page for the arguments of the command line, and return the line to print."""
    if len(folders) != 1:
        raise DomainbertError(where="--attend", found=f"{len(folders)} folders", expected="one model folder")
    if not text.strip():
        raise DomainbertError(where="--attend", found="an empty text", expected="a text")
    path = Path(out or FILE)
    check_home_expanded("--out", path)
    path = path / FILE if path.is_dir() else path
    maps = attention_maps(folders[0], text, MAX_PIECES)
    section = Section("Attention maps", "attention.html", _map_variables(maps))
    save_page(path, page_text(f"How {Path(folders[0])} reads a text", [section]))
    return f"report: {path}"


def _map_variables(maps: AttentionMaps) -> dict[str, Any]:
    names = _distinct_names(maps.pieces)
    special = np.array(maps.special)
    layers = []
    for number, (heads, window) in enumerate(zip(maps.probabilities, maps.windows, strict=True), 1):
        head_data = [
            {"number": index, "picture": _grey_png(head), **_head_summary(head, names, special)}
            for index, head in enumerate(heads, 1)
        ]
        layers.append({"number": number, "window": window, "heads": head_data})
    return {"pieces": maps.pieces, "layers": layers}


def _distinct_names(pieces: Sequence[str]) -> list[str]:
    counts = Counter(pieces)
    return [piece if counts[piece] == 1 else f"{piece} ({position})" for position, piece in enumerate(pieces, 1)]


def _head_summary(head: NDArray[np.float32], names: Sequence[str], special: NDArray[np.bool_]) -> dict[str, Any]:
    """Return the strongest connections of a head between pieces of the text, and the share that special tokens get.

    `head` (S, S) has the attention from piece i to piece j, `names` a name for each piece, and `special` (S,) whether
    the piece is a special token. The share is the mean over the other pieces.
    """
    from_or_to_special = special[:, None] | special  # (S, S)
    weights = np.where(from_or_to_special, 0, head)
    strongest = np.argsort(-weights, axis=None, kind="stable")[:_MAX_ARROWS]  # as indices i * S + j
    cells = [divmod(int(index), len(names)) for index in strongest]  # (i, j)
    arrows = [
        {"from": names[i], "to": names[j], "value": f"{weights[i, j]:.2f}"}
        for i, j in cells
        if weights[i, j] >= 0.005  # smaller weights would be shown as 0.00
    ]
    to_special = head[~special][:, special].sum(axis=1)  # of each piece that is not special
    special_share = 1.0 if special.all() else float(to_special.mean())
    return {"arrows": arrows, "special": f"{100 * special_share:.0f} %"}


def _grey_png(head: NDArray[np.float32]) -> str:
    """Encode a map (S, S) as the data URI of a grey PNG: white is attention 0, black is attention 1."""
    levels = 255 - np.round(255 * np.sqrt(head)).astype(np.uint8)  # the root makes small values visible
    stream = io.BytesIO()
    Image.fromarray(levels).save(stream, "png")
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode("ascii")
