"""The checks that a recipe runs by itself before its first training: see docs/reference/checks.md."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from domainbert.settings.yaml_files import Node

_TRAIN = ("pretrain", "distill", "finetune", "distill-task")
_LABELLED = ("finetune", "distill-task")
_MOST_CHARACTERS = 50_000_000  # of the corpus: it takes less than a minute, however large the corpus is
_STAGE = re.compile(r"@([\w-]+)(/.*)?")


@dataclass(frozen=True)
class ReadStage:
    """A stage of a recipe: what it is, as it stands in the YAML, and its settings."""

    kind: str
    node: Node
    settings: Any


@dataclass(frozen=True)
class ImpliedCheck:
    """A check that a recipe runs by itself."""

    name: str
    before: str
    """The stage before which it belongs."""
    node: Node
    """Its settings."""
    trainings: frozenset[str]
    """The trainings that are not run without it."""


@dataclass
class _Group:
    """Trainings on the same labelled sets, and the test sets that score them, all read with the same settings."""

    stages: list[str]
    node: Node
    tests: list[Node] = field(default_factory=list)


def implied_checks(stages: Mapping[str, ReadStage], given: Node | None) -> Iterator[ImpliedCheck]:
    """The checks of a recipe.

    There is one for each task with its labelled sets, or one of the corpus alone. A recipe with a stage `check` of its
    own has none, and neither has one that trains nothing. A test set is compared before the training that it is to
    judge, by a stage that chooses nothing; the training does not open it.

    Args:
        stages: the stages of the recipe in order.
        given: settings of all checks, as the recipe has them under `check`; `check: false` turns them off.
    """
    first = next((name for name, one in stages.items() if one.kind in _TRAIN), None)
    if first is None or any(one.kind == "check" for one in stages.values()) or (given and given.value is False):
        return
    groups, before = _groups(stages), set(list(stages)[: list(stages).index(first)])
    own, names = {} if given is None else given.value, set(stages)
    for group in groups:
        name = _free("check" if len(groups) == 1 else f"check-{group.stages[0]}", names)
        names.add(name)
        values = _shared(stages, first) | _labelled(group, before) | own
        node = Node(values, group.node.where)
        yield _implied(stages, name, _place(stages, first, node, group.stages[0]), node, group.stages)
    if not groups and "corpus" in (shared := _shared(stages, first)):
        node = Node(shared | own, stages[first].node.where)
        yield _implied(stages, _free("check", names), first, node)


def _implied(
    stages: Mapping[str, ReadStage], name: str, before: str, node: Node, labelled: Sequence[str] = ()
) -> ImpliedCheck:
    """A check before trainings on its own labelled sets, and before those on text alone that come behind it."""
    names = list(stages)
    behind = names[names.index(before) :]
    on_text = {one for one in behind if stages[one].kind in _TRAIN and stages[one].kind not in _LABELLED}
    return ImpliedCheck(name, before, node, frozenset({*labelled, *on_text}))


def _free(name: str, names: Set[str]) -> str:
    """The name, with a number behind it if a stage of the recipe, or another check, has it."""
    numbered = (f"{name}-{number}" for number in count(2))
    return name if name not in names else next(one for one in numbered if one not in names)


def _groups(stages: Mapping[str, ReadStage]) -> list[_Group]:
    groups: dict[tuple[Any, ...], _Group] = {}
    for name, one in stages.items():
        if one.kind in _LABELLED:
            of = one.settings
            key = (_read_as(of.task), repr(of.train), repr(of.validation))
            groups.setdefault(key, _Group([], one.node)).stages.append(name)
        elif one.kind == "evaluate":
            scored = _referred(one.node.value["models"])
            exports = [stages[other].node.value["model"] for other in scored if stages[other].kind == "export"]
            scored = scored.union(*map(_referred, exports))
            own, test = _read_as(one.settings.task), one.node.value["test"]
            judged = [
                (key, group) for key, group in groups.items() if scored & set(group.stages) and key[0][0] is own[0]
            ]
            for (_, *sets), group in judged:
                read = Node({**group.node.value, "task": one.node.value["task"]}, group.node.where)
                like_it = groups.setdefault((own, *sets), _Group(list(group.stages), read))
                if test.plain() not in [node.plain() for node in like_it.tests]:
                    like_it.tests.append(test)
    return list(groups.values())


def _read_as(task: Any) -> tuple[type, str]:
    """The settings that decide how the files of a task are read, but for those that evaluations have for themselves."""
    ignored = task.evaluation.scoring_settings
    return type(task), repr({name: value for name, value in vars(task.reading).items() if name not in ignored})


def _labelled(group: _Group, before: Set[str]) -> dict[str, Node]:
    """The labelled sets of a group, its window, and its model if that is there before; several test sets are a list."""
    given = group.node.value
    sets = {name: given[name] for name in ("train", "validation")}
    tests = [one for node in group.tests for one in (node.value if isinstance(node.value, list) else [node])]
    if tests:
        sets["test"] = tests[0] if len(tests) == 1 else Node(tests, tests[0].where)
    found = {"task": given["task"], "labelled": Node(sets, group.node.where)}
    found |= {"max_length": given["max_length"]} if "max_length" in given else {}
    return found | ({"tokenizer": given["model"]} if "model" in given and _referred(given["model"]) <= before else {})


def _shared(stages: Mapping[str, ReadStage], first: str) -> dict[str, Node]:
    """The corpus and the tokenizer of the recipe, where it has one before its first training."""
    before = list(stages)[: list(stages).index(first)]
    prepared = [stages[name].node.value for name in before if stages[name].kind == "prepare"]
    if len(prepared) != 1:
        return {}
    bound = Node(_MOST_CHARACTERS, prepared[0]["corpus"].where)
    return {key: prepared[0][key] for key in ("corpus", "tokenizer")} | {"most_characters": bound}


def _place(stages: Mapping[str, ReadStage], first: str, node: Node, own: str) -> str:
    """The first training of the recipe, or the first of the group's if earlier ones make what it reads."""
    names = list(stages)
    return first if all(names.index(one) < names.index(first) for one in _referred(node)) else own


def _referred(node: Node) -> set[str]:
    """The stages that a value names."""
    if isinstance(node.value, (dict, list)):
        children = node.value.values() if isinstance(node.value, dict) else node.value
        return set().union(*map(_referred, children))
    found = _STAGE.fullmatch(node.value) if isinstance(node.value, str) else None
    return {found[1]} if found else set()
