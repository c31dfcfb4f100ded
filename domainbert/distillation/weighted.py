"""The declarative list of losses at work: what they need of both models, and their weighted sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from domainbert.base.errors import DomainbertError, Problems
from domainbert.distillation.config import LossConfig, Sizes
from domainbert.distillation.losses import DistillationLoss, Outputs, Places, Reads, Unit
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
"""Name of the number of units in a batch."""


class WeightedLosses(nn.Module):
    """Several losses with their weights; a loss may have parameters, which are trained and not saved.

    Attributes:
        names: of the losses, for the log: the class, with a number behind its second use.
        weights: their factors.
        terms: the losses.
        needs_teacher: whether any looks at the teacher.
        needs_hidden: whether any looks into the teacher, not only at its predictions.
        reads: the logits that they look at.

    Raises:
        DomainbertError: losses that cannot compare the two, by their places in the list.
    """

    def __init__(self, configs: Sequence[LossConfig], student: Encoder, teacher: Encoder) -> None:
        super().__init__()
        problems = Problems("losses")
        self.terms: list[DistillationLoss] = []
        for index, config in enumerate(configs):
            try:
                self.terms.append(config.build(sizes_of(student), sizes_of(teacher)))
            except DomainbertError as error:
                problems.add(f"losses[{index}].{error}")
        problems.raise_if_any()
        self.losses = nn.ModuleList(self.terms)
        self.names = _names([type(config).__name__ for config in configs])
        self.weights = [config.weight for config in configs]
        self.needs_teacher = any(loss.needs_teacher for loss in self.terms)
        self.needs_hidden = any(loss.pairs for loss in self.terms)
        self.reads: set[Reads] = {loss.reads for loss in self.terms} - {"none"}

    def layers(self, side: int) -> set[int]:
        """The layers whose projections are wanted: of the student for `side` 0, of the teacher for 1."""
        return {pair[side] for loss in self.terms if loss.attends for pair in loss.pairs}

    def sums(self, student: Outputs, teacher: Outputs | None, places: Places) -> dict[str, Tensor]:
        """Each loss, summed over a micro-batch, outside of autocast."""
        with torch.autocast(places.segment_ids.device.type, enabled=False):
            values = [loss(student, teacher, places) for loss in self.terms]
        return dict(zip(self.names, values, strict=True))

    def means(self, sums: Mapping[str, Tensor], counts: Mapping[str, Any]) -> dict[str, Tensor]:
        """Each loss per unit; `counts` are those of the whole that is averaged over, called as in a batch."""
        named = zip(self.names, self.terms, strict=True)
        return {name: sums[name] / max(counts[COUNTS[loss.unit]], 1) for name, loss in named}

    def total(self, means: Mapping[str, Tensor]) -> Tensor:
        """The weighted sum."""
        terms = [weight * means[name] for name, weight in zip(self.names, self.weights, strict=True)]
        return torch.stack(terms).sum()


def sizes_of(encoder: Encoder) -> Sizes:
    """Sizes of an encoder that losses have to know."""
    return Sizes(encoder.num_hidden_layers, encoder.hidden_size, encoder.num_heads)


def observe(
    model: EncoderWithHead, batch: Batch, layers: set[int], positions: Tensor | None, every: Tensor | None = None
) -> Outputs:
    """Run a student or teacher and keep what losses look at.

    Args:
        batch: with what `Packed.of` reads.
        layers: those whose projections are wanted.
        positions: (N,) where logits are wanted, in the flattened tokens; None for nowhere.
        every: (tokens,) the tokens that are not padding, if logits are wanted at all of them.
    """
    tokens = Packed.of(batch)
    recording = record(model.encoder, tokens, layers)
    last = recording.hidden[-1]
    logits = None if positions is None else model.read(model.states(last, tokens, positions))
    all_logits = None if every is None else model.read(select(last, every))
    return Outputs(recording.hidden, recording.projections, logits, all_logits)


def mean_outputs(outputs: Sequence[Outputs]) -> Outputs:
    """Outputs of an ensemble: the mean of its logits, whose softmax is the geometric mean of the distributions (Hinton
    et al. 2015, section 2); nobody looks into several teachers, so the rest is the first one's."""
    if len(outputs) == 1:
        return outputs[0]
    logits, all_logits = ([getattr(one, name) for one in outputs] for name in ("logits", "all_logits"))
    return replace(outputs[0], logits=_mean(logits), all_logits=_mean(all_logits))


def _mean(tensors: Sequence[Tensor | None]) -> Tensor | None:
    given = [tensor.float() for tensor in tensors if tensor is not None]
    return torch.stack(given).mean(dim=0) if given else None


def _names(classes: Sequence[str]) -> list[str]:
    return [
        name if name not in classes[:index] else f"{name}-{classes[: index + 1].count(name)}"
        for index, name in enumerate(classes)
    ]
