"""Model cards with test scores, written to the folder of `evaluate`: a stage does not change the folders of models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.base.files import write_text
from domainbert.base.paths import resolve_path
from domainbert.base.table import Table, score_cell
from domainbert.metrics.headline import Headline
from domainbert.metrics.table import raw_text_line
from domainbert.models.card import CARD, Result, add_results, join_card, split_card
from domainbert.models.folder import best_seed_folder
from domainbert.tasks.config import TaskConfig


def write_cards(
    out: Path, models: Mapping[str, Path], task: TaskConfig, test_files: str, systems: Mapping[str, Mapping[str, Any]]
) -> None:
    """Write `<system>/README.md` for each model: its card (of the best seed) with its test scores.

    Args:
        out: folder for the cards.
        models: model folders by name, as `evaluate` takes them.
        task: task of the models.
        test_files: file names of the test set, separated by commas.
        systems: scores by model name; the mean over seeds.
    """
    for name, path in models.items():
        head, body = split_card(_read_card(path) or f"# {name}\n")
        body = f"{body.rstrip()}\n\n{_scores_section(task.headline, test_files, systems[name])}"
        results = [] if systems[name][task.headline.key] is None else [_result(task, test_files, systems[name])]
        (out / name).mkdir(parents=True, exist_ok=True)
        write_text(out / name / CARD, join_card(add_results(head, name, results), body))


def _read_card(path: Path) -> str:
    """Return the card of a model folder, of its best seed, or of the folder of an `.onnx` file; "" if it cannot be
    read."""
    try:
        folder = best_seed_folder(resolve_path(path))
        return ((folder.parent if folder.suffix == ".onnx" else folder) / CARD).read_text(encoding="utf-8")
    except (OSError, ValueError, DomainbertError):
        return ""


def _result(task: TaskConfig, test_files: str, system: Mapping[str, Any]) -> Result:
    metric = f"{task.headline.name}, {_seeds_text(system)}"
    score = float(system[task.headline.key])
    return Result(task.title, test_files, "test", task.headline.key, metric, score, system.get("interval"))


def _seeds_text(system: Mapping[str, Any]) -> str:
    count = system.get("seeds", 1)
    return f"mean of {count} seeds" if count > 1 else "one seed"


def _scores_section(headline: Headline, test_files: str, system: Mapping[str, Any]) -> str:
    score = score_cell(system[headline.key], headline.percent, system.get("interval"))
    table = Table(["metric", "score", "of", "test set"], [[headline.name, score, _seeds_text(system), test_files]])
    raw_text = f"\n{raw_text_line(system)}.\n" if "raw_text" in system else ""
    return f"## Test scores\n\n{table.markdown()}\n{raw_text}"
