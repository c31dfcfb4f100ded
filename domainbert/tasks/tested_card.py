"""Model cards with the scores of a test set, in the `model-index` of the header and in a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from domainbert.base.table import Table, score_cell
from domainbert.metrics.headline import Headline
from domainbert.metrics.table import raw_text_line
from domainbert.models.card import Result, add_results, join_card, split_card
from domainbert.tasks.config import TaskConfig


def add_test_scores(card: str, name: str, task: TaskConfig, test_files: str, system: Mapping[str, Any]) -> str:
    """Return the text of a card with the test scores of its model.

    Args:
        card: text of the card.
        name: name of the model for the scores.
        task: task of the model.
        test_files: file names of the test set, separated by commas.
        system: scores of the model, as in `metrics.json` of `evaluate`; the mean over seeds.
    """
    head, body = split_card(card)
    body = f"{body.rstrip()}\n\n{_scores_section(task.headline, test_files, system)}"
    results = [] if system[task.headline.key] is None else [_result(task, test_files, system)]
    return join_card(add_results(head, name, results), body)


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
