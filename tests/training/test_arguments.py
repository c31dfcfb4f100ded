"""Settings of modules and data modules: declared once, for the constructor and for the stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from domainbert.base.fields import field_types
from domainbert.distillation.module_config import (
    DistillationSettings,
    TaskDistillationSettings,
    TransferDataSettings,
)
from domainbert.distillation.student_config import StudentConfig
from domainbert.encoders.bert.config import BertConfig
from domainbert.pretraining.config import PretrainingSettings
from domainbert.runner.stage_table import load_stage
from domainbert.settings.schema import defaults_of
from domainbert.stages.finetune import Finetune
from domainbert.tasks.finetuning_config import FineTuningSettings, LabelledDataSettings
from domainbert.tasks.ner.config import Ner
from domainbert.training.config import CorpusDataSettings, OptimConfig
from domainbert.training.length_phases import LengthPhase
from tests.refusals import refused


@pytest.mark.parametrize(
    ("stage", "settings"),
    [
        ("pretrain", [PretrainingSettings, CorpusDataSettings]),
        ("distill", [DistillationSettings, CorpusDataSettings]),
        ("finetune", [FineTuningSettings, LabelledDataSettings]),
        ("distill-task", [TaskDistillationSettings, TransferDataSettings]),
    ],
)
def test_a_stage_has_the_settings_and_defaults_of_its_module_and_data(stage: str, settings: list[Any]) -> None:
    of_stage = defaults_of(load_stage(stage).settings)
    for cls in settings:
        defaults = {name: getattr(cls(), name) for name in field_types(cls)}
        assert {"optim", "dropout"} <= defaults.keys() or {"batch_size", "num_workers"} <= defaults.keys()
        assert {name: of_stage[name] for name in defaults} == defaults


def test_settings_of_a_stage_and_keywords_give_the_settings_of_a_module() -> None:
    path = Path("a")
    stage = Finetune(model=path, task=Ner(), train=path, validation=path, dropout=0.3, max_length=64, batch_size=8)
    assert FineTuningSettings.of(stage, max_length=16) == FineTuningSettings(dropout=0.3, max_length=16)
    assert LabelledDataSettings.of(stage) == LabelledDataSettings(batch_size=8, max_length=64)
    assert FineTuningSettings.of(None) == FineTuningSettings()


def test_plain_values_of_a_checkpoint_are_converted() -> None:
    bert = {"class_path": "BertConfig", "init_args": {"hidden_size": 48}}
    settings = FineTuningSettings.of({"optim": {"lr": 1e-3}}, init="random", encoder=bert)
    assert settings == FineTuningSettings(optim=OptimConfig(lr=1e-3), init="random", encoder=BertConfig(hidden_size=48))
    assert DistillationSettings.of(None, student={"first_layers": 2}).student == StudentConfig(first_layers=2)
    lengths = CorpusDataSettings.of(None, max_length=[{"length": 32, "until": 0.5}, LengthPhase(64)]).max_length
    assert lengths == (LengthPhase(32, 0.5), LengthPhase(64))


@pytest.mark.parametrize(
    ("keywords", "where", "found", "expected"),
    [
        ({"dropout": 1.0}, "dropout", "1.0", "a number from 0 to below 1 or null"),
        ({"frozen_layers": "2"}, "frozen_layers", "'2'", "an integer from 0 to 1,000,000,000 or null"),
        ({"optim": 3}, "optim", "3", "an instance of OptimConfig"),
        ({"encoder": BertConfig()}, "encoder", "with init: pretrained", "remove it, or set init: random"),
    ],
)
def test_a_wrong_value_is_refused(keywords: dict[str, Any], where: str, found: str, expected: str) -> None:
    with refused(where=where, found=found, expected=expected):
        FineTuningSettings.of(None, **keywords)


def test_settings_of_another_module_and_unknown_names_are_refused() -> None:
    with refused(where="settings", found="Optim...", expected="an instance of..."):
        FineTuningSettings.of(OptimConfig())
    with pytest.raises(TypeError, match="unexpected keyword argument 'learning_rate'"):
        FineTuningSettings.of(None, learning_rate=1.0)
