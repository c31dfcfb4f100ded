"""Logged values and gradient of an optimiser step, however the global batch is divided."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from lightning.pytorch.utilities import GradClipAlgorithmType
from torch.nn import functional

from domainbert.data.batches import GlobalOrder, LabelledTrainBatches, Share
from domainbert.data.packing import IGNORE_INDEX
from domainbert.distillation.batches import CountedRows
from domainbert.distillation.hidden_config import HiddenMSE
from domainbert.distillation.prediction_config import HardTargets
from domainbert.distillation.weighted import WeightedLosses, sizes_of
from domainbert.encoders.packed import Packed
from domainbert.pretraining.batches import TrainRows
from domainbert.tasks.classification.files import LabelledText
from domainbert.tasks.classification.task import ClassificationTask
from domainbert.training import optimisers
from domainbert.training.config import OptimConfig
from domainbert.training.optimisers import build_optimizer
from tests.ready_made import CorpusDistillation, ReadyFineTuning
from tests.refusals import refused
from tests.tiny_training import logs_each_step, masked_lm_module

DIVISIONS = [(1, 1), (1, 4), (2, 1), (2, 2)]  # ranks, micro-batches of each


def tensors(batch):
    return {name: torch.from_numpy(np.asarray(value)) for name, value in batch.items()}


class Ranks:
    """The processes of a training, one after the other: each sees the sum over itself and those before it."""

    def __init__(self) -> None:
        self.sums: list[torch.Tensor] = []
        self.calls = 0

    def begin(self) -> None:
        """The next process."""
        self.calls = 0

    def reduce(self, value: torch.Tensor, reduce_op: str) -> torch.Tensor:
        """As a strategy's; call number n of all processes belongs together."""
        assert reduce_op == "sum"
        if self.calls == len(self.sums):
            self.sums.append(torch.zeros(()))
        self.sums[self.calls] = self.sums[self.calls] + value
        self.calls += 1
        return self.sums[self.calls - 1]


def step(make_module, make_batches, world_size: int, accumulation: int):
    """One optimiser step up to the clipping: the values logged by the last process, and the gradient."""
    ranks, gradients, logged = Ranks(), [], {}
    for rank in range(world_size):
        module = make_module()
        module.trainer = SimpleNamespace(
            **{"world_size": world_size, "accumulate_grad_batches": accumulation, "global_rank": rank},
            **{"strategy": ranks, "precision": "32-true", "global_step": 0},
            **logs_each_step(),
        )
        module.log = lambda name, value, **_: logged.update({name: value})
        batches = make_batches(Share(rank, world_size, accumulation))
        for index in range(accumulation):
            loss = module.training_step(tensors(batches[index]), index) / accumulation
            module.on_before_backward(loss)
            loss.backward()
        found = {name: p.grad / world_size for name, p in module.model.named_parameters() if p.grad is not None}
        gradients.append(found)
        ranks.begin()
        module.configure_gradient_clipping(torch.optim.SGD(module.parameters(), 0.1))
    mean = {name: sum(found[name] for found in gradients) for name in gradients[0]}
    return {name: float(value) for name, value in logged.items()}, mean


@pytest.mark.parametrize(("world_size", "accumulation"), DIVISIONS)
def test_the_loss_of_masked_lm_that_is_logged_is_that_of_the_global_batch(reader, make_model, world_size, accumulation):
    order = GlobalOrder(reader.plan.num_rows, 8, seed=0)
    logged, _ = step(
        lambda: masked_lm_module(reader, make_model("masked_lm"), OptimConfig(lr=0.1)),
        lambda share: TrainRows(reader, order, share, range(1)),
        world_size,
        accumulation,
    )
    whole = tensors(TrainRows(reader, order, Share(), range(1))[0])
    inputs = Packed.of(whole), whole["positions"]
    with torch.no_grad():
        wanted = functional.cross_entropy(make_model("masked_lm")(*inputs), whole["targets"], ignore_index=IGNORE_INDEX)
    assert logged["train/loss"] == pytest.approx(float(wanted), rel=1e-5)
    assert logged["train/lr"] == pytest.approx(0.1)


@pytest.mark.parametrize(("world_size", "accumulation"), DIVISIONS[1:])
def test_the_losses_of_distillation_too(reader, make_model, world_size, accumulation):
    order = GlobalOrder(reader.plan.num_rows, 8, seed=0)

    def make_module():
        student, teacher = make_model("masked_lm"), make_model("masked_lm")
        with torch.no_grad():
            for parameter in teacher.parameters():
                parameter.mul_(1.2)
        sizes = sizes_of(student.encoder), sizes_of(teacher.encoder)
        losses = WeightedLosses([HardTargets(weight=2.0), HiddenMSE(projection="none")], *sizes)
        return CorpusDistillation(student, [teacher], losses)

    def logged_by(*division):
        batches = (lambda share: CountedRows(TrainRows(reader, order, share, range(1)))), *division
        return step(make_module, *batches)

    (wanted, gradient), (found, divided) = logged_by(1, 1), logged_by(world_size, accumulation)
    names = ["train/HardTargets", "train/HiddenMSE", "train/loss"]
    assert [found[name] for name in names] == pytest.approx([wanted[name] for name in names], rel=1e-5)
    assert wanted["train/loss"] == pytest.approx(2 * wanted[names[0]] + wanted[names[1]], rel=1e-6)
    for name, tensor in gradient.items():
        torch.testing.assert_close(divided[name], tensor, atol=1e-6, rtol=1e-4)


