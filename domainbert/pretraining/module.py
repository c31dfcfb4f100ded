"""Pretraining with any objective as a LightningModule, and `fit_rows`, which distillation also uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torchmetrics import MetricCollection, SumMetric
from typing_extensions import override

from domainbert.base.errors import DomainbertError, check_one_given
from domainbert.data.splits import PreparedCorpus
from domainbert.encoders.config import EncoderConfig, check_length
from domainbert.models.card import CardConfig, card_head, model_card
from domainbert.models.folder import open_model
from domainbert.models.saving import save_model
from domainbert.models.static_embeddings import ENOUGH_TOKENS, count_contexts, static_embeddings
from domainbert.pretraining.config import ObjectiveConfig
from domainbert.pretraining.data_module import PretrainingData
from domainbert.pretraining.objective import MODEL, BuiltModel, InitialModels, Objective, ValidationText
from domainbert.pretraining.objectives.masked_lm.config import MaskedLM
from domainbert.pretraining.phases import summary_lines
from domainbert.pretraining.rows_module import RowsModule
from domainbert.tokenization.load import DomainTokenizer
from domainbert.training.callbacks import Throughput
from domainbert.training.checkpoints import whole_weights
from domainbert.training.config import OptimConfig, ScheduleConfig, Training
from domainbert.training.data_module import SPARE
from domainbert.training.fit import Steps, TrainingResult, fit
from domainbert.training.hparams import read_argument
from domainbert.training.module import seeded
from domainbert.training.throughput import throughput_callback


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
        tokenizer: see `RowsModule`.
        objective: losses and metrics.
        init_from: model folder to continue from; a missing head is initialised.
        optim, schedule: see `OptimConfig`, `ScheduleConfig`; the schedule covers all steps of the Trainer.
        seed: random seed of new weights and dropout, and the default seed of the data's order and masks.
        dropout: dropout of the encoder during training; None does not override it.
        static_embeddings: initialise the word embeddings of a new encoder from contexts in the corpus.
        embedding_steps: number of first steps that train only the embeddings and the heads.
        compile: run the forward and backward pass through `torch.compile`.
        activation_checkpointing: recompute each layer in the backward pass, which saves memory.

    Attributes:
        built: models by name, with the metadata of their folders.
        texts: validation texts: the corpus' own validation split, its languages, then the held-out texts. Each has a
            loader, except the first if there are languages: it is the union of their rows.
    """

    built: Mapping[str, BuiltModel]

    def __init__(
        self,
        encoder: EncoderConfig | None = None,
        tokenizer: str | Path | DomainTokenizer | None = None,
        objective: ObjectiveConfig = MaskedLM(),
        *,
        init_from: str | Path | None = None,
        optim: OptimConfig = OptimConfig(),
        schedule: ScheduleConfig = ScheduleConfig(),
        seed: int = 0,
        dropout: float | None = None,
        static_embeddings: bool = False,
        embedding_steps: int = 0,
        compile: bool = False,
        activation_checkpointing: bool = False,
    ) -> None:
        check_one_given(encoder=encoder, init_from=init_from)
        if tokenizer is None and init_from is not None:
            tokenizer = open_model(Path(init_from)).tokenizer()
        super().__init__(tokenizer, objective, optim, schedule, seed)
        self.encoder: EncoderConfig | None = (
            None if encoder is None else read_argument("encoder", EncoderConfig, encoder)
        )
        self.init_from, self.dropout = None if init_from is None else Path(init_from), dropout
        self.static_embeddings, self.embedding_steps = static_embeddings, embedding_steps
        self.compiles, self.activation_checkpointing = compile, activation_checkpointing
        self.texts: list[ValidationText] = []
        self.record_arguments(
            encoder=self.encoder,
            tokenizer=None if isinstance(tokenizer, DomainTokenizer) else tokenizer,
            objective=self.objective_config,
            init_from=self.init_from,
            optim=self.optim,
            schedule=self.schedule,
            seed=seed,
            dropout=dropout,
            static_embeddings=static_embeddings,
            embedding_steps=embedding_steps,
            compile=compile,
            activation_checkpointing=activation_checkpointing,
        )

    @classmethod
    def from_pretrained(
        cls, model: str | Path, objective: ObjectiveConfig = MaskedLM(), **arguments: Any
    ) -> Pretraining:
        """Return a module that continues training from a model folder; `arguments` as in the constructor."""
        return cls(encoder=None, tokenizer=None, objective=objective, init_from=model, **arguments)

    def resolve(self, data: PretrainingData, stage: str) -> None:  # type: ignore[override]
        """Build the models unless they exist; see `TrainedModule.resolve`.

        Raises:
            DomainbertError: rows exceed the positions of a model; two metrics have the same name.
        """
        if not self.is_built:
            self.build(data.corpus)
        else:  # `objective` may be new: of a corpus, after a checkpoint or another corpus
            self.set_objective(self.objective, self.built)
        for built in self.built.values():
            check_length(data.row_length, built.config)
        if stage != "predict":
            _, texts = data.test_readers if stage == "test" else data.validation_readers
            self.validate_on(texts)

    def build(self, corpus: PreparedCorpus | None) -> None:
        """Build the models of the objective; `corpus` is only needed for `static_embeddings`."""
        assert self.tokenizer is not None
        vectors = _static_embeddings(corpus, self.seed) if self.static_embeddings and corpus is not None else None
        with seeded(self.seed):
            start = InitialModels(self.tokenizer, self.encoder, self.init_from, self.dropout, vectors)
            self.set_objective(self.objective, self.objective.build(start))

    def set_objective(self, objective: Objective[Any], built: Mapping[str, BuiltModel]) -> None:
        """Train `built`, the models of an objective, with its losses."""
        self.objective, self.built, self.validation_objective = objective, built, objective.for_validation()
        models = {name: entry.model for name, entry in built.items()}
        for model in models.values():
            model.encoder.activation_checkpointing = self.activation_checkpointing
        self.set_models(models[MODEL], {name: model for name, model in models.items() if name != MODEL})
        self.summed_losses = objective.losses
        if self.compiles:
            self.compile_losses()

    def compile_losses(self) -> None:
        """Compile the losses, and so the forward and backward pass, with `torch.compile`, now and whenever they are
        set."""
        self.compiles = True
        self.summed_losses = torch.compile(self.objective.losses, dynamic=False)

    def validate_on(self, texts: Sequence[ValidationText]) -> None:
        """Set the texts whose metrics are logged (see `texts`), and create the sums of their metrics."""
        self.texts = list(texts)
        self._check_names()
        names = self.objective.measured
        self.sums = nn.ModuleList(
            MetricCollection({name: SumMetric(nan_strategy="disable") for name in names}) for _ in texts
        )
        self.texts_of_loader = texts_of_loaders(texts)

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

    def validation_step(self, batch: dict[str, Any], batch_idx: int, dataloader_idx: int = 0) -> None:
        """Add the metrics of a batch to the sums of its texts; a spare batch is computed, but not added."""
        measured = self.validation_objective.measure(self.models, self._inputs(batch))
        if SPARE in batch:  # it only keeps this process in step with the others
            return
        for index in self.texts_of_loader[dataloader_idx]:
            sums = cast(MetricCollection, self.sums[index])
            for name in self.objective.measured:
                sums[name].update(measured[name])

    @override
    def report(self, stage: str) -> None:
        for text, sums in zip(self.texts, cast("Iterable[MetricCollection]", self.sums), strict=True):
            metrics = self.validation_objective.report(sums.compute(), text)
            prefix = f"{stage}/{text.name}_" if text.name else f"{stage}/"
            self.log_dict({f"{prefix}{name}": value for name, value in metrics.items()})
            sums.reset()

    def save_pretrained(self, folder: str | Path, card: Callable[[str], str] | None = None) -> None:
        """Write the model folder, with further models in subfolders. Call it in every process.

        Args:
            folder: created if it does not exist.
            card: returns the text of the model card for a model name; None writes a default card.

        Raises:
            DomainbertError: the model is not built yet; a weight is not finite.
        """
        if not self.is_built:
            raise DomainbertError("save_pretrained: the model is not built yet; expected trainer.fit before it")
        assert self.tokenizer is not None
        for name, built in self.objective.saved(self.built).items():
            model, config, weights = built.model, built.config, whole_weights(built.model)
            with self.writing() as writes:
                if writes:
                    text = (card or self.card)(name)
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
        head = card_head(title, texts.pipeline_tag, values, self.init_from)
        return model_card(title, texts.summary, {**rows, **training}, texts.usage, head)

    def _check_names(self) -> None:
        """Raise `DomainbertError` if a metric would be logged under the same name for two texts."""
        dummy_sums = dict.fromkeys(self.validation_objective.measured, torch.ones(()))  # only the names matter
        owners: dict[str, str] = {}  # name of the text by metric
        for text in self.texts:
            for name in self.validation_objective.report(dummy_sums, text):
                metric = f"{text.name}_{name}" if text.name else name
                if owners.setdefault(metric, text.name) != text.name:
                    held_out = text.name or owners[metric]
                    raise DomainbertError(
                        f"held_out: found {held_out!r}, but the metric {metric} exists already; expected another name"
                    )

    def _inputs(self, batch: Mapping[str, Any]) -> dict[str, Tensor]:
        return {name: batch[name] for name in self.objective.inputs if name in batch}


