"""Model cards with test scores, written to the folder of `evaluate`: a stage does not change the folders of models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.base.files import write_text
from domainbert.base.paths import resolve_path
from domainbert.models.card import CARD
from domainbert.models.folder import best_seed_folder
from domainbert.tasks.config import TaskConfig
from domainbert.tasks.tested_card import add_test_scores


def write_cards(
    out: Path, models: Mapping[str, Path], task: TaskConfig, test_files: str, systems: Mapping[str, Mapping[str, Any]]
) -> None:
    """Write `<system>/README.md` for each model: its card (of the best seed) with its test scores.

    `models` are the setting of `evaluate`, `test_files` the file names of the test set, separated by commas, and
    `systems` the scores by model name, mean over seeds.
    """
    for name, path in models.items():
        card = _read_card(path) or f"# {name}\n"
        (out / name).mkdir(parents=True, exist_ok=True)
        write_text(out / name / CARD, add_test_scores(card, name, task, test_files, systems[name]))


def _read_card(path: Path) -> str:
    try:
        folder = best_seed_folder(resolve_path(path))
        return ((folder.parent if folder.suffix == ".onnx" else folder) / CARD).read_text(encoding="utf-8")
    except (OSError, ValueError, DomainbertError):
        return ""
