"""Start of a training on a labelled task: model, tokenizer and task, from a model folder or from a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from domainbert.base.errors import DomainbertError, format_names
from domainbert.base.paths import resolve_path
from domainbert.encoders.config import EncoderConfig, VocabularyFacts
from domainbert.encoders.families import build_model
from domainbert.encoders.heads import EncoderWithHead
from domainbert.models.added_tokens import add_tokens
from domainbert.models.card import inherited_values
from domainbert.models.folder import ModelFolder, folder_of_fields, open_model
from domainbert.models.loading import load_model
from domainbert.tasks.config import TASK_KEY, TaskConfig
from domainbert.tasks.lookup import task_kind
from domainbert.tasks.task import Task, has_fixed_outputs, task_from_labels
from domainbert.tokenization.load import DomainTokenizer, load_tokenizer
from domainbert.tokenization.splitting import SPLITTING_KEY, check_splitting

ModelSource = str | Path | ModelFolder | Mapping[str, Any]
"""A model folder, or the plain values of a checkpoint (`SavedModel.as_plain`)."""


@dataclass(frozen=True)
class InitialModel:
    """Model to train, with its task, the configuration to save and its tokenizer.

    Attributes:
        fields: entries of the task in the `config.json` of a model whose head is trained already; {} for a new head.
        teachers: names of the teachers.
        card: values for the header of the model card, see `inherited_values`.
    """

    model: EncoderWithHead
    config: EncoderConfig
    tokenizer: DomainTokenizer
    task: Task[Any, Any]
    fields: Mapping[str, Any] = field(default_factory=dict)
    teachers: tuple[str, ...] = ()
    card: Mapping[str, Any] = field(default_factory=dict)


def initial_model(
    source: ModelSource | DomainTokenizer,
    task: Task[Any, Any] | TaskConfig,
    init: Literal["pretrained", "random"] = "pretrained",
    encoder: EncoderConfig | None = None,
    dropout: float | None = None,
) -> InitialModel:
    """Return a model with a head for a task; new weights are drawn by torch's generator.

    Args:
        source: model folder; with an `encoder` only a tokenizer, or its folder; or the values of a checkpoint, whose
            weights are loaded later.
        task: the task, or its settings with `labels`; without labels, the labels of a folder with a head for the task.
        init: `random` draws all weights.
        encoder: architecture for `init="random"`; None takes the architecture of the folder.
        dropout: overrides the dropout of the configuration in training.
    """
    if isinstance(source, Mapping):
        return _from_checkpoint(source, task, dropout)
    if encoder is not None:
        folder = None
        if isinstance(source, ModelFolder):
            source = source.path
        tokenizer = source if isinstance(source, DomainTokenizer) else load_tokenizer(resolve_path(source))
    else:
        if isinstance(source, DomainTokenizer):
            expected = 'a model folder, or init="random" with an encoder'
            raise DomainbertError(where="model", found="a tokenizer without an encoder", expected=expected)
        folder = open_model(Path(source) if isinstance(source, str) else source)
        tokenizer = folder.tokenizer()
    without_labels = not isinstance(task, Task) and task.labels is None and not has_fixed_outputs(task)
    task = task if isinstance(task, Task) else task_of_settings(task, folder)
    fields: dict[str, Any] = {}
    if folder is not None and init == "pretrained":
        model, _, new_weights = load_model(folder, task.head_config, task.labels, dropout)
        config, card, teachers = folder.config, inherited_values(folder.path), folder.teachers
        if new_weights and without_labels:  # the labels say that the head of the folder is meant
            name = type(task.config).__name__
            raise DomainbertError(
                where="task",
                found=f"{name}() without labels, with other settings of the head than in {folder.path}",
                expected=f"the settings of the head in this folder, or {name}(labels=[...]) for a new head",
            )
        if not new_weights:  # the folder has a trained head for the task
            fields = _fields_of_task(task, folder)
            task.scaling.init_head(task, model.head)  # from the units of the folder to the units of the training
    else:
        config, card, teachers = encoder or folder.config, {}, ()  # type: ignore[union-attr]
        model = _new_model(config, VocabularyFacts(tokenizer.vocab_size, tokenizer.pad_id), task, folder, dropout)
    tokenizer = add_tokens(model, tokenizer, task.inputs.added_tokens(task))
    task.scaling.set_units(task, model.head)
    return InitialModel(model, config, tokenizer, task, fields, teachers, card)


def plain_model(initial: InitialModel, config_fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return plain values from which `initial_model` builds the same architecture anywhere.

    `config_fields` is the content of `config.json`.
    """
    learned = {name: getattr(initial.task, name) for name in initial.task.learned}
    return {
        "config": dict(config_fields),
        "tokenizer": initial.tokenizer.as_plain(),
        "learned": learned,
        "fields": dict(initial.fields),
        "card": dict(initial.card),
    }


