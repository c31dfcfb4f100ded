"""Automatic checks of a recipe before its first training: see docs/reference/checks.md."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

from domainbert.base.fields import renamed_fields
from domainbert.settings.yaml_files import Node
from domainbert.stages.check import Check

_UNLABELLED_TRAININGS = ("pretrain", "distill")
_LABELLED_TRAININGS = ("finetune", "distill-task")
_TRAININGS = (*_UNLABELLED_TRAININGS, *_LABELLED_TRAININGS)
_MAX_CHARACTERS = 50_000_000  # characters of the corpus to read, in less than a minute for a corpus of any size
REFERENCE = re.compile(r"@([\w-]+)(/.*)?")
"""Text in the YAML of a recipe that is replaced by the folder of an earlier stage, or by a path in it."""


@dataclass(frozen=True)
class RecipeStage:
    """Stage of a recipe: the name of the stage function, its YAML node and its settings."""

    function: str
    node: Node
    settings: Any


@dataclass(frozen=True)
class ImpliedCheck:
    """Automatic check of a recipe."""

    name: str
    next_stage: str
    """Name of the stage before which the check runs."""
    node: Node
    """Settings of the check."""
    trainings: frozenset[str]
    """Names of the trainings that need the check."""


class _GroupKey(NamedTuple):
    task: type
    reading: str  # settings of the task that affect how labelled files are read
    train: str
    validation: str


@dataclass
class _Group:
    """Trainings on the same labelled sets, and the test sets that score them, all read with the same settings."""

    stages: list[str]  # names of the trainings
    node: Node  # settings of the first training
    tests: list[Node] = field(default_factory=list)


def implied_checks(stages: Mapping[str, RecipeStage], check_settings: Node | None) -> Iterator[ImpliedCheck]:
    """Yield the automatic checks of a recipe.

    A recipe gets a check for each task with its labelled sets, or a check of the corpus if it has no labelled sets. A
    recipe with a stage `check`, or without training, gets no automatic check. The check compares the test set with the
    other sets before the training; the training itself never opens the test set. It runs before the first training of
    the recipe or, if it reads output of that training or a later stage, before the first training on its labelled sets.

    `check_settings` are the settings of all checks, from the key `check` of the recipe; `check: false` disables them.
    """
    training = next((name for name, stage in stages.items() if stage.function in _TRAININGS), None)
    disabled = check_settings is not None and check_settings.value is False
    if disabled or training is None or any(stage.function == "check" for stage in stages.values()):
        return
    stages_before = list(stages)[: list(stages).index(training)]
    overrides = {} if check_settings is None else check_settings.value
    overridden = {renamed_fields(Check).get(name) for name in overrides}  # by a setting under its old name
    corpus_settings = {
        name: node for name, node in _corpus_settings(stages, stages_before).items() if name not in overridden
    }
    groups, names = _group_trainings(stages), set(stages)
    for group in groups:
        name = _unused_name("check" if len(groups) == 1 else f"check-{group.stages[0]}", names)
        names.add(name)
        node = Node(corpus_settings | _labelled_settings(group, stages_before) | overrides, group.node.where)
        next_stage = training if stages_in(node).issubset(stages_before) else group.stages[0]
        yield ImpliedCheck(name, next_stage, node, _unlabelled_trainings(stages, next_stage).union(group.stages))
    if not groups and corpus_settings:
        node = Node(corpus_settings | overrides, stages[training].node.where)
        name = _unused_name("check", names)
        yield ImpliedCheck(name, training, node, _unlabelled_trainings(stages, training))


def _unlabelled_trainings(stages: Mapping[str, RecipeStage], first: str) -> frozenset[str]:
    names = list(stages)
    return frozenset(name for name in names[names.index(first) :] if stages[name].function in _UNLABELLED_TRAININGS)


def _unused_name(name: str, names: Set[str]) -> str:
    if name not in names:
        return name
    numbered = (f"{name}-{number}" for number in count(2))
    return next(candidate for candidate in numbered if candidate not in names)


def _group_trainings(stages: Mapping[str, RecipeStage]) -> list[_Group]:
    """Return the trainings in groups, one for each choice of labelled sets and of the settings that read them, with the
    test sets of the stages `evaluate` that score them."""
    groups: dict[_GroupKey, _Group] = {}
    for name, stage in stages.items():
        if stage.function in _LABELLED_TRAININGS:
            settings = stage.settings
            reading = _reading_settings(settings.task)
            key = _GroupKey(type(settings.task), reading, repr(settings.train), repr(settings.validation))
            groups.setdefault(key, _Group([], stage.node)).stages.append(name)
        elif stage.function == "evaluate":
            _add_test_set(groups, stages, stage)
    return list(groups.values())


def _add_test_set(groups: dict[_GroupKey, _Group], stages: Mapping[str, RecipeStage], evaluation: RecipeStage) -> None:
    """Add the test set of a stage `evaluate` to the groups of the trainings that it scores, also through `export`.

    If the test set is read with other settings than the training sets, add a group with the settings of the evaluation.
    """
    models = stages_in(evaluation.node.value["models"])
    exported = [stages[name].node.value["model"] for name in models if stages[name].function == "export"]
    scored = models.union(*map(stages_in, exported))
    task = evaluation.settings.task
    for key, group in list(groups.items()):
        if key.task is not type(task) or not scored & set(group.stages):
            continue
        node = Node({**group.node.value, "task": evaluation.node.value["task"]}, group.node.where)
        # `group` itself if test and training sets are read with equal settings
        key_of_test = key._replace(reading=_reading_settings(task))
        group_of_test = groups.setdefault(key_of_test, _Group(list(group.stages), node))
        test = evaluation.node.value["test"]
        if test.plain() not in [other.plain() for other in group_of_test.tests]:
            group_of_test.tests.append(test)


def _reading_settings(task: Any) -> str:
    ignored = task.evaluation.scoring_settings
    return repr({name: value for name, value in vars(task.reading).items() if name not in ignored})


def _labelled_settings(group: _Group, stages_before: Sequence[str]) -> dict[str, Node]:
    """Return the settings of a check of labelled sets. `tokenizer` is the model of the training if it exists before the
    first training of the recipe: if `stages_before`, the stages before that training, write it, or no stage does."""
    training = group.node.value
    sets = {name: training[name] for name in ("train", "validation")}
    tests = [file for test in group.tests for file in (test.value if isinstance(test.value, list) else [test])]
    if tests:
        sets["test"] = tests[0] if len(tests) == 1 else Node(tests, tests[0].where)
    settings = {"task": training["task"], "labelled": Node(sets, group.node.where)}
    if "max_length" in training:
        settings["max_length"] = training["max_length"]
    if "model" in training and stages_in(training["model"]).issubset(stages_before):
        settings["tokenizer"] = training["model"]
    return settings


def _corpus_settings(stages: Mapping[str, RecipeStage], stages_before: Sequence[str]) -> dict[str, Node]:
    """Return {} unless exactly one stage `prepare` is in `stages_before`, the stages before the first training."""
    prepared = [stages[name].node.value for name in stages_before if stages[name].function == "prepare"]
    if len(prepared) != 1:
        return {}
    max_characters = Node(_MAX_CHARACTERS, prepared[0]["corpus"].where)
    return {key: prepared[0][key] for key in ("corpus", "tokenizer")} | {"max_characters": max_characters}


def stages_in(node: Node) -> set[str]:
    """Return the names of the stages that the texts in a tree refer to."""
    matches = map(REFERENCE.fullmatch, node.texts())
    return {match[1] for match in matches if match is not None}
