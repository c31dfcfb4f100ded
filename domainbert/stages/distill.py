"""`distill`: a smaller model learns from a bigger one on a prepared corpus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from domainbert.base.errors import DomainbertError
from domainbert.base.paths import ModelPath, model_name
from domainbert.base.ranges import Count, Items, Seed
from domainbert.base.ranks import process_rank
from domainbert.distillation.config import LossConfig
from domainbert.distillation.student_config import StudentConfig
from domainbert.encoders.config import check_length
from domainbert.models.card import model_card
from domainbert.pretraining.config import MaskingConfig
from domainbert.pretraining.objectives.masked_lm.config import MaskedLM
from domainbert.settings.stage import stage
from domainbert.stages.corpus_training import CorpusTraining

if TYPE_CHECKING:
    from domainbert.data.prepared import PreparedCorpus
    from domainbert.distillation.distilling import CorpusDistillation
    from domainbert.encoders.config import EncoderConfig
    from domainbert.encoders.heads import EncoderWithHead
    from domainbert.models.folder import ModelFolder
    from domainbert.pretraining.batches import PackedRowsReader
    from domainbert.pretraining.objective import Objective
    from domainbert.stages.early_checks import Given
    from domainbert.tokenization.load import DomainTokenizer
    from domainbert.training.config import Runtime
    from domainbert.training.fit import Steps


@dataclass(frozen=True, kw_only=True)
class Distill(CorpusTraining):
    """Settings of `distill`."""

    teachers: Annotated[list[ModelPath], Items()]
    """Model folders, usually one; several are an ensemble, whose logits are averaged, for losses that read no hidden
    layers. The student starts from the first."""

    prepared: Annotated[list[Path], Items()]
    """Folders that `prepare` wrote with the teacher's tokenizer; together they are the corpus."""

    losses: Annotated[list[LossConfig], Items()]
    """Losses of the student, whose weighted sum is minimised; each is logged."""

    student: StudentConfig = StudentConfig()
    """Architecture of the student, and what it takes over from the teacher."""

    masking: MaskingConfig = MaskingConfig()
    """Tokens that are hidden in what both read."""

    unfreeze_every: Count = 0
    """Optimiser steps after which one layer more learns, from the top, the head first and the embeddings last; 0 lets
    all learn from the start."""

    seed: Seed = 0
    """Seed of new weights, the order, the masks and the dropout."""

    trainer: dict[str, Any] | None = None
    """Other arguments of `lightning.Trainer`: `devices`, `accelerator`, `strategy` (not fsdp), ..."""

    def __post_init__(self) -> None:
        """Check that the student has positions for a row."""
        check_length(self.max_length, self.student.encoder)


@stage
def distill(out: Path, settings: Distill) -> dict[str, Any]:
    """Distil a model into a smaller one on a prepared corpus.

    The teacher runs beside the student, in eval mode, and is not changed. `losses: [HardTargets]` trains the same
    student without a teacher. configs/presets/ holds the lists of the published methods.

    Args:
        out: the model folder to write; logs stand in its `logs` folder. Training resumes from the newest checkpoint in
            its `checkpoints` folder if there is one.
        settings: the teachers, the student, the corpus and the training.

    Raises:
        DomainbertError: a loss that cannot compare the two, by its place in the list; a corpus with another vocabulary;
            rows that are longer than the positions of one of the models; a teacher without the head that a loss reads.
    """
    import lightning

    from domainbert.data.prepared import open_prepared
    from domainbert.distillation.distilling import CorpusDistillation
    from domainbert.distillation.weighted import WeightedLosses
    from domainbert.pretraining.corpus_rows import rows_of_corpus
    from domainbert.tokenization.load import load_tokenizer
    from domainbert.training.fit import Steps

    lightning.seed_everything(settings.seed, verbose=False)
    models, folders = _load_teachers(settings)
    model, config, keeps_head = _student(settings, models[0], folders[0])
    _check_positions(settings.max_length, config, folders)
    weighted = WeightedLosses(settings.losses, model.encoder, models[0].encoder)
    if weighted.reads & {"predicted", "all"} and not all(folder.head == "masked_lm" for folder in folders):
        raise DomainbertError("losses: some read what the teacher predicts, but a teacher has no masked-LM head")
    corpus = open_prepared(settings.prepared)
    tokenizer = load_tokenizer(corpus.tokenizer_folder)
    masked_lm = MaskedLM(settings.masking).build(tokenizer)
    train, validation = rows_of_corpus(corpus, masked_lm, settings.max_length)
    sizes = (settings.batch_size, train.plan.num_rows, corpus.train.num_tokens)
    steps = Steps.of_budget(settings.budget, *sizes, settings.validate_every)
    asked = models if weighted.needs_teacher else []
    how = (settings.optim, settings.schedule, steps.total, settings.seed, settings.unfreeze_every)
    module = CorpusDistillation(model, asked, weighted, *how)
    metrics = _fit(module, train, validation, steps, settings.runtime(out))
    metrics["warnings"] = _warnings(metrics, corpus, masked_lm)
    metrics["tokens_seen"] = steps.tokens_seen(corpus.train.num_tokens)
    head = "masked_lm" if keeps_head or weighted.reads else None
    _save(out, model, config, tokenizer, head, metrics, folders)
    return metrics


