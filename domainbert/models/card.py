"""The model card: README.md of a model folder, with the YAML at its head that the Hugging Face hub reads.

The keys are those of https://huggingface.co/docs/hub/model-cards; nothing stands there that no run and no user has
said. Labels, paths and texts of other cards are data: they can end neither the YAML nor a cell of the table.
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
_LICENCE = ("license", "license_name", "license_link")  # the last two where the first says "other"
_LONGEST = 100_000  # characters of a card whose head is read
_ESCAPED = {"\\": "\\\\", "|": "\\|", "&": "&amp;", "<": "&lt;", "`": "\\`", "*": "\\*"}


@dataclass(frozen=True)
class Result:
    """A score of a model on labelled data."""

    task: str
    """The thing that was predicted, in words."""
    dataset: str
    """The name of the file."""
    split: str
    key: str
    """The metric's name in files, such as f1, and `metric` in words."""
    metric: str
    score: float
    interval: Sequence[float] | None = None
    """Both ends of its 95 % interval."""

    def as_json(self, pipeline_tag: str | None) -> dict[str, Any]:
        """An entry of `results` in `model-index`; a dataset that is not on the hub is of the type custom."""
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
    """The YAML of a card as plain values.

    Args:
        name: under which scores are listed; not that of the folder, for equal trainings write equal files.
        pipeline_tag: what it does, in the words of the hub; None where the hub has none for it.
        said: what the user says.
        base: the model that it starts from, whose card may tell licence, languages and base model.
        library: what loads it.
        tags: further words by which it is found.
        results: scores that are finite numbers; others are left out.
    """
    from domainbert.models.folder import best_seed_folder  # which takes longer to import than `--help` may

    said = said or CardConfig()
    start = None if base is None else best_seed_folder(resolve_path(base))
    before = {} if start is None else read_head(start)
    found = {
        **({"license": said.license} if said.license else {key: before.get(key) for key in _LICENCE}),
        "language": list(said.language) or before.get("language"),
        "base_model": start and (_on_hub(start) or before.get("base_model")),
        "datasets": list(said.datasets),
        "pipeline_tag": pipeline_tag,
        "library_name": library,
        "tags": list(dict.fromkeys(["domainbert", *tags, *said.tags])),
    }
    return with_results({key: value for key, value in found.items() if value}, name, results)


def with_results(head: Mapping[str, Any], name: str, results: Sequence[Result]) -> dict[str, Any]:
    """The YAML of a card with more scores."""
    entries = [one.as_json(head.get("pipeline_tag")) for one in results if math.isfinite(one.score)]
    if not entries:
        return dict(head)
    before = _results(head)
    return {**head, "model-index": [{"name": name, "results": [*before, *entries]}]}


def model_card(title: str, summary: str, facts: Mapping[str, object], usage: str, head: Mapping[str, Any]) -> str:
    """Markdown for a model folder: what the model is, a table of how it was made, a few lines of Python."""
    rows = "\n".join(f"| {name} | {cell(value)} |" for name, value in facts.items())
    body = f"# {title}\n\n{summary}\n\n| | |\n|---|---|\n{rows}\n\n```python\n{usage}\n```\n"
    return with_head(head, body)


def with_head(head: Mapping[str, Any], body: str) -> str:
    """A card with its YAML, each value of which is one line, so that none of them looks like the end."""
    text = yaml.safe_dump(_in_lines(head), sort_keys=False, allow_unicode=True, width=math.inf)
    return f"{_FENCE}\n{text}{_FENCE}\n\n{body}"


def cell(value: object) -> str:
    """A value for a table of Markdown, where it is text and nothing else."""
    text = "".join(_ESCAPED.get(one, one) for one in " ".join(str(value).split()))
    return text.replace("](", "]\\(")  # else a link


def split_card(text: str) -> tuple[dict[str, Any], str]:
    """The YAML of a card and what follows it; without YAML, or with one that cannot be read, the whole text."""
    start, fence, rest = text[:_LONGEST].partition(f"{_FENCE}\n")
    head, end, body = rest.partition(f"\n{_FENCE}\n")
    if start or not fence or not end:
        return {}, text
    try:
        found = yaml.safe_load(head)
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}, text
    return (found, (body + text[_LONGEST:]).lstrip("\n")) if isinstance(found, dict) else ({}, text)


def read_head(folder: Path) -> dict[str, Any]:
    """The facts that the card in a model folder says of licence, languages, base model and kind; nothing where it
    has no card."""
    try:
        head, _ = split_card((folder / CARD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    texts = (*_LICENCE, "pipeline_tag")
    lists = ("language", "base_model")
    found = {key: head[key] for key in (*texts, *lists) if isinstance(head.get(key), str)}
    return found | {key: head[key] for key in lists if _is_texts(head.get(key))}


def _results(head: Mapping[str, Any]) -> list[Any]:
    """The scores that a card lists; none where they stand in another form."""
    try:
        return list(head["model-index"][0]["results"])
    except (KeyError, IndexError, TypeError):
        return []


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value)


def _on_hub(folder: Path) -> str | None:
    """The name of a model that came from the hub; of others only their folder is known."""
    name = model_name(folder)
    return name.removeprefix("hub:").partition("@")[0] if name.startswith("hub:") else None


def _in_lines(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _in_lines(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_in_lines(one) for one in value]
    return " ".join(value.split()) if isinstance(value, str) else value
