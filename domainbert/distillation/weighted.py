"""Weighted sum of distillation losses, and the model outputs that the losses read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from domainbert.base.errors import Problems
from domainbert.distillation.config import LossConfig, Sizes
from domainbert.distillation.losses import DistillationLoss, Outputs, Reads, TokenPositions, Unit
from domainbert.encoders.base import Encoder
from domainbert.encoders.heads import EncoderWithHead
from domainbert.encoders.packed import Packed, select
from domainbert.encoders.recording import record

Batch = Mapping[str, Tensor]

COUNTS: dict[Unit, str] = {
    "targets": "num_targets",
    "outputs": "num_outputs",
    "examples": "num_texts",
    "tokens": "num_real_tokens",
    "segments": "num_segments",
    "pairs": "num_pairs",
}
"""Key, in a batch, of the number of units, by unit."""


class WeightedLosses(nn.Module):
    """Weighted sum of several losses. Parameters of a loss are trained but not saved in the model.

    Attributes:
        names: names of the losses for the log: the class, with a number from its second use.
        weights: factors of the losses.
        terms: the losses.
        needs_teacher: whether a loss compares with the teacher.
        needs_hidden: whether a loss compares layers.
        reads: logits that the losses read.

    Raises:
        DomainbertError: losses cannot compare the models; the message names their indices.
    """

    def __init__(self, configs: Sequence[LossConfig], student: Sizes, teacher: Sizes) -> None:
        super().__init__()
        problems = Problems("losses")
        self.terms: list[DistillationLoss] = []
        for index, config in enumerate(configs):
            with problems.collecting(f"losses[{index}]"):
                self.terms.append(config.build(student, teacher))
        problems.raise_if_any()
        self.losses = nn.ModuleList(self.terms)
        self.names = _numbered_names([type(config).__name__ for config in configs])
        self.weights = [config.weight for config in configs]
        self.needs_teacher = any(loss.needs_teacher for loss in self.terms)
        self.needs_hidden = any(loss.pairs for loss in self.terms)
        self.reads: set[Reads] = {loss.reads for loss in self.terms} - {"none"}

    def attention_layers(self, side: Literal["student", "teacher"]) -> set[int]:
        """Return the layers of the student or of the teacher whose projections are compared."""
        index = ("student", "teacher").index(side)  # in a pair of layers
        return {pair[index] for loss in self.terms if loss.needs_attention for pair in loss.pairs}

    def sums(self, student: Outputs, teacher: Outputs | None, tokens: TokenPositions) -> dict[str, Tensor]:
        """Return each loss summed over a micro-batch, computed without autocast."""
        with torch.autocast(tokens.segment_ids.device.type, enabled=False):
            values = [loss(student, teacher, tokens) for loss in self.terms]
        return dict(zip(self.names, values, strict=True))

    def means(self, sums: Mapping[str, Tensor], counts: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return each loss divided by its number of units, which `counts` has under the keys of `COUNTS`."""
        named = zip(self.names, self.terms, strict=True)
        return {name: sums[name] / max(counts[COUNTS[loss.unit]], 1) for name, loss in named}

    def total(self, means: Mapping[str, Tensor]) -> Tensor:
        """Return the weighted sum of the losses."""
        terms = [weight * means[name] for name, weight in zip(self.names, self.weights, strict=True)]
        return torch.stack(terms).sum()


def sizes_of(encoder: Encoder) -> Sizes:
    """Return the sizes of an encoder, which must fit the losses."""
    return Sizes(encoder.num_hidden_layers, encoder.hidden_size, encoder.num_heads)


def compute_outputs(
    model: EncoderWithHead,
    batch: Batch,
    layers: set[int],
    positions: Tensor | None,
    all_positions: Tensor | None = None,
) -> Outputs:
    """Return the outputs of a student or teacher that losses read.

    Args:
        model: the student or teacher.
        batch: batch that `Packed.of` reads.
        layers: layers whose projections are recorded.
        positions: (N,) indices of the flattened tokens at which to compute `logits`; None computes none.
        all_positions: (tokens,) indices of all tokens that are not padding, to compute `all_logits`; None computes
            none.
    """
    tokens = Packed.of(batch)
    recording = record(model.encoder, tokens, layers)
    last_hidden = recording.hidden[-1]
    logits = None if positions is None else model.logits(model.head_states(last_hidden, tokens, positions))
    all_logits = None if all_positions is None else model.logits(select(last_hidden, all_positions))
    return Outputs(recording.hidden, recording.projections, logits, all_logits)


def mean_outputs(outputs: Sequence[Outputs]) -> Outputs:
    """Return the outputs of an ensemble: the mean of the logits, and the hidden states of the first model.

    The softmax of the mean is the geometric mean of the distributions (Hinton et al. 2015, section 2). Losses on
    layers require a single teacher.
    """
    if len(outputs) == 1:
        return outputs[0]
    return replace(
        outputs[0],
        logits=_mean_logits([each.logits for each in outputs]),
        all_logits=_mean_logits([each.all_logits for each in outputs]),
    )


def _mean_logits(logits: Sequence[Tensor | None]) -> Tensor | None:
    computed = [tensor.float() for tensor in logits if tensor is not None]
    return torch.stack(computed).mean(dim=0) if computed else None


def _numbered_names(classes: Sequence[str]) -> list[str]:
    # ["A", "A"] gives ["A", "A-2"]
    names = []
    for index, name in enumerate(classes):
        count = classes[: index + 1].count(name)  # of this class so far
        names.append(name if count == 1 else f"{name}-{count}")
    return names
