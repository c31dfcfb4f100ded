"""Loss of an optimizer step: the sum over its micro-batches and processes, with its terms."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from lightning.pytorch.strategies import Strategy
from torch import Tensor


class StepLoss:
    """Loss of an optimizer step over the global batch; the tensors () are on the device of the training.

    Attributes:
        total: loss of the last step.
        terms: terms of `total`, by name, if it is a sum of several.
        last_terms: most recent value of each term: steps may have different terms, and not all steps are logged.
        skipped: whether the last step was skipped because its loss or gradient was not finite.
        shares, share_terms: losses and terms of the micro-batches since the last step.
    """

    def __init__(self) -> None:
        self.total = torch.zeros(())
        self.terms: dict[str, Tensor] = {}
        self.last_terms: dict[str, Tensor | float] = {}
        self.skipped = torch.zeros((), dtype=torch.bool)
        self.shares: list[Tensor] = []
        self.share_terms: list[Mapping[str, Tensor]] = []

    def add(self, share: Tensor) -> None:
        """Add the share of a micro-batch in the loss."""
        self.shares.append(share.detach())

    def add_terms(self, terms: Mapping[str, Tensor]) -> None:
        """Add the terms of a micro-batch; all micro-batches of a step have the same terms."""
        self.share_terms.append({name: value.detach() for name, value in terms.items()})

    def discard(self) -> None:
        """Discard what was added since the last step."""
        self.shares.clear()
        self.share_terms.clear()

    def reduce(self, strategy: Strategy) -> None:
        """Set `total`, `terms` and `last_terms` from all micro-batches of a step, in all processes."""
        names = [*self.share_terms[0]] if self.share_terms else []
        sums = {name: torch.stack([terms[name] for terms in self.share_terms]).sum() for name in names}
        # no shares: `training_step` returned None, by which Lightning skips a batch
        total = torch.stack(self.shares).sum() if self.shares else torch.zeros_like(self.total)
        self.discard()
        self.total = strategy.reduce(total, reduce_op="sum")
        self.terms = {name: strategy.reduce(value, reduce_op="sum") for name, value in sums.items()}
        self.last_terms |= self.terms
