"""The page of `domainbert report MODEL --attend TEXT`: which words made each label, and where every head looks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from domainbert.base.errors import DomainbertError
from domainbert.base.files import told_if_full
from domainbert.base.paths import check_whole
from domainbert.models.folder import open_model
from domainbert.report.attended import attention_data, attribution_data
from domainbert.report.page import Section, write_page
from domainbert.serving.attention_maps import attention_maps
from domainbert.serving.attributions import Attribution, attributions
from domainbert.serving.predictor import load_predictor
from domainbert.tasks.config import task_kind

FILE = "attention.html"

MOST_PIECES = 64
"""Longest text whose maps are drawn, special tokens included."""

Made = TypeVar("Made")


def attend(folders: Sequence[str], text: str, out: str | None) -> str:
    """Write the page that the command line asks for, and return the closing lines.

    Raises:
        DomainbertError: not one folder, no text, or see `write_attention_page`.
    """
    if len(folders) != 1:
        raise DomainbertError(f"--attend: found {len(folders)} folders; expected one, of a model")
    if not text.strip():
        raise DomainbertError("--attend: found an empty text; expected words that the model reads")
    path = Path(out or FILE)
    check_whole("--out", path)
    path = path / FILE if path.is_dir() else path
    lacking = write_attention_page(Path(folders[0]), text, path)
    return "\n".join([*(f"not on the page: {sentence}" for sentence in lacking), f"report: {path}"])


def write_attention_page(folder: Path, text: str, path: Path) -> list[str]:
    """Write the page about a text that a model reads, and return a sentence for each part that it lacks.

    Raises:
        DomainbertError: no model folder; neither part can be made of this model and text; the disk is full.
    """
    opened = open_model(folder)
    has_task = task_kind(opened.head, opened.fields) is not None
    model = load_predictor(folder, "32-true") if has_task else folder
    found, no_words = _tried(lambda: attributions(model, text) if has_task else _no_task())
    maps, no_maps = _tried(lambda: attention_maps(model, text, MOST_PIECES))
    lacking = [sentence for sentence in (no_words, no_maps) if sentence]
    if found is None and maps is None:
        raise DomainbertError("\n  ".join([f"{folder}: nothing to show", *dict.fromkeys(lacking)]))
    made = {} if found is None else attribution_data(text, found)
    drawn = {} if maps is None else attention_data(maps)
    sections = [
        Section("Which words made it", "attributions.html", {"lacking": no_words, **made}),
        Section("Where heads look", "attention.html", {"lacking": no_maps, **drawn}),
    ]
    sections.sort(key=lambda section: bool(section.data["lacking"]))  # what there is comes first
    with told_if_full(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_page(path, f"How {folder} reads a text", sections)
    return lacking


def _tried(make: Callable[[], Made]) -> tuple[Made | None, str]:
    """The result; or None, and the sentence with which it is refused."""
    try:
        return make(), ""
    except DomainbertError as error:
        return None, str(error)


def _no_task() -> list[Attribution]:
    raise DomainbertError("attributions: the model has no head for a task; expected one that finetune wrote")
