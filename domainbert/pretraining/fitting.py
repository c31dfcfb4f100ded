"""Training on packed rows of a corpus: what pretraining and distillation share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from torch.utils.data import Dataset

from domainbert.data.order import GlobalOrder
from domainbert.data.types import Batch, Share
from domainbert.pretraining.batches import PackedRowsReader, TrainRows, ValidationRows
from domainbert.training.callbacks import Throughput
from domainbert.training.config import Runtime
from domainbert.training.fit import Fitted, Steps, TrainingData, fit
from domainbert.training.module import TrainedModule
from domainbert.training.throughput import throughput_of


def fit_rows(
    label: str,
    module: TrainedModule,
    train: PackedRowsReader,
    validations: Sequence[PackedRowsReader],
    steps: Steps,
    runtime: Runtime,
    batches: Callable[[TrainRows], Dataset[Batch]] = lambda rows: rows,
) -> tuple[Fitted, Throughput]:
    """Train on the rows of a corpus; the checkpoint with the lowest validation loss stays beside the newest.

    Args:
        label: what is trained.
        module: the model with its losses; its seed decides the order of the rows.
        train: the rows of training.
        validations: the rows of each validation set.
        steps: for how long.
        runtime: where and with what.
        batches: makes what the module reads of the micro-batches of an objective.
    """
    plan, order = train.plan, GlobalOrder(train.plan.num_rows, steps.batch_size, module.seed)
    throughput = throughput_of(train.objective.flops_per_token(module.models, plan.row_length), runtime)

    def validation_rows(reader: PackedRowsReader, share: Share) -> ValidationRows:
        return ValidationRows(reader, share.micro_batch_size(steps.batch_size), share)

    data = TrainingData(
        lambda share, steps: batches(TrainRows(train, order, share, steps)),
        [partial(validation_rows, reader) for reader in validations],
        lambda step: train.describe(order.batch(step)[1]),
    )
    print(f"{plan.num_rows:,} rows of {plan.row_length} tokens, {plan.fullness:.2%} full")
    return fit(label, module, data, steps, runtime, monitor="validation/loss", watch=[throughput]), throughput
