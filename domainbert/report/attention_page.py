"""Page of `domainbert report MODEL --attend TEXT`: word attributions of each label, and attention maps of each head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from domainbert.base.errors import NO_TASK_HEAD, DomainbertError
from domainbert.base.files import report_full_disk
from domainbert.base.paths import check_home_expanded
from domainbert.models.folder import open_model
from domainbert.report.attention_data import attention_data, attribution_data
from domainbert.report.page import Section, write_page
from domainbert.serving.attention_maps import attention_maps
from domainbert.serving.attributions import Attribution, attributions
from domainbert.serving.predictor import load_predictor
from domainbert.tasks.config import task_kind

FILE = "attention.html"

MAX_PIECES = 64
"""Maximum number of pieces, special tokens included, for attention maps."""

Result = TypeVar("Result")


def write_attention_report(folders: Sequence[str], text: str, out: str | None) -> str:
    """Write the page for the arguments of the command line, and return the lines to print.

    Raises:
        DomainbertError: not exactly one folder, an empty text, or see `write_attention_page`.
    """
    if len(folders) != 1:
        raise DomainbertError(f"--attend: found {len(folders)} folders; expected one model folder")
    if not text.strip():
        raise DomainbertError("--attend: found an empty text; expected the text to explain")
    path = Path(out or FILE)
    check_home_expanded("--out", path)
    path = path / FILE if path.is_dir() else path
    omitted = write_attention_page(Path(folders[0]), text, path)
    return "\n".join([*(f"not on the page: {reason}" for reason in omitted), f"report: {path}"])


def write_attention_page(folder: Path, text: str, path: Path) -> list[str]:
    """Write the page about a model and a text, and return the reason for each part that is omitted, if any.

    Raises:
        DomainbertError: no model folder; both parts are impossible for this model and text; the disk is full.
    """
    opened = open_model(folder)
    has_task = task_kind(opened.head, opened.fields) is not None
    model = load_predictor(folder, "32-true") if has_task else folder
    claims, attribution_error = _result_or_error(lambda: attributions(model, text) if has_task else _raise_no_task())
    maps, map_error = _result_or_error(lambda: attention_maps(model, text, MAX_PIECES))
    omitted = [reason for reason in (attribution_error, map_error) if reason]
    if claims is None and maps is None:
        raise DomainbertError(
            "\n  ".join([f"{folder}: no attributions and no attention maps", *dict.fromkeys(omitted)])
        )
    word_data = {} if claims is None else attribution_data(text, claims)
    map_data = {} if maps is None else attention_data(maps)
    sections = [
        Section("Word attributions", "attributions.html", {"omitted": attribution_error, **word_data}),
        Section("Attention maps", "attention.html", {"omitted": map_error, **map_data}),
    ]
    sections.sort(key=lambda section: bool(section.data["omitted"]))  # omitted parts come last
    with report_full_disk(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_page(path, f"How {folder} reads a text", sections)
    return omitted


def _result_or_error(compute: Callable[[], Result]) -> tuple[Result | None, str]:
    """Return the result and "", or after a `DomainbertError` None and its message."""
    try:
        return compute(), ""
    except DomainbertError as error:
        return None, str(error)


def _raise_no_task() -> list[Attribution]:
    raise DomainbertError(f"attributions: {NO_TASK_HEAD}")
