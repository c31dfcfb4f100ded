"""`pretrain`: an objective, masked LM unless told, on a prepared corpus, from scratch or from a model."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from domainbert.base.errors import DomainbertError
from domainbert.base.marks import SPEED_ONLY, TRAINED_MODEL
from domainbert.base.paths import ModelPath
from domainbert.base.ranges import Count, Items, Seed
from domainbert.base.ranks import process_rank
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
    from torch import Tensor

    from domainbert.data.splits import PreparedCorpus
    from domainbert.pretraining.batches import PackedRowsReader
    from domainbert.pretraining.objective import Built, Objective, ValidationText
    from domainbert.stages.early_checks import Given
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
    from domainbert.pretraining.phases import plan_phases, tokens_seen
    from domainbert.pretraining.start import Start
    from domainbert.training.checkpoint_files import holds_progress

    lightning.seed_everything(settings.seed, verbose=False)
    corpus, learnt = _open(settings, inputs)
    init_from = settings.init_from
    begins = not holds_progress(out)  # else all weights are those of a checkpoint
    vectors = _static_embeddings(corpus, settings.seed) if settings.static_embeddings and begins else None
    built = learnt.build(Start(learnt.tokenizer, settings.encoder, init_from, settings.dropout, vectors))
    for one in built.values():
        one.model.encoder.activation_checkpointing = settings.activation_checkpointing
        check_length(settings.row_length, one.config)
    train, steps = plan_phases(corpus.train, learnt, settings, settings.seed, init_from is not None)
    validations, texts = _validations(settings, corpus, learnt)
    languages, often = passes_by_language(train)
    say(often)
    models = {name: one.model for name, one in built.items()}
    how = (settings.optim, settings.schedule, steps.total)
    module = Pretraining(
        learnt, models, *how, texts, settings.seed, settings.embedding_steps, _compiles(settings, steps.total)
    )
    fitted, throughput = fit_rows("pretrain", module, train, validations, steps, settings.runtime(out))
    _say(fitted, list(settings.held_out or {}))
    facts, warnings = learnt.judge(corpus, fitted.validation)
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
    _save(out, settings, learnt, built, metrics)
    return metrics


def show_examples(settings: Pretrain, count: int, inputs: Inputs) -> list[str]:
    """The first rows of the training as the model reads them, for `--show`; nothing is written."""
    from domainbert.pretraining.phases import plan_phases
    from domainbert.pretraining.showing import shown_rows

    corpus, learnt = _open(settings, inputs)
    return shown_rows(plan_phases(corpus.train, learnt, settings, settings.seed)[0], count)


def check_arguments(given: Given) -> None:
    """Check the length of rows and the objective."""
    encoder = given["encoder"] or given.encoder_of(given["init_from"])
    given.check_max_length(encoder)
    given.check_prepared({} if given["init_from"] is None else {"init_from": given["init_from"]})
    if encoder is not None and given["objective"] is not None:
        with given.under("objective"):
            given["objective"].check(encoder)


def _open(settings: Pretrain, inputs: Inputs) -> tuple[PreparedCorpus, Objective[Any]]:
    """The corpus, and the objective for its tokenizer, which is that of the model to continue from."""
    from domainbert.data.prepared import open_prepared

    init_from = settings.init_from
    fingerprint = inputs.model(init_from).tokenizer().fingerprint if init_from else None
    corpus = open_prepared(settings.prepared, fingerprint, settings.cache)
    tokenizer = inputs.tokenizer(corpus.tokenizer_folder)
    learnt = (settings.objective or MaskedLM(settings.masking)).build(tokenizer)
    return corpus, learnt.for_training(corpus)


def _static_embeddings(corpus: PreparedCorpus, seed: int) -> Tensor:
    """Those of the vocabulary's entries (vocab_size, D), from the training side, or from enough of it."""
    import torch

    from domainbert.models.static_embeddings import ENOUGH_TOKENS, count_contexts, static_embeddings

    contexts = count_contexts(corpus.vocab_size, corpus.train.documents(ENOUGH_TOKENS))
    made = static_embeddings(contexts, torch.Generator().manual_seed(seed))
    print(f"{int(made.any(dim=1).sum()):,} of {corpus.vocab_size:,} word embeddings start from their contexts")
    return made