def _summary(built: BuiltModel) -> str:
    count = sum(parameter.numel() for parameter in built.model.parameters())
    return f"{built.config.model_type}, {count:,} parameters with its head"


def texts_of_loaders(texts: Sequence[ValidationText]) -> list[list[int]]:
    """Return, for each validation loader, the indices of the texts whose metrics include its batches.

    The loader of a language counts for the whole validation split (text 0) and for the language.
    """
    indices = [[0, index] if text.is_language else [index] for index, text in enumerate(texts)]
    return indices[1:] if any(text.is_language for text in texts) else indices


def _static_embeddings(corpus: PreparedCorpus, seed: int) -> Tensor:
    """Return word embeddings (vocab_size, D) computed from contexts in the training split, or in a large part of it."""
    contexts = count_contexts(corpus.vocab_size, corpus.train.documents(ENOUGH_TOKENS))
    embeddings = static_embeddings(contexts, torch.Generator().manual_seed(seed))
    print(f"{int(embeddings.any(dim=1).sum()):,} of {corpus.vocab_size:,} word embeddings start from their contexts")
    return embeddings


def fit_rows(
    label: str, module: RowsModule, data: PretrainingData, steps: Steps, settings: Training, out: Path
) -> tuple[TrainingResult, Throughput]:
    """Train on the rows of a corpus; keep the newest checkpoints and the checkpoint with the lowest validation loss.

    Data and module must be resolved; see `fit`. Return the result of the training, and its throughput.
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
