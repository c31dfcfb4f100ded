"""Trains word embeddings only for the vocabulary entries that occur."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from domainbert.encoders.heads import EncoderWithHead

Position = tuple[int, int]
"""Index of an optimizer among all optimizers, and index of a parameter among its parameters."""


class UsedEntries:
    """Removes the word embeddings of vocabulary entries that do not occur in the data from a model, until `restore`.

    An entry that never occurs has no gradient, moments of 0 and, because embeddings have no weight decay, a constant
    value. So the result is the same, but each step computes a smaller vocabulary: a labelled set of 5,000 sentences
    contains 8,000 of the 30,522 entries of a general vocabulary, and word embeddings are most of a small model.

    Args:
        model: its word embeddings are replaced by the rows of the entries that occur.
        ids: ids of the entries that occur, in any shape, with repetitions.

    Attributes:
        row: (vocab_size,) row of each entry in the smaller table; -1 for an entry that does not occur.
        name: name of the word embeddings among the model's parameters.
        vocab_size, num_excluded: number of all entries, and of entries that do not occur.
    """

    def __init__(self, model: EncoderWithHead, ids: Tensor) -> None:
        embeddings = model.encoder.input_embeddings
        self._all, self._ids = embeddings.weight.detach(), ids.unique()
        self.vocab_size, self.num_excluded = len(self._all), len(self._all) - len(self._ids)
        self.name = next(name for name, parameter in model.named_parameters() if parameter is embeddings.weight)
        self.row = torch.full((len(self._all),), -1)
        self.row[self._ids] = torch.arange(len(self._ids))
        embeddings.weight = nn.Parameter(self._all[self._ids], embeddings.weight.requires_grad)

    def rows_of(self, input_ids: Tensor) -> Tensor:
        """Return the row of each id in the smaller table."""
        if self.row.device != input_ids.device:
            self.row = self.row.to(input_ids.device)
        return self.row[input_ids]

    def all_embeddings(self, used: Tensor) -> Tensor:
        """Return the embeddings of all entries (vocab_size, D) on the CPU; `used` has the entries that occur."""
        embeddings = self._all.to("cpu", copy=True)
        embeddings[self._ids] = used.detach().to("cpu", embeddings.dtype)
        return embeddings

    def used_embeddings(self, embeddings: Tensor) -> Tensor:
        """Return the rows of `embeddings` (vocab_size, D) of the entries that occur; keep all for `restore`."""
        self._all = embeddings.detach()
        return self._all[self._ids.to(embeddings.device)]

    def restore_weights(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the weights of the model by name, in which the word embeddings of all entries, on the CPU, replace
        the embeddings of the used entries."""
        return {**weights, self.name: self.all_embeddings(weights[self.name])}

    def restore(self, model: EncoderWithHead) -> None:
        """Put the embeddings of all entries back into the model."""
        embeddings = model.encoder.input_embeddings
        weight = embeddings.weight
        embeddings.weight = nn.Parameter(self.all_embeddings(weight).to(weight.device), weight.requires_grad)

    def expand_moments(self, positions: Sequence[Position], states: Sequence[dict[str, Any]]) -> None:
        """Replace the moments of the word embeddings in the states of optimizers by moments of all entries, in place;
        entries that do not occur have moments of 0."""

        def expand(moment: Tensor) -> Tensor:
            expanded = moment.new_zeros(self.vocab_size, *moment.shape[1:])
            expanded[self._ids.to(moment.device)] = moment
            return expanded

        _replace_moments(positions, states, expand)

    def reduce_moments(self, positions: Sequence[Position], states: Sequence[dict[str, Any]]) -> None:
        """Invert `expand_moments`."""
        _replace_moments(positions, states, lambda moment: moment[self._ids.to(moment.device)])


def embedding_positions(model: EncoderWithHead, optimizers: Sequence[Optimizer]) -> list[Position]:
    """Return the positions of the word embeddings of a model in its optimizers."""
    weight = model.encoder.input_embeddings.weight
    positions = []
    for number, optimizer in enumerate(_parts(optimizers)):
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        positions += [(number, index) for index, parameter in enumerate(parameters) if parameter is weight]
    return positions


def expand_saved_embeddings(module: nn.Module, state: dict[str, Any], prefix: str, _: Any) -> None:
    """Expand the embeddings in a state dict of a module with `entries`, unless they are sharded, to all vocabulary
    entries; a state-dict hook."""
    if (entries := getattr(module, "entries", None)) is not None:
        name = f"{prefix}model.{entries.name}"
        if name in state and not isinstance(state[name], DTensor):
            state[name] = entries.all_embeddings(state[name])


def reduce_loaded_embeddings(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Reduce the embeddings in a state dict to load to the entries in training; a state-dict hook."""
    if (entries := getattr(module, "entries", None)) is not None:
        name = f"{prefix}model.{entries.name}"
        if name in state and len(state[name]) == len(entries.row):
            state[name] = entries.used_embeddings(state[name])


def _replace_moments(
    positions: Sequence[Position], states: Sequence[dict[str, Any]], replaced: Callable[[Tensor], Tensor]
) -> None:
    parts = [*_parts(states)]
    for number, index in positions:
        states_by_parameter = parts[number]["state"]
        if index in states_by_parameter:
            state = states_by_parameter[index].items()  # moments are matrices; the number of steps stays
            new_state = {name: replaced(value) if value.ndim > 1 else value for name, value in state}
            states_by_parameter[index] = new_state  # the optimizer itself refers to the old dictionary


def _parts(combined: Sequence[Any]) -> Iterator[Any]:
    """Yield the optimizers, or their states, of which `CombinedOptimizer` has several."""
    for part in combined:
        inner = part.get("optimizers") if isinstance(part, dict) else getattr(part, "optimizers", None)
        yield from [part] if inner is None else _parts(inner)
