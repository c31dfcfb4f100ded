"""How a task is found: by its configuration, and by what a model folder says."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from domainbert.encoders.bert.config import BertConfig
from domainbert.labelled.formats import NerFormat
from domainbert.metrics.headline import Headline
from domainbert.models.folder import ModelFolder
from domainbert.tasks.capabilities import require_distillation_targets
from domainbert.tasks.classification.config import Classification
from domainbert.tasks.lookup import task_kind
from domainbert.tasks.multi_label.config import MultiLabel
from domainbert.tasks.ner.config import Ner
from domainbert.tasks.ner.task import NerTask
from domainbert.tasks.parsing.config import Parsing, ParsingFormat
from domainbert.tasks.regression.config import Regression
from domainbert.tasks.task import task_class, task_from_model_folder
from tests.refusals import refused

CONFIG = """\
from dataclasses import dataclass
from domainbert.tasks.ner.config import Ner

@dataclass(frozen=True)
class Keyphrases(Ner):
    format_detector = None  # `init` does not suggest it: the class exists until the process ends
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    """Configurations in folders of a package, one of them with a task."""
    for folder in ("keyphrases", "lone", "empty"):
        (tmp_path / "own" / folder).mkdir(parents=True)
        (tmp_path / "own" / folder / "__init__.py").write_text("")
        (tmp_path / "own" / folder / "config.py").write_text(CONFIG)
    (tmp_path / "own" / "__init__.py").write_text("")
    task = "from domainbert.tasks.ner.task import NerTask\n\nclass KeyphrasesTask(NerTask):\n    pass\n"
    (tmp_path / "own" / "keyphrases" / "task.py").write_text(task)
    (tmp_path / "own" / "empty" / "task.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    return {name: importlib.import_module(f"own.{name}.config") for name in ("keyphrases", "lone", "empty")}


def test_a_task_of_ones_own_is_the_class_of_that_name_beside_its_configuration(own: dict[str, ModuleType]) -> None:
    found = task_class(own["keyphrases"].Keyphrases)
    assert issubclass(found, NerTask) and found(["O"]).name == own["keyphrases"].Keyphrases().name == "keyphrases"
    with refused(where="Keyphrases", problem="no module own.lone.task"):
        task_class(own["lone"].Keyphrases)
    with refused(where="own.empty.task", problem="no class KeyphrasesTask"):
        task_class(own["empty"].Keyphrases)
    assert task_class(Ner) is NerTask


def test_a_model_folder_says_which_task_it_is_for(own: dict[str, ModuleType]) -> None:
    assert task_kind("tokens", {"domainbert_task": "keyphrases"}) is own["keyphrases"].Keyphrases
    with refused(where="domainbert_task", found="'pico'"):
        task_kind("tokens", {"domainbert_task": "pico"})
    with refused(where="domainbert_task", found="\"['ner']\""):
        task_kind("tokens", {"domainbert_task": ["ner"]})


@pytest.mark.parametrize(
    ("fields", "file", "where", "problem", "expected"),
    [
        ({"domainbert_task": "pico"}, "model/config.json", "domainbert_task", "found 'pico'", "one of..."),
        (
            {"domainbert_task": "multi_label", "domainbert_threshold": 2.0},
            "model/config.json",
            "domainbert_threshold",
            "...",
            "...",
        ),
        ({"problem_type": "regression"}, "model", "...", "no trained task head", "a model that..."),
    ],
)
def test_what_is_wrong_with_a_folder_is_said_with_its_path(
    fields: dict[str, Any], file: str, where: str, problem: str, expected: str
) -> None:
    with refused(file=file, where=where, problem=problem, expected=expected):
        task_from_model_folder(ModelFolder(Path("model"), BertConfig(), 100, "sequence", ("a", "b"), fields))


def test_two_tasks_of_one_name_are_refused(own: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of the one would be loaded as one of the other."""
    monkeypatch.setattr(own["lone"].Keyphrases, "__module__", "own.ner.config")
    with refused(where="own.ner.config", found="the folder name 'ner', which domainbert.tasks..."):
        task_kind("tokens", {})


@pytest.mark.parametrize(
    ("head", "fields", "wanted"),
    [
        ("tokens", {"id2label": {"0": "O", "1": "B-gene", "2": "X"}}, Ner),
        ("crf", {"domainbert_head": "crf", "id2label": {"0": "O", "1": "I-gene"}}, Ner),
        ("tokens", {"id2label": {"0": "NOUN", "1": "VERB"}}, None),
        ("tokens", {}, None),
        ("sequence", {}, Classification),
        ("sequence", {"problem_type": "single_label_classification"}, Classification),
        ("sequence", {"id2label": {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}}, Classification),
        ("sequence", {"problem_type": "multi_label_classification", "id2label": {"0": "LABEL_0"}}, MultiLabel),
        ("sequence", {"problem_type": "regression"}, None),
        ("sequence", {"id2label": {"0": "LABEL_0"}}, Regression),
        ("sequence", {"problem_type": "regression", "id2label": {"0": "score"}}, Regression),
        ("masked_lm", {}, None),
        (None, {}, None),
    ],
)
def test_a_folder_from_elsewhere_is_for_the_task_that_adopts_it(
    head: str | None, fields: dict[str, Any], wanted: type | None
) -> None:
    assert task_kind(head, fields) is wanted


def test_a_task_without_teaching_has_no_losses_on_predictions(
    own: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    task = task_class(own["keyphrases"].Keyphrases)(["O"])
    assert require_distillation_targets(task) is NerTask.distillation_targets
    monkeypatch.setattr(type(task), "distillation_targets", None)
    with refused(where="losses", problem="KeyphrasesTask has no `distillation_targets`"):
        require_distillation_targets(task)


def test_less_of_a_headline_may_be_better() -> None:
    error = Headline("mae", "error", "minimize", percent=False)
    assert error.best([0.5, 0.25, 0.25]) == 1 and Headline("f1", "F1").best([0.5, 0.25, 0.5]) == 0
    for headline in (error, Headline("f1", "F1")):
        assert headline.best([float("nan"), 0.5, float("nan")]) == 1
        assert headline.is_better(0.5, headline.worst) and not headline.is_better(float("nan"), headline.worst)
    assert error.monitor == "validation/mae"


def test_a_format_may_be_a_mapping_as_in_a_yaml() -> None:
    assert Ner(format={"repair": True}) == Ner(NerFormat(repair=True))  # type: ignore[arg-type]
    by_year = Classification(format={"slice_keys": ["year"]}, mean_over="year")  # type: ignore[arg-type]
    assert by_year.slice_keys == ("year",)
    assert Parsing(format={"subtypes": False}).format == ParsingFormat(subtypes=False)  # type: ignore[arg-type]
    with refused(where="NerFormat", found="the key 'repare'"):
        Ner(format={"repare": True})  # type: ignore[arg-type]
