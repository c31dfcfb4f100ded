"""Fine-tuning on any labelled task as a LightningModule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torchmetrics import Metric, SumMetric

from domainbert.base.errors import DomainbertError
from domainbert.base.ranks import process_rank
from domainbert.data.examples import entry_ids
from domainbert.data.types import SPARE
from domainbert.encoders.config import EncoderConfig, VocabularyFacts, check_length
from domainbert.encoders.crf import crf_of
from domainbert.encoders.families import build_model
from domainbert.encoders.heads import EncoderWithHead
from domainbert.encoders.packed import Packed
from domainbert.encoders.used_entries import UsedEntries
from domainbert.metrics.headline import LOSS
from domainbert.models.added_tokens import add_tokens
from domainbert.models.card import card_head, model_card
from domainbert.models.folder import ModelFolder, load_model, open_model, save_model
from domainbert.tasks.config import TASK_KEY, TaskConfig
from domainbert.tasks.extra_losses import moved, steepest_move, symmetric_divergence
from domainbert.tasks.extra_losses_config import AdversarialConfig, RDropConfig
from domainbert.tasks.running import ModuleRuntime, gathered, numbers_of
from domainbert.tasks.slices import SlicedMetric
from domainbert.tasks.tagged_files import OF_A_CRF
from domainbert.tasks.task import Task, task_class
from domainbert.tokenization.load import DomainTokenizer, load_tokenizer
from domainbert.tokenization.splitting import SPLITTING_KEY, check_splitting
from domainbert.training.hparams import from_plain
from domainbert.training.module import TrainedModule, seeded
from domainbert.training.optim_config import OptimConfig, ScheduleConfig
from domainbert.training.state import is_sharded, whole_weights

if TYPE_CHECKING:
    from domainbert.tasks.labelled_data import LabelledData

_CHECKPOINT_KEY = "domainbert"  # of what a checkpoint says of the task and its model


@dataclass(frozen=True)
class Start:
    """A model to be trained: the architecture to save, its vocabulary, and the names of its teachers."""

    model: EncoderWithHead
    config: EncoderConfig
    tokenizer: DomainTokenizer
    teachers: tuple[str, ...] = ()


class FineTuning(TrainedModule):
    """Trains an encoder with a head on a labelled task; validates, tests and predicts with it.

        data = LabelledData(Ner(), train="train.conll", validation="dev.conll", model="models/minilm")
        module = FineTuning.from_pretrained("models/minilm", data.task)
        lightning.Trainer(max_epochs=5).fit(module, data)
        module.save_pretrained("runs/tagger")

    The labels are those of the training set; `setup` builds the model with a head for them. A batch holds the windows
    of whole examples, packed: `input_ids`, `position_ids` and `segment_ids` (rows, length); the head gives logits (N,
    labels) at the `positions` (N,) of the flattened tokens. The loss is a mean over the global batch.

    Logged: `train/loss`, `validation/NAME` of each metric of the task and `validation/loss`, `test/NAME` of each score
    that `domainbert evaluate` reports.

    Args:
        model: model folder to start from, or with `init="random"` and an `encoder` a tokenizer folder.
        task: the task, such as `Ner()`.
        optim, schedule: see there; the schedule covers all steps of the Trainer.
        seed: of a new head or encoder, and of the dropout; data without a seed of its own has its order by it.
        init: `pretrained` starts from the weights of the folder, `random` from new ones.
        encoder: architecture for `init="random"`; None takes the folder's.
        dropout: of the encoder while it is trained; None leaves it.
        frozen_layers: the embeddings and so many layers do not learn; None lets all learn.
        adversarial, r_drop: further losses, see there.
        activation_checkpointing: compute each layer again in the backward pass, which saves memory.

    Attributes:
        validation: the labelled items whose numbers the validation batches carry.
        measures_loss: whether validation gives the task's loss, too.
        entries: the vocabulary entries that occur in a training, while it runs.
        row: (vocab_size,) where the model has an entry's embedding, see `UsedEntries`; None if at its id.
        scores: metrics of the last validation.
        unusable: the steps whose validation gave logits that are not finite: its scores mean nothing.
    """

    data_class = "LabelledData"
    task: Task[Any, Any]
    metric: Metric
    slices: SlicedMetric
    config: EncoderConfig
    tokenizer: DomainTokenizer
    row: Tensor | None
    max_length: int
    entries: UsedEntries | None = None
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
        adversarial: AdversarialConfig | None = None,
        r_drop: RDropConfig | None = None,
        activation_checkpointing: bool = False,
    ) -> None:
        super().__init__(optim, schedule, seed)
        self.folder, self.init, self.dropout, self.frozen_layers = model, init, dropout, frozen_layers
        self.task_config = cast(TaskConfig, from_plain(TaskConfig, task))
        self.encoder = cast("EncoderConfig | None", from_plain(EncoderConfig, encoder))
        self.adversarial: AdversarialConfig | None = from_plain(AdversarialConfig, adversarial)
        self.r_drop: RDropConfig | None = from_plain(RDropConfig, r_drop)
        self.activation_checkpointing = activation_checkpointing
        self.note_arguments(
            model=model.path if isinstance(model, ModelFolder) else Path(model),
            task=self.task_config,
            optim=self.optim,
            schedule=self.schedule,
            seed=seed,
            init=init,
            encoder=self.encoder,
            dropout=dropout,
            frozen_layers=frozen_layers,
            adversarial=self.adversarial,
            r_drop=self.r_drop,
            activation_checkpointing=activation_checkpointing,
        )
        self.validation: Sequence[Any] = ()
        self.scores: dict[str, float] = {}
        self.unusable: list[int] = []
        self.teachers_told: tuple[str, ...] = ()
        self.not_finite = SumMetric(nan_strategy="disable")  # batches of this validation with such logits
        # not a MeanMetric, which forgets its weights where it does not look for NaN
        self.loss_sum, self.loss_count = (SumMetric(nan_strategy="disable") for _ in range(2))
        self.register_buffer("row", None, persistent=False)
        self._tested: dict[int, Any] = {}  # predictions for the items of the test set, by number
        self.register_state_dict_post_hook(_give_all_entries)
        self.register_load_state_dict_pre_hook(_take_used_entries)

    @classmethod
    def from_pretrained(cls, model: str | Path, task: TaskConfig, **arguments: Any) -> FineTuning:
        """A module that starts from a model folder; the arguments are those of the constructor.

        `DomainbertError` if there is no model folder.
        """
        open_model(Path(model))
        return cls(model, task, **arguments)

    def open(self) -> ModelFolder:
        """The model folder, opened once."""
        self.folder = self.folder if isinstance(self.folder, ModelFolder) else open_model(Path(self.folder))
        return self.folder

    def usual_window(self, task: Task[Any, Any]) -> int | None:
        """Tokens of a window unless the data says it; None where the folder of its tokenizer does not."""
        if self.encoder is not None:
            return self.encoder.max_length
        return self.open().config.max_length

    def start(self, task: Task[Any, Any]) -> Start:
        """The model to begin with, with a head for a task; `DomainbertError` if the folder has none to begin with."""
        if self.init == "pretrained":
            model, folder, made = load_model(self.open(), task.head, task.labels, self.dropout, task.head_sizes)
            config, tokenizer, teachers = folder.config, folder.tokenizer(), folder.teachers
            if not made:
                task.begin(model.head)
        else:
            encoder, path = self.encoder, self.folder
            if encoder is None:
                encoder, path = self.open().config, self.open().path
            config, tokenizer, teachers = encoder, load_tokenizer(Path(cast(Path, path))), ()
            vocabulary = VocabularyFacts(tokenizer.vocab_size, tokenizer.pad_id)
            model = build_model(
                config.as_trained(self.dropout), vocabulary, task.head, len(task.labels), task.head_sizes
            )
        return Start(model, config, add_tokens(model, tokenizer, task.added_tokens), teachers)

    def begin(self, start: Start, task: Task[Any, Any], max_length: int) -> None:
        """Take a model with a head for a task; windows have at most `max_length` tokens."""
        check_length(max_length, start.config)
        self.config, self.tokenizer, self.max_length = start.config, start.tokenizer, max_length
        self.teachers_told = start.teachers
        start.model.encoder.activation_checkpointing = self.activation_checkpointing
        if self.frozen_layers is not None:
            start.model.encoder.freeze(self.frozen_layers)
        self.take(start.model, task)

    def take(self, model: EncoderWithHead, task: Task[Any, Any]) -> None:
        """Take a model with a head for a task; `DomainbertError` if `r_drop` cannot compare its predictions."""
        if self.r_drop is not None:
            check_r_drop(model, task)
        self.task = task
        self.set_models(model)
        task.bind(model.head)

    def resolve(self, data: LabelledData, stage: str) -> None:  # type: ignore[override]
        """Build the model for the labels of the data unless it is there; see `TrainedModule.resolve`.

        Raises:
            DomainbertError: the data has another vocabulary; a model folder without a head is to be tested.
        """
        self.park(None)
        if not self.is_built:
            with seeded(self.seed):
                self.begin(self.start(data.resolved_task), data.resolved_task, data.window)
        if data.tokenizer.fingerprint != self.tokenizer.fingerprint:
            raise DomainbertError(
                f"model: {data.tokenizer_name} of the data has another vocabulary than {self._name}; expected the same"
            )
        if stage == "fit":
            examples = [*data.examples("train"), *data.examples("validation")]
            self.park(torch.from_numpy(entry_ids(examples, self.tokenizer)))
        if stage in ("fit", "validate"):
            self.validate_on(data.items("validation"))
        self._tested.clear()

    @property
    def _name(self) -> str:
        return str(self.folder.path if isinstance(self.folder, ModelFolder) else self.folder)

    def validate_on(self, items: Sequence[Any]) -> None:
        """Take the items whose numbers the validation batches carry."""
        self.validation, self.metric, self.slices = items, self.task.metric(), SlicedMetric(self.task, items)

    def park(self, ids: Tensor | None) -> None:
        """Keep the embeddings of these entries alone in the model, while it is trained; None puts all back."""
        if self.entries is not None:
            self.entries.restore(self.model)
        self.entries = None if ids is None else UsedEntries(self.model, ids)
        self.row = None if self.entries is None else self.entries.row
        self.num_parked = 0
        if self.row is not None:
            self.num_parked = int((self.row < 0).sum()) * self.model.encoder.input_embeddings.embedding_dim

    def teardown(self, stage: str) -> None:
        """Put all entries of the vocabulary back, for whatever text comes next."""
        if stage == "fit" and self.is_built and not is_sharded(self):
            self.park(None)

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """The loss of a micro-batch, scaled so that the gradient is that of the mean over the global batch."""
        means = {name: value / batch[self.task.counted] for name, value in self._sums(batch).items()}
        return self.note_loss(torch.stack([*means.values()]).sum(), means if len(means) > 1 else {})

    def _sums(self, batch: dict[str, Any]) -> dict[str, Tensor]:
        """The terms of the loss by name, summed over a micro-batch: the task's, and what is asked for beside it."""
        if self.adversarial is None:
            logits = self._logits(batch)
            sums = {"task": self.task.loss(logits, batch)}
        else:
            logits, sums = self._with_adversary(batch, self.adversarial.epsilon)
        if self.r_drop is not None:
            other = self._logits(batch)  # with other dropout, whose random numbers know the calls of a step apart
            sums["task"] = sums["task"] + self.task.loss(other, batch)
            pair = (self.task.outputs(one, batch) for one in (logits, other))
            sums["r_drop"] = self.r_drop.alpha * symmetric_divergence(self.task, *pair)
        return sums

    def _with_adversary(self, batch: dict[str, Any], epsilon: float) -> tuple[Tensor, dict[str, Tensor]]:
        """Logits, and the loss as it is and with the word embeddings moved; the move itself is a constant."""
        embeddings = self.model.encoder.input_embeddings
        size = (*batch["input_ids"].shape, embeddings.embedding_dim)
        nowhere = torch.zeros(size, device=batch["input_ids"].device, requires_grad=True)
        with moved(embeddings, nowhere):
            logits = self._logits(batch)
        loss = self.task.loss(logits, batch)
        (gradient,) = torch.autograd.grad(loss, nowhere, retain_graph=True)
        with moved(embeddings, steepest_move(gradient, batch["segment_ids"], epsilon)):
            return logits, {"task": loss, "adversarial": self.task.loss(self._logits(batch), batch)}

    def validation_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Add a batch to the validation metric."""
        logits = self._logits(batch)
        if SPARE in batch:
            return
        self.not_finite.update((~logits.isfinite()).any())
        self.task.update(self.metric, logits, batch, self.validation)
        self.slices.update(logits, batch)
        if self.measures_loss:
            self.loss_sum.update(self.task.loss(logits, batch))
            self.loss_count.update(len(batch["items" if self.task.counted == "num_examples" else "targets"]))

    def on_validation_epoch_end(self) -> None:
        """Log the validation metrics."""
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
        self.log_dict({f"validation/{name}": value for name, value in self.scores.items()})

    def test_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Predict some items of the test set, as `evaluate` does."""
        numbers, scoring = batch["items"].tolist(), copy(self._data.scoring)
        scoring.test = replace(scoring.test, items=[scoring.test.items[number] for number in numbers])
        self._tested.update(zip(numbers, scoring.predict(self.predictor), strict=True))

    def on_test_epoch_end(self) -> None:
        """Log the scores of the test set, or of the part of it that was read."""
        found = gathered(self._tested)
        self._tested.clear()
        scores = self._data.scoring_of(sorted(found)).scores_of([found[number] for number in sorted(found)])
        self.log_dict({f"test/{name}": value for name, value in numbers_of(scores).items()})

    def predict_step(self, batch: dict[str, Any], batch_idx: int) -> list[dict[str, Any]]:
        """The prediction for each content of a batch, as `domainbert predict` writes it; in the order of the data."""
        contents, predictor = self._data.contents, self.predictor
        found = predictor.predict([contents[number] for number in batch["items"].tolist()])
        return [predictor.as_json(one) for one in found]

    @property
    def predictor(self) -> Any:
        """What predicts with the model as it is now, such as a `Tagger`."""
        precision = self.trainer.precision if self._trainer is not None else "32-true"
        return self.task.predictor(self.task, ModuleRuntime(self, str(precision)))

    @property
    def _data(self) -> LabelledData:
        return cast("LabelledData", self.trainer.datamodule)  # type: ignore[attr-defined]

    def save_pretrained(
        self, folder: str | Path, card: str | None = None, scores: Mapping[str, float] | None = None
    ) -> None:
        """Write a model folder that `load_predictor`, `transformers` and every stage read; each process calls it.

        Args:
            folder: made if there is none.
            card: text of the model card; None writes what is known.
            scores: metrics of the validation that the model comes from; None takes the last one.

        Raises:
            DomainbertError: the model does not exist yet; a weight is not finite.
        """
        if not self.is_built:
            raise DomainbertError("save_pretrained: the model has no head yet; expected trainer.fit before it")
        weights = whole_weights(self.model)
        if process_rank() != 0:
            return
        scores = self.scores if scores is None else scores
        card = self._card(scores) if card is None else card
        head = (self.task.head, card, self.task.labels, self.max_length)
        whole = weights if self.entries is None else self.entries.put_back(weights)
        told = self.task.finish(whole), self.teachers_told, self._task_facts(scores)
        save_model(Path(folder), self.model, self.config, self.tokenizer, *head, *told)

    def _card(self, scores: Mapping[str, float]) -> str:
        facts = {"labels": ", ".join(self.task.labels), "started from": f"{self.init} weights, seed {self.seed}"}
        facts |= {f"validation {name}": f"{value:.4f}" for name, value in scores.items()}
        head = card_head(self.task_config.title, self.task_config.pipeline_tag, base=None)
        usage = f"from domainbert import {self.task.predictor.loader}"
        return model_card("Fine-tuned domain model", "Fine-tuned with domainbert.", facts, usage, head)

    def _task_facts(self, scores: Mapping[str, float]) -> dict[str, Any]:
        """Keys of `config.json` that say which task the model is for."""
        facts = {TASK_KEY: self.task.name, **self.task.folder_facts(scores)}
        splitting = self.task.word_splitting
        return facts if splitting is None else {**facts, SPLITTING_KEY: splitting}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Note the labels and all else that `load_from_checkpoint` needs, as plain values."""
        weights = {name.removeprefix("model."): value for name, value in checkpoint["state_dict"].items()}
        finished = self.task.finish(weights)
        changed = {f"model.{name}": value for name, value in finished.items() if value is not weights.get(name)}
        checkpoint[_CHECKPOINT_KEY] = {
            "labels": list(self.task.labels),
            "max_length": self.max_length,
            "scores": self.scores,
            "fields": self._task_facts(self.scores) if self.scores else {TASK_KEY: self.task.name},
            "finished": changed,
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Build the model of a checkpoint where there is none yet; `DomainbertError` if its labels are others."""
        found = checkpoint.get(_CHECKPOINT_KEY)
        if found is None:
            raise DomainbertError(f"ckpt_path: no labels in it; expected a checkpoint of {type(self).__name__}")
        labels = found["labels"]
        if self.is_built and list(self.task.labels) != labels:
            known = ", ".join(self.task.labels)
            raise DomainbertError(f"ckpt_path: found the labels {', '.join(labels)}; expected {known}")
        self.scores = dict(found["scores"])
        if not self.is_built:
            task = task_class(type(self.task_config)).of_folder(labels, found["fields"])
            task.headline = self.task_config.headline
            if (splitting := found["fields"].get(SPLITTING_KEY)) is not None:
                task.word_splitting = check_splitting(splitting)
            self.begin(self.start(task), task, found["max_length"])
            checkpoint["state_dict"] |= found["finished"]

    def _logits(self, batch: dict[str, Any]) -> Tensor:
        tokens = Packed.of(batch)
        if self.row is not None:
            tokens = tokens._replace(input_ids=self.row[tokens.input_ids])
        return self.model(tokens, batch["positions"])


