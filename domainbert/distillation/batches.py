"""Batches for distillation, with the counts of the *global* batch by which the sums of the losses are divided."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from domainbert.data.batches import GlobalOrder, LabelledTrainBatches, Share
from domainbert.data.packing import IGNORE_INDEX, Batch, Example, collate
from domainbert.distillation.losses import TokenPositions
from domainbert.distillation.soft_labels import SoftLabels, mean_logits
from domainbert.pretraining.batches import TrainRows
from domainbert.tokenization.load import DomainTokenizer


def segment_counts(lengths: NDArray[np.int64]) -> dict[str, int]:
    """Return the numbers of segments, tokens and pairs of tokens. `lengths` (segments,) are the tokens of each segment,
    with special tokens."""
    return {
        "num_segments": len(lengths),
        "num_real_tokens": int(lengths.sum()),
        "num_pairs": int((lengths**2).sum()),
    }


def batch_counts(position_ids: Tensor, segment_ids: Tensor) -> dict[str, Tensor]:
    """Return the counts of `segment_counts` for one batch (B, S), as tensors on its device."""
    tokens = TokenPositions(position_ids, segment_ids)
    return {
        "num_segments": ((position_ids == 0) & tokens.real).sum(),
        "num_real_tokens": tokens.real.sum(),
        "num_pairs": tokens.pairs.sum(),
    }


def find_token_positions(batch: Batch) -> dict[str, NDArray[np.int64]]:
    """Return the indices, in the flattened rows of a batch, of all tokens that are not padding (`token_positions`), and
    of the first token of each segment (`cls_positions`)."""
    real = np.flatnonzero(batch["segment_ids"])  # segment 0 is padding
    return {"token_positions": real, "cls_positions": real[batch["position_ids"].ravel()[real] == 0]}


class CountedRows(Dataset[Batch]):
    """Micro-batches of masked LM with `segment_counts` of their global batches, and without positions that have no
    target."""

    def __init__(self, batches: TrainRows) -> None:
        self.batches = batches

    def __len__(self) -> int:
        """Return the number of micro-batches."""
        return len(self.batches)

    def __getitem__(self, index: int) -> Batch:
        """Return micro-batch `index` with the indices of its tokens and the counts of its global batch."""
        batch = self.batches[index]
        has_target = batch["targets"] != IGNORE_INDEX
        batch |= {name: batch[name][has_target] for name in ("positions", "targets")}
        # a segment is a piece of a document, with its special tokens
        plan, (_, global_rows) = self.batches.reader.plan, self.batches.order.batch(batch["step"])
        lengths = plan.lengths[plan.pieces_of(global_rows)] + plan.extra
        return batch | find_token_positions(batch) | segment_counts(lengths)


class DistillationBatches(LabelledTrainBatches):
    """Micro-batches of task distillation: labelled and unlabelled examples.

    Args, in addition to the arguments of `LabelledTrainBatches`:
        examples: the labelled examples, followed by the unlabelled examples.
        orders: order of the labelled examples and, if there are unlabelled examples, their order; both number their
            examples from 0.
        logits: logits of all examples by each teacher; None if the teachers run during training.
    """

    def __init__(
        self,
        examples: Sequence[Example],
        tokenizer: DomainTokenizer,
        orders: Sequence[GlobalOrder],
        share: Share,
        steps: range,
        logits: Sequence[SoftLabels] | None = None,
    ) -> None:
        super().__init__(examples, tokenizer, orders[0], share, steps)
        self.orders, self.logits = orders, logits

    def __getitem__(self, index: int) -> Batch:
        """Return micro-batch `index` from `collate`, with the counts of the *global* batch and these arrays:

        output_index: (N,) index, in the micro-batch, of the output that each position of the head decides; or -1.
        output_example: (outputs,) example of each output, or -1 if no position decides the output.
        teacher_logits: (outputs, labels), if `logits` is given.
        """
        step = self.steps[index // self.share.accumulation]
        micro_batch = index % self.share.accumulation
        example_ids: list[int] = []  # of the micro-batch
        global_examples: list[list[Example]] = []  # of the global batch: the labelled, then the unlabelled examples
        num_before = 0  # examples of earlier orders, which come first in `self.examples`
        for order in self.orders:
            _, numbers = order.batch(step)
            global_ids = num_before + numbers
            example_ids += self.share.select(global_ids, micro_batch).tolist()
            global_examples.append([self.examples[number] for number in global_ids.tolist()])
            num_before += order.size

        examples = [self.examples[number] for number in example_ids]
        sizes = [example.num_outputs for example in examples]
        batch = collate(examples, example_ids, self.tokenizer)
        output_indices = output_index(batch["example"], batch["outputs"], sizes)
        output_example = np.full(sum(sizes), -1)
        decides = output_indices >= 0  # positions that decide an output
        output_example[output_indices[decides]] = batch["example"][decides]
        batch |= find_token_positions(batch) | {"output_index": output_indices, "output_example": output_example}
        if self.logits is not None:
            batch["teacher_logits"] = mean_logits(self.logits, example_ids)
        counts = _global_counts(*global_examples)
        counts |= {"num_outputs_here": sum(sizes), "longest": max(sizes)}
        return batch | counts | {"step": step, "micro_batch": micro_batch}


def output_index(example: NDArray[np.int64], outputs: NDArray[np.int64], sizes: Sequence[int]) -> NDArray[np.int64]:
    """Return the index (N,) of the output that each position decides, or -1.

    Indices count the outputs of all examples, one example after the other.

    Args:
        example: (N,) example of each position.
        outputs: (N,) output of that example which the position decides, or -1.
        sizes: number of outputs of each example.
    """
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    return np.where(outputs >= 0, starts[example] + outputs, -1)


def _global_counts(labelled: Sequence[Example], unlabelled: Sequence[Example] = ()) -> dict[str, int]:
    """Return the numbers by which the sums of the losses are divided: outputs, targets, examples, and `segment_counts`
    for losses on layers, where each window is a segment.

    `num_examples` counts the labelled examples, `num_texts` all of them.
    """
    examples = [*labelled, *unlabelled]
    windows = [window for example in examples for window in example.windows]
    return segment_counts(np.asarray([window.num_tokens for window in windows], dtype=np.int64)) | {
        "num_outputs": sum(example.num_outputs for example in examples),
        "num_targets": sum(len(window.targets) for example in labelled for window in example.windows),
        "num_examples": len(labelled),
        "num_texts": len(examples),
    }
