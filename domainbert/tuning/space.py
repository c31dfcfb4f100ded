"""The search space over a stage's settings: checked against the stage, drawn from, and put into its YAML."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from domainbert.base.errors import DomainbertError, Problems
from domainbert.runner.early_problems import add_early_problems
from domainbert.runner.stage_table import Stage
from domainbert.settings.reader import Settings, read_settings
from domainbert.settings.tree import merge, nearest
from domainbert.settings.yaml_files import Node
from domainbert.tuning.config import Parameter, Values

if TYPE_CHECKING:
    from optuna.trial import Trial

_ROUNDING = 1e-8  # of a number of steps


@dataclass(frozen=True)
class Dimension:
    """One setting that varies."""

    key: str
    parameter: Parameter
    integer: bool
    """Whether the stage takes whole numbers only."""
    node: Node
    """Where it stands."""

    def draw(self, trial: Trial) -> Any:
        """A value for a trial."""
        one = self.parameter
        if one.choices is not None:
            labels = [label(choice) for choice in one.choices]
            return one.choices[labels.index(trial.suggest_categorical(self.key, labels))]
        assert one.low is not None and one.high is not None
        if self.integer:
            return trial.suggest_int(self.key, int(one.low), int(one.high), step=int(one.step or 1), log=one.log)
        return trial.suggest_float(self.key, one.low, one.high, step=one.step, log=one.log)

    def problem_of(self, value: Any) -> str | None:
        """The reason why a value does not lie in this dimension; None if it does."""
        one = self.parameter
        if one.choices is not None:
            return None if value in one.choices else f"found {value!r}; expected one of {list(one.choices)}"
        assert one.low is not None and one.high is not None
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not one.low <= value <= one.high:
            return f"found {value!r}; expected a number from {one.low} to {one.high}"
        step = one.step or (1 if self.integer else None)
        if step is not None and abs((value - one.low) / step - round((value - one.low) / step)) > _ROUNDING:
            return f"found {value!r}; expected {one.low} and so many steps of {step}"
        return None

    def excluded_by(self, point: Values) -> str | None:
        """The key of a point that may be incomplete whose value excludes this dimension; None if there is none."""
        wanted = (self.parameter.when or {}).items()
        return next((key for key, value in wanted if key in point and point[key] not in as_list(value)), None)

    def applies(self, values: Values) -> bool:
        """Whether the setting varies, given the values of those before it."""
        return all(
            key in values and values[key] in as_list(found) for key, found in (self.parameter.when or {}).items()
        )


@dataclass(frozen=True)
class Space:
    """The settings of a stage, and those of them that vary; a setting comes before those whose conditions name it."""

    stage: Stage
    base: Node
    dimensions: tuple[Dimension, ...]

    def first(self) -> dict[str, Any]:
        """The point of the first choices and the lowest values."""
        values: dict[str, Any] = {}
        for one in self.dimensions:
            if one.applies(values):
                low = one.parameter.low or 0
                values[one.key] = (
                    one.parameter.choices[0] if one.parameter.choices else int(low) if one.integer else low
                )
        return values

    def draw(self, trial: Trial) -> dict[str, Any]:
        """The point of a trial: dotted keys to values."""
        values: dict[str, Any] = {}
        for dimension in self.dimensions:
            if dimension.applies(values):
                values[dimension.key] = dimension.draw(trial)
        return values

    def values_of(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The point that Optuna has recorded as `params`."""
        return {one.key: _recorded(one.parameter, params[one.key]) for one in self.dimensions if one.key in params}

    def settings(self, values: Values) -> Settings:
        """The stage's checked settings at a point.

        Raises:
            DomainbertError: the values do not fit together.
        """
        problems = Problems(self.stage.name)
        settings = read_at(self.stage, self.base, {key: node_of(value, key) for key, value in values.items()}, problems)
        problems.raise_if_any()
        return settings


def read_space(stage: Stage, base: Node, space: Mapping[str, Parameter], nodes: Node, problems: Problems) -> Space:
    """Check every value of the space against the stage, as far as the stage can check it before it runs.

    Args:
        stage: the stage.
        base: its settings without `out`.
        space: the parameters by dotted key.
        nodes: the same as they stand in the YAML.
        problems: where problems are added; use the space only if there are none.
    """
    ordered = _in_order(space, nodes, problems)
    found = len(problems.messages)
    _try_at(stage, base, _point(space, nodes, ordered, {}), problems)
    if len(problems.messages) > found:
        return Space(stage, base, ())
    dimensions = []
    for key in ordered:
        probes, required = _probes(space[key], nodes.value[key]), _required(space, nodes, key)
        for probe in probes:
            _try_at(stage, base, _point(space, nodes, ordered, {**required, key: probe}), problems)
        point = _point(space, nodes, ordered, {**required, key: probes[0]})
        integer = space[key].choices is None and _is_integer(stage, base, point, key, space[key])
        _check_step(key, space[key], nodes.value[key], integer, problems)
        dimensions.append(Dimension(key, space[key], integer, nodes.value[key]))
    return Space(stage, base, tuple(dimensions))