def test_each_step_logs_its_own_losses(reader, make_model):
    """The second step of a training, with other rows and micro-batches, carries nothing over from the first."""
    order = GlobalOrder(reader.plan.num_rows, 8, seed=0)
    student, teacher = make_model("masked_lm"), make_model("masked_lm")
    losses = WeightedLosses([HardTargets()], sizes_of(student.encoder), sizes_of(teacher.encoder))
    module = CorpusDistillation(student, [], losses)
    logged: dict[str, torch.Tensor] = {}
    module.log = lambda name, value, **_: logged.update({name: value})
    for number, accumulation in enumerate((4, 2)):
        settings = {"world_size": 1, "accumulate_grad_batches": accumulation, "global_rank": 0, "global_step": number}
        module.trainer = SimpleNamespace(**settings, strategy=Ranks(), precision="32-true", **logs_each_step())
        batches = CountedRows(TrainRows(reader, order, Share(0, 1, accumulation), range(number, 10)))
        for index in range(accumulation):
            module.on_before_backward(loss := module.training_step(tensors(batches[index]), index) / accumulation)
            loss.backward()
        module.configure_gradient_clipping(torch.optim.SGD(module.parameters(), 0.1))
        whole = tensors(TrainRows(reader, order, Share(), range(number, 10))[0])
        inputs = Packed.of(whole), whole["positions"]
        with torch.no_grad():
            wanted = functional.cross_entropy(student(*inputs), whole["targets"], ignore_index=IGNORE_INDEX)
        for name in ("train/loss", "train/HardTargets"):
            assert float(logged[name]) == pytest.approx(float(wanted), rel=1e-5)


@pytest.mark.parametrize(("size", "first", "passes"), [(16, 0, 1), (13, 1, 2), (3, 0, 3)])
@pytest.mark.parametrize(("world_size", "accumulation"), DIVISIONS[1:])
def test_a_pass_that_ends_within_a_batch_of_texts_changes_neither_loss_nor_gradient(
    tokenizer, make_model, world_size, accumulation, size, first, passes
):
    """A text may then be in the batch twice, in one micro-batch or in two."""
    task = ClassificationTask(("x", "y", "z"))
    words = np.random.default_rng(0).choice([*"abcdefgh"], (size, 12))
    items = [LabelledText(" ".join(row[: 3 + n % 9]), "xyz"[n % 3], n) for n, row in enumerate(words)]
    examples, order = task.encode(items, tokenizer, 8), GlobalOrder(size, 8, seed=0)
    assert len(set(order.batch(first)[0].tolist())) == passes

    def divided(*division):
        return step(
            lambda: ReadyFineTuning(make_model("sequence", 3), task),
            lambda share: LabelledTrainBatches(examples, tokenizer, order, share, range(first, first + 1)),
            *division,
        )

    (wanted, gradient), (found, parts) = divided(1, 1), divided(world_size, accumulation)
    assert found["train/loss"] == pytest.approx(wanted["train/loss"], rel=1e-5)
    for name, tensor in gradient.items():
        torch.testing.assert_close(parts[name], tensor, atol=1e-6, rtol=1e-4)
    alone = []
    for item in order.batch(first)[1].tolist():
        batch = tensors(LabelledTrainBatches([examples[item]], tokenizer, GlobalOrder(1, 1, 0), Share(), range(1))[0])
        inputs = Packed.of(batch), batch["positions"]
        with torch.no_grad():
            alone.append(float(task.loss(make_model("sequence", 3)(*inputs), batch)) / float(batch[task.loss_divisor]))
    assert wanted["train/loss"] == pytest.approx(np.mean(alone), rel=1e-5)


def test_only_fused_adamw_on_a_gpu_skips_a_step_by_itself(make_model, monkeypatch):
    def skips(name, fused):
        return optimisers.skips_steps_itself(build_optimizer([make_model("masked_lm")], OptimConfig(name), fused))

    assert not skips("adamw", True), "on a CPU"
    monkeypatch.setattr(optimisers, "_on_one_gpu", lambda parameter: True)
    assert skips("adamw", True) and not skips("adamw", False) and not skips("muon", True)


@pytest.mark.parametrize(("given", "wanted"), [(0.01, 0.01), (None, 0.02), (0, None)])
def test_the_trainer_says_how_gradients_are_clipped(reader, make_model, given, wanted):
    """`Trainer(gradient_clip_val=...)` counts before `optim.max_grad_norm`, 0.02."""
    module = masked_lm_module(reader, make_model("masked_lm"), OptimConfig(max_grad_norm=0.02))
    module.trainer = SimpleNamespace(
        world_size=1, accumulate_grad_batches=1, global_rank=0, global_step=0, estimated_stepping_batches=10
    )
    vars(module.trainer).update(strategy=Ranks(), precision="32-true", **logs_each_step())
    module.log = lambda *_, **__: None
    optimizer = module.configure_optimizers()["optimizer"]
    batch = TrainRows(reader, GlobalOrder(reader.plan.num_rows, 8, seed=0), Share(), range(1))[0]
    module.on_before_backward(loss := module.training_step(tensors(batch), 0))
    loss.backward()
    whole = float(torch.nn.utils.get_total_norm([one.grad for one in module.parameters() if one.grad is not None]))
    assert whole > 0.1
    module.configure_gradient_clipping(optimizer, given, "norm")
    norm = float(torch.nn.utils.get_total_norm([one.grad for one in module.parameters() if one.grad is not None]))
    assert norm == pytest.approx(whole if wanted is None else wanted, rel=1e-3)
    with refused(where="trainer.gradient_clip_algorithm", found="'value'", expected="'norm'"):
        module.configure_gradient_clipping(optimizer, 0.01, GradClipAlgorithmType.VALUE)
