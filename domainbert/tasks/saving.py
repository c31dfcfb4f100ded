"""Model folders and model cards of a training on a labelled task."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from torch.distributed import all_gather_object, get_world_size, is_initialized

from domainbert.metrics.headline import Headline
from domainbert.models.card import CardConfig, Result, card_head, model_card
from domainbert.models.saving import save_model
from domainbert.training.sharding import whole_weights

if TYPE_CHECKING:
    from domainbert.tasks.finetuning import FineTuning


def save_folder(
    module: FineTuning,
    folder: Path,
    card: str | CardConfig | None,
    scores: Mapping[str, float],
    fields: Mapping[str, Any],
) -> None:
    """Write the model folder of a module, see `FineTuning.save_pretrained`; `fields` are the entries of its task in
    `config.json`."""
    weights: Mapping[str, Any] = whole_weights(module.model)
    task = module.task
    with module.writing() as writes:
        if not writes:
            return
        if module.entries is not None:  # without the vocabulary entries that training excludes
            weights = module.entries.restore_weights(weights)
        save_model(
            folder,
            module.model,
            module.config,
            module.tokenizer,
            task.head,
            card if isinstance(card, str) else task_card(module, scores, card),
            labels=task.labels,
            max_length=module.max_length,
            weights=task.scaling.folder_weights(weights),
            teachers=module.initial.teachers,
            facts=fields,
        )


def task_card(
    module: FineTuning,
    scores: Mapping[str, float],
    values: CardConfig | None = None,
    headline: Headline | None = None,
    facts: Mapping[str, object] = MappingProxyType({}),
) -> str:
    """Return the text of the model card of a module with one of the validation scores, by default the main metric.

    Values of the header that are not in `values` come from the card of the model that training started from; `facts`
    are further rows of the table.
    """
    task, title = module.task, f"{module.kind} domain model"
    assert task.config is not None
    headline = headline or task.config.headline
    rows, results = {**task.card_facts(), **module.start_facts, **facts}, []
    if headline.key in scores:  # there is a validation set
        score, name = scores[headline.key], headline.name
        rows |= {f"validation {name}": f"{score:.4f}"}
        results = [Result(task.config.title, module.validation_name, "validation", headline.key, name, score)]
    head = card_head(title, task.config.pipeline_tag, values, module.initial.card, results=results)
    return model_card(title, f"{module.kind} with domainbert.", rows, task.predictor.usage(task), head)


def gather_by_item(values: Mapping[int, Any]) -> dict[int, Any]:
    """Return the values of all processes, by index of the test item."""
    if not is_initialized():
        return dict(values)
    parts: list[dict[int, Any]] = [{} for _ in range(get_world_size())]
    all_gather_object(parts, dict(values))
    return {index: value for part in parts for index, value in part.items()}
