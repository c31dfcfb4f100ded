"""`distill`: a smaller model learns from a bigger one on a prepared corpus."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from domainbert.base.errors import DomainbertError
from domainbert.base.paths import ModelPath, model_name
from domainbert.base.ranges import BatchSize, Count, Dropout, Items, Length, PositiveInt, Seed, Workers
from domainbert.base.ranks import process_rank
from domainbert.distillation.config import LossConfig
from domainbert.distillation.student_config import StudentConfig
from domainbert.encoders.config import check_length
from domainbert.models.card import model_card
from domainbert.pretraining.config import MaskingConfig
from domainbert.pretraining.objectives.masked_lm.config import MaskedLM
from domainbert.settings.stage import stage
from domainbert.training.config import Budget, LoggerName, MicroBatchSize, Precision, Runtime
from domainbert.training.optim_config import OptimConfig, ScheduleConfig

if TYPE_CHECKING:
    from domainbert.distillation.on_corpus import CorpusDistillation
    from domainbert.encoders.config import EncoderConfig
    from domainbert.encoders.heads import EncoderWithHead
    from domainbert.models.folder import ModelFolder
    from domainbert.pretraining.batches import PackedRowsReader
    from domainbert.stages.early_checks import Given
    from domainbert.training.fit import Steps

SPEED_ONLY = {"micro_batch_size", "activation_checkpointing", "num_workers", "loggers", "checkpoint_every"}


def _check(student: StudentConfig, max_length: int, **_: Any) -> None:
    check_length(max_length, student.encoder)


@stage(_check)
def distill(
    out: Path,
    teachers: Annotated[list[ModelPath], Items()],
    prepared: Annotated[list[Path], Items()],
    losses: Annotated[list[LossConfig], Items()],
    budget: Budget,
    student: StudentConfig = StudentConfig(),
    masking: MaskingConfig = MaskingConfig(),
    max_length: Length = 128,
    batch_size: BatchSize = 64,
    dropout: Dropout | None = None,
    unfreeze_every: Count = 0,
    optim: OptimConfig = OptimConfig(),
    schedule: ScheduleConfig = ScheduleConfig(),
    validate_every: PositiveInt | None = None,
    seed: Seed = 0,
    precision: Precision = "auto",
    micro_batch_size: MicroBatchSize = None,
    activation_checkpointing: bool = False,
    num_workers: Workers = 0,
    loggers: tuple[LoggerName, ...] = ("jsonl", "tensorboard"),
    checkpoint_every: PositiveInt | None = None,
    trainer: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Distil a model into a smaller one on a prepared corpus.

    The teacher runs beside the student, in eval mode, and is not changed. `losses: [HardTargets]` trains the same
    student without a teacher. configs/presets/ holds the lists of the published methods.

    Args:
        out: the model folder to write; logs stand in its `logs` folder. Training goes on from the newest checkpoint in
            its `checkpoints` folder if there is one.
        teachers: model folders, usually one; several are an ensemble, whose logits are averaged, for losses that read
            no hidden layers. The student starts from the first.
        prepared: folders that `prepare` wrote with the teacher's tokenizer; together they are the corpus.
        losses: what the student learns from; their weighted sum is the loss, and each is logged.
        budget: how long to train; exactly one of the three is given.
        student: its architecture, and what it takes over from the teacher.
        masking: what is hidden in what both read.
        max_length: tokens of a row, [CLS] and [SEP] included.
        batch_size: rows of an optimiser step, over all devices.
        dropout: overrides the student's dropout during this stage; the model folder keeps its own.
        unfreeze_every: optimiser steps after which one layer more learns, from the top, the head first and the
            embeddings last; 0 lets all learn from the start.
        optim: the optimiser.
        schedule: the learning rate over the steps.
        validate_every: optimiser steps between validations; None validates ten times.
        seed: of new weights, the order, the masks and the dropout.
        precision: `auto` is bf16-mixed on hardware good at it (GPUs, CPUs with AMX or AVX512-BF16), else 32-true.
        micro_batch_size: rows a device computes at once; None takes its share of the batch. Smaller needs less memory;
            `auto` takes as many as fit: a GPU tries it before the first step, for a CPU it is estimated.
        activation_checkpointing: keep only what goes into each layer, and compute the layer again in the backward pass:
            a third more arithmetic, a fraction of the memory, and the same result.
        num_workers: processes that build batches beside the training process.
        loggers: where metrics go; `wandb` and `mlflow` need the extra of that name.
        checkpoint_every: optimiser steps between checkpoints; None writes one every ten minutes. One is written after
            each validation and when a signal ends the training, too.
        trainer: other arguments of `lightning.Trainer`: `devices`, `accelerator`, `strategy` (not fsdp), ...

    Raises:
        DomainbertError: a loss that cannot compare the two, by its place in the list; a corpus with another vocabulary;
            rows that are longer than the positions of one of the models; a teacher without the head that a loss reads.
    """
    import lightning

    from domainbert.data.prepared import open_prepared
    from domainbert.distillation.on_corpus import CorpusDistillation
    from domainbert.distillation.weighted import WeightedLosses
    from domainbert.models.folder import save_model
    from domainbert.pretraining.corpus_rows import rows_of_corpus
    from domainbert.stages.warnings import of_distillation, say
    from domainbert.tokenization.load import load_tokenizer
    from domainbert.training.fit import Steps
    from domainbert.training.state import whole_weights

    lightning.seed_everything(seed, verbose=False)
    models, folders = _load_teachers(teachers, prepared, losses)
    model, config, keeps_head = _student(student, models[0], folders[0], dropout)
    model.encoder.activation_checkpointing = activation_checkpointing
    positions = {"student": config.max_length} | {str(one.path): one.config.max_length for one in folders}
    for who, count in positions.items():
        if max_length > count:
            raise DomainbertError(f"max_length: {max_length}; {who} has positions for {count} tokens")
    weighted = WeightedLosses(losses, model.encoder, models[0].encoder)
    if weighted.reads & {"predicted", "all"} and not all(folder.head == "masked_lm" for folder in folders):
        raise DomainbertError("losses: some read what the teacher predicts, but a teacher has no masked-LM head")
    corpus = open_prepared(prepared)
    tokenizer = load_tokenizer(corpus.tokenizer_folder)
    masked_lm = MaskedLM(masking).build(tokenizer)
    train, validation = rows_of_corpus(corpus, masked_lm, max_length)
    num_tokens = corpus.train.num_tokens
    steps = Steps.of_budget(budget, batch_size, train.plan.num_rows, num_tokens, validate_every)
    asked = models if weighted.needs_teacher else []
    module = CorpusDistillation(model, asked, weighted, optim, schedule, steps.total, seed, unfreeze_every)
    runtime = Runtime(out, precision, micro_batch_size, num_workers, loggers, trainer or {}, checkpoint_every)
    metrics = _fit(module, train, validation, steps, runtime)
    metrics["warnings"] = of_distillation(metrics["history"])
    if (hard := metrics["validation"].get("HardTargets")) is not None:  # it is the loss of masked LM
        metrics["warnings"] += masked_lm.judge(corpus, {"loss": hard})[1]
    say(metrics["warnings"])
    metrics["tokens_seen"] = steps.tokens_seen(num_tokens)
    weights = whole_weights(model)
    if process_rank() == 0:
        head = "masked_lm" if keeps_head or weighted.reads else None
        names = [model_name(folder.path) for folder in folders]
        save_model(out, model, config, tokenizer, head, _card(config, metrics, folders), (), None, weights, names)
    return metrics


