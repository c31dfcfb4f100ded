"""Graphs of a step: one for each shape, and the logits of a direct call. Recording itself needs a GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from domainbert.data.batches import LabelledTrainBatches
from domainbert.data.order import GlobalOrder
from domainbert.data.types import Share
from domainbert.encoders.packed import Packed
from domainbert.tasks.classification.files import LabelledText
from domainbert.tasks.classification.task import ClassificationTask
from domainbert.training.data_module import fill_up
from domainbert.training.replay import ReplayedModel


class Recorded(ReplayedModel):
    """Keeps what is recorded, and calls it."""

    def record(self, module: Any, inputs: tuple[torch.Tensor, ...]) -> Any:
        return module


@pytest.fixture
def batches(tokenizer):
    task = ClassificationTask(("x", "y"))
    words = np.random.default_rng(0).choice([*"abcdefgh"], (40, 30))
    items = [LabelledText(" ".join(row[: 3 + 5 * n % 27]), "xy"[n % 2], n) for n, row in enumerate(words)]
    examples = task.encode(items, tokenizer, 16)
    return LabelledTrainBatches(examples, tokenizer, GlobalOrder(40, 12, 0), Share(), range(10))


def tensors(batch):
    return {name: torch.as_tensor(value) for name, value in batch.items()}


def test_filled_up_batches_have_few_shapes_and_the_same_logits(batches, make_model) -> None:
    model, shapes, filled_shapes = make_model("sequence", 2).eval(), set(), set()
    for index in range(len(batches)):
        batch, filled = tensors(batches[index]), tensors(fill_up(batches[index]))
        shapes.add(batch["input_ids"].shape)
        filled_shapes.add(filled["input_ids"].shape)
        rows, length = filled["input_ids"].shape
        assert length % 64 == 0 and rows in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
        assert int((filled["segment_ids"] > 0).sum()) == int((batch["segment_ids"] > 0).sum())
        with torch.no_grad():
            wanted, found = (model(Packed.of(one), one["positions"]) for one in (batch, filled))
        torch.testing.assert_close(found, wanted, atol=1e-6, rtol=0)
    assert len(filled_shapes) < len(shapes)


def test_places_of_tokens_move_along() -> None:
    segments = np.array([[1, 1, 2], [1, 0, 0], [1, 2, 3]])
    batch = {"segment_ids": segments, "input_ids": segments + 10, "positions": np.array([0, 3, 8]), "step": 4}
    batch |= {"real_places": np.flatnonzero(segments), "first_places": np.array([0, 2, 3, 6, 7, 8])}
    filled = fill_up(batch)
    assert filled["segment_ids"].shape == (3, 64) and filled["step"] == 4
    assert filled["positions"].tolist() == [0, 64, 130]
    assert filled["real_places"].tolist() == np.flatnonzero(filled["segment_ids"]).tolist()
    assert filled["input_ids"].ravel()[filled["first_places"]].tolist() == [11, 12, 11, 11, 12, 13]


def test_each_shape_is_recorded_once_and_gives_the_logits_and_gradients_of_a_direct_call(batches, make_model) -> None:
    model = make_model("sequence", 2).train()
    replayed, plain = Recorded(model), []
    for index in range(6):
        batch = tensors(fill_up(batches[index % 3]))
        tokens, positions = Packed.of(batch), batch["positions"]
        replayed.prepare(tokens, positions)
        wanted, found = model(tokens, positions), replayed(tokens, positions)
        assert torch.equal(found, wanted) and len(found) == len(positions)
        parameters = [one for one in model.parameters() if one.requires_grad]
        gradients = [torch.autograd.grad(one.square().sum(), parameters, allow_unused=True) for one in (found, wanted)]
        torch.testing.assert_close(*gradients, atol=1e-6, rtol=1e-5)
        plain.append(tuple(batch["input_ids"].shape))
    assert len(replayed.graphs) == len({(shape, 1) for shape in plain})
    model.eval()
    replayed.graphs = {key: torch.nn.Module() for key in replayed.graphs}  # would fail
    replayed(tokens, positions)


def test_memory_is_kept_for_few_shapes(batches, make_model, monkeypatch) -> None:
    monkeypatch.setattr("domainbert.training.replay._MOST_SHAPES", 1)
    replayed = Recorded(make_model("sequence", 2).train())
    ids = torch.ones(1, 64, dtype=torch.long)
    for tokens in (Packed(ids, ids, ids), Packed(ids[:, :32], ids[:, :32], ids[:, :32])):
        replayed.prepare(tokens, torch.tensor([0]))
        assert replayed(tokens, torch.tensor([0])).shape == (1, 2)
    assert len(replayed.graphs) == 1


@pytest.mark.parametrize(
    ("device", "world_size", "steps", "checkpointing", "wanted"),
    [("cuda", 1, 200, False, True), ("cuda", 1, 199, False, False), ("cuda", 2, 500, False, False),
     ("cpu", 1, 500, False, False), ("cuda", 1, 500, True, False)],
)  # fmt: skip
def test_where_it_pays(make_model, device, world_size, steps, checkpointing, wanted) -> None:
    model = make_model("sequence", 2)
    model.encoder.activation_checkpointing = checkpointing
    strategy = SimpleNamespace(root_device=torch.device(device))
    trainer: Any = SimpleNamespace(strategy=strategy, world_size=world_size, max_steps=steps)
    assert (ReplayedModel.for_training(model, trainer) is not None) == wanted
