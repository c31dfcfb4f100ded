"""Fine-tuning on any labelled task as a LightningModule."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from torchmetrics import SumMetric

from domainbert.base.errors import NO_TASK_HEAD, DomainbertError
from domainbert.data.examples import entry_ids
from domainbert.encoders.config import EncoderConfig, VocabularyFacts, check_length
from domainbert.encoders.families import build_model
from domainbert.encoders.packed import Packed
from domainbert.metrics.headline import LOSS
from domainbert.models.added_tokens import add_tokens
from domainbert.models.folder import ModelFolder, open_model
from domainbert.models.loading import load_model
from domainbert.tasks.config import TaskConfig
from domainbert.tasks.task import Task
from domainbert.tasks.task_module import InitialModel, TaskModule
from domainbert.tokenization.load import load_tokenizer
from domainbert.training.config import OptimConfig, ScheduleConfig
from domainbert.training.data_module import SPARE
from domainbert.training.hparams import read_argument
from domainbert.training.module import seeded

if TYPE_CHECKING:
    from domainbert.tasks.labelled_data import LabelledData


class FineTuning(TaskModule):
    """Train an encoder with a head on a labelled task; validate, test and predict with it.

        data = LabelledData(Ner(), train="train.conll", validation="dev.conll", model="models/minilm")
        module = FineTuning.from_pretrained("models/minilm", data.task)
        lightning.Trainer(max_epochs=5).fit(module, data)
        module.save_pretrained("runs/tagger")

    >>> from domainbert import FineTuning, Ner
    >>> module = FineTuning.from_pretrained("model", Ner(), seed=2)
    >>> module.hparams["seed"], module.lr
    (2, 0.0001)

    `setup` takes the labels from the training set and builds a model with a head for them. A batch contains the packed
    windows of whole examples: `input_ids`, `position_ids` and `segment_ids` (rows, length); the head returns logits
    (N, labels) at the `positions` (N,) of the flattened tokens. The loss is a mean over the global batch.

    Logged: `train/loss`, `validation/NAME` of each metric of the task and `validation/loss`, `test/NAME` of each score
    that `domainbert evaluate` reports.

    Args:
        model: model folder to start from; with `init="random"` and an `encoder`, a tokenizer folder.
        task: the task, such as `Ner()`.
        optim, schedule: optimizer and learning-rate schedule, which covers all steps of the Trainer.
        seed: random seed of new weights, dropout, and the data order if the data has no seed.
        init: `pretrained` starts from the weights of the folder, `random` from new weights.
        encoder: architecture for `init="random"`; None takes the architecture of the folder.
        dropout: dropout of the encoder in training; None keeps the value of the folder.
        frozen_layers: freeze the embeddings and this number of lowest layers; None freezes nothing.
        activation_checkpointing: recompute each layer in the backward pass, which saves memory.

    Attributes:
        validation: labelled items; the validation batches contain their indices.
        measures_loss: whether validation also computes the task's loss.
        entries: vocabulary entries that occur in the data, during training.
        row_of_entry: (vocab_size,) row of each entry in the embedding matrix, see `UsedEntries`; None if it is the id.
        scores: metrics of the last validation.
        unusable: steps whose validation had non-finite logits, so that its scores are invalid.
    """

    measures_loss = True

    def __init__(
        self,
        model: str | Path | ModelFolder,
        task: TaskConfig,
        *,
        optim: OptimConfig = OptimConfig(lr=1e-4, head_lr=1e-3),
        schedule: ScheduleConfig = ScheduleConfig(warmup_fraction=0.1),
        seed: int = 1,
        init: Literal["pretrained", "random"] = "pretrained",
        encoder: EncoderConfig | None = None,
        dropout: float | None = None,
        frozen_layers: int | None = None,
        activation_checkpointing: bool = False,
    ) -> None:
        super().__init__(task, optim, schedule, seed)
        self.folder, self.init, self.dropout, self.frozen_layers = model, init, dropout, frozen_layers
        self.encoder: EncoderConfig | None = (
            None if encoder is None else read_argument("encoder", EncoderConfig, encoder)
        )
        self.activation_checkpointing = activation_checkpointing
        self.record_arguments(
            model=model.path if isinstance(model, ModelFolder) else Path(model),
            task=self.task_config,
            optim=self.optim,
            schedule=self.schedule,
            seed=seed,
            init=init,
            encoder=self.encoder,
            dropout=dropout,
            frozen_layers=frozen_layers,
            activation_checkpointing=activation_checkpointing,
        )
        self.unusable: list[int] = []
        self.not_finite = SumMetric(nan_strategy="disable")  # batches of this validation with non-finite logits
        # not MeanMetric: with nan_strategy="disable" it ignores its weights
        self.loss_sum, self.loss_count = (SumMetric(nan_strategy="disable") for _ in range(2))

    @classmethod
    def from_pretrained(cls, model: str | Path, task: TaskConfig, **arguments: Any) -> FineTuning:
        """Return a module that starts from a model folder; takes the arguments of the constructor.

        Raise `DomainbertError` if there is no model folder.
        """
        open_model(Path(model))  # raises the error
        return cls(model=model, task=task, **arguments)  # by name: a subclass may have other arguments first

    def open(self) -> ModelFolder:
        """Return the opened model folder; later calls return the same object."""
        if not isinstance(self.folder, ModelFolder):
            self.folder = open_model(Path(self.folder))
        return self.folder

    def default_window(self, task: Task[Any, Any]) -> int | None:
        """Return the default window in tokens; None if the tokenizer folder has none. A distillation reads `task`."""
        if self.encoder is not None:
            return self.encoder.max_length
        return self.open().config.max_length

    def initial_model(self, task: Task[Any, Any]) -> InitialModel:
        """Return the initial model with a head for a task; raise `DomainbertError` if the folder has no model."""
        teachers: tuple[str, ...] = ()
        if self.init == "pretrained":
            model, folder, new_weights = load_model(self.open(), task.head_config, task.labels, self.dropout)
            config, tokenizer, teachers = folder.config, folder.tokenizer(), folder.teachers
            has_new_head = bool(new_weights)
            if not has_new_head:  # the head of the folder may have other units than training
                task.scaling.init_head(task, model.head)
        else:
            has_new_head = True
            config = self.encoder or self.open().config
            tokenizer = load_tokenizer(Path(self._folder_name))
            vocabulary = VocabularyFacts(tokenizer.vocab_size, tokenizer.pad_id)
            model = build_model(config.with_dropout(self.dropout), vocabulary, task.head_config, len(task.labels))
        tokenizer = add_tokens(model, tokenizer, task.inputs.added_tokens(task))
        return InitialModel(model, config, tokenizer, teachers, has_new_head)

    def resolve(self, data: LabelledData, stage: str) -> None:  # type: ignore[override]
        """Build the model for the labels of the data if it is not built yet; see `TrainedModule.resolve`.

        Raises:
            DomainbertError: the data has another vocabulary; the stage is not `fit` and the folder has no head.
        """
        self.exclude_unused_embeddings(None)  # restore all entries, as other data may need other entries
        if not self.is_built:
            self._build(data, stage)
        if data.tokenizer.fingerprint != self.tokenizer.fingerprint:  # of vocabulary and normalisation
            found = f"{data.tokenizer_name} in LabelledData has another vocabulary than {self._folder_name}"
            raise DomainbertError(f"model: {found}; expected LabelledData(..., model={self._folder_name!r})")
        if stage in ("fit", "validate"):  # other stages read windows of the module's `max_length`
            check_length(data.window, self.config)

        if stage == "fit":
            self.replace_task(data.resolved_task)
            examples = [*data.examples("train"), *data.examples("validation")]
            self.exclude_unused_embeddings(torch.from_numpy(entry_ids(examples, self.tokenizer)))
        if stage in ("fit", "validate"):
            self.validate_on(data.items("validation"))
            self.validation_name = data.file_names("validation")
        else:
            self._rebuild_predictor()
        self._tested.clear()

    def _build(self, data: LabelledData, stage: str) -> None:
        """Build the model for the labels of the data."""
        with seeded(self.seed):
            initial = self.initial_model(data.resolved_task)
            if initial.has_new_head and stage != "fit":
                raise DomainbertError(f"trainer.{stage}: {self._folder_name} has {NO_TASK_HEAD}, or trainer.fit first")
            self.set_initial_model(initial, data.resolved_task, data.window)
        if stage != "fit":  # `save_pretrained` then keeps the entries of the folder's `config.json`
            self._facts = dict(self.open().fields)

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """Return the loss of a micro-batch, scaled so that gradients are means over the global batch."""
        count = max(batch[self.task.loss_divisor], 1)  # 0 targets if all sentences of the global batch are empty
        return self.record_loss(self.task.loss(self(batch), batch) / count)

    def validation_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Add a batch to the validation metric."""
        logits = self(batch)
        if SPARE in batch:  # computed only because processes of a sharded model compute together
            return
        self.not_finite.update((~logits.isfinite()).any())
        self.task.update(self.metric, logits, batch, self.validation)
        self.slices.update(logits, batch)
        if self.measures_loss:
            self.loss_sum.update(self.task.loss(logits, batch))
            counted = "items" if self.task.loss_divisor == "num_examples" else "targets"
            self.loss_count.update(len(batch[counted]))

    def on_validation_epoch_end(self) -> None:
        """Log the validation metrics, reset them, and record the step in `unusable` if logits were not finite."""
        whole = self.metric.compute()
        scores = {**whole, **self.slices.compute(whole)}
        self.metric.reset()
        if self.measures_loss:
            scores = {**scores, LOSS.key: self.loss_sum.compute() / self.loss_count.compute()}
            self.loss_sum.reset()
            self.loss_count.reset()
        if self.not_finite.compute():
            self.unusable.append(self.global_step)
        self.not_finite.reset()
        self.scores = {name: float(value) for name, value in scores.items()}
        self._saved_task = None  # `predictor` reads the new threshold or temperature
        self.log_dict({f"validation/{name}": value for name, value in self.scores.items()})

    def forward(self, batch: dict[str, Any]) -> Tensor:
        """Return the logits (N, labels) at the positions of a batch, in the units of training."""
        tokens = Packed.of(batch)
        if self.row_of_entry is not None:  # the embedding matrix has only the entries in use: replace ids by its rows
            tokens = tokens._replace(input_ids=self.row_of_entry[tokens.input_ids])
        logits: Tensor = self.model(tokens, batch["positions"])
        return logits
