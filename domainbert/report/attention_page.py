"""Page of `domainbert report MODEL --attend TEXT`: word attributions of each label, and attention maps of each head."""

from __future__ import annotations

import base64
import io
import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from domainbert.base.errors import NO_TASK_HEAD, DomainbertError
from domainbert.base.paths import check_home_expanded
from domainbert.models.folder import open_model
from domainbert.report.page import Section, page_text, save_page
from domainbert.serving.attention_maps import AttentionMaps, attention_maps
from domainbert.serving.attributions import Attribution, attributions
from domainbert.serving.predictor import load_predictor
from domainbert.tasks.config import task_kind

FILE = "attention.html"

MAX_PIECES = 64
"""Maximum number of pieces, special tokens included, for attention maps."""

_LEVELS = 5  # shades of a word's colour: `l1` to `l5` in attributions.css
_MAX_ARROWS = 5  # connections listed for each head
_SHOWN_ERROR = 1e-4  # a smaller relative error is shown as "less than 0.01 %"

Result = TypeVar("Result")


def write_attention_report(folders: Sequence[str], text: str, out: str | None) -> str:
    """Write the page for the arguments of the command line, and return the lines to print.

    Raises:
        DomainbertError: not exactly one folder; an empty text; `write_attention_page` cannot write the page.
    """
    if len(folders) != 1:
        raise DomainbertError(f"--attend: found {len(folders)} folders; expected one model folder")
    if not text.strip():
        raise DomainbertError("--attend: found an empty text; expected the text to explain")
    path = Path(out or FILE)
    check_home_expanded("--out", path)
    path = path / FILE if path.is_dir() else path
    omitted = write_attention_page(Path(folders[0]), text, path)
    return "\n".join([*(f"warning: {path} has no {reason}" for reason in omitted), f"report: {path}"])


def write_attention_page(folder: Path, text: str, path: Path) -> list[str]:
    """Write the page about a model and a text, and return the reason for each part that is omitted, if any.

    Raises:
        DomainbertError: no model folder; both parts are impossible for this model and text; the disk is full.
    """
    opened = open_model(folder)
    has_task = task_kind(opened.head, opened.fields) is not None
    model = load_predictor(folder, "32-true") if has_task else folder  # a predictor needs a task head
    claims = None
    attribution_error = f"attributions: {NO_TASK_HEAD}"
    if has_task:
        claims, attribution_error = _result_or_error(lambda: attributions(model, text))
    maps, map_error = _result_or_error(lambda: attention_maps(model, text, MAX_PIECES))
    omitted = [reason for reason in (attribution_error, map_error) if reason]
    if claims is None and maps is None:
        lines = [f"{folder}: no attributions and no attention maps", *dict.fromkeys(omitted)]  # distinct reasons
        raise DomainbertError("\n  ".join(lines))
    word_data = {} if claims is None else {"text": text, "claims": [_label_variables(claim) for claim in claims]}
    map_data = {} if maps is None else _map_variables(maps)
    sections = [
        Section("Word attributions", "attributions.html", {"omitted": attribution_error, **word_data}),
        Section("Attention maps", "attention.html", {"omitted": map_error, **map_data}),
    ]
    sections.sort(key=lambda section: bool(section.data["omitted"]))  # omitted parts come last
    save_page(path, page_text(f"How {folder} reads a text", sections))
    return omitted


def _result_or_error(compute: Callable[[], Result]) -> tuple[Result | None, str]:
    """Return the result and "", or after a `DomainbertError` None and its message."""
    try:
        return compute(), ""
    except DomainbertError as error:
        return None, str(error)


def _label_variables(claim: Attribution) -> dict[str, Any]:
    """Return the variables of `attributions.html` for a predicted label (claim).

    The label, the outputs and the error are texts; `parts` are the words of the text and the gaps between the words.
    """
    largest = max(abs(word.value) for word in claim.words)
    # two significant digits for the largest value
    decimals = max(1, 1 - math.floor(math.log10(largest))) if largest else 1
    parts: list[dict[str, Any]] = []
    end = 0
    for word in claim.words:
        value = _format_signed(word.value, decimals, "+")
        level = round(_LEVELS * abs(word.value) / largest) if largest else 0
        # a label of the whole text has no start and end
        inside = claim.start is not None and claim.end is not None and claim.start <= word.start < claim.end
        side = "for" if word.value > 0 else "against"
        parts.append({"between": claim.text[end : word.start]})
        parts.append({"word": word.text, "value": value, "level": level, "side": side, "inside": inside})
        end = max(end, word.end)
    parts.append({"between": claim.text[end:]})
    return {
        "label": claim.label,
        "said_of": "" if claim.start is None else claim.text[claim.start : claim.end],
        "output": _format_signed(claim.output, max(decimals, 2)),
        "hidden": _format_signed(claim.baseline_output, max(decimals, 2)),
        "difference": _format_signed(claim.output - claim.baseline_output, max(decimals, 2)),
        "probability": f"{100 * math.exp(claim.output):.1f} %" if claim.unit == "log-probability" else "",
        "unit": claim.unit,
        "error": f"{100 * claim.error:.2f} %" if claim.error > _SHOWN_ERROR else "less than 0.01 %",
        "steps": claim.steps,
        "parts": parts,
    }


def _format_signed(value: float, decimals: int, plus: str = "") -> str:
    """Format a number with a typographic minus sign; `plus` "+" gives positive numbers a sign."""
    return f"{value:{plus}.{decimals}f}".replace("-", "\N{MINUS SIGN}")


def _map_variables(maps: AttentionMaps) -> dict[str, Any]:
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
    """Return a distinct name for each piece: the piece, with its position (from 1) if the text has it several times."""
    counts = Counter(pieces)
    return [piece if counts[piece] == 1 else f"{piece} ({position})" for position, piece in enumerate(pieces, 1)]


def _head_summary(head: NDArray[np.float32], names: Sequence[str], special: NDArray[np.bool_]) -> dict[str, Any]:
    """Return the strongest connections of a head between pieces of the text, and the share that special tokens get.

    `head` (S, S) has the attention from piece i to piece j, `names` a name for each piece, and `special` (S,) whether
    the piece is a special token. The share is the mean over the other pieces.
    """
    weights = np.where(special[:, None] | special, 0, head)  # without special tokens
    order = np.argsort(-weights, axis=None, kind="stable")[:_MAX_ARROWS]
    cells = [divmod(int(index), len(names)) for index in order]
    arrows = [
        {"from": names[i], "to": names[j], "value": f"{weights[i, j]:.2f}"}
        for i, j in cells
        if weights[i, j] >= 0.005  # smaller weights would be shown as 0.00
    ]
    special_share = float(head[~special][:, special].sum(axis=1).mean()) if not special.all() else 1.0
    return {"arrows": arrows, "special": f"{100 * special_share:.0f} %"}


def _grey_png(head: NDArray[np.float32]) -> str:
    """Encode a map (S, S) as the data URI of a grey PNG: white is attention 0, black is attention 1."""
    levels = 255 - np.round(255 * np.sqrt(head)).astype(np.uint8)  # the root makes small values visible
    stream = io.BytesIO()
    Image.fromarray(levels).save(stream, "png")
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode("ascii")
