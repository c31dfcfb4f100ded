"""The settings that all trainings have."""

from __future__ import annotations

from pathlib import Path

from domainbert.training.config import Runtime, Training


def test_the_runtime_is_what_the_settings_say(tmp_path: Path) -> None:
    assert Training().runtime(tmp_path) == Runtime(tmp_path, "auto", None, None, ("jsonl", "tensorboard"), {}, None)
    settings = Training(precision="32-true", micro_batch_size=4, num_workers=1, trainer={"devices": 1}, loggers=())
    assert settings.runtime(tmp_path) == Runtime(tmp_path, "32-true", 4, 1, (), {"devices": 1})
