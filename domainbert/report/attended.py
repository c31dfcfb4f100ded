"""Content of the page of a text, as plain values for its templates: words with their values, maps as small pictures."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from domainbert.serving.attention_maps import AttentionMaps
from domainbert.serving.attributions import Attribution

_LEVELS = 5
_ARROWS = 5
_NO_ERROR = 1e-4
_PNG = b"\x89PNG\r\n\x1a\n"


def attribution_data(text: str, found: Sequence[Attribution]) -> dict[str, Any]:
    """The variables of `attributions.html`."""
    return {"text": text, "claims": [_claim(one) for one in found]}


def _claim(one: Attribution) -> dict[str, Any]:
    largest = max(abs(word.value) for word in one.words)
    decimals = max(1, 1 - math.floor(math.log10(largest))) if largest else 1
    parts: list[dict[str, Any]] = []
    at = 0
    for word in one.words:
        value = _signed(word.value, decimals, "+")
        level = round(_LEVELS * abs(word.value) / largest) if largest else 0
        inside = one.start is not None and one.end is not None and one.start <= word.start < one.end
        side = "for" if word.value > 0 else "against"
        parts.append({"between": one.text[at : word.start]})
        parts.append({"word": word.text, "value": value, "level": level, "side": side, "inside": inside})
        at = max(at, word.end)
    parts.append({"between": one.text[at:]})
    numbers = {"output": one.output, "hidden": one.hidden, "difference": one.output - one.hidden}
    return {
        "label": one.label,
        "said_of": "" if one.start is None else one.text[one.start : one.end],
        **{name: _signed(value, max(decimals, 2)) for name, value in numbers.items()},
        "probability": f"{100 * math.exp(one.output):.1f} %" if one.unit == "log-probability" else "",
        "unit": one.unit,
        "error": f"{100 * one.error:.2f} %" if one.error > _NO_ERROR else "less than 0.01 %",
        "steps": one.steps,
        "parts": parts,
    }


def _signed(value: float, decimals: int, plus: str = "") -> str:
    return f"{value:{plus}.{decimals}f}".replace("-", "\N{MINUS SIGN}")


def attention_data(maps: AttentionMaps) -> dict[str, Any]:
    """The variables of `attention.html`; a picture of a head is as dark as the square root of its attention."""
    names = _names(maps.pieces)
    special = np.array(maps.special)
    layers = []
    for number, (heads, window) in enumerate(zip(maps.probabilities, maps.windows, strict=True), 1):
        shown = [
            {"number": place, "picture": _picture(head), **_summary(head, names, special)}
            for place, head in enumerate(heads, 1)
        ]
        layers.append({"number": number, "window": window, "heads": shown})
    return {"pieces": maps.pieces, "layers": layers}


def _names(pieces: Sequence[str]) -> list[str]:
    """The pieces, with their place where one occurs several times."""
    counts = Counter(pieces)
    return [piece if counts[piece] == 1 else f"{piece} ({place})" for place, piece in enumerate(pieces, 1)]


def _summary(head: NDArray[np.float32], names: Sequence[str], special: NDArray[np.bool_]) -> dict[str, Any]:
    """The strongest arrows of a head among the pieces of the text, and what share of it goes to special tokens."""
    among = np.where(special[:, None] | special, 0, head)
    order = np.argsort(-among, axis=None, kind="stable")[:_ARROWS]
    places = [divmod(int(place), len(names)) for place in order]
    arrows = [
        {"from": names[i], "to": names[j], "value": f"{among[i, j]:.2f}"} for i, j in places if among[i, j] >= 0.005
    ]
    share = float(head[~special][:, special].sum(axis=1).mean()) if not special.all() else 1.0
    return {"arrows": arrows, "special": f"{100 * share:.0f} %"}


def _picture(head: NDArray[np.float32]) -> str:
    """A map (S, S) as the address of a grey PNG (ISO/IEC 15948): 255 is no attention, 0 all of it."""
    levels = 255 - np.round(255 * np.sqrt(head)).astype(np.uint8)
    height, width = levels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in levels)
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    image = _PNG + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return "data:image/png;base64," + base64.b64encode(image).decode("ascii")
