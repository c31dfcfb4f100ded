"""`finetune`: a labelled task, from a model folder or from random weights, with several seeds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from domainbert.base.errors import DomainbertError
from domainbert.base.paths import ModelPath
from domainbert.base.ranges import Count, Length
from domainbert.encoders.config import EncoderConfig, check_length
from domainbert.stages.inputs import Inputs
from domainbert.stages.labelled_training import LabelledTraining, fit_labelled, save_seed, train_seeds
from domainbert.stages.stage import stage
from domainbert.tasks.extra_losses_config import AdversarialConfig, RDropConfig

if TYPE_CHECKING:
    from domainbert.labelled.items import Labelled
    from domainbert.stages.early_checks import Given


@dataclass(frozen=True, kw_only=True)
class Finetune(LabelledTraining):
    """Settings of `finetune`."""

    model: ModelPath
    """Model folder; or, with `init: random` and an `encoder`, a tokenizer folder."""

    init: Literal["pretrained", "random"] = "pretrained"
    """`pretrained` starts from the model's weights, `random` from none: the honest baseline."""

    encoder: EncoderConfig | None = None
    """Architecture for `init: random`; None takes the model's own."""

    max_length: Length | None = None
    """Tokens of a window, [CLS] and [SEP] included; longer inputs are read in overlapping windows. None takes what the
    encoder has positions for; those beyond the rows of its pretraining were never trained, so give that length here if
    inputs are longer."""

    frozen_layers: Count | None = None
    """The embeddings and so many layers above them do not learn; 0 freezes the embeddings alone, None nothing."""

    adversarial: AdversarialConfig | None = None
    """The loss once more, with the word embeddings of each text moved to where it rises fastest; None leaves it out."""

    r_drop: RDropConfig | None = None
    """Each text is read twice, and the two predictions are drawn to each other; None reads it once."""

    def __post_init__(self) -> None:
        """Check that an encoder is of use, and that it has positions for a window."""
        super().__post_init__()
        if (self.adversarial or self.r_drop) and self.is_sharded:
            raise DomainbertError("adversarial, r_drop: found with strategy: fsdp; expected another strategy")
        if self.r_drop is not None and self.dropout == 0:
            raise DomainbertError("r_drop: found with dropout: 0; expected a dropout above 0")
        if self.r_drop is not None and (reason := self.task.r_drop_unsupported):
            raise DomainbertError(f"r_drop: {reason}")
        if self.init == "pretrained" and self.encoder is not None:
            raise DomainbertError("encoder: found with init: pretrained; expected init: random, or no encoder")
        if self.init == "random" and self.frozen_layers is not None:
            raise DomainbertError(
                "frozen_layers: found with init: random; expected init: pretrained, or no frozen_layers"
            )
        check_length(self.max_length, self.encoder)
        if self.max_length is not None:
            self.task.check_window(self.max_length)


@stage
def finetune(out: Path, settings: Finetune, inputs: Inputs) -> dict[str, Any]:
    """Fine-tune a model on a labelled task, and keep the epoch that is best on validation.

    `out` gets a model folder for each seed (`seed-1`, ...), and `seeds.json` that names the best. Seeds that are
    finished there with the same settings and inputs are kept, and one that has checkpoints of them resumes from the
    newest; one of other settings is trained again.

    Raises:
        DomainbertError: anything wrong with the labelled files; a validation label that training does not have;
            `max_length` beyond the encoder's positions.
    """
    from domainbert.tasks.task import read_task

    train, validation, _ = read_task(settings.task, settings.train, settings.validation, inputs.labelled)
    train_seed = partial(_train_seed, settings, inputs, train, validation)
    return train_seeds(out, settings.seeds, inputs.facts(), settings.chosen_by, train_seed)


def show_examples(settings: Finetune, count: int, inputs: Inputs) -> list[str]:
    """The first items of the first seed's training as the model reads them, for `--show`; nothing is written."""
    from domainbert.tasks.showing import shown_items
    from domainbert.tasks.task import read_task
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
    order = task.fitting.order(task, train.items, settings.batch_size, settings.seeds[0])
    return shown_items(task, train, tokenizer, window, order, count)


def check_arguments(given: Given) -> None:
    """Check the labelled files, the model, and the length of its windows."""
    if given["encoder"] is not None:
        given.check_tokenizer("model", given["model"])
    else:
        given.check_model("model", given["model"], trained=given["init"] == "pretrained")
    encoder = given["encoder"] or given.encoder_of(given["model"])
    given.check_max_length(encoder)
    given.check_frozen_layers(encoder)
    given.check_training_files()
    given.check_pairs("model")


def _train_seed(
    settings: Finetune,
    inputs: Inputs,
    train: Labelled[Any],
    validation: Labelled[Any],
    seed: int,
    folder: Path,
) -> dict[str, Any]:
    from domainbert.tasks.finetuning import FineTuning
    from domainbert.tasks.labelled_data import LabelledData

    random = settings.init == "random" and settings.encoder is not None
    model = settings.model if random else inputs.model(settings.model)
    module = FineTuning(
        model,
        settings.task,
        optim=settings.optim,
        schedule=settings.schedule,
        seed=seed,
        init=settings.init,
        encoder=settings.encoder,
        dropout=settings.dropout,
        frozen_layers=settings.frozen_layers,
        adversarial=settings.adversarial,
        r_drop=settings.r_drop,
        activation_checkpointing=settings.activation_checkpointing,
    )
    data = LabelledData(
        settings.task,
        train,
        validation,
        model=inputs.tokenizer(settings.model) if random else model,
        batch_size=settings.batch_size,
        max_length=settings.max_length,
        num_workers=settings.num_workers,
    )
    result = fit_labelled(f"finetune seed {seed}", module, data, settings, folder)
    facts = {"started from": f"{settings.init} weights, seed {seed}"}
    base = settings.model if settings.init == "pretrained" else None
    save_seed(folder, module, settings, "Fine-tuned", facts, result, base)
    return result
