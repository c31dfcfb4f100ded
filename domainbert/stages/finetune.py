"""The stage `finetune`: train a model for a labelled task, from a model folder or random weights, once per seed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from domainbert.base.paths import ModelPath
from domainbert.stages.labelled_training import LabelledTraining, fit_labelled, train_seeds
from domainbert.stages.stage import Inputs, stage
from domainbert.tasks.finetuning_config import FineTuningSettings

if TYPE_CHECKING:
    from domainbert.stages.early_checks import StageArguments


@dataclass(frozen=True, kw_only=True)
class Finetune(FineTuningSettings, LabelledTraining):
    """Settings of `finetune`."""

    model: ModelPath
    """Model folder; with `init: random` and an `encoder`, a tokenizer folder."""

    def __post_init__(self) -> None:
        LabelledTraining.__post_init__(self)
        FineTuningSettings.__post_init__(self)
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
    from domainbert.tasks.finetuning import FineTuning
    from domainbert.tasks.labelled_data import LabelledData
    from domainbert.tasks.task import read_task

    train, validation, task = read_task(settings.task, settings.train, settings.validation, inputs.labelled)
    encoder = settings.encoder or inputs.model(settings.model).config
    start = inputs.tokenizer(settings.model) if settings.encoder else inputs.model(settings.model)
    window = settings.max_length or encoder.max_length

    def train_seed(seed: int, folder: Path) -> dict[str, Any]:
        module = FineTuning(start, task, seed=seed, settings=settings, max_length=window)
        data = LabelledData(task, train, validation, tokenizer=module.tokenizer, seed=seed, settings=settings)
        return fit_labelled(f"finetune seed {seed}", module, data, settings, folder)

    return train_seeds(out, settings.seeds, inputs.facts(), settings.selection_metric, train_seed)


def show_examples(settings: Finetune, count: int, inputs: Inputs) -> list[str]:
    """Return lines that show, for `--show`, the first `count` items in the training order of the first seed as the
    model reads them."""
    from domainbert.tasks.task import format_items, read_task
    from domainbert.tokenization.extend import with_tokens

    train, _, task = read_task(settings.task, settings.train, settings.validation, inputs.labelled)
    encoder = settings.encoder or inputs.model(settings.model).config
    tokenizer = inputs.tokenizer(settings.model) if settings.encoder else inputs.model(settings.model).tokenizer()
    added = task.inputs.added_tokens(task)
    tokenizer = with_tokens(tokenizer, added) if added else tokenizer
    order = task.training_hooks.order(task, train.items, settings.batch_size, settings.seeds[0])
    return format_items(task, train, tokenizer, settings.max_length or encoder.max_length, order, count)


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
