"""Batches for distillation: with the counts that its losses are means over, all of the *global* batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from domainbert.data.batches import LabelledTrainBatches
from domainbert.data.examples import Example, collate
from domainbert.data.order import GlobalOrder
from domainbert.data.types import IGNORED, Batch, Share
from domainbert.distillation.losses import Places
from domainbert.distillation.soft_labels import MeanLabels
from domainbert.pretraining.batches import TrainRows
from domainbert.tokenization.load import DomainTokenizer


def segment_counts(lengths: NDArray[np.int64]) -> dict[str, int]:
    """The counts of packed segments of so many tokens, special ones included: segments, tokens, pairs of tokens."""
    return {
        "num_segments": len(lengths),
        "num_real_tokens": int(lengths.sum()),
        "num_pairs": int((lengths**2).sum()),
    }


def batch_counts(position_ids: Tensor, segment_ids: Tensor) -> dict[str, Tensor]:
    """The same of a batch (B, S) alone, on its device."""
    places = Places(position_ids, segment_ids)
    return {
        "num_segments": ((position_ids == 0) & places.real).sum(),
        "num_real_tokens": places.real.sum(),
        "num_pairs": places.pairs.sum(),
    }


def token_places(batch: Batch) -> dict[str, NDArray[np.int64]]:
    """The `real_places` and `first_places` of a batch of arrays, see `Places`."""
    real = np.flatnonzero(batch["segment_ids"])
    return {"real_places": real, "first_places": real[batch["position_ids"].ravel()[real] == 0]}


class CountedRows(Dataset[Batch]):
    """Micro-batches of masked LM with the counts of their global batches, and without unused places to predict."""

    def __init__(self, batches: TrainRows) -> None:
        self.batches = batches

    def __len__(self) -> int:
        """Number of micro-batches."""
        return len(self.batches)

    def __getitem__(self, index: int) -> Batch:
        """Micro-batch `index`."""
        batch, plan = self.batches[index], self.batches.reader.plan
        pieces = plan.pieces_of(self.batches.order.batch(batch["step"])[1])
        used = batch["targets"] != IGNORED
        batch |= {name: batch[name][used] for name in ("positions", "targets")}
        return batch | token_places(batch) | segment_counts(plan.lengths[pieces] + plan.extra)


class DistillationBatches(LabelledTrainBatches):
    """Micro-batch i of task distillation: labelled examples and, beside them, unlabelled ones.

    Args, beside those of `LabelledTrainBatches`:
        examples: the labelled ones and, after these, the unlabelled ones.
        orders: which labelled and, if there are any, which unlabelled examples belong to which optimiser step; the
            latter are numbered from 0 too.
        logits: what the teachers said of each example; None where they are asked while training.
    """

    def __init__(
        self,
        examples: Sequence[Example],
        tokenizer: DomainTokenizer,
        orders: Sequence[GlobalOrder],
        share: Share,
        steps: range,
        logits: MeanLabels | None = None,
    ) -> None:
        super().__init__(examples, tokenizer, orders[0], share, steps)
        self.orders, self.logits = orders, logits

    def __getitem__(self, index: int) -> Batch:
        """Micro-batch `index`, as `collate` makes it; with `output_index` (N,), the place of each position that the
        head reads among the outputs of the micro-batch (-1 for none), `output_example`, the example of each output (-1
        where no position decides it), and the counts of the *global* batch."""
        step, micro_batch = self.steps[index // self.share.accumulation], index % self.share.accumulation
        starts = zip(self.orders, (0, self.order.size), (0, self.order.batch_size), strict=False)
        parts = [(order.batch(step)[1] + item, place) for order, item, place in starts]
        numbers = [number for items, _ in parts for number in self.share.of(items, micro_batch).tolist()]
        places = [self.share.places(len(items), micro_batch) + place for items, place in parts]
        everything = [[self.examples[i] for i in items.tolist()] for items, _ in parts]
        chosen = [self.examples[i] for i in numbers]
        sizes = [example.num_outputs for example in chosen]
        batch: Batch = dict(collate(chosen, numbers, self.tokenizer, np.concatenate(places)))
        place = output_index(batch["example"], batch["outputs"], sizes)
        examples = np.full(sum(sizes), -1)
        examples[place[place >= 0]] = batch["example"][place >= 0]
        batch |= token_places(batch) | {"output_index": place, "output_example": examples}
        if self.logits is not None:
            batch["teacher_logits"] = self.logits.rows(numbers)
        return batch | _counts(*everything) | {"num_outputs_here": sum(sizes), "step": step, "micro_batch": micro_batch}


def output_index(example: NDArray[np.int64], outputs: NDArray[np.int64], sizes: Sequence[int]) -> NDArray[np.int64]:
    """The place of each position among the outputs of all examples, one after the other; -1 where it decides none.

    Args:
        example: (N,) the example each position belongs to.
        outputs: (N,) which of its outputs it decides, or -1.
        sizes: outputs of each example.
    """
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    return np.where(outputs >= 0, starts[example] + outputs, -1)


def _counts(labelled: Sequence[Example], unlabelled: Sequence[Example] = ()) -> dict[str, int]:
    """The counts of a global batch."""
    examples = [*labelled, *unlabelled]
    windows = [window for example in examples for window in example.windows]
    return segment_counts(np.asarray([window.num_tokens for window in windows], dtype=np.int64)) | {
        "num_outputs": sum(example.num_outputs for example in examples),
        "num_targets": sum(len(window.targets) for example in labelled for window in example.windows),
        "num_examples": len(labelled),
        "num_texts": len(examples),
        "num_tokens": sum(len(window.input_ids) for window in windows),
    }
