"""`pretrain`: an objective, masked LM unless told, on a prepared corpus, from scratch or from a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from domainbert.base.errors import DomainbertError
from domainbert.base.marks import SPEED_ONLY, TRAINED_MODEL
from domainbert.base.paths import ModelPath
from domainbert.base.ranges import Count, Items, Seed
from domainbert.encoders.config import EncoderConfig, check_length
from domainbert.models.card import card_head, model_card
from domainbert.pretraining.config import MaskingConfig, ObjectiveConfig
from domainbert.pretraining.objectives.masked_lm.config import MaskedLM
from domainbert.stages.inputs import Inputs
from domainbert.stages.stage import stage
from domainbert.stages.warnings import say
from domainbert.training.config import CorpusTraining

_STEPS_TO_COMPILE = 500  # from which on `compile: auto` pays

if TYPE_CHECKING:
    from domainbert.pretraining.data_module import PretrainingData
    from domainbert.pretraining.module import Pretraining
    from domainbert.pretraining.objective import Built
    from domainbert.stages.early_checks import Given
    from domainbert.tokenization.load import DomainTokenizer
    from domainbert.training.fit import Fitted


@dataclass(frozen=True, kw_only=True)
class Pretrain(CorpusTraining):
    """Settings of `pretrain`."""

    prepared: Annotated[list[Path], Items()]
    """Folders that `prepare` wrote, all with the same tokenizer; together they are the corpus."""

    encoder: EncoderConfig | None = None
    """Architecture of an encoder that starts from random weights. Either this or `init_from` is given."""

    init_from: ModelPath | None = field(default=None, metadata=TRAINED_MODEL)
    """Model folder to continue from (DAPT, TAPT); a head it lacks is made."""

    objective: ObjectiveConfig | None = None
    """Objective to train on; None is masked LM."""

    masking: MaskingConfig = MaskingConfig()
    """Tokens that masked LM hides and predicts; another objective has settings of its own."""

    static_embeddings: bool = False
    """Start the word embeddings of a new encoder from vectors that tell which entries stand near which in the corpus,
    in place of random numbers. Of a large corpus some 20 million tokens are read for them, evenly spread."""

    embedding_steps: Count = 0
    """Optimiser steps at the start in which only the embeddings and the head learn: for a model whose vocabulary is
    new."""

    held_out: dict[str, Path] | None = None
    """Folders of other text, prepared with the same tokenizer, by name: the loss on their validation split is measured
    beside the corpus' own, so that forgetting shows (`general: ...`)."""

    seed: Seed = 0
    """Seed of the weights, the order, the masks and the dropout; to continue on the same corpus, take another one."""

    compile: bool | Literal["auto"] = field(default="auto", metadata=SPEED_ONLY)
    """Run the model through `torch.compile`, which takes up to a minute; `auto` does so on a GPU in a training of at
    least 500 steps. On a CPU it gains nothing."""

    def __post_init__(self) -> None:
        """Check that the start and the masking are said once, and that the encoder has positions for a row."""
        if (self.encoder is None) == (self.init_from is None):
            raise DomainbertError("encoder, init_from: expected exactly one of the two")
        if self.static_embeddings and self.encoder is None:
            raise DomainbertError("static_embeddings: true beside init_from, which has embeddings; expected false")
        if self.objective is not None and self.masking != MaskingConfig():
            raise DomainbertError("masking: given beside an objective; expected it among the objective's own settings")
        super().__post_init__()
        check_length(self.row_length, self.encoder)


def _compiles(settings: Pretrain, num_steps: int) -> bool:
    from domainbert.training.precision import trains_on_gpu

    if settings.compile == "auto":
        return num_steps >= _STEPS_TO_COMPILE and trains_on_gpu((settings.trainer or {}).get("accelerator"))
    return settings.compile


