"""Stage functions called from Python: what they are given is read as in a YAML, and held to the settings."""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import pytest

import domainbert.stages
from domainbert.base.errors import DomainbertError, Problems
from domainbert.base.fields import PARTS, SPEED_ONLY, STREAM, PositiveInt, Seeds, field_types
from domainbert.corpus.config import CorpusConfig, Source
from domainbert.distillation.config import LossConfig
from domainbert.distillation.prediction_config import HardTargets, SoftTargets
from domainbert.encoders.bert.config import BertConfig
from domainbert.encoders.config import EncoderConfig
from domainbert.runner.stage_table import STAGES, Stage, load_stage
from domainbert.settings.reader import read_settings
from domainbert.settings.schema import defaults_of, fields_with_metadata, settings_class
from domainbert.settings.yaml_files import load_yaml
from domainbert.stages.stage import stage
from domainbert.tasks.config import TaskConfig
from domainbert.tasks.ner.config import Ner
from domainbert.training.config import Budget, OptimConfig
from tests.refusals import fact_rows, refused


@dataclass(frozen=True, kw_only=True)
class Repeated:
    """What every training has."""

    seeds: Seeds = field(default=(1,), metadata=PARTS)
    """One each."""

    steps: PositiveInt = 10
    """How long."""


@dataclass(frozen=True, kw_only=True)
class Learn(Repeated):
    """Settings of `learn`."""

    files: list[Path] = field(metadata=STREAM)
    """Files to read."""

    task: TaskConfig
    budget: Budget
    encoder: EncoderConfig | None = None
    losses: list[LossConfig] | None = None
    corpus: CorpusConfig | None = None
    optim: OptimConfig = OptimConfig(lr=1e-4)
    models: dict[str, Path] | None = field(default=None, metadata=SPEED_ONLY)

    def __post_init__(self) -> None:
        """Check what goes together."""
        if self.steps < len(self.seeds):
            raise DomainbertError(where="steps", found=self.steps, expected="one for each seed")


@stage
def learn(out: Path, settings: Learn) -> dict[str, Any]:
    """Return its arguments."""
    return vars(settings) | {"out": out}


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "b.txt"):
        Path(name).write_text("x")


def call(**changes: Any) -> dict[str, Any]:
    arguments: dict[str, Any] = {"out": "made", "files": "a.txt", "task": "Ner", "budget": {"max_steps": 5}}
    return learn(**{**arguments, **changes})


def test_text_lists_and_mappings_become_what_the_types_say() -> None:
    found = call(
        encoder="small",
        losses=["HardTargets", SoftTargets(weight=2.0)],
        corpus=["a.txt", {"path": "b.txt", "weight": 2}],
        optim={"lr": 1e-3},
        seeds=[3, 4],
        models={"x": "a.txt"},
    )
    assert found == {
        "out": Path("made"),
        "files": [Path("a.txt")],
        "task": Ner(),
        "budget": Budget(max_steps=5),
        "encoder": BertConfig(256, 4, 4, 1024, max_position_embeddings=512),
        "losses": [HardTargets(), SoftTargets(weight=2.0)],
        "corpus": CorpusConfig([Source("a.txt"), Source("b.txt", weight=2)]),
        "optim": OptimConfig(lr=1e-3),
        "seeds": (3, 4),
        "steps": 10,
        "models": {"x": Path("a.txt")},
    }
    assert Path("made").is_dir()


def test_what_has_the_right_type_already_stays_as_it_is() -> None:
    budget, optim = Budget(max_epochs=1), OptimConfig(name="muon")
    found = learn(Path("made"), files=[Path("a.txt")], task=Ner(), budget=budget, optim=optim, seeds=(5,))
    assert found["budget"] is budget and found["optim"] is optim and found["files"] == [Path("a.txt")]


def test_settings_made_in_python_are_checked_too() -> None:
    settings = Learn(files=[Path("a.txt")], task=Ner(), budget=Budget(max_epochs=1), seeds=(5, 6))
    for found in (learn("made", settings), learn(out="made", settings=settings)):
        assert found == vars(settings) | {"out": Path("made")} and found["task"] is settings.task
    with refused(where="learn: files[0]", problem="'b.doc' does not exist", expected="a file..."):
        learn("made", replace(settings, files=[Path("b.doc")]))
    with refused(where="learn: seeds", found="[]", expected="a list of one or more..."):
        learn("made", replace(settings, seeds=()))
    with refused(where="settings", found="['a.txt']", expected="Learn(...), or keywords"):
        learn("made", ["a.txt"])
    with pytest.raises(TypeError, match="unexpected keyword argument 'steps'"):
        learn("made", settings, steps=3)
    with refused(where="steps", found="1", expected="one for each seed"):
        replace(settings, steps=1)


