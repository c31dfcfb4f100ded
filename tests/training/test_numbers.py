from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from torch import Tensor, nn

from domainbert.base.errors import DomainbertError, TrainingFailed, TrainingStopped
from domainbert.base.process import StopSignals
from domainbert.encoders.bert.config import BertConfig
from domainbert.encoders.config import VocabularyFacts
from domainbert.encoders.families import build_model
from domainbert.training.checkpoint_files import FOLDER, newest_checkpoint
from domainbert.training.checkpoints import Checkpoints
from domainbert.training.config import OptimConfig, ScheduleConfig
from domainbert.training.module import TrainedModule
from domainbert.training.number_watch import NumberWatch
from domainbert.training.trainer import build_trainer
from tests.ready_made import ReadyBatches, no_tokenizer
from tests.tiny_training import cpu_training

NAN, INF = float("nan"), float("inf")
NUM_STEPS = 8
OPTIMISERS = {"adamw": OptimConfig(lr=1e-2, max_grad_norm=1.0), "muon": OptimConfig("muon", lr=1e-2)}


class Scaled(TrainedModule):
    """The loss is the mean square of all weights times `scale`, plus `offset`; `bad_gradient` spoils one gradient."""

    tokenizer = no_tokenizer()

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        squares = torch.stack([parameter.square().mean() for parameter in self.model.parameters()])
        loss = self.record_loss(squares.mean() * batch["scale"] + batch["offset"])
        return loss + _WithGradient.apply(next(self.model.encoder.layers.parameters()), batch["bad_gradient"])


class _WithGradient(torch.autograd.Function):
    """Nothing forward, the given value backward."""

    @staticmethod
    def forward(context: Any, weight: Tensor, value: Tensor) -> Tensor:
        context.save_for_backward(weight, value)
        return torch.zeros(())

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        weight, value = context.saved_tensors
        return torch.full_like(weight, float(value)), None


class Watched(lightning.Callback):
    """Weights and optimiser states after every step (from 1), and before the first."""

    def __init__(self) -> None:
        self.states: dict[int, Any] = {}

    def on_train_start(self, trainer: lightning.Trainer, module: Any) -> None:
        self.states[trainer.global_step] = self._state(trainer, module)

    def on_train_batch_end(self, trainer: lightning.Trainer, module: Any, *_: Any) -> None:
        self.states[trainer.global_step] = self._state(trainer, module)

    @staticmethod
    def _state(trainer: lightning.Trainer, module: Any) -> Any:
        return copy.deepcopy((module.state_dict(), trainer.optimizers[0].state_dict()))