def _validations(
    settings: Pretrain, corpus: PreparedCorpus, learnt: Objective[Any]
) -> tuple[list[PackedRowsReader], list[ValidationText]]:
    """The rows that are validated, and facts of each text: the corpus' own, which has no name and is read by language
    if it has several, its languages, and the held-out ones."""
    from domainbert.data.prepared import open_prepared
    from domainbert.pretraining.batches import validation_rows
    from domainbert.pretraining.objective import ValidationText

    held_out, fingerprint = settings.held_out or {}, corpus.tokenizer_fingerprint
    cache = None if settings.cache is None else replace(settings.cache, url=None)  # which is that of the corpus
    others = {name: open_prepared([path], fingerprint, cache) for name, path in held_out.items()}
    own = validation_rows(corpus, learnt, settings.row_length)
    languages = own.by_language()
    if twice := sorted(languages.keys() & held_out.keys()):
        raise DomainbertError(f"held_out: {twice[0]} is a language of the corpus; expected another name")
    rows = [*(languages.values() or [own])]
    for name, other in others.items():
        try:
            rows.append(validation_rows(other, learnt, settings.row_length))
        except DomainbertError as error:
            raise DomainbertError(f"held_out.{name}: {str(error).removeprefix('prepared: ')}") from error
    density = corpus.validation.tokens_per_character_of
    texts = [ValidationText("", corpus.validation.tokens_per_character, learnt.baselines(corpus))]
    texts += [ValidationText(name, density(name), {}, is_language=True) for name in languages]
    texts += [ValidationText(name, other.validation.tokens_per_character, {}) for name, other in others.items()]
    return rows, texts


def _say(fitted: Fitted, held_out: list[str]) -> None:
    first, last = fitted.history[0], fitted.history[-1]
    for name in held_out:
        before, after = first[f"{name}_loss"], last[f"{name}_loss"]
        print(f"{name}: loss {after:.4f}; {before:.4f} at step {first['step']:,} ({after - before:+.4f})")
    print(f"validation: {', '.join(f'{name} {value:.4f}' for name, value in last.items() if name != 'step')}")


def _described(built: Built) -> str:
    count = sum(parameter.numel() for parameter in built.model.parameters())
    return f"{built.config.model_type}, {count:,} parameters with its head"


def _save(
    out: Path, settings: Pretrain, learnt: Objective[Any], built: dict[str, Built], metrics: dict[str, Any]
) -> None:
    """Write the model to the folder of the stage, and the others to folders in it; every process has to call it."""
    from domainbert.models.folder import save_model
    from domainbert.pretraining.objective import MODEL
    from domainbert.training.state import whole_weights

    facts = {
        "vocabulary": f"{learnt.tokenizer.vocab_size:,} entries",
        "training": f"{metrics['num_steps']:,} steps, {metrics['tokens_seen']:,} tokens of {learnt.config.name}",
        **learnt.card_facts(metrics["validation"]),
        **({"warning": "; ".join(metrics["warnings"])} if metrics["warnings"] else {}),
    }
    models = {name: _described(one) for name, one in built.items()}
    title = "Domain encoder"
    for name, one in learnt.saved(built).items():
        weights = whole_weights(one.model)
        if process_rank() == 0:
            folder, said = out if name == MODEL else out / name, learnt.presented(name)
            head = card_head(title, said.pipeline_tag, settings.card, settings.init_from)
            others = {other: told for other, told in models.items() if name == MODEL and other != MODEL}
            card = model_card(title, said.summary, {"encoder": models[name], **others, **facts}, said.usage, head)
            save_model(folder, one.model, one.config, learnt.tokenizer, one.head, card, one.labels, weights=weights)
