"""The stage `finetune`: train a model for a labelled task, from a model folder or random weights, once per seed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from domainbert.base.errors import DomainbertError
from domainbert.base.fields import Count, Length
from domainbert.base.paths import ModelPath
from domainbert.encoders.config import EncoderConfig, check_length
from domainbert.stages.labelled_training import LabelledTraining, fit_labelled, save_seed, train_seeds
from domainbert.stages.stage import Inputs, stage

if TYPE_CHECKING:
    from domainbert.labelled.items import Labelled
    from domainbert.stages.early_checks import StageArguments
    from domainbert.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class Finetune(LabelledTraining):
    """Settings of `finetune`."""

    model: ModelPath
    """Model folder; with `init: random` and an `encoder`, a tokenizer folder."""

    init: Literal["pretrained", "random"] = "pretrained"
    """`pretrained` starts from the weights of the model; `random`, the baseline, from random weights."""

    encoder: EncoderConfig | None = None
    """Architecture for `init: random`; None takes the architecture of the model."""

    max_length: Length | None = None
    """Tokens of a window, including [CLS] and [SEP]; longer inputs are split into overlapping windows. None takes all
    positions of the encoder. Positions beyond the row length of its pretraining are untrained: if inputs are longer,
    set the row length here."""

    frozen_layers: Count | None = None
    """Freeze the embeddings and the lowest `frozen_layers` layers; 0 freezes only the embeddings, None nothing."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.init == "pretrained" and self.encoder is not None:
            raise DomainbertError("encoder: found with init: pretrained; remove it, or set init: random")
        if self.init == "random" and self.frozen_layers is not None:
            raise DomainbertError("frozen_layers: found with init: random; remove it, or set init: pretrained")
        check_length(self.max_length, self.encoder)
        if self.max_length is not None:
            self.task.check_window(self.max_length)


@stage
def finetune(out: Path, settings: Finetune, inputs: Inputs) -> dict[str, Any]:
    """Fine-tune a model on a labelled task, and keep the epoch that is best on validation.

    `out` gets a model folder for each seed (`seed-1`, ...), and `seeds.json`, which names the best seed. Seeds that are
    finished with the same settings and inputs are kept; a seed with checkpoints of the same settings and inputs resumes
    from the newest; a seed with other settings is trained again.

    Raises:
        DomainbertError: a labelled file is invalid; a validation label is not in the training set; `max_length` exceeds
            the positions of the encoder.
    """
    from domainbert.tasks.task import read_task

    train, validation, task = read_task(settings.task, settings.train, settings.validation, inputs.labelled)
    train_seed = partial(_train_seed, settings, inputs, train, validation, task)
    return train_seeds(out, settings.seeds, inputs.facts(), settings.selection_metric, train_seed)


def show_examples(settings: Finetune, count: int, inputs: Inputs) -> list[str]:
    """Return lines that show, for `--show`, the first `count` items in the training order of the first seed as the
    model reads them."""
    from domainbert.tasks.task import format_items, read_task
    from domainbert.tokenization.extend import with_tokens

    train, _, task = read_task(settings.task, settings.train, settings.validation, inputs.labelled)
    if settings.encoder is None:
        folder = inputs.model(settings.model)
        encoder, tokenizer = folder.config, folder.tokenizer()
    else:
        encoder, tokenizer = settings.encoder, inputs.tokenizer(settings.model)
    check_length(settings.max_length, encoder)
    added = task.inputs.added_tokens(task)
    tokenizer = with_tokens(tokenizer, added) if added else tokenizer
    window = settings.max_length or encoder.max_length
    order = task.training_hooks.order(task, train.items, settings.batch_size, settings.seeds[0])
    return format_items(task, train, tokenizer, window, order, count)


def check_arguments(arguments: StageArguments) -> None:
    """Check the labelled files, the model, and the length of its windows."""
    if arguments["encoder"] is not None:
        arguments.check_tokenizer("model", arguments["model"])
    else:
        arguments.check_model("model", arguments["model"], trained=arguments["init"] == "pretrained")
    encoder = arguments["encoder"] or arguments.encoder_of(arguments["model"])
    arguments.check_max_length(encoder)
    arguments.check_frozen_layers(encoder)
    arguments.check_training_files()
    arguments.check_pairs("model")


def _train_seed(
    settings: Finetune,
    inputs: Inputs,
    train: Labelled[Any],
    validation: Labelled[Any],
    task: Task[Any, Any],
    seed: int,
    folder: Path,
) -> dict[str, Any]:
    """Fine-tune with a seed, write the model folder, and return the result of `fit_labelled`."""
    from domainbert.tasks.finetuning import FineTuning
    from domainbert.tasks.labelled_data import LabelledData

    start = inputs.model(settings.model) if settings.encoder is None else inputs.tokenizer(settings.model)
    module = FineTuning(
        start,
        task,
        optim=settings.optim,
        schedule=settings.schedule,
        seed=seed,
        init=settings.init,
        encoder=settings.encoder,
        dropout=settings.dropout,
        frozen_layers=settings.frozen_layers,
        max_length=settings.max_length or (settings.encoder or inputs.model(settings.model).config).max_length,
        activation_checkpointing=settings.activation_checkpointing,
    )
    data = LabelledData(
        task,
        train,
        validation,
        tokenizer=module.tokenizer,
        batch_size=settings.batch_size,
        seed=seed,
        num_workers=settings.num_workers,
    )
    result = fit_labelled(f"finetune seed {seed}", module, data, settings, folder)
    save_seed(folder, module, settings, result)
    return result
