"""Model folders and model cards of a training on a labelled task."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from domainbert.metrics.headline import Headline
from domainbert.models.card import CardConfig, Result, card_head, model_card
from domainbert.models.saving import folder_fields, save_model
from domainbert.tasks.config import TASK_KEY
from domainbert.tasks.task import Task
from domainbert.tokenization.splitting import SPLITTING_KEY
from domainbert.training.processes import first_process_writes
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
    with first_process_writes() as writes:
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


def task_fields(task: Task[Any, Any], scores: Mapping[str, float]) -> dict[str, Any]:
    """Return the entries of a task in `config.json` for a model with these validation scores."""
    fields = {TASK_KEY: task.name, **task.model_config_fields(scores)}
    splitting = task.word_splitting
    return fields if splitting is None else {**fields, SPLITTING_KEY: splitting}


def config_fields(module: FineTuning) -> dict[str, Any]:
    """Return the content of the `config.json` of the model of a module."""
    task, teachers = module.task, module.initial.teachers
    fields = folder_fields(
        module.model, module.config, module.tokenizer, task.head, task.labels, teachers, module.present_fields
    )
    return fields if module.entries is None else {**fields, "vocab_size": module.entries.vocab_size}


def task_card(
    module: FineTuning,
    scores: Mapping[str, float],
    values: CardConfig | None = None,
    headline: Headline | None = None,
    facts: Mapping[str, object] = MappingProxyType({}),
) -> str:
    """Return the text of the model card of a module with one of the validation scores, by default the main metric, and
    with its test scores.

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
    card = model_card(title, f"{module.kind} with domainbert.", rows, task.predictor.usage(task), head)
    return module.test_scores.add_to(card, title, module.model)
