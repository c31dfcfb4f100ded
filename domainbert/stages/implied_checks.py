"""Automatic checks of a recipe before its first training: see docs/reference/checks.md."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from domainbert.settings.yaml_files import Node

_TRAIN = ("pretrain", "distill", "finetune", "distill-task")
_LABELLED = ("finetune", "distill-task")
_MOST_CHARACTERS = 50_000_000  # characters of the corpus to read, in less than a minute for a corpus of any size
_STAGE = re.compile(r"@([\w-]+)(/.*)?")


@dataclass(frozen=True)
class ReadStage:
    """Stage of a recipe: the stage function (`kind`), its YAML node and its settings."""

    kind: str
    node: Node
    settings: Any


@dataclass(frozen=True)
class ImpliedCheck:
    """Automatic check of a recipe."""

    name: str
    before: str
    """Name of the stage before which the check runs."""
    node: Node
    """Settings of the check."""
    trainings: frozenset[str]
    """Names of the trainings that need the check."""


@dataclass
class _Group:
    """Trainings on the same labelled sets, and the test sets that score them, all read with the same settings."""

    stages: list[str]
    node: Node
    tests: list[Node] = field(default_factory=list)


def implied_checks(stages: Mapping[str, ReadStage], check_settings: Node | None) -> Iterator[ImpliedCheck]:
    """Return the automatic checks of a recipe.

    A recipe gets a check for each task with its labelled sets, or a check of the corpus if it has no labelled sets. A
    recipe with a stage `check`, or without training, gets no automatic check. The check compares the test set with the
    other sets before the training; the training itself never opens the test set.

    Args:
        stages: the stages of the recipe in order.
        check_settings: settings of all checks, from the key `check` of the recipe; `check: false` disables the checks.
    """
    first = next((name for name, stage in stages.items() if stage.kind in _TRAIN), None)
    disabled = check_settings is not None and check_settings.value is False
    if disabled or first is None or any(stage.kind == "check" for stage in stages.values()):
        return
    groups, before = _groups(stages), set(list(stages)[: list(stages).index(first)])
    overrides, names = {} if check_settings is None else check_settings.value, set(stages)
    for group in groups:
        name = _free("check" if len(groups) == 1 else f"check-{group.stages[0]}", names)
        names.add(name)
        values = _shared(stages, first) | _labelled(group, before) | overrides
        node = Node(values, group.node.where)
        yield _implied(stages, name, _stage_after(stages, first, node, group.stages[0]), node, group.stages)
    if not groups and "corpus" in (shared := _shared(stages, first)):
        node = Node(shared | overrides, stages[first].node.where)
        yield _implied(stages, _free("check", names), first, node)


def _implied(
    stages: Mapping[str, ReadStage], name: str, before: str, node: Node, labelled: Sequence[str] = ()
) -> ImpliedCheck:
    """Return a check that the trainings on its labelled sets need, and all later trainings on unlabelled text."""
    names = list(stages)
    later = names[names.index(before) :]
    unlabelled = {other for other in later if stages[other].kind in _TRAIN and stages[other].kind not in _LABELLED}
    return ImpliedCheck(name, before, node, frozenset({*labelled, *unlabelled}))


def _free(name: str, names: Set[str]) -> str:
    """Return `name`, with a number appended if it is in `names`."""
    numbered = (f"{name}-{number}" for number in count(2))
    return name if name not in names else next(candidate for candidate in numbered if candidate not in names)


def _groups(stages: Mapping[str, ReadStage]) -> list[_Group]:
    groups: dict[tuple[Any, ...], _Group] = {}
    for name, stage in stages.items():
        if stage.kind in _LABELLED:
            settings = stage.settings
            key = (_reading_key(settings.task), repr(settings.train), repr(settings.validation))
            groups.setdefault(key, _Group([], stage.node)).stages.append(name)
        elif stage.kind == "evaluate":
            scored = _referred_stages(stage.node.value["models"])
            exports = [stages[other].node.value["model"] for other in scored if stages[other].kind == "export"]
            scored = scored.union(*map(_referred_stages, exports))
            reading, test = _reading_key(stage.settings.task), stage.node.value["test"]
            trained = [
                (key, group) for key, group in groups.items() if scored & set(group.stages) and key[0][0] is reading[0]
            ]
            for (_, *sets), group in trained:
                node = Node({**group.node.value, "task": stage.node.value["task"]}, group.node.where)
                same_reading = groups.setdefault((reading, *sets), _Group(list(group.stages), node))
                if test.plain() not in [other.plain() for other in same_reading.tests]:
                    same_reading.tests.append(test)
    return list(groups.values())


def _reading_key(task: Any) -> tuple[type, str]:
    """Return the settings by which the files of a task are read, without the scoring settings."""
    ignored = task.evaluation.scoring_settings
    return type(task), repr({name: value for name, value in vars(task.reading).items() if name not in ignored})


def _labelled(group: _Group, before: Set[str]) -> dict[str, Node]:
    """Return the labelled sets and the window of a group, and its model if it exists before the first training."""
    training = group.node.value
    sets = {name: training[name] for name in ("train", "validation")}
    tests = [test for node in group.tests for test in (node.value if isinstance(node.value, list) else [node])]
    if tests:
        sets["test"] = tests[0] if len(tests) == 1 else Node(tests, tests[0].where)
    settings = {"task": training["task"], "labelled": Node(sets, group.node.where)}
    settings |= {"max_length": training["max_length"]} if "max_length" in training else {}
    exists = "model" in training and _referred_stages(training["model"]) <= before
    return settings | ({"tokenizer": training["model"]} if exists else {})


def _shared(stages: Mapping[str, ReadStage], first: str) -> dict[str, Node]:
    """Return corpus and tokenizer if a single stage `prepare` runs before the first training; otherwise {}."""
    before = list(stages)[: list(stages).index(first)]
    prepared = [stages[name].node.value for name in before if stages[name].kind == "prepare"]
    if len(prepared) != 1:
        return {}
    bound = Node(_MOST_CHARACTERS, prepared[0]["corpus"].where)
    return {key: prepared[0][key] for key in ("corpus", "tokenizer")} | {"max_characters": bound}


def _stage_after(stages: Mapping[str, ReadStage], first: str, node: Node, group_first: str) -> str:
    """Return the stage before which to check: `first`, or `group_first` if the check reads the output of a training."""
    names = list(stages)
    return first if all(names.index(name) < names.index(first) for name in _referred_stages(node)) else group_first


def _referred_stages(node: Node) -> set[str]:
    """Return the names of the stages that a value refers to."""
    if isinstance(node.value, (dict, list)):
        children = node.value.values() if isinstance(node.value, dict) else node.value
        return set().union(*map(_referred_stages, children))
    match = _STAGE.fullmatch(node.value) if isinstance(node.value, str) else None
    return {match[1]} if match else set()
