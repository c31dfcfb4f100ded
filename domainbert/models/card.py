"""The model card: README.md of a model folder, with a YAML header that the Hugging Face hub reads.

The keys are documented at https://huggingface.co/docs/hub/model-cards; values come only from the run and from the user.
Labels, paths and texts of other cards are escaped: they cannot end the YAML or a cell of the table.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from domainbert.base.errors import DomainbertError
from domainbert.base.paths import model_name, resolve_path
from domainbert.base.redact import map_texts, redact
from domainbert.base.table import Table
from domainbert.base.yaml_loader import LimitError, load_plain
from domainbert.models.card_config import CardConfig

CARD = "README.md"
_FENCE = "---"
_LICENSE_KEYS = ("license", "license_name", "license_link")  # the last two are used if the first is "other"
_MAX_CHARACTERS = 100_000  # read from the start of a card

_HEAD = re.compile(r"\s*---\n(.*?)\n---[ \t]*(?:\n|$)", re.DOTALL)  # as `huggingface_hub` reads it


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
        """Return the entry of `results` in `model-index`; the type `custom` marks a dataset that is not on the hub."""
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
    card: CardConfig | None = None,
    inherited: Mapping[str, Any] = MappingProxyType({}),
    library: str | None = "transformers",
    tags: Sequence[str] = (),
    results: Sequence[Result] = (),
) -> dict[str, Any]:
    """Return the values of the YAML header of a card, without unset values.

    Args:
        name: name for the scores; not the name of the folder, because equal trainings write equal files.
        pipeline_tag: the hub's name of the task; None if the hub has none.
        inherited: values from the card of the model that this one starts from, see `inherited_values`.
        tags: further tags for the hub's search.
        results: scores; NaN and infinite ones are left out.
    """
    card = card or CardConfig()
    inherited = dict(inherited)
    if card.license:
        inherited = {key: value for key, value in inherited.items() if key not in _LICENSE_KEYS}
        inherited["license"] = card.license
    if card.language:
        inherited["language"] = list(card.language)
    order = (*_LICENSE_KEYS, "language", "base_model")
    head = {
        **{key: inherited.get(key) for key in order},
        "datasets": list(card.datasets),
        "pipeline_tag": pipeline_tag,
        "library_name": library,
        "tags": list(dict.fromkeys(["domainbert", *tags, *card.tags])),
    }
    return add_results({key: value for key, value in head.items() if value}, name, results)


def inherited_values(base: Path) -> dict[str, Any]:
    """Return the values of the header of a card that a model inherits from the model that it starts from."""
    from domainbert.models.folder import best_seed_folder  # imported here: it is too slow for `--help`

    folder = best_seed_folder(resolve_path(base))
    head = read_head(folder)
    values = {key: head.get(key) for key in (*_LICENSE_KEYS, "language")}
    # a model that is not on the hub is replaced by the model that it started from
    values["base_model"] = _hub_name(folder) or head.get("base_model")
    return {key: value for key, value in values.items() if value}


def add_results(head: Mapping[str, Any], name: str, results: Sequence[Result]) -> dict[str, Any]:
    """Return the YAML header of a card with further scores of the model `name`; scores that are NaN or infinite are
    left out."""
    entries = [result.as_json(head.get("pipeline_tag")) for result in results if math.isfinite(result.score)]
    if not entries:
        return dict(head)
    return {**head, "model-index": [{"name": name, "results": [*_results(head), *entries]}]}


def load_code(name: str = "AutoModel") -> str:
    """Return Python code that loads the model in the current folder with a class of transformers."""
    return f'from transformers import {name}\n\nmodel = {name}.from_pretrained(".")'


def model_card(title: str, summary: str, facts: Mapping[str, object], usage: str, head: Mapping[str, Any]) -> str:
    """Return the text of a model card: the header `head`, then title and summary, a table of facts about the training,
    and the Python example `usage`, which runs in the model folder, as Markdown."""
    table = Table(["", ""], [[name, str(value)] for name, value in facts.items()]).markdown()
    body = f"# {title}\n\n{summary}\n\n{table}\n\nIn the model folder:\n\n```python\n{usage}\n```\n"
    return join_card(head, body)


def join_card(head: Mapping[str, Any], body: str) -> str:
    """Return the text of a card from header and body, without secrets; each value of the header is one line, so that no
    value can end the YAML."""
    single_lines = map_texts(redact(head), lambda text: " ".join(text.split()))
    text = yaml.safe_dump(single_lines, sort_keys=False, allow_unicode=True, width=math.inf)
    return f"{_FENCE}\n{text}{_FENCE}\n\n{redact(body)}"


def split_card(text: str) -> tuple[dict[str, Any], str]:
    """Split a card into the values of its YAML header and the body. Return {} and the whole text if there is no valid
    header at its start; raise `LimitError` if the header is larger than `yaml_loader` allows."""
    match = _HEAD.match(text[:_MAX_CHARACTERS])
    if match is None:
        return {}, text
    try:
        values = load_plain(match[1])
    except (yaml.YAMLError, ValueError):
        return {}, text
    if not isinstance(values, dict):
        return {}, text
    return values, text[match.end() :].lstrip("\n")


def read_head(folder: Path) -> dict[str, Any]:
    """Return licence, languages, base model and pipeline tag from the card in a model folder, as far as they are set;
    {} without a card. Raise `DomainbertError` for a header that would take long or much memory to read."""
    try:
        head, _ = split_card((folder / CARD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    except LimitError as error:
        raise DomainbertError(error, file=folder / CARD, expected="at most that many") from error
    text_keys = (*_LICENSE_KEYS, "pipeline_tag")
    text_or_list_keys = ("language", "base_model")
    values = {key: head[key] for key in (*text_keys, *text_or_list_keys) if isinstance(head.get(key), str)}
    return values | {key: head[key] for key in text_or_list_keys if _is_list_of_texts(head.get(key))}


def _results(head: Mapping[str, Any]) -> list[Any]:
    try:
        return list(head["model-index"][0]["results"])
    except (KeyError, IndexError, TypeError):
        return []  # no scores, or not in the form of the hub


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, str) for item in value)


def _hub_name(folder: Path) -> str | None:
    name = model_name(folder)
    return name.removeprefix("hub:").partition("@")[0] if name.startswith("hub:") else None
