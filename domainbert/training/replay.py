"""CUDA graphs of a model's forward and backward pass: launching many short kernels takes longer than running them.

Of BERT-base on 1,024 tokens, forward and backward pass and optimizer take 20 ms on an H100, in which the GPU computes
for 7 ms; the graphs of torch's compiler take 5 ms, after a minute of compiling. Recording a graph takes half a second.
"""

from __future__ import annotations

from typing import cast

import torch
from lightning import Trainer
from torch import Tensor, nn
from torch.nn import functional

from domainbert.encoders.heads import EncoderWithHead
from domainbert.encoders.packed import Packed

_LEAST_STEPS = 200  # of a training: recording has to be paid for
_MOST_SHAPES = 6  # each has gradients of its own in memory
_READS = 256  # positions that are read are filled up to a multiple of it

Key = tuple[object, ...]


class ReplayedModel:
    """Calls a model by replaying graphs, one for each shape of a batch; other shapes and evaluation call it directly.

    The random numbers of dropout are those of a direct call with the same seed.
    """

    def __init__(self, model: EncoderWithHead) -> None:
        self.model = model
        self.graphs: dict[Key, nn.Module] = {}

    @classmethod
    def for_training(cls, model: EncoderWithHead, trainer: Trainer) -> ReplayedModel | None:
        """Return it where it pays and works: in a training of some length, alone on a GPU."""
        alone = trainer.strategy.root_device.type == "cuda" and trainer.world_size == 1
        long_enough = trainer.max_steps >= _LEAST_STEPS
        return cls(model) if alone and long_enough and not model.encoder.activation_checkpointing else None

    def prepare(self, tokens: Packed, positions: Tensor) -> None:
        """Record the graphs for a shape that is new. Recording draws random numbers: seed the generator after it."""
        key, inputs = _key_of(tokens, positions), _inputs_of(tokens, positions)
        if key not in self.graphs and len(self.graphs) < _MOST_SHAPES:
            self.graphs[key] = self.record(_OfTensors(self.model, tokens), inputs)

    def record(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> nn.Module:
        """Return the module with its passes recorded; heads may have parameters that only the loss reads."""
        recorded = torch.cuda.make_graphed_callables(module, inputs, allow_unused_input=True)
        return cast(nn.Module, recorded)

    def __call__(self, tokens: Packed, positions: Tensor) -> Tensor:
        """Return the logits (N, ...) at `positions` (N,) in the flattened tokens."""
        graph = self.graphs.get(_key_of(tokens, positions)) if self.model.training else None
        if graph is None:
            return self.model(tokens, positions)
        logits: Tensor = graph(*_inputs_of(tokens, positions))
        return logits[: len(positions)]


class _OfTensors(nn.Module):
    """A model that takes the tensors of a batch one by one, as graphs need them."""

    def __init__(self, model: EncoderWithHead, tokens: Packed) -> None:
        super().__init__()
        self.model = model
        self._given = [name for name, value in tokens._asdict().items() if isinstance(value, Tensor)]
        self.train(model.training)

    def forward(self, positions: Tensor, *tensors: Tensor) -> Tensor:
        """Return the logits."""
        return self.model(Packed.of(dict(zip(self._given, tensors, strict=True))), positions)


def _inputs_of(tokens: Packed, positions: Tensor) -> tuple[Tensor, ...]:
    filled = functional.pad(positions, (0, -len(positions) % _READS))
    return (filled, *(value for value in tokens if isinstance(value, Tensor)))


def _key_of(tokens: Packed, positions: Tensor) -> Key:
    shapes = [None if value is None else tuple(value.shape) for value in tokens[:5]]
    return (-(-len(positions) // _READS), *shapes)