def _from_checkpoint(
    saved: Mapping[str, Any], given: Task[Any, Any] | TaskConfig, dropout: float | None
) -> InitialModel:
    tokenizer = DomainTokenizer.from_plain(saved["tokenizer"])
    folder = folder_of_fields(Path("checkpoint"), dict(saved["config"]), tokenizer=tokenizer)
    task = given if isinstance(given, Task) else task_of_settings(given, folder)
    for name in task.learned:
        if name in saved["learned"]:
            setattr(task, name, saved["learned"][name])
    model = _new_model(folder.config, folder.vocabulary._replace(pad_id=tokenizer.pad_id), task, folder, dropout)
    task.scaling.set_units(task, model.head)
    return InitialModel(model, folder.config, tokenizer, task, saved["fields"], folder.teachers, saved["card"])


def _new_model(
    config: EncoderConfig,
    vocabulary: VocabularyFacts,
    task: Task[Any, Any],
    folder: ModelFolder | None,
    dropout: float | None,
) -> EncoderWithHead:
    """Return a new model; the folder gives the options of the head that the task does not set."""
    head = task.head_config if folder is None else task.head_config.completed(folder.head_config)
    return build_model(config.with_dropout(dropout), vocabulary, head, len(task.labels))


def task_of_settings(config: TaskConfig, folder: ModelFolder | None) -> Task[Any, Any]:
    """Return the task with the labels of its settings, or else of a folder with a head for the task."""
    if config.labels is not None or has_fixed_outputs(config):
        return task_from_labels(config, config.labels or ())
    name = type(config).__name__
    if folder is None or task_kind(folder.head, folder.fields) is not type(config):
        where = "" if folder is None else f", and {folder.path} has no head for {config.name}"
        expected = f"{name}(labels=[...]), or the task of LabelledData(..., train=...)"
        raise DomainbertError(where="task", found=f"{name}() without labels{where}", expected=expected)
    return task_from_labels(config, config.known_labels(folder.labels))


def _fields_of_task(task: Task[Any, Any], folder: ModelFolder) -> dict[str, Any]:
    """Return the entries of a task in the `config.json` of a folder with a trained head for it. A task without a word
    splitting gets the folder's."""
    splitting = folder.fields.get(SPLITTING_KEY)
    if task.word_splitting is None and splitting is not None:
        task.word_splitting = check_splitting(splitting)
    names = {TASK_KEY, SPLITTING_KEY, *task.model_config_fields({})}
    saved = {name: folder.fields[name] for name in names if name in folder.fields}
    return {TASK_KEY: task.name, **saved}


def check_same_labels(labels: Sequence[str], expected: Sequence[str], source: str) -> None:
    """Raise `DomainbertError` if the labels of a checkpoint, named `source`, are not the expected ones, in order."""
    if list(labels) != list(expected):
        raise DomainbertError(where=source, found=format_names(labels), expected=format_names(expected))
