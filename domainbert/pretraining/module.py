"""Pretraining with any objective as a LightningModule, and `fit_rows`, which distillation also uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import ModuleDict
from torch.optim import Optimizer
from torchmetrics import MetricCollection, SumMetric
from typing_extensions import override

from domainbert.base.choices import as_plain
from domainbert.base.errors import DomainbertError, check_one_given
from domainbert.data.splits import PreparedCorpus
from domainbert.encoders.config import EncoderConfig, check_length
from domainbert.encoders.torch_internals import SeededDraws
from domainbert.metrics.headline import LOSS
from domainbert.models.card import CardConfig, card_head, inherited_values, model_card
from domainbert.models.folder import open_model
from domainbert.models.saving import save_model
from domainbert.models.static_embeddings import ENOUGH_TOKENS, count_contexts, static_embeddings
from domainbert.pretraining.config import ObjectiveConfig, PretrainingSettings
from domainbert.pretraining.data_module import PretrainingData
from domainbert.pretraining.objective import MODEL, BuiltModel, InitialModels, Objective, ValidationText
from domainbert.pretraining.objectives.masked_lm.config import MaskedLM
from domainbert.pretraining.phases import summary_lines
from domainbert.pretraining.rows_module import RowsModule, tokenizer_of
from domainbert.tokenization.load import DomainTokenizer
from domainbert.training.callbacks import Throughput
from domainbert.training.config import Training
from domainbert.training.fit import TrainingResult, fit
from domainbert.training.hparams import read_argument
from domainbert.training.loaders import SPARE
from domainbert.training.module import log_scores
from domainbert.training.processes import first_process_writes
from domainbert.training.sharding import whole_weights
from domainbert.training.steps import Steps
from domainbert.training.throughput import throughput_callback

_CARD_KEY = "card"  # checkpoint key of `inherited_values`


class Pretraining(RowsModule):
    """Train models on packed rows with the losses of an objective, masked LM by default.

        module = Pretraining(BertConfig(384, 6, 12, 1536), "runs/vocab", MaskedLM())
        lightning.Trainer(max_steps=10_000).fit(module, PretrainingData("runs/prepared", max_length=128))
        module.save_pretrained("runs/model")

    >>> from domainbert import BertConfig, Pretraining
    >>> Pretraining(BertConfig(16, 2, 2, 32), "model", embedding_steps=5).hparams["embedding_steps"]
    5

    Logs `train/loss`, `validation/loss`, `validation/bits_per_character` and further metrics of the objective; metrics
    of a held-out text have its name as a prefix. The loss is a mean over the predicted tokens of the global batch.

    Args:
        encoder: architecture of a new encoder with random weights; None to continue from `init_from`.
        tokenizer: tokenizer of the corpus, or its folder; None takes the tokenizer of `init_from`.
        objective: losses and metrics.
        init_from: model folder to continue from; a missing head is initialised.
        seed: random seed of new weights and dropout.
        static_embeddings: corpus from whose contexts the word embeddings of a new encoder are initialised; None draws
            random numbers.
        compile: run the forward and backward pass through `torch.compile`.
        architectures: architectures of the further models, by name; None takes the architectures of the objective.
        settings: all settings; or single settings by keyword, see `PretrainingSettings`.

    Attributes:
        built: models by name, with the metadata of their folders.
        card_values: values for the header of model cards, from the card of `init_from`.
    """

    built: Mapping[str, BuiltModel]

    def __init__(
        self,
        encoder: EncoderConfig | None = None,
        tokenizer: str | Path | DomainTokenizer | Mapping[str, Any] | None = None,
        objective: ObjectiveConfig = MaskedLM(),
        *,
        init_from: str | Path | None = None,
        seed: int = 0,
        static_embeddings: PreparedCorpus | None = None,
        compile: bool = False,
        architectures: Mapping[str, EncoderConfig] = MappingProxyType({}),
        settings: PretrainingSettings | None = None,
        **changes: Any,
    ) -> None:
        settings = PretrainingSettings.of(settings, **changes)
        super().__init__(settings.optim, settings.schedule, seed)
        check_one_given(encoder=encoder, init_from=init_from)
        if tokenizer is None and init_from is None:
            raise DomainbertError(where="tokenizer", found="none", expected="Pretraining(encoder, tokenizer)")
        self.encoder: EncoderConfig | None = read_argument("encoder", EncoderConfig | None, encoder)
        self.objective_config: ObjectiveConfig = read_argument("objective", ObjectiveConfig, objective)
        self.init_from = None if init_from is None else Path(init_from)
        self.card_values: dict[str, Any] = {} if self.init_from is None else inherited_values(self.init_from)
        start_tokenizer = None if self.init_from is None else open_model(self.init_from).tokenizer()
        if tokenizer is None:
            assert start_tokenizer is not None
            self.tokenizer = start_tokenizer
        else:
            self.tokenizer = tokenizer_of(tokenizer)
        if start_tokenizer is not None and start_tokenizer.fingerprint != self.tokenizer.fingerprint:
            raise DomainbertError(
                "another vocabulary than the model of init_from",
                where="tokenizer",
                hint=f"remove it, or make a model with this vocabulary from {self.init_from} with `transfer`",
            )
        self.embedding_steps, self.compiles = settings.embedding_steps, compile
        self.activation_checkpointing = settings.activation_checkpointing
        vectors = None if static_embeddings is None else _static_embeddings(static_embeddings, seed)
        others = {name: read_argument(name, EncoderConfig, other) for name, other in architectures.items()}
        with SeededDraws(seed):
            start = InitialModels(self.tokenizer, self.encoder, self.init_from, settings.dropout, vectors, others)
            built_objective: Objective[Any] = self.objective_config.build(self.tokenizer)
            self.set_objective(built_objective, built_objective.build(start))
        self._record_arguments(
            encoder=self.encoder,
            tokenizer=tokenizer if isinstance(tokenizer, (str, Path)) else None,
            objective=self.objective_config,
            init_from=self.init_from,
            seed=seed,
            compile=compile,
            **vars(settings),
        )

    @classmethod
    def from_pretrained(
        cls, model: str | Path, objective: ObjectiveConfig = MaskedLM(), **arguments: Any
    ) -> Pretraining:
        """Return a module that continues training from a model folder; `arguments` as in the constructor."""
        return cls(encoder=None, tokenizer=None, objective=objective, init_from=model, **arguments)

    def check_rows(self, data: PretrainingData) -> None:
        """Raise `DomainbertError` if rows exceed the positions of a model, or the data has another objective."""
        if data.objective_config != self.objective_config:
            names = [type(config).__name__ for config in (data.objective_config, self.objective_config)]
            found = f"{names[0]} in the data and {names[1]} in the module, or other settings"
            raise DomainbertError(where="objective", found=found, expected="the same")
        for built in self.built.values():
            check_length(data.row_length, built.config)

    def set_objective(self, objective: Objective[Any], built: Mapping[str, BuiltModel]) -> None:
        """Train `built`, the models of an objective, with its losses."""
        self.objective, self.built, self.validation_objective = objective, built, objective.for_validation()
        models = {name: entry.model for name, entry in built.items()}
        for model in models.values():
            model.encoder.activation_checkpointing = self.activation_checkpointing
        self.model, self.others = (
            models[MODEL],
            ModuleDict({name: model for name, model in models.items() if name != MODEL}),
        )
        self.summed_losses = objective.losses
        if self.compiles:
            self.summed_losses = torch.compile(objective.losses, dynamic=False)
        self.sums: dict[str, tuple[ValidationText, MetricCollection]] = {}  # of this validation, by name of the text

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """Return the loss of a micro-batch, scaled so that gradients are means over the global batch."""
        sums = self.summed_losses(self.models, self._inputs(batch))
        terms = self.objective.terms
        means = {name: value / batch[terms[name].count] for name, value in sums.items()}
        total = sum(terms[name].weight * mean for name, mean in means.items())
        parts = means if len(terms) > 1 else {}  # a single term is the loss itself
        return self.record_loss(cast(Tensor, total), parts)

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """During the first `embedding_steps`, remove the gradients of all parameters except embeddings and heads."""
        if self.trainer.global_step < self.embedding_steps:
            for model in self.models.values():
                for parameter in model.encoder.non_embedding_parameters():
                    parameter.grad = None

    @override
    def reset_scores(self) -> None:
        self.sums = {}

    def validation_step(self, batch: dict[str, Any], batch_idx: int, dataloader_idx: int = 0) -> None:
        """Add the metrics of a batch to the sums of its texts; a spare batch is computed, but not added."""
        measured = self.validation_objective.measure(self.models, self._inputs(batch))
        names = self.objective.measured
        for text in batch["sources"].texts:
            if text.name not in self.sums:
                new_sums = MetricCollection({name: SumMetric(nan_strategy="disable") for name in names})
                self.sums[text.name] = text, new_sums.to(self.device)
            if SPARE in batch:  # it only keeps this process in step with the others
                continue
            _, sums = self.sums[text.name]
            for name in names:
                sums[name].update(measured[name])

    @override
    def report(self, stage: str) -> None:
        for text, sums in self.sums.values():
            metrics = self.validation_objective.report(sums.compute(), text)
            prefix = f"{text.name}_" if text.name else ""
            log_scores(self, stage, {f"{prefix}{name}": value for name, value in metrics.items()}, LOSS)

    def save_pretrained(self, folder: str | Path, card: Callable[[str], str] | CardConfig | None = None) -> None:
        """Write the model folder, with further models in subfolders. Call it in every process.

        Args:
            folder: created if it does not exist.
            card: returns the text of the model card for a model name; or values for the header of the default cards,
                such as their licence.

        Raises:
            DomainbertError: a weight is not finite.
        """
        card_of: Callable[[str], str] = (
            partial(self.card, values=card) if card is None or isinstance(card, CardConfig) else card
        )
        for name, built in self.objective.saved(self.built).items():
            model, config, weights = built.model, built.config, whole_weights(built.model)
            with first_process_writes() as writes:
                if writes:
                    text = card_of(name)
                    target = Path(folder) if name == MODEL else Path(folder) / name
                    save_model(target, model, config, self.tokenizer, built.head, text, built.labels, weights=weights)

    def card(self, name: str, values: CardConfig | None = None, facts: Mapping[str, object] | None = None) -> str:
        """Return the text of the card of a model; the card of the main model also lists the further models.

        `values` are for the header; `facts` are the rows on the training, by default the name of the objective.
        """
        texts, title = self.objective.card_texts(name), "Domain encoder"
        rows = {"encoder": _summary(self.built[name])}
        if name == MODEL:
            rows |= {other: _summary(built) for other, built in self.built.items() if other != MODEL}
        rows |= {"vocabulary": f"{self.objective.tokenizer.vocab_size:,} entries"}
        training = {"training": self.objective.config.name} if facts is None else facts
        head = card_head(title, texts.pipeline_tag, values, self.card_values)
        return model_card(title, texts.summary, {**rows, **training}, texts.usage, head)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Store architectures and tokenizer, so that `load_from_checkpoint` needs no other file."""
        super().on_save_checkpoint(checkpoint)
        arguments = checkpoint.get(self.CHECKPOINT_HYPER_PARAMS_KEY, {})
        plain = {name: as_plain(built.config) for name, built in self.built.items()}
        arguments |= {"encoder": plain.pop(MODEL), "architectures": plain, "init_from": None}
        arguments["tokenizer"] = self.tokenizer.as_plain()
        checkpoint[_CARD_KEY] = self.card_values

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore what model cards inherit from `init_from`. Raise `DomainbertError` for another tokenizer."""
        super().on_load_checkpoint(checkpoint)
        self.card_values = dict(checkpoint.get(_CARD_KEY, self.card_values))

    def _inputs(self, batch: Mapping[str, Any]) -> dict[str, Tensor]:
        return {name: batch[name] for name in self.objective.inputs if name in batch}


def _summary(built: BuiltModel) -> str:
    count = sum(parameter.numel() for parameter in built.model.parameters())
    return f"{built.config.model_type}, {count:,} parameters with its head"


def _static_embeddings(corpus: PreparedCorpus, seed: int) -> Tensor:
    contexts = count_contexts(corpus.vocab_size, corpus.train.documents(ENOUGH_TOKENS))
    embeddings = static_embeddings(contexts, torch.Generator().manual_seed(seed))
    print(f"{int(embeddings.any(dim=1).sum()):,} of {corpus.vocab_size:,} word embeddings start from their contexts")
    return embeddings


def fit_rows(
    label: str, module: RowsModule, data: PretrainingData, steps: Steps, settings: Training, out: Path
) -> tuple[TrainingResult, Throughput]:
    """Train on the rows of a corpus; keep the newest checkpoints and the checkpoint with the lowest validation loss.

    See `fit`. Return the result of the training, and its throughput.
    """
    phases = data.plan(steps.total)
    readers = {phase.steps.start: phase.reader for phase in phases}
    flops = {
        start: reader.objective.flops_per_token(module.models, reader.plan.row_length)
        for start, reader in readers.items()
    }
    throughput = throughput_callback(flops, settings)
    print(*summary_lines(phases), sep="\n")
    return fit(label, module, data, steps, settings, out, monitor="validation/loss", watch=[throughput]), throughput
