"""Pretraining with any objective, as a LightningModule, and training on packed rows, which distillation does, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import Dataset
from torchmetrics import Metric, SumMetric

from domainbert.base.errors import DomainbertError
from domainbert.data.types import SPARE, Batch, Share
from domainbert.encoders.heads import EncoderWithHead
from domainbert.pretraining.batches import PackedRowsReader, TrainRows, ValidationRows
from domainbert.pretraining.objective import MODEL, Key, Objective, ValidationText
from domainbert.pretraining.phases import PhasedRows, RowPhase, described, phase_of
from domainbert.training.callbacks import Throughput
from domainbert.training.config import Runtime
from domainbert.training.fit import Fitted, Steps, TrainingData, fit
from domainbert.training.module import TrainedModule
from domainbert.training.optim_config import OptimConfig, ScheduleConfig
from domainbert.training.throughput import throughput_of


class Pretraining(TrainedModule):
    """Trains models on packed rows with the losses of an objective.

    Args, beside those of `TrainedModule`:
        objective: losses and metrics.
        models: from `Objective.build`.
        texts: what is validated: the corpus' own validation split, its languages, then the held-out texts. There is a
            loader for each, but none for the first one if there are languages: its text is theirs together.
        embedding_steps: steps at the start in which only the embeddings and the heads learn.
        compile: run the forward and backward pass through `torch.compile`.
    """

    def __init__(
        self,
        objective: Objective[Any],
        models: Mapping[str, EncoderWithHead],
        optim: OptimConfig,
        schedule: ScheduleConfig,
        num_steps: int,
        texts: Sequence[ValidationText],
        seed: int = 0,
        embedding_steps: int = 0,
        compile: bool = False,
    ) -> None:
        others = {name: model for name, model in models.items() if name != MODEL}
        super().__init__(models[MODEL], optim, schedule, num_steps, seed, others)
        self.objective, self.texts, self.embedding_steps = objective, list(texts), embedding_steps
        self.measuring = objective.for_validation()
        self._check_names()
        self.summed_losses = torch.compile(objective.losses, dynamic=False) if compile else objective.losses
        sums = [{name: SumMetric(nan_strategy="disable") for name in objective.measured} for _ in texts]
        self.sums = nn.ModuleList(nn.ModuleDict(of_text) for of_text in sums)
        self.texts_of_loader = texts_of_loaders(texts)

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """The loss of a micro-batch, scaled so that the gradient is that of the means over the global batch."""
        sums = self.summed_losses(self.models, self._inputs(batch))
        terms = self.objective.terms
        means = {name: value / batch[terms[name].count] for name, value in sums.items()}
        total = sum(terms[name].weight * mean for name, mean in means.items())
        return self.note_loss(cast(Tensor, total), means if len(terms) > 1 else {})

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Before clipping, drop the gradients of all that reads embeddings as long as only these and heads learn."""
        if self.trainer.global_step < self.embedding_steps:
            for model in self.models.values():
                for parameter in model.encoder.reading_parameters():
                    parameter.grad = None

    def validation_step(self, batch: dict[str, Any], batch_idx: int, dataloader_idx: int = 0) -> None:
        """Add a batch to the sums of its texts."""
        measured = self.measuring.measure(self.models, self._inputs(batch))
        if SPARE in batch:
            return
        for index in self.texts_of_loader[dataloader_idx]:
            for name, metric in self._metrics(index).items():
                metric.update(measured[name])

    def on_validation_epoch_end(self) -> None:
        """Log what the objective reports of each text, that of a held-out one with its name before it."""
        for index, text in enumerate(self.texts):
            metrics = self._metrics(index)
            found = self.measuring.report({name: metric.compute() for name, metric in metrics.items()}, text)
            prefix = f"validation/{text.name}_" if text.name else "validation/"
            self.log_dict({f"{prefix}{name}": value for name, value in found.items()})
            for metric in metrics.values():
                metric.reset()

    def _check_names(self) -> None:
        """Raise `DomainbertError` where the name of a text and that of a metric make the name of another metric."""
        any_sums = dict.fromkeys(self.measuring.measured, torch.ones(()))
        owners: dict[str, str] = {}
        for text in self.texts:
            for name in self.measuring.report(any_sums, text):
                whole = f"{text.name}_{name}" if text.name else name
                if owners.setdefault(whole, text.name) != text.name:
                    name = text.name or owners[whole]
                    raise DomainbertError(f"held_out: {name} would have a metric {whole} twice; expected another name")

    def _metrics(self, index: int) -> dict[str, Metric]:
        return dict(cast(Any, self.sums[index]).items())

    def _inputs(self, batch: Mapping[str, Any]) -> dict[str, Tensor]:
        return {name: batch[name] for name in self.objective.inputs if name in batch}


def texts_of_loaders(texts: Sequence[ValidationText]) -> list[list[int]]:
    """The texts to which the batches of each loader count; see `Pretraining`."""
    found = [[0, index] if text.is_language else [index] for index, text in enumerate(texts)]
    return found[1:] if any(text.is_language for text in texts) else found


def fit_rows(
    label: str,
    module: TrainedModule,
    train: Sequence[RowPhase],
    validations: Sequence[PackedRowsReader],
    steps: Steps,
    runtime: Runtime,
    batches: Callable[[TrainRows], Dataset[Batch]] = lambda rows: rows,
) -> tuple[Fitted, Throughput]:
    """Train on the rows of a corpus; the checkpoint with the lowest validation loss stays beside the newest.

    `train` and `steps` are from `plan_phases`, and `batches` makes what the module reads of an objective's
    micro-batches; the rest is as in `fit`.
    """
    readers = {phase.steps.start: phase.reader for phase in train}
    flops = {start: one.objective.flops_per_token(module.models, one.plan.row_length) for start, one in readers.items()}
    throughput = throughput_of(flops, runtime)

    def validation_rows(reader: PackedRowsReader, share: Share) -> ValidationRows:
        return ValidationRows(reader, share.micro_batch_size(steps.batch_size), share)

    def describe(step: int) -> dict[str, list[int]]:
        phase = phase_of(train, step)
        return phase.reader.describe(Key(phase.order.seed, step, *phase.order.batch(step)))

    data = TrainingData(
        lambda share, steps: PhasedRows(train, share, steps, batches),
        [partial(validation_rows, reader) for reader in validations],
        describe,
        [phase.reader.objective.heaviest_step(phase.steps) for phase in train],
    )
    print(*described(train), sep="\n")
    return fit(label, module, data, steps, runtime, monitor="validation/loss", watch=[throughput]), throughput
