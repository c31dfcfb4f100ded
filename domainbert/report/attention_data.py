"""Data of the attention page as plain values for its templates: words with attributions, attention maps as images."""

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

_LEVELS = 5  # shades of a word's colour: `l1` to `l5` in attributions.css
_MAX_ARROWS = 5  # connections listed for each head
_SHOWN_ERROR = 1e-4  # a smaller relative error is shown as "less than 0.01 %"
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def attribution_data(text: str, claims: Sequence[Attribution]) -> dict[str, Any]:
    """Return the variables of `attributions.html`: the text, and the words of each predicted label (claim)."""
    return {"text": text, "claims": [_label_variables(claim) for claim in claims]}


def _label_variables(claim: Attribution) -> dict[str, Any]:
    """Return a predicted label, its output and its error as texts, and the text in parts: words and gaps between."""
    largest = max(abs(word.value) for word in claim.words)
    decimals = max(1, 1 - math.floor(math.log10(largest))) if largest else 1
    parts: list[dict[str, Any]] = []
    end = 0
    for word in claim.words:
        value = _format_signed(word.value, decimals, "+")
        level = round(_LEVELS * abs(word.value) / largest) if largest else 0
        inside = claim.start is not None and claim.end is not None and claim.start <= word.start < claim.end
        side = "for" if word.value > 0 else "against"
        parts.append({"between": claim.text[end : word.start]})
        parts.append({"word": word.text, "value": value, "level": level, "side": side, "inside": inside})
        end = max(end, word.end)
    parts.append({"between": claim.text[end:]})
    numbers = {
        "output": claim.output,
        "hidden": claim.baseline_output,
        "difference": claim.output - claim.baseline_output,
    }
    return {
        "label": claim.label,
        "said_of": "" if claim.start is None else claim.text[claim.start : claim.end],
        **{name: _format_signed(value, max(decimals, 2)) for name, value in numbers.items()},
        "probability": f"{100 * math.exp(claim.output):.1f} %" if claim.unit == "log-probability" else "",
        "unit": claim.unit,
        "error": f"{100 * claim.error:.2f} %" if claim.error > _SHOWN_ERROR else "less than 0.01 %",
        "steps": claim.steps,
        "parts": parts,
    }


def _format_signed(value: float, decimals: int, plus: str = "") -> str:
    return f"{value:{plus}.{decimals}f}".replace("-", "\N{MINUS SIGN}")


def attention_data(maps: AttentionMaps) -> dict[str, Any]:
    """Return the variables of `attention.html`: the pieces, and for each layer its window and the maps of its heads."""
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
    """Return the pieces of a text; pieces that occur several times get their position, counted from 1."""
    counts = Counter(pieces)
    return [piece if counts[piece] == 1 else f"{piece} ({position})" for position, piece in enumerate(pieces, 1)]


def _head_summary(head: NDArray[np.float32], names: Sequence[str], special: NDArray[np.bool_]) -> dict[str, Any]:
    """Return the strongest connections of a head between pieces of the text, and the share that special tokens get.

    `head` (S, S) has the attention from piece i to piece j, `special` (S,) whether a piece is a special token.
    """
    weights = np.where(special[:, None] | special, 0, head)  # without special tokens
    order = np.argsort(-weights, axis=None, kind="stable")[:_MAX_ARROWS]
    cells = [divmod(int(index), len(names)) for index in order]
    arrows = [
        {"from": names[i], "to": names[j], "value": f"{weights[i, j]:.2f}"} for i, j in cells if weights[i, j] >= 0.005
    ]
    share = float(head[~special][:, special].sum(axis=1).mean()) if not special.all() else 1.0
    return {"arrows": arrows, "special": f"{100 * share:.0f} %"}


def _grey_png(head: NDArray[np.float32]) -> str:
    """Encode a map (S, S) as the data URI of a grey PNG (ISO/IEC 15948): 255 is attention 0, 0 is attention 1."""
    levels = 255 - np.round(255 * np.sqrt(head)).astype(np.uint8)
    height, width = levels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in levels)
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    image = _PNG_SIGNATURE + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
    return "data:image/png;base64," + base64.b64encode(image).decode("ascii")
