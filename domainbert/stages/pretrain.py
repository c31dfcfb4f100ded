"""The stage `pretrain`: train an encoder on a prepared corpus, from scratch or from a model; masked LM by default."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from domainbert.base.errors import DomainbertError, check_one_given
from domainbert.base.fields import SPEED_ONLY, TRAINED_MODEL, Items
from domainbert.base.paths import ModelPath
from domainbert.base.process import process_rank
from domainbert.encoders.config import EncoderConfig, check_length
from domainbert.pretraining.config import MaskingConfig, ObjectiveConfig, PretrainingSettings
from domainbert.pretraining.objectives.masked_lm.config import MaskedLM
from domainbert.stages.stage import Inputs, stage
from domainbert.stages.warnings import print_warnings
from domainbert.training.config import CorpusTraining

_STEPS_TO_COMPILE = 500  # fewest steps for which `compile: auto` saves time

if TYPE_CHECKING:
    from domainbert.pretraining.data_module import PretrainingData
    from domainbert.pretraining.module import Pretraining
    from domainbert.stages.early_checks import StageArguments
    from domainbert.training.fit import TrainingResult


@dataclass(frozen=True, kw_only=True)
class Pretrain(PretrainingSettings, CorpusTraining):
    """Settings of `pretrain`."""

    prepared: Annotated[list[Path], Items()]
    """Folders that `prepare` wrote, all with the same tokenizer; together they form the corpus."""

    encoder: EncoderConfig | None = None
    """Architecture of an encoder with random initial weights. Set either this or `init_from`."""

    init_from: ModelPath | None = field(default=None, metadata=TRAINED_MODEL)
    """Model folder to continue from (DAPT, TAPT). A missing head gets random initial weights."""

    objective: ObjectiveConfig | None = None
    """Training objective; None is masked LM."""

    masking: MaskingConfig = MaskingConfig()
    """Masking of masked LM; other objectives contain their own masking settings."""

    static_embeddings: bool = False
    """Initialise the word embeddings of a new encoder from co-occurrences in the corpus instead of random numbers. In a
    large corpus about 20 million tokens, evenly spread, are counted."""

    held_out: dict[str, Path] | None = None
    """Folders of other text, prepared with the same tokenizer, by name (`general: ...`). The loss on their validation
    split is also measured, to detect forgetting."""

    compile: bool | Literal["auto"] = field(default="auto", metadata=SPEED_ONLY)
    """Compile the model with `torch.compile`, which takes up to a minute; `auto` compiles on a GPU for at least 500
    steps. On a CPU it saves no time."""

    def __post_init__(self) -> None:
        check_one_given(encoder=self.encoder, init_from=self.init_from)
        if self.static_embeddings and self.encoder is None:
            raise DomainbertError(
                where="static_embeddings", found="true next to init_from", expected="static_embeddings: false"
            )
        if self.objective is not None and self.masking != MaskingConfig():
            raise DomainbertError(
                where="masking", found="next to objective", expected="masking inside it (see --objective.help)"
            )
        super().__post_init__()
        check_length(self.row_length, self.encoder)


def _compiles(settings: Pretrain, num_steps: int) -> bool:
    from domainbert.training.precision import trains_on_gpu

    if settings.compile == "auto":
        return num_steps >= _STEPS_TO_COMPILE and trains_on_gpu((settings.trainer or {}).get("accelerator"))
    return settings.compile


@stage
def pretrain(out: Path, settings: Pretrain, inputs: Inputs) -> dict[str, Any]:
    """Pretrain an encoder on a prepared corpus, with masked LM by default.

    `out` becomes a model folder, with subfolders `logs` and `checkpoints`; training resumes from the newest checkpoint.

    Raises:
        DomainbertError: the checkpoints in `out` are from a training with other settings; the tokenizer does not match
            the model; rows are longer than the encoder's positions.
    """
    import lightning

    from domainbert.pretraining.languages import passes_by_language
    from domainbert.pretraining.module import Pretraining, fit_rows
    from domainbert.pretraining.phases import tokens_seen
    from domainbert.training.checkpoint_files import check_same_training, holds_progress
    from domainbert.training.steps import Steps

    if process_rank() == 0:
        check_same_training(out, inputs.facts())
    lightning.seed_everything(settings.seed, verbose=False)
    data = _open_corpus(settings, inputs)
    data.setup("fit")
    steps = Steps.of_budget(settings, data.num_rows, data.tokens_per_pass, settings.init_from is not None)
    contexts = settings.static_embeddings and not holds_progress(out)  # a checkpoint overwrites the embeddings
    module = Pretraining(
        settings.encoder,
        data.tokenizer,
        data.objective_config,
        init_from=settings.init_from,
        seed=settings.seed,
        static_embeddings=data.corpus if contexts else None,
        compile=_compiles(settings, steps.total),
        settings=settings,
    )
    train, objective = data.plan(steps.total), module.objective
    languages, language_warnings = passes_by_language(train)
    print_warnings(language_warnings)
    fitted, throughput = fit_rows("pretrain", module, data, steps, settings, out)
    _print_losses(fitted, list(settings.held_out or {}))
    facts, warnings = objective.judge(data.corpus, fitted.validation)
    print_warnings(warnings)
    metrics = {
        "num_steps": steps.total,
        "num_parameters": sum(parameter.numel() for parameter in module.model.parameters()),
        "micro_batch_size": fitted.micro_batch_size,
        "row_fullness": train[-1].reader.plan.fullness,
        "tokens_per_second": throughput.tokens_per_second,
        "model_flop_utilisation": throughput.model_flop_utilisation,
        **fitted.facts,
        **facts,
        **languages,
        "warnings": language_warnings + warnings,
        "tokens_seen": tokens_seen(train),
    }
    _save_models(out, settings, module, metrics)
    return metrics


def show_examples(settings: Pretrain, count: int, inputs: Inputs) -> list[str]:
    """Return the lines of the first `count` training rows as the model reads them, for `--show`; write nothing."""
    from domainbert.pretraining.phases import format_rows
    from domainbert.training.steps import Steps

    data = _open_corpus(settings, inputs)
    steps = Steps.of_budget(settings, data.num_rows, data.tokens_per_pass)
    return format_rows(data.plan(steps.total), count)


def check_arguments(arguments: StageArguments) -> None:
    """Check the row length, the tokenizer of the corpus and the objective."""
    encoder = arguments["encoder"] or arguments.encoder_of(arguments["init_from"])
    arguments.check_max_length(encoder)
    arguments.check_prepared({} if arguments["init_from"] is None else {"init_from": arguments["init_from"]})
    if encoder is not None and arguments["objective"] is not None:
        with arguments.record_problems("objective"):
            arguments["objective"].check(encoder)


def _open_corpus(settings: Pretrain, inputs: Inputs) -> PretrainingData:
    from domainbert.data.prepared import open_prepared
    from domainbert.pretraining.data_module import PretrainingData

    init_from = settings.init_from
    fingerprint = inputs.model(init_from).tokenizer().fingerprint if init_from else None
    corpus = open_prepared(settings.prepared, fingerprint, settings.cache)
    data = PretrainingData(
        corpus,
        settings.objective or MaskedLM(settings.masking),
        held_out=settings.held_out,
        seed=settings.seed,
        settings=settings,  # `Pretrain` is a subclass of `CorpusDataSettings`
    )
    data.tokenizer = inputs.tokenizer(corpus.tokenizer_folder)
    return data


def _print_losses(fitted: TrainingResult, held_out: list[str]) -> None:
    first, last = fitted.history[0], fitted.history[-1]
    for name in held_out:
        before, after = first[f"{name}_loss"], last[f"{name}_loss"]
        print(f"{name}: loss {after:.4f}, from {before:.4f} at step {first['step']:,} ({after - before:+.4f})")
    print(f"validation: {', '.join(f'{name} {value:.4f}' for name, value in last.items() if name != 'step')}")


def _save_models(out: Path, settings: Pretrain, module: Pretraining, metrics: dict[str, Any]) -> None:
    """Every process must call this."""
    objective, counts = module.objective, f"{metrics['num_steps']:,} steps, {metrics['tokens_seen']:,} tokens"
    facts = {
        "training": f"{counts} of {objective.config.name}",
        **objective.card_facts(metrics["validation"]),
        **({"warning": "; ".join(metrics["warnings"])} if metrics["warnings"] else {}),
    }
    module.save_pretrained(out, partial(module.card, values=settings.card, facts=facts))
