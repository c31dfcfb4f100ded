"""The stage `distill-task`: train a student for a task with fine-tuned teachers, on labelled and unlabelled text."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from domainbert.base.errors import DomainbertError
from domainbert.base.fields import TRAINED_MODEL, Items
from domainbert.base.paths import ModelPath, check_home_expanded
from domainbert.corpus.config import CorpusConfig
from domainbert.distillation.config import LossConfig, check_ensemble
from domainbert.distillation.module_config import TaskDistillationSettings, TransferDataSettings
from domainbert.distillation.prediction_config import check_one_vocabulary, check_task_distillation
from domainbert.encoders.config import check_length
from domainbert.stages.labelled_training import LabelledTraining, fit_labelled, train_seeds
from domainbert.stages.stage import Inputs, stage

if TYPE_CHECKING:
    from domainbert.stages.early_checks import StageArguments


@dataclass(frozen=True, kw_only=True)
class DistillTask(TaskDistillationSettings, TransferDataSettings, LabelledTraining):
    """Settings of `distill-task`."""

    teachers: Annotated[list[ModelPath], Items()] = field(metadata=TRAINED_MODEL)
    """Fine-tuned model folders for the same labels. The logits of several teachers are averaged, for losses that do not
    read hidden layers."""

    losses: Annotated[list[LossConfig], Items()]
    """Losses of the student; their weighted sum is minimised, and each is logged. If no loss reads predictions, as in
    TinyBERT's intermediate stage, the last epoch is kept and `patience` has no effect."""

    model: ModelPath | None = field(default=None, metadata=TRAINED_MODEL)
    """Model folder that the student starts from, such as the output of `distill`. With a `cache` and only losses on
    predictions, its vocabulary may differ from the teachers', except for parsing and question answering. None derives
    the student from the first teacher."""

    unlabelled: CorpusConfig | None = None
    """Unlabelled text of the domain, which is split into sentences."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_task_distillation(
            self.task, self.losses, self.student, self.model is not None, has_cache=self.cache is not None
        )
        check_length(self.max_length, self.student.encoder)
        check_ensemble(len(self.teachers), self.losses)
        if self.unlabelled is not None and (reason := self.task.distillation.unlabelled_unsupported):
            raise DomainbertError(reason, where="unlabelled", expected="unlabelled: null")
        if self.max_length is not None:
            self.task.check_window(self.max_length)
        if self.cache is not None:
            check_home_expanded("cache", self.cache)
        if self.unlabelled is not None and self.task.reads_pairs:
            raise DomainbertError(where="unlabelled", found="single texts, but the task reads pairs", expected="null")


@stage
def distill_task(out: Path, settings: DistillTask, inputs: Inputs) -> dict[str, Any]:
    """Distil fine-tuned models into a smaller model for a labelled task, and keep the epoch that is best on validation.

    The student can also learn the predictions of its teachers on unlabelled text. For a method with several steps, run
    this stage once per step, each with its own losses and the model of the previous step. `losses: [HardTargets]`
    trains the same student without a teacher. `out` has the same files as for `finetune`.

    Raises:
        DomainbertError: a file is invalid; teachers have other labels; a loss cannot compare student and teacher (named
            by its index); or the student has another vocabulary, with losses on layers or without a cache.
    """
    from domainbert.distillation.task_distillation import TaskDistillation
    from domainbert.distillation.teachers import TransferText, load_teachers
    from domainbert.distillation.transfer_data import TransferData
    from domainbert.tasks.task import read_task

    train, validation, task = read_task(settings.task, settings.train, settings.validation, inputs.labelled)
    cache = Path(settings.cache) if settings.cache else None
    teachers = load_teachers(settings.teachers, task, settings.precision, cache, settings.top_k, inputs.model)
    text = TransferText.read(train, settings.unlabelled, settings.max_unlabelled, task.word_splitting)
    model = None if settings.model is None else inputs.model(settings.model)

    def train_seed(seed: int, folder: Path) -> dict[str, Any]:
        module = TaskDistillation(teachers, task, settings.losses, model=model, seed=seed, settings=settings)
        data = TransferData(
            task,
            text.labelled,
            validation,
            unlabelled=text.sentences,
            # without a loss on predictions, the cache would be computed for nothing
            teachers=teachers if "predicted" in module.losses.reads else replace(teachers, cache=None),
            tokenizer=module.tokenizer,
            seed=seed,
            settings=settings,
        )
        predicts = bool(module.losses.reads)  # otherwise validation cannot choose an epoch
        return fit_labelled(f"distill-task seed {seed}", module, data, settings, folder, keeps_best=predicts)

    return train_seeds(out, settings.seeds, inputs.facts(), settings.selection_metric, train_seed)


def check_arguments(arguments: StageArguments) -> None:
    """Check the labelled files, and that teachers and student are models for the task."""
    for number, path in enumerate(arguments["teachers"]):
        arguments.check_task(f"teachers[{number}]", path, arguments["task"].name)
        arguments.check_pairs(f"teachers[{number}]", path)
    arguments.check_pairs("model")
    _check_vocabularies(arguments)
    arguments.check_max_length(arguments["student"].encoder or arguments.encoder_of(arguments["model"]))
    arguments.check_training_files()


def _check_vocabularies(arguments: StageArguments) -> None:
    """Report models with different vocabularies if the task cannot compare them; skip models that do not exist yet."""
    paths = [path for path in (arguments["model"], *arguments["teachers"]) if path is not None]
    fingerprints: list[str | None] = []
    for path in paths:
        fingerprint = None
        folder = arguments.readable_model(path) if arguments.is_ready(path) else None
        if folder is not None:
            with suppress(DomainbertError):  # another check reports a tokenizer that cannot be read
                fingerprint = folder.tokenizer().fingerprint
        fingerprints.append(fingerprint)
    with arguments.record_problems("model"):
        check_one_vocabulary(arguments["task"], arguments["losses"], arguments["model"] is not None, fingerprints)
