"""The model card: README.md of a model folder, with a YAML header that the Hugging Face hub reads.

The keys are documented at https://huggingface.co/docs/hub/model-cards; values come only from the run and from the user.
Labels, paths and texts of other cards are escaped: they cannot end the YAML or a cell of the table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from domainbert.base.paths import model_name, resolve_path
from domainbert.models.card_config import CardConfig

CARD = "README.md"
_FENCE = "---"
_LICENCE = ("license", "license_name", "license_link")  # the last two are used if the first is "other"
_MAX_CHARACTERS = 100_000  # read from the start of a card
_ESCAPED = {"\\": "\\\\", "|": "\\|", "&": "&amp;", "<": "&lt;", "`": "\\`", "*": "\\*"}


@dataclass(frozen=True)
class Result:
    """A score of a model on labelled data."""

    task: str
    """Description of the task."""
    dataset: str
    """Name of the file."""
    split: str
    key: str
    """Name of the metric in files, such as f1."""
    metric: str
    """Name of the metric in text."""
    score: float
    interval: Sequence[float] | None = None
    """Both ends of the 95 % confidence interval."""

    def as_json(self, pipeline_tag: str | None) -> dict[str, Any]:
        """Entry of `results` in `model-index`; the type `custom` marks a dataset that is not on the hub."""
        metric: dict[str, Any] = {"type": self.key, "name": self.metric, "value": round(self.score, 4)}
        if self.interval is not None:
            metric["args"] = {"interval_95": [round(float(bound), 4) for bound in self.interval]}
        return {
            "task": {"type": pipeline_tag or "other", "name": self.task},
            "dataset": {"type": "custom", "name": self.dataset, "split": self.split},
            "metrics": [metric],
        }


def card_head(
    name: str,
    pipeline_tag: str | None,
    said: CardConfig | None = None,
    base: Path | None = None,
    library: str | None = "transformers",
    tags: Sequence[str] = (),
    results: Sequence[Result] = (),
) -> dict[str, Any]:
    """Values of the YAML header of a card.

    Args:
        name: name for the scores; not the name of the folder, because equal trainings write equal files.
        pipeline_tag: the hub's name of the task; None if the hub has none.
        said: values from the user.
        base: the model that this one starts from, whose card may give licence, languages and base model.
        library: library that loads the model.
        tags: further tags for the hub's search.
        results: scores; NaN and infinite ones are left out.
    """
    from domainbert.models.folder import best_seed_folder  # imported here: it is too slow for `--help`

    said = said or CardConfig()
    start = None if base is None else best_seed_folder(resolve_path(base))
    before = {} if start is None else read_head(start)
    head = {
        **({"license": said.license} if said.license else {key: before.get(key) for key in _LICENCE}),
        "language": list(said.language) or before.get("language"),
        "base_model": start and (_on_hub(start) or before.get("base_model")),
        "datasets": list(said.datasets),
        "pipeline_tag": pipeline_tag,
        "library_name": library,
        "tags": list(dict.fromkeys(["domainbert", *tags, *said.tags])),
    }
    return with_results({key: value for key, value in head.items() if value}, name, results)


def with_results(head: Mapping[str, Any], name: str, results: Sequence[Result]) -> dict[str, Any]:
    """Add scores to the YAML header of a card."""
    entries = [result.as_json(head.get("pipeline_tag")) for result in results if math.isfinite(result.score)]
    if not entries:
        return dict(head)
    before = _results(head)
    return {**head, "model-index": [{"name": name, "results": [*before, *entries]}]}


def model_card(title: str, summary: str, facts: Mapping[str, object], usage: str, head: Mapping[str, Any]) -> str:
    """Markdown of a model card: title and summary, a table of facts about the training, a Python example."""
    rows = "\n".join(f"| {name} | {cell(value)} |" for name, value in facts.items())
    body = f"# {title}\n\n{summary}\n\n| | |\n|---|---|\n{rows}\n\n```python\n{usage}\n```\n"
    return with_head(head, body)


def with_head(head: Mapping[str, Any], body: str) -> str:
    """Join header and body; each value of the header is one line, so that no value can end the YAML."""
    text = yaml.safe_dump(_single_lines(head), sort_keys=False, allow_unicode=True, width=math.inf)
    return f"{_FENCE}\n{text}{_FENCE}\n\n{body}"


def cell(value: object) -> str:
    """Escape a value for a cell of a Markdown table."""
    text = "".join(_ESCAPED.get(char, char) for char in " ".join(str(value).split()))
    return text.replace("](", "]\\(")  # no link


def split_card(text: str) -> tuple[dict[str, Any], str]:
    """Split a card into the values of its YAML header and the body; an empty header if there is no valid YAML."""
    start, fence, rest = text[:_MAX_CHARACTERS].partition(f"{_FENCE}\n")
    head, end, body = rest.partition(f"\n{_FENCE}\n")
    if start or not fence or not end:
        return {}, text
    try:
        values = yaml.safe_load(head)
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}, text
    return (values, (body + text[_MAX_CHARACTERS:]).lstrip("\n")) if isinstance(values, dict) else ({}, text)


def read_head(folder: Path) -> dict[str, Any]:
    """Licence, languages, base model and pipeline tag from the card in a model folder; {} without a card."""
    try:
        head, _ = split_card((folder / CARD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    texts = (*_LICENCE, "pipeline_tag")
    lists = ("language", "base_model")
    values = {key: head[key] for key in (*texts, *lists) if isinstance(head.get(key), str)}
    return values | {key: head[key] for key in lists if _is_texts(head.get(key))}


def _results(head: Mapping[str, Any]) -> list[Any]:
    try:
        return list(head["model-index"][0]["results"])
    except (KeyError, IndexError, TypeError):
        return []


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, str) for item in value)


def _on_hub(folder: Path) -> str | None:
    """Name of a model from the hub's cache; None for other folders."""
    name = model_name(folder)
    return name.removeprefix("hub:").partition("@")[0] if name.startswith("hub:") else None


def _single_lines(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _single_lines(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_single_lines(item) for item in value]
    return " ".join(value.split()) if isinstance(value, str) else value
