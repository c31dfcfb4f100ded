from __future__ import annotations

import re
from typing import Any

import pytest

from domainbert.settings.trainer_arguments import (
    ALLOWED_NAMES,
    REFUSED,
    RESERVED,
    SPEED_ONLY,
    VALIDATED,
    trainer_arguments,
    trainer_problems,
)
from domainbert.settings.yaml_files import Node


def problems(name: str, value: Any) -> list[str]:
    children = [Node(one, "t.yaml:2") for one in value] if isinstance(value, list) else value
    found = trainer_problems(Node({name: Node(children, "t.yaml:2")}, "t.yaml:1"), "trainer")
    return [f"{node.where}: {key}: {message}" for node, key, message in found]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("devices", value) for value in ("a", 0, -2, [], [-1], [1, 1], "0", "x,1", 1e9, 1.5, True, [True])),
        *(("num_nodes", value) for value in (0, -1, 1.5, "two", 10**9, None)),
        *(("log_every_n_steps", value) for value in (-1, 0.5, "often")),
        *((switch, "maybe") for switch in ("benchmark", "detect_anomaly", "deterministic")),
        *(("limit_test_batches", value) for value in (-1, float("nan"), float("inf"), 1e12)),
    ],
)
def test_values_that_lightning_would_refuse_or_that_make_no_sense(name: str, value: Any) -> None:
    (problem,) = problems(name, value)
    assert problem.startswith(f"t.yaml:2: trainer.{name}: found ") and "; expected " in problem


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("devices", value) for value in (1, -1, 8, "auto", "2", "-1", "0,1", "0,", [0], [0, 3], None)),
        ("num_nodes", 2),
        ("log_every_n_steps", 0),
        ("limit_test_batches", 0.5),
        ("benchmark", True),
        ("deterministic", "warn"),
    ],
)
def test_values_that_may_stand(name: str, value: Any) -> None:
    assert problems(name, value) == []


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("strategy", "dpp", "found 'dpp'; did you mean 'ddp'?"),
        ("accelerator", "gpus", "found 'gpus'; did you mean 'gpu'?"),
        (
            "profiler",
            "trace",
            "found 'trace'; expected one of advanced, pytorch, simple, xla",
        ),
    ],
)
def test_a_name_that_lightning_does_not_know_is_told_before_anything_runs(name: str, value: str, message: str) -> None:
    assert problems(name, value) == [f"t.yaml:2: trainer.{name}: {message}"]


def test_the_names_are_those_of_lightning() -> None:
    from lightning.pytorch import Trainer
    from lightning.pytorch.accelerators import AcceleratorRegistry
    from lightning.pytorch.strategies import StrategyRegistry

    assert {*ALLOWED_NAMES["strategy"]} == {"auto", *StrategyRegistry.available_strategies()}
    assert {*ALLOWED_NAMES["accelerator"]} == {"auto", "gpu", *AcceleratorRegistry.available_accelerators()}
    with pytest.raises(Exception, match="it can only be one of") as refused:
        Trainer(logger=False, profiler="trace")
    assert {*ALLOWED_NAMES["profiler"]} == {*re.findall("'([a-z]+)'", str(refused.value))}


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_would_end_a_training_early_or_leave_out_batches_is_refused(name: str) -> None:
    """The steps, the order and the learning rate are those of the budget, and the last step is validated."""
    (problem,) = problems(name, 1)
    assert problem == f"t.yaml:2: trainer.{name}: {REFUSED[name]}" and (
        " ends " in problem or " skips batches" in problem
    )


def test_our_tables_name_arguments_of_lightning() -> None:
    ours = {*RESERVED, *REFUSED}
    assert ours | {*VALIDATED} | SPEED_ONLY <= set(trainer_arguments()) and not {*VALIDATED} & ours
