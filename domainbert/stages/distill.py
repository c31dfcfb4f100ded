"""The stage `distill`: train a student on a prepared corpus with the outputs of a larger teacher."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from domainbert.base.fields import TRAINED_MODEL, Items
from domainbert.base.paths import ModelPath
from domainbert.base.process import process_rank
from domainbert.distillation.config import LossConfig, check_ensemble
from domainbert.distillation.module_config import DistillationSettings
from domainbert.encoders.config import check_length
from domainbert.pretraining.config import MaskingConfig
from domainbert.stages.stage import Inputs, stage
from domainbert.stages.warnings import distillation_warnings, print_warnings
from domainbert.training.config import CorpusTraining

if TYPE_CHECKING:
    from domainbert.distillation.corpus_distillation import Distillation, DistillationData
    from domainbert.stages.early_checks import StageArguments


@dataclass(frozen=True, kw_only=True)
class Distill(DistillationSettings, CorpusTraining):
    """Settings of `distill`."""

    teachers: Annotated[list[ModelPath], Items()] = field(metadata=TRAINED_MODEL)
    """Model folders of the teachers, usually one. The logits of several teachers are averaged, for losses that do not
    read hidden layers. The student starts from the first teacher."""

    prepared: Annotated[list[Path], Items()]
    """Folders that `prepare` wrote with the teacher's tokenizer; together they form the corpus."""

    losses: Annotated[list[LossConfig], Items()]
    """Losses of the student; their weighted sum is minimised, and each is logged."""

    masking: MaskingConfig = MaskingConfig()
    """Masking of the input that teacher and student read."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_length(self.row_length, self.student.encoder)
        check_ensemble(len(self.teachers), self.losses)


@stage
def distill(out: Path, settings: Distill, inputs: Inputs) -> dict[str, Any]:
    """Distil a model into a smaller model on a prepared corpus.

    The teacher runs in eval mode and is not changed. `losses: [HardTargets]` trains the same student without a
    teacher. configs/presets/ has the losses of published methods. `out` has the same files as for `pretrain`.

    Raises:
        DomainbertError: the checkpoints in `out` are from a training with other settings; a loss cannot compare teacher
            and student (named by its index); the corpus has another vocabulary; rows are longer than the positions of a
            model; a teacher has no head that a loss reads.
    """
    import lightning

    from domainbert.pretraining.languages import passes_by_language
    from domainbert.pretraining.module import fit_rows
    from domainbert.pretraining.phases import tokens_seen
    from domainbert.training.checkpoint_files import check_same_training
    from domainbert.training.steps import Steps

    if process_rank() == 0:
        check_same_training(out, inputs.facts())
    lightning.seed_everything(settings.seed, verbose=False)
    module, data = _module_and_data(settings, inputs)
    data.setup("fit")
    steps = Steps.of_budget(settings, data.num_rows, data.tokens_per_pass)
    train, masked_lm, weighted = data.plan(steps.total), data.objective, module.losses
    languages, language_warnings = passes_by_language(train)
    print_warnings(language_warnings)
    models = (module.model, *module.teachers)
    num_parameters, *teacher_parameters = (sum(weight.numel() for weight in model.parameters()) for model in models)
    print(", ".join(f"teacher: {count:,} parameters" for count in teacher_parameters) or "no teacher")
    fitted, throughput = fit_rows("distill", module, data, steps, settings, out)
    last = fitted.validation
    print(f"validation: {', '.join(f'{name} {last[name]:.4f}' for name in ('loss', *weighted.names))}")
    warnings = distillation_warnings(fitted.history)
    if "HardTargets" in last:  # the loss of masked LM
        _, masked_lm_warnings = masked_lm.judge(data.corpus, {"loss": last["HardTargets"]})
        warnings += masked_lm_warnings
    print_warnings(warnings)
    metrics = {
        "num_steps": steps.total,
        "num_parameters": num_parameters,
        "teacher_parameters": teacher_parameters,
        "micro_batch_size": fitted.micro_batch_size,
        "tokens_per_second": throughput.tokens_per_second,
        **fitted.facts,
        **languages,
        "warnings": language_warnings + warnings,
        "tokens_seen": tokens_seen(train),
    }
    facts = {
        "encoder": f"{module.config.model_type}, {num_parameters:,} parameters with its head",
        "training": f"{steps.total:,} steps, {metrics['tokens_seen']:,} tokens",
        "validation loss": f"{last['loss']:.4f}, a weighted sum",
        **({"warning": "; ".join(metrics["warnings"])} if metrics["warnings"] else {}),
    }
    module.save_pretrained(out, module.card(facts, settings.card))
    return metrics


def _module_and_data(settings: Distill, inputs: Inputs) -> tuple[Distillation, DistillationData]:
    from domainbert.data.prepared import open_prepared
    from domainbert.distillation.corpus_distillation import Distillation, DistillationData

    teachers = [inputs.model(path) for path in settings.teachers]
    module = Distillation(teachers, settings.losses, seed=settings.seed, settings=settings)
    corpus = open_prepared(settings.prepared, module.tokenizer.fingerprint, settings.cache)
    return module, DistillationData(corpus, settings.masking, seed=settings.seed, settings=settings)


def check_arguments(arguments: StageArguments) -> None:
    """Check that rows fit the models and that the corpus has the tokenizer of the teachers."""
    for path in arguments["teachers"]:
        arguments.check_max_length(arguments.encoder_of(path))
    arguments.check_max_length(arguments["student"].encoder)
    arguments.check_prepared({f"teachers[{number}]": path for number, path in enumerate(arguments["teachers"])})
