from __future__ import annotations

import math

import pytest
import torch

from domainbert.training.config import ScheduleConfig
from domainbert.training.optimisers import build_schedule, lr_factor, warmup_steps
from tests.refusals import refused


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        (ScheduleConfig("linear", warmup_steps=3), [1 / 4, 2 / 4, 3 / 4, 1, 6 / 7, 5 / 7, 4 / 7, 3 / 7, 2 / 7, 1 / 7]),
        (ScheduleConfig("linear", warmup_steps=0, min_lr_ratio=0.5), [1 - 0.05 * step for step in range(10)]),
        (
            ScheduleConfig("cosine", warmup_steps=2),
            [1 / 3, 2 / 3, *((1 + math.cos(math.pi * step / 8)) / 2 for step in range(8))],
        ),
        (
            ScheduleConfig("wsd", warmup_fraction=0.1, decay_fraction=0.4, min_lr_ratio=0.1),
            [1 / 2, *[1] * 5, 1, 0.1 + 0.9 * 0.5, 0.1 + 0.9 * (1 - math.sqrt(0.5)), 0.1 + 0.9 * (1 - math.sqrt(0.75))],
        ),
        (ScheduleConfig("constant", warmup_fraction=0.2), [1 / 3, 2 / 3, *[1] * 8]),
    ],
    ids=lambda value: value.name if isinstance(value, ScheduleConfig) else "",
)
def test_golden_values(config, wanted):
    assert [lr_factor(step, 10, config) for step in range(10)] == pytest.approx(wanted, abs=1e-12)

    parameters = [torch.nn.Parameter(torch.zeros(1)), torch.nn.Parameter(torch.zeros(1))]
    optimizer = torch.optim.SGD([{"params": [p], "lr": lr} for p, lr in zip(parameters, (2.0, 0.5), strict=True)])
    schedule = build_schedule(optimizer, config, 10)
    found = []
    for _ in range(10):
        found.append([group["lr"] for group in optimizer.param_groups])
        optimizer.step()
        schedule.step()
    assert found == [pytest.approx([2 * factor, 0.5 * factor]) for factor in wanted]


def test_a_decay_begins_behind_the_warm_up():
    config = ScheduleConfig("wsd", warmup_steps=6, decay_fraction=0.9)
    factors = [lr_factor(step, 10, config) for step in range(10)]
    assert factors[:7] == pytest.approx([*(step / 7 for step in range(1, 7)), 1])
    assert factors[7:] == pytest.approx([1 - math.sqrt(step / 4) for step in (1, 2, 3)])
    with refused(where="decay_fraction", found="0.9 with warmup_fraction: 0.3", expected="a sum of at..."):
        ScheduleConfig("wsd", warmup_fraction=0.3, decay_fraction=0.9)


def test_steps_of_warm_up():
    assert warmup_steps(ScheduleConfig(warmup_fraction=0.06), 1_000) == 60
    assert warmup_steps(ScheduleConfig(warmup_steps=7, warmup_fraction=0.5), 1_000) == 7
    assert warmup_steps(ScheduleConfig(warmup_steps=0), 1) == 0
    with refused(where="schedule.warmup_steps", found="1,000 warm-up steps", expected="fewer than the 1,000..."):
        warmup_steps(ScheduleConfig(warmup_steps=1_000), 1_000)


@pytest.mark.parametrize("name", ["warmup_fraction", "decay_fraction", "min_lr_ratio"])
@pytest.mark.parametrize("value", [-0.1, 1.5])
def test_shares_that_make_no_sense(name, value):
    with refused(where=name, found=value, expected="a number from 0 to 1"):
        ScheduleConfig(**{name: value})