def read_at(stage: Stage, base: Node, point: Mapping[str, Node], problems: Problems) -> Settings:
    """The stage's settings with the nodes at some dotted keys put in."""
    return read_settings(stage.settings, _tree_at(base, point), problems)


def _try_at(stage: Stage, base: Node, point: Mapping[str, Node], problems: Problems) -> None:
    found = len(problems.messages)
    settings = read_at(stage, base, point, problems)
    if len(problems.messages) == found:
        add_early_problems(stage, settings, _tree_at(base, point), problems)


def _tree_at(base: Node, point: Mapping[str, Node]) -> Node:
    tree = base
    for key, node in point.items():
        for part in reversed(key.split(".")):
            node = Node({part: node}, node.where)
        tree = merge(tree, node)
    return replace(tree, where=base.where)


def label(choice: Any) -> Any:
    """A choice as Optuna records it: unchanged, or as JSON if it is a list or a mapping."""
    return json.dumps(choice, sort_keys=True) if isinstance(choice, (list, dict)) else choice


def as_list(value: Any) -> list[Any]:
    """A list unchanged, anything else as a list of one."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


def node_of(value: Any, where: str) -> Node:
    """A plain value as a node."""
    if isinstance(value, dict):
        return Node({key: node_of(item, where) for key, item in value.items()}, where)
    return Node([node_of(item, where) for item in value] if isinstance(value, list) else value, where)


def _recorded(parameter: Parameter, value: Any) -> Any:
    if parameter.choices is None:
        return value
    return next((choice for choice in parameter.choices if label(choice) == value), value)


def _probes(parameter: Parameter, node: Node) -> list[Node]:
    """The values at which a dimension is checked: all of a list, both ends of a range."""
    if parameter.choices is not None:
        chosen = node.value["choices"]
        return chosen.value if isinstance(chosen.value, list) else [chosen]
    return [node.value["low"], node.value["high"]]


def _required(space: Mapping[str, Parameter], nodes: Node, key: str) -> dict[str, Node]:
    """Values of other dimensions with which the conditions of one hold."""
    found: dict[str, Node] = {}
    for other, wanted in (space[key].when or {}).items():
        fitting = [probe for probe in _probes(space[other], nodes.value[other]) if probe.plain() in as_list(wanted)]
        found |= {**_required(space, nodes, other), other: fitting[0]}
    return found


def _point(
    space: Mapping[str, Parameter], nodes: Node, ordered: Sequence[str], fixed: Mapping[str, Node]
) -> dict[str, Node]:
    """The first value of every dimension that is not fixed and whose conditions hold."""
    point: dict[str, Node] = {}
    for key in ordered:
        wanted = (space[key].when or {}).items()
        if all(other in point and point[other].plain() in as_list(value) for other, value in wanted):
            point[key] = fixed.get(key, _probes(space[key], nodes.value[key])[0])
    return point


def _is_integer(stage: Stage, base: Node, point: Mapping[str, Node], key: str, parameter: Parameter) -> bool:
    """Whether the stage takes the ends, but refuses a fraction between them."""
    assert parameter.low is not None and parameter.high is not None
    if not (parameter.low.is_integer() and parameter.high.is_integer()):
        return False
    silent = Problems("")
    read_at(stage, base, {**point, key: Node(parameter.low + 0.5, "")}, silent)
    return any("an integer" in message for message in silent.messages)


def _check_step(key: str, parameter: Parameter, node: Node, integer: bool, problems: Problems) -> None:
    if integer and parameter.step is not None and not float(parameter.step).is_integer():
        problems.add(f"{node.value['step'].where}: space.{key}.step: found {parameter.step}; expected a whole number")


def _in_order(space: Mapping[str, Parameter], nodes: Node, problems: Problems) -> list[str]:
    """Keys in an order in which a setting comes before those whose conditions name it."""
    found = len(problems.messages)
    for key, parameter in space.items():
        for other, value in (parameter.when or {}).items():
            _check_condition(space, nodes.value[key], f"space.{key}.when.{other}", other, value, problems)
    if len(problems.messages) > found:
        raise DomainbertError("\n".join(problems.messages), problems.messages)
    ordered: list[str] = []
    while len(ordered) < len(space):
        ready = [key for key in space if key not in ordered and set(space[key].when or {}) <= set(ordered)]
        if not ready:
            raise DomainbertError(f"{nodes.where}: space: conditions depend on each other; expected an order")
        ordered.append(ready[0])
    return ordered


def _check_condition(
    space: Mapping[str, Parameter], node: Node, name: str, other: str, value: Any, problems: Problems
) -> None:
    if other not in space:
        problems.add(f"{node.where}: {name}: is not in the space; {nearest(other, list(space))}")
    elif space[other].choices is None:
        problems.add(f"{node.where}: {name}: is a range; expected a setting with choices")
    else:
        unknown = [one for one in as_list(value) if one not in (space[other].choices or ())]
        for one in unknown:
            problems.add(f"{node.where}: {name}: found {one!r}; expected among {list(space[other].choices or ())}")
