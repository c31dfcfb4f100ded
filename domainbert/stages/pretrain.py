"""`pretrain`: an objective, masked LM unless told, on a prepared corpus, from scratch or from a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from domainbert.base.errors import DomainbertError
from domainbert.base.paths import ModelPath
from domainbert.base.ranges import BatchSize, Count, Dropout, Items, Length, PositiveInt, Seed, Workers
from domainbert.base.ranks import process_rank
from domainbert.encoders.config import EncoderConfig, check_length
from domainbert.models.card import model_card
from domainbert.pretraining.config import MaskingConfig, ObjectiveConfig
from domainbert.pretraining.objectives.masked_lm.config import MaskedLM
from domainbert.settings.stage import stage
from domainbert.training.config import Budget, LoggerName, MicroBatchSize, Precision, Runtime
from domainbert.training.optim_config import OptimConfig, ScheduleConfig

if TYPE_CHECKING:
    from domainbert.pretraining.batches import PackedRowsReader
    from domainbert.pretraining.module import Pretraining
    from domainbert.pretraining.objective import Built, Objective
    from domainbert.stages.early_checks import Given
    from domainbert.tokenization.load import DomainTokenizer
    from domainbert.training.fit import Steps

SPEED_ONLY = {"micro_batch_size", "activation_checkpointing", "compile", "num_workers", "loggers", "checkpoint_every"}


def _check(
    encoder: EncoderConfig | None,
    init_from: Path | None,
    objective: ObjectiveConfig | None,
    masking: MaskingConfig,
    max_length: int,
    **_: Any,
) -> None:
    if (encoder is None) == (init_from is None):
        raise DomainbertError("encoder, init_from: expected exactly one of the two")
    if objective is not None and masking != MaskingConfig():
        raise DomainbertError("masking: given beside an objective; expected it among the objective's own settings")
    check_length(max_length, encoder)


@stage(_check)
def pretrain(
    out: Path,
    prepared: Annotated[list[Path], Items()],
    budget: Budget,
    encoder: EncoderConfig | None = None,
    init_from: ModelPath | None = None,
    objective: ObjectiveConfig | None = None,
    masking: MaskingConfig = MaskingConfig(),
    max_length: Length = 128,
    batch_size: BatchSize = 64,
    dropout: Dropout | None = None,
    embedding_steps: Count = 0,
    optim: OptimConfig = OptimConfig(),
    schedule: ScheduleConfig = ScheduleConfig(),
    validate_every: PositiveInt | None = None,
    held_out: dict[str, Path] | None = None,
    seed: Seed = 0,
    precision: Precision = "auto",
    micro_batch_size: MicroBatchSize = None,
    activation_checkpointing: bool = False,
    compile: bool = False,
    num_workers: Workers = 0,
    loggers: tuple[LoggerName, ...] = ("jsonl", "tensorboard"),
    checkpoint_every: PositiveInt | None = None,
    trainer: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Pretrain an encoder on a prepared corpus, with masked LM unless told.

    Args:
        out: the model folder to write; logs stand in its `logs` folder. Training goes on from the newest checkpoint in
            its `checkpoints` folder if there is one.
        prepared: folders that `prepare` wrote, all with the same tokenizer; together they are the corpus.
        budget: how long to train; exactly one of the three is given.
        encoder: architecture of an encoder that starts from random weights. Either this or `init_from` is given.
        init_from: a model folder to go on from (DAPT, TAPT); a head it lacks is made.
        objective: what is learnt; None is masked LM.
        masking: what masked LM hides and predicts; another objective has settings of its own.
        max_length: tokens of a row, [CLS] and [SEP] included.
        batch_size: rows of an optimiser step, over all devices.
        dropout: overrides the encoder's dropout during this stage; the model folder keeps the encoder's own.
        embedding_steps: optimiser steps at the start in which only the embeddings and the head learn: for a model whose
            vocabulary is new.
        optim: the optimiser.
        schedule: the learning rate over the steps.
        validate_every: optimiser steps between validations; None validates ten times.
        held_out: folders of other text, prepared with the same tokenizer, by name: the loss on their validation split
            is measured beside the corpus' own, so that forgetting shows (`general: ...`).
        seed: of the weights, the order, the masks and the dropout; to go on with the same corpus, take another one.
        precision: `auto` is bf16-mixed on hardware good at it (GPUs, CPUs with AMX or AVX512-BF16), else 32-true.
        micro_batch_size: rows a device computes at once; None takes its share of the batch. Smaller needs less memory;
            `auto` takes as many as fit: a GPU tries it before the first step, for a CPU it is estimated.
        activation_checkpointing: keep only what goes into each layer, and compute the layer again in the backward pass:
            a third more arithmetic, a fraction of the memory, and the same result.
        compile: run the model through `torch.compile`, for a GPU: half a minute to start. On a CPU it gains nothing.
        num_workers: processes that build batches beside the training process.
        loggers: where metrics go; `wandb` and `mlflow` need the extra of that name.
        checkpoint_every: optimiser steps between checkpoints; None writes one every ten minutes. One is written after
            each validation and when a signal ends the training, too.
        trainer: other arguments of `lightning.Trainer`: `devices`, `accelerator`, `strategy`, ...

    Raises:
        DomainbertError: the tokenizer does not match the model, or rows are longer than the encoder's positions.
    """
    import lightning

    from domainbert.data.prepared import open_prepared
    from domainbert.models.folder import open_model
    from domainbert.pretraining.corpus_rows import rows_of_corpus, validation_rows
    from domainbert.pretraining.module import Pretraining
    from domainbert.pretraining.objective import MODEL, ValidationText
    from domainbert.pretraining.start import Start
    from domainbert.stages.warnings import say
    from domainbert.tokenization.load import load_tokenizer
    from domainbert.training.fit import Steps

    lightning.seed_everything(seed, verbose=False)
    corpus = open_prepared(prepared, open_model(init_from).tokenizer().fingerprint if init_from else None)
    tokenizer = load_tokenizer(corpus.tokenizer_folder)
    what = objective or MaskedLM(masking)
    learnt = what.build(tokenizer)
    built = learnt.build(Start(tokenizer, encoder, init_from, dropout))
    for one in built.values():
        one.model.encoder.activation_checkpointing = activation_checkpointing
        check_length(max_length, one.config)
    train, validation = rows_of_corpus(corpus, learnt, max_length)
    others = {name: open_prepared([path], corpus.tokenizer_fingerprint) for name, path in (held_out or {}).items()}
    validations = [validation, *(validation_rows(other, learnt, max_length) for other in others.values())]
    texts = [ValidationText("", corpus.validation.tokens_per_character, learnt.baselines(corpus))]
    texts += [ValidationText(name, other.validation.tokens_per_character, {}) for name, other in others.items()]
    num_rows, num_tokens = train.plan.num_rows, corpus.train.num_tokens
    steps = Steps.of_budget(budget, batch_size, num_rows, num_tokens, validate_every, init_from is not None)
    models = {name: one.model for name, one in built.items()}
    module = Pretraining(learnt, models, optim, schedule, steps.total, texts, seed, embedding_steps, compile)
    runtime = Runtime(out, precision, micro_batch_size, num_workers, loggers, trainer or {}, checkpoint_every)
    metrics = _fit(module, train, validations, steps, runtime)
    facts, warnings = learnt.judge(corpus, metrics["validation"])
    say(warnings)
    metrics |= {**facts, "warnings": warnings, "tokens_seen": steps.tokens_seen(num_tokens)}
    card = _card(what, learnt, built[MODEL].config, metrics, corpus.vocab_size)
    _save(out, learnt.saved(built), tokenizer, card)
    return metrics