def test_the_dataclass_says_all_of_its_settings() -> None:
    assert list(defaults_of(Learn)) == [*[one.name for one in fields(Learn)][2:], "seeds", "steps"]
    assert list(inspect.signature(learn).parameters) == ["out", *defaults_of(Learn)]
    assert [fields_with_metadata(Learn, mark) for mark in (SPEED_ONLY, STREAM, PARTS)] == [
        ["models"],
        ["files"],
        ["seeds"],
    ]
    assert settings_class(Learn) is settings_class(learn) is Learn
    assert Stage("learn", learn).parts == "seeds"


def test_required_settings_come_first_then_those_of_the_stage_itself() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Shared:
        speed: int = 1
        train: Path

    @dataclass(frozen=True, kw_only=True)
    class Own(Shared):
        speed: int = 3
        size: int = 2
        model: Path

    assert list(defaults_of(Own)) == ["model", "train", "size", "speed"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"files": "c.txt"}, "learn: files: 'c.txt' does not exist; expected a file"),
        ({"files": []}, None),
        ({"out": ""}, "out: found ''; expected a folder"),
        ({"out": None}, "out: found None; expected a folder"),
        ({"out": "~/made"}, "out: found '~/made'; expected the whole path, because only a shell expands ~"),
        ({"files": 3}, "learn: files: found 3; expected a path"),
        ({"task": "Nerr"}, "learn: task.class_path: 'Nerr' is not allowed; did you mean 'Ner'?"),
        ({"task": 5}, "learn: task: found 5; expected one of Classification, MultiLabel, Ner, "),
        ({"task": OptimConfig()}, "learn: task: found OptimConfig("),
        ({"optim": {"lr": float("nan")}}, "learn: optim.lr: found nan; expected a number above 0 and up to 1"),
        ({"seeds": []}, r"learn: seeds: found []; expected a list of one or more different items"),
        ({"seeds": "x"}, "learn: seeds: found 'x'; expected an integer from 0 to 4,294,967,295, or a list: [A, B]"),
        ({"steps": True}, "learn: steps: found True; expected an integer"),
        ({"steps": 1, "seeds": [1, 2]}, "learn: steps: found 1; expected one for each seed"),
        ({"budget": {"max_steps": 1, "max_epochs": 1}}, "learn: budget: found 2 of max_steps, max_tokens"),
        ({"optim": object()}, "learn: optim: found <object object at "),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(changes: dict[str, Any], message: str | None) -> None:
    if message is None:
        assert call(**changes)["files"] == []
        return
    with pytest.raises(DomainbertError) as error:
        call(**changes)
    assert str(error.value).startswith(message) and not Path("made").exists()
    assert "\n" not in str(error.value)


def test_an_argument_that_there_is_not_is_a_type_error_as_of_any_function() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'step'"):
        call(step=3)
    with pytest.raises(TypeError, match="missing a required argument: 'budget'"):
        learn(out="made", files="a.txt", task="Ner")


def test_what_goes_together_is_checked_with_the_file() -> None:
    Path("t.yaml").write_text("files: a.txt\ntask: Ner\nbudget: {max_steps: 1}\nseeds: [1, 2]\nsteps: 1\n")
    problems = Problems("test")
    read_settings(learn, load_yaml(Path("t.yaml")), problems)
    assert fact_rows(problems.errors) == [("t.yaml:5", "steps", "found 1", "one for each seed")]


def test_every_stage_is_held_to_its_settings() -> None:
    for name in STAGES:
        function = load_stage(name).function
        own = inspect.unwrap(function)
        assert own is not function and list(inspect.signature(own).parameters)[:2] == ["out", "settings"], name
        assert set(inspect.signature(function).parameters) - {"out"} == set(field_types(settings_class(function))), name


def test_a_stage_function_has_at_most_60_lines() -> None:
    """Signature and docstring included; a longer function is split."""
    stages = Path(domainbert.stages.__file__).parent
    found = {}
    for node in (node for file in stages.glob("*.py") for node in ast.walk(ast.parse(file.read_text("utf-8")))):
        if isinstance(node, ast.FunctionDef) and "stage" in map(ast.unparse, node.decorator_list):
            found[node.name.replace("_", "-")] = (node.end_lineno or 0) - node.lineno + 1
    assert found.keys() == STAGES.keys()
    assert not {name: lines for name, lines in found.items() if lines > 60}


def test_numbers_of_numpy_are_numbers() -> None:
    import numpy as np

    from domainbert.settings.yaml_files import to_node

    assert to_node(np.int64(3), "call").value == 3 and type(to_node(np.int64(3), "call").value) is int
    assert to_node(np.float32(0.5), "call").value == 0.5
    assert [node.value for node in to_node(np.arange(3), "call").value] == [0, 1, 2]