def micro_batches(num_steps: int, accumulation: int, **changes: dict[int, float]) -> list[dict[str, Any]]:
    """Micro-batches of loss weight 1 a step; a change names a key and its values by number of micro-batch."""
    found = []
    for number in range(num_steps * accumulation):
        values = {"scale": 1 / accumulation, "offset": 0.0, "bad_gradient": 0.0}
        values |= {key: by_number[number] for key, by_number in changes.items() if number in by_number}
        tensors = {key: torch.tensor(value) for key, value in values.items()}
        tensors |= {key: torch.ones(1, 1, dtype=torch.int64) for key in ("input_ids", "segment_ids")}
        tensors |= {key: torch.zeros(1, dtype=torch.int64) for key in ("texts", "positions")}
        found.append(tensors | {"step": number // accumulation, "micro_batch": number % accumulation})
    return found


@pytest.fixture
def fit(tmp_path: Path, one_thread: None) -> Callable[..., tuple[Scaled, NumberWatch, Watched, lightning.Trainer]]:
    def train(
        optim: str = "adamw",
        num_steps: int = NUM_STEPS,
        accumulation: int = 1,
        checkpoints: bool = False,
        resumes: bool = False,
        **changes: dict[int, float],
    ) -> tuple[Scaled, NumberWatch, Watched, lightning.Trainer]:
        torch.manual_seed(0)
        config = BertConfig(8, 1, 2, 16, max_position_embeddings=8)
        model = build_model(config, VocabularyFacts(16, 0), "masked_lm")
        module = Scaled(OPTIMISERS[optim], ScheduleConfig(warmup_steps=2), seed=0)
        module.model, module.others = model, nn.ModuleDict()
        numbers, watched = NumberWatch(tmp_path, lambda step: {"rows": [10 * step, 10 * step + 1]}), Watched()
        callbacks = [numbers, watched, *([Checkpoints(tmp_path, every=1)] if checkpoints else [])]
        trainer = build_trainer(cpu_training(4 // accumulation), tmp_path, num_steps, 4, 10_000, callbacks)
        batches: Any = micro_batches(num_steps, accumulation, **changes)
        data = ReadyBatches(lambda share, steps: batches[steps.start * accumulation :], [], num_steps, batch_size=4)
        newest = newest_checkpoint(tmp_path / FOLDER, print) if resumes else None
        trainer.fit(module, datamodule=data, ckpt_path=newest and newest.file, weights_only=True)
        return module, numbers, watched, trainer

    return train


def same(one: Any, other: Any) -> bool:
    """Equal to the bit, all the way down."""
    if isinstance(one, Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def without_rates(optimizer: dict[str, Any]) -> Any:
    """An optimiser's state without the learning rates, which the schedule goes on with."""
    states = optimizer.get("optimizers", [optimizer])
    return [state["state"] for state in states]


BAD: dict[str, dict[str, dict[int, float]]] = {
    "loss NaN": {"offset": {4: NAN}},
    "loss inf": {"offset": {4: INF}},
    "loss inf and gradient NaN": {"scale": {4: INF}},
    "gradient inf": {"bad_gradient": {4: INF}},
    "gradient NaN": {"bad_gradient": {4: NAN}},
}


@pytest.mark.parametrize("optim", OPTIMISERS)
@pytest.mark.parametrize("bad", BAD)
def test_a_step_that_is_not_finite_changes_neither_weights_nor_optimiser(
    fit: Any, capsys: pytest.CaptureFixture[str], optim: str, bad: str
) -> None:
    _, numbers, watched, trainer = fit(optim, **BAD[bad])
    assert numbers.skipped_steps == [5] and trainer.global_step == NUM_STEPS
    what = bad.partition(" ")[0]
    assert f"warning: step 5 is skipped: NaN or infinite values in {what}\n" in capsys.readouterr().out
    for step in range(1, NUM_STEPS + 1):
        (weights, optimizer), (weights_before, optimizer_before) = watched.states[step], watched.states[step - 1]
        stays = same(weights, weights_before), same(without_rates(optimizer), without_rates(optimizer_before))
        assert stays == (step == 5, step == 5)
    assert all(tensor.isfinite().all() for tensor in watched.states[NUM_STEPS][0].values())
    rates = [state[1] for state in watched.states.values()]
    assert not same(rates[4], rates[5]), "the schedule goes on"


def test_a_skipped_step_does_not_count_for_the_optimiser(fit: Any) -> None:
    _, _, watched, _ = fit(offset={4: NAN})
    made = [watched.states[step][1]["state"][0]["step"] for step in range(1, NUM_STEPS + 1)]
    assert made == [1, 2, 3, 4, 4, 5, 6, 7], "what bias correction goes by"


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The optimiser gets the steps to skip on the device, and numbers are not read between logged steps."""
    monkeypatch.setattr("domainbert.training.optimisers._on_one_gpu", lambda parameter: True)
    monkeypatch.setattr("domainbert.training.number_watch.can_read_without_waiting", lambda trainer, value: False)


@pytest.mark.parametrize("optim", OPTIMISERS)
@pytest.mark.parametrize("bad", BAD)
def test_a_gpu_that_nobody_waits_for_gives_the_same(
    fit: Any, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str], optim: str, bad: str
) -> None:
    _, wanted, states, _ = fit(optim, **BAD[bad])
    said = capsys.readouterr().out
    request.getfixturevalue("as_on_a_gpu")
    _, numbers, watched, _ = fit(optim, **BAD[bad])
    assert numbers.state_dict() == wanted.state_dict() and numbers.skipped_steps == [5]
    assert [line for line in capsys.readouterr().out.splitlines() if "warning" in line] == [
        line for line in said.splitlines() if "warning" in line
    ]
    for step, (weights, optimizer) in states.states.items():
        assert same(watched.states[step][0], weights), step
        if step:
            assert same(without_rates(watched.states[step][1]), without_rates(optimizer)), step


def test_a_gpu_skips_the_first_step_too(fit: Any, as_on_a_gpu: None) -> None:
    _, numbers, watched, _ = fit(offset={0: NAN})
    assert numbers.skipped_steps == [1] and same(watched.states[1][0], watched.states[0][0])
    assert [watched.states[step][1]["state"][0]["step"] for step in (1, 2, NUM_STEPS)] == [0, 1, NUM_STEPS - 1]


def test_a_gpu_that_is_looked_at_later_ends_the_training_nevertheless(
    fit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_on_a_gpu: None
) -> None:
    message = r"steps 3 to 5: loss or gradient was not finite 3 times in a row"
    with pytest.raises(TrainingFailed, match=message):  # at the end of the training
        fit(offset=dict.fromkeys((2, 3, 4), NAN))
    monkeypatch.setattr("domainbert.training.number_watch._MAX_UNREAD", 6)
    with pytest.raises(TrainingFailed, match=message):
        fit(num_steps=30, offset=dict.fromkeys(range(2, 30), NAN))
    assert [one["step"] for one in json.loads((tmp_path / "non_finite.json").read_text())] == [3, 4, 5]


def test_a_checkpoint_knows_of_the_steps_that_were_not_looked_at(fit: Any, as_on_a_gpu: None) -> None:
    _, numbers, _, _ = fit(checkpoints=True, offset={4: NAN})
    assert numbers.skipped_steps == [5] and not numbers._unread


@pytest.mark.parametrize("optim", OPTIMISERS)
def test_a_checkpoint_after_a_skipped_first_step_changes_nothing(fit: Any, optim: str) -> None:
    whole = fit(optim, offset={0: NAN})[2].states[NUM_STEPS]
    saved = fit(optim, offset={0: NAN}, checkpoints=True)[2].states[NUM_STEPS]
    assert same(saved[0], whole[0])


@pytest.mark.parametrize("number", range(4, 8))
@pytest.mark.parametrize("key", ["offset", "bad_gradient"])
def test_one_bad_micro_batch_skips_its_whole_step(fit: Any, number: int, key: str) -> None:
    _, numbers, watched, _ = fit(num_steps=4, accumulation=4, **{key: {number: NAN}})
    assert numbers.skipped_steps == [2]
    stays = [same(watched.states[step][0], watched.states[step - 1][0]) for step in range(1, 5)]
    assert stays == [False, True, False, False]


def test_three_in_a_row_end_the_training_and_name_what_was_in_them(fit: Any, tmp_path: Path) -> None:
    message = rf"loss or gradient was not finite 3 times in a row \(loss, gradient\); {tmp_path}/non_finite.json lists"
    with pytest.raises(TrainingFailed, match=message) as raised:
        fit(offset=dict.fromkeys((2, 3), NAN), bad_gradient={4: NAN})
    assert isinstance(raised.value, DomainbertError) and str(raised.value).startswith("steps 3 to 5: ")
    assert json.loads((tmp_path / "non_finite.json").read_text()) == [
        {"step": step, "not_finite": [what], "rows": [10 * step - 10, 10 * step - 9]}
        for step, what in ((3, "loss"), (4, "loss"), (5, "gradient"))
    ]


def in_parts(module: Scaled, batch: dict[str, Any], batch_idx: int) -> Tensor:
    """A training step of two terms: the weights' squares times `scale`, and `offset`."""
    squares = torch.stack([parameter.square().mean() for parameter in module.model.parameters()]).mean()
    terms = {"squares": squares * batch["scale"], "shift": squares * 0 + batch["offset"]}
    return module.record_loss(terms["squares"] + terms["shift"], terms)


@pytest.mark.parametrize("looked_at_later", [False, True])
def test_the_terms_that_are_not_finite_are_named(
    fit: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    looked_at_later: bool,
) -> None:
    """One, the other, both, and neither where their sum alone is not; in one of two micro-batches of the step."""
    if looked_at_later:
        request.getfixturevalue("as_on_a_gpu")
    monkeypatch.setattr(Scaled, "training_step", in_parts)
    most = torch.finfo(torch.float32).max
    changes = {"scale": {1: INF, 8: NAN, 12: 1e38}, "offset": {4: NAN, 9: INF, 12: most}}
    _, numbers, _, _ = fit(accumulation=2, **changes)
    assert dict(zip(numbers.skipped_steps, numbers.not_finite, strict=True)) == {
        1: ["squares"],
        3: ["shift"],
        5: ["squares", "shift"],
        7: ["loss"],
    }
    assert "warning: step 5 is skipped: NaN or infinite values in squares, shift\n" in capsys.readouterr().out


def test_five_with_a_finite_one_between_do_not(fit: Any, tmp_path: Path) -> None:
    _, numbers, _, trainer = fit(offset=dict.fromkeys((1, 2, 4, 5, 7), NAN))
    assert numbers.skipped_steps == [2, 3, 5, 6, 8] and trainer.global_step == NUM_STEPS
    assert not (tmp_path / "non_finite.json").exists()


def stop_after(module: type[TrainedModule], step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real = module.on_train_batch_start

    def begin(self: TrainedModule, batch: dict[str, Any], batch_idx: int) -> None:
        if batch["step"] == step - 1:
            StopSignals.received = 15
        real(self, batch, batch_idx)

    monkeypatch.setattr(module, "on_train_batch_start", begin)


@pytest.mark.parametrize("optim", OPTIMISERS)
def test_skipped_steps_are_counted_over_an_interruption(
    fit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, optim: str
) -> None:
    """Two bad steps before and one after the interruption are three in a row; fewer give the same weights."""
    bad = dict.fromkeys((3, 4), NAN)
    whole = fit(optim, offset=bad)[2].states[NUM_STEPS]
    with monkeypatch.context() as patch, pytest.raises(TrainingStopped):
        stop_after(Scaled, 5, patch)
        fit(optim, checkpoints=True, offset=bad)
    with pytest.raises(TrainingFailed, match=r"steps 4 to 6: .* 3 times in a row"):
        fit(optim, checkpoints=True, resumes=True, offset=bad | {5: NAN})
    _, numbers, watched, _ = fit(optim, checkpoints=True, resumes=True, offset=bad)
    assert numbers.skipped_steps == [4, 5] and min(watched.states) == 5
    assert same(watched.states[NUM_STEPS][0], whole[0])
    assert same(without_rates(watched.states[NUM_STEPS][1]), without_rates(whole[1]))


def feed(numbers: NumberWatch, losses: Iterable[float], first: int = 1) -> None:
    for step, loss in enumerate(losses, first):
        numbers._record_loss(step, loss)


def noisy(count: int) -> list[float]:
    """Mean 4, standard deviation 0.1."""
    return [4.1, 3.9] * (count // 2)


@pytest.fixture
def numbers(tmp_path: Path) -> NumberWatch:
    return NumberWatch(tmp_path, lambda step: {})


def test_a_sudden_rise_is_told_once(numbers: NumberWatch, capsys: pytest.CaptureFixture[str]) -> None:
    feed(numbers, [*noisy(150), 4.5, 4.1, 4.7, *noisy(50)])
    assert numbers.loss_spikes == [153]
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("warning: step 153: the loss jumped to 4.700 (4.00")


def test_a_rise_that_stays_is_told_for_three_steps(numbers: NumberWatch) -> None:
    feed(numbers, [*noisy(200), *(9.0 + noise for noise in noisy(200))])
    assert numbers.loss_spikes == [201, 202, 203]


def test_the_first_hundred_steps_and_a_fall_are_no_spikes(numbers: NumberWatch) -> None:
    feed(numbers, [*noisy(98), 4.0, 100.0])
    assert numbers.loss_spikes == []
    other = NumberWatch(numbers.file.parent, lambda step: {})
    feed(other, [10.0 * math.exp(-step / 50) for step in range(400)])
    feed(other, [1e-9] * 10, first=401)
    assert other.loss_spikes == []


def test_losses_of_other_terms_have_averages_of_their_own(numbers: NumberWatch) -> None:
    """A step in fifty has another loss, which is higher: no spike, but where it jumps among its own."""
    for step in range(1, 7001):
        rare = step % 50 == 0
        noise = 0.1 * (-1) ** (step // 50 if rare else step)
        loss = 4.0 + 5.0 * rare + noise + 2.0 * (step in (6000, 6001))
        numbers._record_loss(step, loss, "rare" if rare else "usual")
    assert numbers.loss_spikes == [6000, 6001] and {name: one[0] for name, one in numbers.averages.items()} == {
        "usual": 6860,
        "rare": 140,
    }


def test_averages_go_over_an_interruption(numbers: NumberWatch, tmp_path: Path) -> None:
    feed(numbers, noisy(120))
    other = NumberWatch(tmp_path, lambda step: {})
    other.load_state_dict(copy.deepcopy(numbers.state_dict()))
    for one in (numbers, other):
        feed(one, [4.2, 9.0, 3.8], first=121)
    assert numbers.state_dict() == other.state_dict() and other.loss_spikes == [122]