def check_arguments(given: Given) -> None:
    """Check the teachers, the length of rows that they read, and loggers."""
    from domainbert.stages.early_checks import check_loggers, check_max_length, check_model, encoder_of

    for number, path in enumerate(given["teachers"]):
        check_model(given, f"teachers[{number}]", path)
        check_max_length(given, encoder_of(given, path))
    check_max_length(given, given["student"].encoder)
    check_loggers(given)


def _load_teachers(settings: Distill) -> tuple[list[EncoderWithHead], list[ModelFolder]]:
    """The teachers, checked to read the tokens of the corpus."""
    from domainbert.data.prepared import open_prepared
    from domainbert.models.folder import load_model, open_model

    fingerprint = open_prepared(settings.prepared).tokenizer_fingerprint
    for path in settings.teachers:
        if open_model(path).tokenizer().fingerprint != fingerprint:
            names = ", ".join(type(loss).__name__ for loss in settings.losses)
            raise DomainbertError(
                f"prepared: {settings.prepared[0]} was made with another vocabulary than the teacher {path}, and "
                f"{names} compare token by token; expected a corpus prepared with the teacher's tokenizer "
                "(distill-task compares words)"
            )
    loaded = [load_model(path, "masked_lm") for path in settings.teachers]
    return [model for model, _, _ in loaded], [folder for _, folder, _ in loaded]


def _student(
    settings: Distill, teacher: EncoderWithHead, folder: ModelFolder
) -> tuple[EncoderWithHead, EncoderConfig, bool]:
    """The student, the architecture to save, and whether its head is the teacher's."""
    from domainbert.distillation.students import build_student, student_config

    config = student_config(settings.student, folder.config)
    trained = config if settings.dropout is None else config.with_dropout(settings.dropout)
    vocabulary = folder.vocabulary._replace(pad_id=folder.tokenizer().pad_id)  # its config.json may say another one
    model, taken = build_student(trained, settings.student, teacher, "masked_lm", 0, vocabulary)
    model.encoder.activation_checkpointing = settings.activation_checkpointing
    print(f"student: {', '.join(taken) or 'nothing'} of {folder.path}; the rest starts at random")
    return model, config, "head" in taken and folder.head == "masked_lm"


def _check_positions(max_length: int, student: EncoderConfig, folders: Sequence[ModelFolder]) -> None:
    positions = {"student": student.max_length} | {str(one.path): one.config.max_length for one in folders}
    for who, count in positions.items():
        if max_length > count:
            raise DomainbertError(f"max_length: {max_length}; {who} has positions for {count} tokens")


def _fit(
    module: CorpusDistillation,
    train: PackedRowsReader,
    validation: PackedRowsReader,
    steps: Steps,
    runtime: Runtime,
) -> dict[str, Any]:
    from domainbert.distillation.batches import CountedRows
    from domainbert.pretraining.fitting import fit_rows

    counts = [sum(p.numel() for p in model.parameters()) for model in (module.model, *module.teachers)]
    print(", ".join(f"teacher: {count:,} parameters" for count in counts[1:]) or "no teacher")
    fitted, throughput = fit_rows("distill", module, train, [validation], steps, runtime, CountedRows)
    last = fitted.validation
    print(f"validation: {', '.join(f'{name} {last[name]:.4f}' for name in ('loss', *module.losses.names))}")
    return {
        "num_steps": steps.total,
        "num_parameters": counts[0],
        "teacher_parameters": counts[1:],
        "micro_batch_size": fitted.micro_batch_size,
        "tokens_per_second": throughput.tokens_per_second,
        **fitted.facts,
    }


def _warnings(metrics: dict[str, Any], corpus: PreparedCorpus, masked_lm: Objective[Any]) -> list[str]:
    """Warnings about what was learnt, after printing them."""
    from domainbert.stages.warnings import of_distillation, say

    warnings = of_distillation(metrics["history"])
    if (hard := metrics["validation"].get("HardTargets")) is not None:  # it is the loss of masked LM
        warnings += masked_lm.judge(corpus, {"loss": hard})[1]
    say(warnings)
    return warnings


def _save(
    out: Path,
    model: EncoderWithHead,
    config: EncoderConfig,
    tokenizer: DomainTokenizer,
    head: str | None,
    metrics: dict[str, Any],
    folders: list[ModelFolder],
) -> None:
    """Write the model folder; every process calls it, the first one writes."""
    from domainbert.models.folder import save_model
    from domainbert.training.state import whole_weights

    weights = whole_weights(model)
    if process_rank() == 0:
        names = [model_name(folder.path) for folder in folders]
        card = _card(config, metrics, folders)
        save_model(out, model, config, tokenizer, head, card, weights=weights, teachers=names)


def _card(config: EncoderConfig, metrics: dict[str, Any], folders: list[ModelFolder]) -> str:
    facts = {
        "encoder": f"{config.model_type}, {metrics['num_parameters']:,} parameters with its head",
        "teacher": ", ".join(folder.path.name for folder in folders),
        "training": f"{metrics['num_steps']:,} steps, {metrics['tokens_seen']:,} tokens",
        "validation loss": f"{metrics['validation']['loss']:.4f}, a weighted sum",
        **({"warning": "; ".join(metrics["warnings"])} if metrics["warnings"] else {}),
    }
    usage = "from transformers import AutoModel\n\nmodel = AutoModel.from_pretrained(folder)"
    return model_card("Domain student", "An encoder distilled with domainbert.", facts, usage)