def check_arguments(given: Given) -> None:
    """The teachers, the length of rows that they read, and loggers."""
    from domainbert.stages.early_checks import check_loggers, check_max_length, check_model, encoder_of

    for number, path in enumerate(given["teachers"]):
        check_model(given, f"teachers[{number}]", path)
        check_max_length(given, encoder_of(given, path))
    check_max_length(given, given["student"].encoder)
    check_loggers(given)


def _load_teachers(
    teachers: list[Path], prepared: list[Path], losses: list[LossConfig]
) -> tuple[list[EncoderWithHead], list[ModelFolder]]:
    """The teachers, checked to read the tokens of the corpus."""
    from domainbert.data.prepared import open_prepared
    from domainbert.models.folder import load_model, open_model

    fingerprint = open_prepared(prepared).tokenizer_fingerprint
    for path in teachers:
        if open_model(path).tokenizer().fingerprint != fingerprint:
            names = ", ".join(type(loss).__name__ for loss in losses)
            raise DomainbertError(
                f"prepared: {prepared[0]} was made with another vocabulary than the teacher {path}, and {names} "
                "compare token by token; expected a corpus prepared with the teacher's tokenizer "
                "(distill-task compares words)"
            )
    loaded = [load_model(path, "masked_lm") for path in teachers]
    return [model for model, _, _ in loaded], [folder for _, folder, _ in loaded]


def _student(
    student: StudentConfig, teacher: EncoderWithHead, folder: ModelFolder, dropout: Dropout | None
) -> tuple[EncoderWithHead, EncoderConfig, bool]:
    """The student, the architecture to save, and whether its head is the teacher's."""
    from domainbert.distillation.students import build_student, student_config

    config = student_config(student, folder.config)
    trained = config if dropout is None else config.with_dropout(dropout)
    model, taken = build_student(trained, student, teacher, "masked_lm", 0, folder.vocabulary)
    print(f"student: {', '.join(taken) or 'nothing'} of {folder.path}; the rest starts at random")
    return model, config, "head" in taken and folder.head == "masked_lm"


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