def _give_all_entries(module: nn.Module, state: dict[str, Any], prefix: str, _: Any) -> None:
    """Let a state dict have the embeddings of all entries, whatever a training keeps in the model."""
    entries = cast(FineTuning, module).entries
    name = "" if entries is None else f"{prefix}model.{entries.name}"
    if entries is not None and name in state and not isinstance(state[name], DTensor):
        state[name] = entries.whole(state[name])


def _take_used_entries(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """The reverse of `_give_all_entries`."""
    entries = cast(FineTuning, module).entries
    name = "" if entries is None else f"{prefix}model.{entries.name}"
    if entries is not None and name in state and len(state[name]) == len(entries.row):
        state[name] = entries.used(state[name])


def check_r_drop(model: EncoderWithHead, task: Task[Any, Any]) -> None:
    """`DomainbertError` where two predictions of a task cannot be compared output by output."""
    if crf_of(model.head) is not None:
        raise DomainbertError(f"r_drop: {OF_A_CRF}")
    nothing = torch.zeros(1, len(task.labels))
    try:
        symmetric_divergence(task, nothing, nothing)
    except DomainbertError as error:
        raise DomainbertError(
            f"r_drop: {task.name} says no divergence of its outputs, which are not those of a softmax; expected none"
        ) from error
