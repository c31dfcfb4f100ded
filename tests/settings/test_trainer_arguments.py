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
from tests.refusals import fact_rows


def problems(name: str, value: Any) -> list[tuple[str, str, str, str]]:
    children = [Node(one, "t.yaml:2") for one in value] if isinstance(value, list) else value
    found = trainer_problems(Node({name: Node(children, "t.yaml:2")}, "t.yaml:1"), "trainer")
    return fact_rows(error.within(f"{node.where}: {key}") for node, key, error in found)


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
    ((place, where, problem, expected),) = problems(name, value)
    assert (place, where) == ("t.yaml:2", f"trainer.{name}") and problem.startswith("found ") and expected


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
    ("name", "value", "expected"),
    [
        ("strategy", "dpp", "did you mean 'ddp'?"),
        ("strategy", "ddp_spawn", f"one of {', '.join(ALLOWED_NAMES['strategy'])}"),
        ("accelerator", "gpus", "did you mean 'gpu'?"),
        ("profiler", "trace", "one of advanced, pytorch, simple"),
    ],
)
def test_a_name_that_cannot_be_used_is_told_before_anything_runs(name: str, value: str, expected: str) -> None:
    assert problems(name, value) == [("t.yaml:2", f"trainer.{name}", f"found {value!r}", expected)]


def test_the_names_are_names_of_lightning() -> None:
    from lightning.pytorch import Trainer
    from lightning.pytorch.accelerators import AcceleratorRegistry
    from lightning.pytorch.strategies import StrategyRegistry

    assert {*ALLOWED_NAMES["strategy"]} < {"auto", *StrategyRegistry.available_strategies()}
    assert {*ALLOWED_NAMES["accelerator"]} < {"auto", "gpu", *AcceleratorRegistry.available_accelerators()}
    with pytest.raises(Exception, match="it can only be one of") as refused:
        Trainer(logger=False, profiler="trace")
    assert {*ALLOWED_NAMES["profiler"]} < {*re.findall("'([a-z]+)'", str(refused.value))}


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_would_end_a_training_early_or_leave_out_batches_is_refused(name: str) -> None:
    """The budget sets the steps, the order and the learning rate, and the last step is validated."""
    ((place, where, *message),) = problems(name, 1)
    said = "; ".join(message)
    assert (place, where) == ("t.yaml:2", f"trainer.{name}") and said.startswith(REFUSED[name])
    assert "ends a training" in said or "skips batches" in said


def test_our_tables_name_arguments_of_lightning() -> None:
    ours = {*RESERVED, *REFUSED}
    assert ours | {*VALIDATED} | SPEED_ONLY <= set(trainer_arguments()) and not {*VALIDATED} & ours