@stage
def pretrain(out: Path, settings: Pretrain, inputs: Inputs) -> dict[str, Any]:
    """Pretrain an encoder on a prepared corpus, with masked LM unless told.

    `out` is the model folder to write; logs stand in its `logs` folder. Training resumes from the newest checkpoint in
    its `checkpoints` folder if there is one.

    Raises:
        DomainbertError: the tokenizer does not match the model, or rows are longer than the encoder's positions.
    """
    import lightning

    from domainbert.pretraining.languages import passes_by_language
    from domainbert.pretraining.module import Pretraining, fit_rows
    from domainbert.pretraining.phases import tokens_seen
    from domainbert.training.checkpoint_files import holds_progress
    from domainbert.training.fit import Steps

    lightning.seed_everything(settings.seed, verbose=False)
    data, tokenizer = _open(settings, inputs)
    module = Pretraining(
        settings.encoder,
        tokenizer,
        settings.objective or MaskedLM(settings.masking),
        init_from=settings.init_from,
        optim=settings.optim,
        schedule=settings.schedule,
        seed=settings.seed,
        dropout=settings.dropout,
        static_embeddings=settings.static_embeddings and not holds_progress(out),  # else weights are a checkpoint's
        embedding_steps=settings.embedding_steps,
        activation_checkpointing=settings.activation_checkpointing,
    )
    data.resolve(module, "fit")
    steps = Steps.of_budget(settings, data.num_rows, data.tokens_per_pass, settings.init_from is not None)
    if _compiles(settings, steps.total):
        module.compile_losses()
    train, learnt = data.plan(steps.total), module.objective
    languages, often = passes_by_language(train)
    say(often)
    fitted, throughput = fit_rows("pretrain", module, data, steps, settings.runtime(out))
    _say(fitted, list(settings.held_out or {}))
    facts, warnings = learnt.judge(data.corpus, fitted.validation)
    say(warnings)
    warnings = often + warnings
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
        "warnings": warnings,
        "tokens_seen": tokens_seen(train),
    }
    _save(out, settings, module, metrics)
    return metrics


def show_examples(settings: Pretrain, count: int, inputs: Inputs) -> list[str]:
    """The first rows of the training as the model reads them, for `--show`; nothing is written."""
    from domainbert.pretraining.phases import plan_phases
    from domainbert.pretraining.showing import shown_rows

    data, tokenizer = _open(settings, inputs)
    corpus = data.open()
    learnt = (settings.objective or MaskedLM(settings.masking)).build(tokenizer).for_training(corpus)
    return shown_rows(plan_phases(corpus.train, learnt, settings, settings.seed)[0], count)


def check_arguments(given: Given) -> None:
    """Check the length of rows and the objective."""
    encoder = given["encoder"] or given.encoder_of(given["init_from"])
    given.check_max_length(encoder)
    given.check_prepared({} if given["init_from"] is None else {"init_from": given["init_from"]})
    if encoder is not None and given["objective"] is not None:
        with given.under("objective"):
            given["objective"].check(encoder)


def _open(settings: Pretrain, inputs: Inputs) -> tuple[PretrainingData, DomainTokenizer]:
    """The corpus, and its tokenizer, which is that of the model to continue from."""
    from domainbert.data.prepared import open_prepared
    from domainbert.pretraining.data_module import PretrainingData

    init_from = settings.init_from
    fingerprint = inputs.model(init_from).tokenizer().fingerprint if init_from else None
    corpus = open_prepared(settings.prepared, fingerprint, settings.cache)
    data = PretrainingData(
        corpus,
        max_length=settings.phases,
        batch_size=settings.batch_size,
        held_out=settings.held_out,
        cache=settings.cache,
        num_workers=settings.num_workers,
    )
    return data, inputs.tokenizer(corpus.tokenizer_folder)


def _say(fitted: Fitted, held_out: list[str]) -> None:
    first, last = fitted.history[0], fitted.history[-1]
    for name in held_out:
        before, after = first[f"{name}_loss"], last[f"{name}_loss"]
        print(f"{name}: loss {after:.4f}; {before:.4f} at step {first['step']:,} ({after - before:+.4f})")
    print(f"validation: {', '.join(f'{name} {value:.4f}' for name, value in last.items() if name != 'step')}")


def _described(built: Built) -> str:
    count = sum(parameter.numel() for parameter in built.model.parameters())
    return f"{built.config.model_type}, {count:,} parameters with its head"


def _save(out: Path, settings: Pretrain, module: Pretraining, metrics: dict[str, Any]) -> None:
    """Write the model to the folder of the stage, and the others to folders in it; every process has to call it."""
    from domainbert.pretraining.objective import MODEL

    learnt = module.objective
    facts = {
        "vocabulary": f"{learnt.tokenizer.vocab_size:,} entries",
        "training": f"{metrics['num_steps']:,} steps, {metrics['tokens_seen']:,} tokens of {learnt.config.name}",
        **learnt.card_facts(metrics["validation"]),
        **({"warning": "; ".join(metrics["warnings"])} if metrics["warnings"] else {}),
    }
    models = {name: _described(one) for name, one in module.built.items()}
    title = "Domain encoder"

    def card(name: str) -> str:
        said = learnt.presented(name)
        head = card_head(title, said.pipeline_tag, settings.card, settings.init_from)
        others = {other: told for other, told in models.items() if name == MODEL and other != MODEL}
        return model_card(title, said.summary, {"encoder": models[name], **others, **facts}, said.usage, head)

    module.save_pretrained(out, card)
