"""`distill`: a smaller model learns from a bigger one on a prepared corpus."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from domainbert.base.marks import TRAINED_MODEL
from domainbert.base.paths import ModelPath
from domainbert.base.ranges import Count, Items, Seed
from domainbert.distillation.config import LossConfig, check_ensemble
from domainbert.distillation.student_config import StudentConfig
from domainbert.encoders.config import check_length
from domainbert.pretraining.config import MaskingConfig
from domainbert.stages.inputs import Inputs
from domainbert.stages.stage import stage
from domainbert.stages.warnings import of_distillation, say
from domainbert.training.config import CorpusTraining

if TYPE_CHECKING:
    from domainbert.stages.early_checks import Given


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
    from domainbert.distillation.on_corpus import Distillation
    from domainbert.pretraining.data_module import PretrainingData
    from domainbert.pretraining.languages import passes_by_language
    from domainbert.pretraining.module import fit_rows
    from domainbert.pretraining.phases import tokens_seen
    from domainbert.training.fit import Steps

    lightning.seed_everything(settings.seed, verbose=False)
    module = Distillation(
        [inputs.model(path) for path in settings.teachers],
        settings.losses,
        student=settings.student,
        masking=settings.masking,
        optim=settings.optim,
        schedule=settings.schedule,
        seed=settings.seed,
        unfreeze_every=settings.unfreeze_every,
        dropout=settings.dropout,
        activation_checkpointing=settings.activation_checkpointing,
    )
    data = PretrainingData(
        open_prepared(settings.prepared, cache=settings.cache),
        max_length=settings.phases,
        batch_size=settings.batch_size,
        num_workers=settings.num_workers,
    )
    data.resolve(module, "fit")
    steps = Steps.of_budget(settings, data.num_rows, data.tokens_per_pass)
    train, masked_lm, weighted = data.plan(steps.total), module.objective, module.losses
    languages, often = passes_by_language(train)
    say(often)
    models = (module.model, *module.teachers)
    counts = [sum(parameter.numel() for parameter in one.parameters()) for one in models]
    print(", ".join(f"teacher: {count:,} parameters" for count in counts[1:]) or "no teacher")
    fitted, throughput = fit_rows("distill", module, data, steps, settings.runtime(out))
    last = fitted.validation
    print(f"validation: {', '.join(f'{name} {last[name]:.4f}' for name in ('loss', *weighted.names))}")
    warnings = of_distillation(fitted.history)
    if "HardTargets" in last:  # it is the loss of masked LM
        warnings += masked_lm.judge(data.corpus, {"loss": last["HardTargets"]})[1]
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
    facts = {
        "encoder": f"{module.config.model_type}, {counts[0]:,} parameters with its head",
        "training": f"{steps.total:,} steps, {metrics['tokens_seen']:,} tokens",
        "validation loss": f"{last['loss']:.4f}, a weighted sum",
        **({"warning": "; ".join(metrics["warnings"])} if metrics["warnings"] else {}),
    }
    module.save_pretrained(out, module.card(facts, settings.card))
    return metrics


def check_arguments(given: Given) -> None:
    """Check the length of rows that the models read."""
    for path in given["teachers"]:
        given.check_max_length(given.encoder_of(path))
    given.check_max_length(given["student"].encoder)
    given.check_prepared({f"teachers[{number}]": path for number, path in enumerate(given["teachers"])})
