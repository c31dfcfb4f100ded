"""The settings that all trainings have are those of their stages."""

from __future__ import annotations

from pathlib import Path

import pytest

from domainbert.base.ranges import field_types
from domainbert.runner.stage_table import load_stage
from domainbert.settings.schema import SPEED_ONLY, defaults_of, marked
from domainbert.training.config import Runtime
from domainbert.training.settings import Training

OTHERWISE = {"finetune": {"micro_batch_size"}, "distill-task": {"micro_batch_size"}}
"""A labelled batch has no `auto`."""


@pytest.mark.parametrize("name", ["pretrain", "distill", "finetune", "distill-task"])
def test_every_training_stage_has_the_settings_of_a_training(name: str) -> None:
    kind = load_stage(name).settings
    for shared in defaults_of(Training):
        assert defaults_of(kind)[shared] == defaults_of(Training)[shared]
        assert (field_types(kind)[shared] == field_types(Training)[shared]) != (shared in OTHERWISE.get(name, ()))
    assert set(marked(kind, SPEED_ONLY)) - {"compile"} == set(marked(Training, SPEED_ONLY))


def test_the_runtime_is_what_the_settings_say(tmp_path: Path) -> None:
    assert Training().runtime(tmp_path) == Runtime(tmp_path, "auto", None, 0, ("jsonl", "tensorboard"), {}, None)
    settings = Training(precision="32-true", micro_batch_size=4, num_workers=1, trainer={"devices": 1}, loggers=())
    assert settings.runtime(tmp_path) == Runtime(tmp_path, "32-true", 4, 1, (), {"devices": 1})