def check_arguments(given: Given) -> None:
    """What it starts from, the length of its rows, and loggers."""
    from domainbert.stages.early_checks import check_loggers, check_max_length, check_model, encoder_of

    check_model(given, "init_from", given["init_from"])
    check_max_length(given, given["encoder"] or encoder_of(given, given["init_from"]))
    check_loggers(given)


def _fit(
    module: Pretraining,
    train: PackedRowsReader,
    validations: Sequence[PackedRowsReader],
    steps: Steps,
    runtime: Runtime,
) -> dict[str, Any]:
    from domainbert.pretraining.fitting import fit_rows

    fitted, throughput = fit_rows("pretrain", module, train, validations, steps, runtime)
    _say(fitted.history, [text.name for text in module.texts[1:]])
    return {
        "num_steps": steps.total,
        "num_parameters": sum(parameter.numel() for parameter in module.model.parameters()),
        "micro_batch_size": fitted.micro_batch_size,
        "row_fullness": train.plan.fullness,
        "tokens_per_second": throughput.tokens_per_second,
        "model_flop_utilisation": throughput.model_flop_utilisation,
        **fitted.facts,
    }


def _say(history: Sequence[dict[str, float]], held_out: Sequence[str]) -> None:
    first, last = history[0], history[-1]
    for name in held_out:
        before, after = first[f"{name}_loss"], last[f"{name}_loss"]
        print(f"{name}: loss {after:.4f}; {before:.4f} at step {first['step']:,} ({after - before:+.4f})")
    print(f"validation: {', '.join(f'{name} {value:.4f}' for name, value in last.items() if name != 'step')}")


def _save(out: Path, models: Mapping[str, Built], tokenizer: DomainTokenizer, card: str) -> None:
    """Write the model to the folder of the stage, and the others to folders in it. All processes have to ask."""
    from domainbert.models.folder import save_model
    from domainbert.pretraining.objective import MODEL
    from domainbert.training.state import whole_weights

    for name, one in models.items():
        weights = whole_weights(one.model)
        if process_rank() == 0:
            folder = out if name == MODEL else out / name
            save_model(folder, one.model, one.config, tokenizer, one.head, card, one.labels, weights=weights)


def _card(
    what: ObjectiveConfig, learnt: Objective[Any], config: EncoderConfig, metrics: dict[str, Any], vocab_size: int
) -> str:
    facts = {
        "encoder": f"{config.model_type}, {metrics['num_parameters']:,} parameters with its head",
        "vocabulary": f"{vocab_size:,} entries",
        "training": f"{metrics['num_steps']:,} steps, {metrics['tokens_seen']:,} tokens of {what.name}",
        **learnt.card_facts(metrics["validation"]),
        **({"warning": "; ".join(metrics["warnings"])} if metrics["warnings"] else {}),
    }
    return model_card("Domain encoder", learnt.summary, facts, learnt.usage)
