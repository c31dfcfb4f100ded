"""`distill`: a smaller model learns from a bigger one on a prepared corpus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from domainbert.base.errors import DomainbertError
from domainbert.base.marks import TRAINED_MODEL
from domainbert.base.paths import ModelPath, model_name
from domainbert.base.ranges import Count, Items, Seed
from domainbert.base.ranks import process_rank
from domainbert.distillation.config import LossConfig, check_ensemble
from domainbert.distillation.student_config import StudentConfig
from domainbert.encoders.config import check_length
from domainbert.models.card import card_head, model_card
from domainbert.pretraining.config import MaskingConfig
from domainbert.pretraining.objectives.masked_lm.config import MaskedLM
from domainbert.stages.inputs import Inputs
from domainbert.stages.stage import stage
from domainbert.stages.warnings import of_distillation, say
from domainbert.training.config import CorpusTraining

if TYPE_CHECKING:
    from domainbert.distillation.weighted import WeightedLosses
    from domainbert.encoders.config import EncoderConfig
    from domainbert.encoders.heads import EncoderWithHead
    from domainbert.models.folder import ModelFolder
    from domainbert.stages.early_checks import Given
    from domainbert.tokenization.load import DomainTokenizer


@dataclass(frozen=True, kw_only=True)
class Distill(CorpusTraining):
    """Settings of `distill`."""

    teachers: Annotated[list[ModelPath], Items()] = field(metadata=TRAINED_MODEL)
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
        """Check that the student has positions for a row, and that its losses can have so many teachers."""
        super().__post_init__()
        check_length(self.row_length, self.student.encoder)
        check_ensemble(len(self.teachers), self.losses)


@stage
def distill(out: Path, settings: Distill, inputs: Inputs) -> dict[str, Any]:
    """Distil a model into a smaller one on a prepared corpus.

    The teacher runs beside the student, in eval mode, and is not changed. `losses: [HardTargets]` trains the same
    student without a teacher. configs/presets/ holds the lists of the published methods. `out` is as for `pretrain`.

    Raises:
        DomainbertError: a loss that cannot compare the two, by its place in the list; a corpus with another vocabulary;
            rows that are longer than the positions of one of the models; a teacher without the head that a loss reads.
    """
    import lightning

    from domainbert.data.prepared import open_prepared
    from domainbert.distillation.batches import CountedRows
    from domainbert.distillation.distilling import CorpusDistillation
    from domainbert.pretraining.batches import validation_rows
    from domainbert.pretraining.languages import passes_by_language
    from domainbert.pretraining.module import fit_rows
    from domainbert.pretraining.phases import plan_phases, tokens_seen

    lightning.seed_everything(settings.seed, verbose=False)
    corpus = open_prepared(settings.prepared, cache=settings.cache)
    models, folders = _load_teachers(settings, corpus.tokenizer_fingerprint, inputs)
    model, config, keeps_head = _student(settings, models[0], folders)
    weighted = _weighted(settings, model, models[0], folders)
    masked_lm = MaskedLM(settings.masking).build(inputs.tokenizer(corpus.tokenizer_folder)).for_training(corpus)
    train, steps = plan_phases(corpus.train, masked_lm, settings, settings.seed)
    validation = validation_rows(corpus, masked_lm, settings.row_length)
    languages, often = passes_by_language(train)
    say(often)
    asked = models if weighted.needs_teacher else []
    how = (settings.optim, settings.schedule, steps.total, settings.seed, settings.unfreeze_every)
    module = CorpusDistillation(model, asked, weighted, *how)
    counts = [sum(parameter.numel() for parameter in one.parameters()) for one in (model, *asked)]
    print(", ".join(f"teacher: {count:,} parameters" for count in counts[1:]) or "no teacher")
    fitted, throughput = fit_rows("distill", module, train, [validation], steps, settings.runtime(out), CountedRows)
    last = fitted.validation
    print(f"validation: {', '.join(f'{name} {last[name]:.4f}' for name in ('loss', *weighted.names))}")
    warnings = of_distillation(fitted.history)
    if "HardTargets" in last:  # it is the loss of masked LM
        warnings += masked_lm.judge(corpus, {"loss": last["HardTargets"]})[1]
    say(warnings)
    metrics = {
        "num_steps": steps.total,
        "num_parameters": counts[0],
        "teacher_parameters": counts[1:],
        "micro_batch_size": fitted.micro_batch_size,
        "tokens_per_second": throughput.tokens_per_second,
        **fitted.facts,
        **languages,
        "warnings": often + warnings,
        "tokens_seen": tokens_seen(train),
    }
    head = "masked_lm" if keeps_head or weighted.reads else None
    _save(out, settings, model, config, masked_lm.tokenizer, head, metrics, folders)
    return metrics


def _weighted(
    settings: Distill, model: EncoderWithHead, teacher: EncoderWithHead, folders: Sequence[ModelFolder]
) -> WeightedLosses:
    """The losses; `DomainbertError` where some read predictions that a teacher does not make."""
    from domainbert.distillation.weighted import WeightedLosses
    from domainbert.models.tensors import predicts_entries

    weighted = WeightedLosses(settings.losses, model.encoder, teacher.encoder)
    predict = all(predicts_entries(folder.config, folder.head) for folder in folders)
    if weighted.reads & {"predicted", "all"} and not predict:
        raise DomainbertError("losses: some read what the teacher predicts, but a teacher has no masked-LM head")
    return weighted


def check_arguments(given: Given) -> None:
    """Check the length of rows that the models read."""
    for path in given["teachers"]:
        given.check_max_length(given.encoder_of(path))
    given.check_max_length(given["student"].encoder)
    given.check_prepared({f"teachers[{number}]": path for number, path in enumerate(given["teachers"])})


def _load_teachers(
    settings: Distill, fingerprint: str, inputs: Inputs
) -> tuple[list[EncoderWithHead], list[ModelFolder]]:
    """The teachers, checked to read the tokens of the corpus."""
    from domainbert.models.folder import load_model

    for path in settings.teachers:
        if inputs.model(path).tokenizer().fingerprint != fingerprint:
            names = ", ".join(type(loss).__name__ for loss in settings.losses)
            raise DomainbertError(
                f"prepared: {settings.prepared[0]} was made with another vocabulary than the teacher {path}, and "
                f"{names} compare token by token; expected a corpus prepared with the teacher's tokenizer "
                "(distill-task compares words)"
            )
    loaded = [load_model(inputs.model(path), "masked_lm") for path in settings.teachers]
    return [model for model, _, _ in loaded], [folder for _, folder, _ in loaded]


def _student(
    settings: Distill, teacher: EncoderWithHead, folders: list[ModelFolder]
) -> tuple[EncoderWithHead, EncoderConfig, bool]:
    """The student, the architecture to save, and whether its head is the teacher's."""
    from domainbert.distillation.students import build_student, student_config
    from domainbert.models.tensors import predicts_entries

    folder = folders[0]
    config = student_config(settings.student, folder.config)
    trained = config.as_trained(settings.dropout)
    vocabulary = folder.vocabulary._replace(pad_id=folder.tokenizer().pad_id)  # its config.json may say another one
    model, taken = build_student(trained, settings.student, teacher, "masked_lm", 0, vocabulary)
    model.encoder.activation_checkpointing = settings.activation_checkpointing
    print(f"student: {', '.join(taken) or 'nothing'} of {folder.path}; the rest starts at random")
    positions = {"student": config.max_length} | {str(one.path): one.config.max_length for one in folders}
    for who, count in positions.items():
        if settings.row_length > count:
            raise DomainbertError(f"max_length: {settings.row_length}; {who} has positions for {count} tokens")
    return model, config, "head" in taken and predicts_entries(folder.config, folder.head)


def _save(
    out: Path,
    settings: Distill,
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

    facts = {
        "encoder": f"{config.model_type}, {metrics['num_parameters']:,} parameters with its head",
        "teacher": ", ".join(folder.path.name for folder in folders),
        "training": f"{metrics['num_steps']:,} steps, {metrics['tokens_seen']:,} tokens",
        "validation loss": f"{metrics['validation']['loss']:.4f}, a weighted sum",
        **({"warning": "; ".join(metrics["warnings"])} if metrics["warnings"] else {}),
    }
    usage = "from transformers import AutoModel\n\nmodel = AutoModel.from_pretrained(folder)"
    tag = "feature-extraction" if head is None else "fill-mask"
    title = "Domain student"
    said = card_head(title, tag, settings.card, folders[0].path, tags=["distillation"])
    card = model_card(title, "An encoder distilled with domainbert.", facts, usage, said)
    weights = whole_weights(model)
    if process_rank() == 0:
        names = [model_name(folder.path) for folder in folders]
        save_model(out, model, config, tokenizer, head, card, weights=weights, teachers=names)
