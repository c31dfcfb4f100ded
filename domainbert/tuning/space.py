"""The search space over a stage's settings: checked against the stage, drawn from, and put into its YAML."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from domainbert.base.errors import DomainbertError, Problems, nearest
from domainbert.runner.early_problems import add_early_problems
from domainbert.runner.stage_table import Stage
from domainbert.settings.reader import Settings, read_settings
from domainbert.settings.tree import at_key, merge
from domainbert.settings.yaml_files import Node, node_of
from domainbert.stages.inputs import Inputs
from domainbert.tuning.config import Parameter, Values

if TYPE_CHECKING:
    from optuna.trial import Trial

_ROUNDING = 1e-8  # of a number of steps


@dataclass(frozen=True)
class Dimension:
    """One setting that varies."""

    key: str
    parameter: Parameter
    node: Node
    """Its place."""
    integer: bool = False
    """Whether the stage takes whole numbers only."""

    def probes(self) -> list[Node]:
        """The values at which it is checked: all of a list, both ends of a range."""
        if self.parameter.choices is None:
            return [self.node.value["low"], self.node.value["high"]]
        chosen = self.node.value["choices"]
        return chosen.value if isinstance(chosen.value, list) else [chosen]

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
        if type(value) not in (int, float) or not one.low <= value <= one.high:
            return f"found {value!r}; expected a number from {one.low} to {one.high}"
        if step := one.step or (1 if self.integer else None):
            steps = (value - one.low) / step
            if abs(steps - round(steps)) > _ROUNDING:
                return f"found {value!r}; expected {one.low} and so many steps of {step}"
        return None

    def excluded_by(self, point: Values) -> str | None:
        """The key of a point that may be incomplete whose value excludes this dimension; None if there is none."""
        wanted = (self.parameter.when or {}).items()
        return next((key for key, value in wanted if key in point and point[key] not in _as_list(value)), None)

    def applies(self, values: Values) -> bool:
        """Whether the setting varies, given the values of those before it."""
        wanted = (self.parameter.when or {}).items()
        return all(key in values and values[key] in _as_list(value) for key, value in wanted)


@dataclass(frozen=True)
class Space:
    """The settings of a stage, and those of them that vary; a setting comes before those whose conditions name it."""

    stage: Stage
    base: Node
    dimensions: tuple[Dimension, ...]
    inputs: tuple[Path, ...] = ()
    """The files and folders that the stage reads at any point."""
    opened: Inputs = field(default_factory=Inputs, compare=False)
    """Opens them, for the checks of all points."""

    def first(self) -> dict[str, Any]:
        """The point of the first choices and the lowest values."""
        return {key: node.plain() for key, node in _point(self.dimensions, {}).items()}

    def draw(self, trial: Trial) -> dict[str, Any]:
        """The point of a trial: dotted keys to values."""
        values: dict[str, Any] = {}
        for dimension in self.dimensions:
            if dimension.applies(values):
                values[dimension.key] = dimension.draw(trial)
        return values

    def values_of(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The point that Optuna has recorded as `params`."""
        found = {}
        for one in self.dimensions:
            if one.key in params:
                value = params[one.key]
                found[one.key] = next(
                    (choice for choice in one.parameter.choices or () if label(choice) == value), value
                )
        return found

    def settings(self, values: Values) -> Settings:
        """The stage's checked settings at a point; `DomainbertError` if the values do not fit together."""
        problems = Problems(self.stage.name)
        settings = self.settings_at({key: node_of(value, key) for key, value in values.items()}, problems)
        problems.raise_if_any()
        return settings

    def settings_at(self, point: Mapping[str, Node], problems: Problems) -> Settings:
        """The stage's settings with the nodes at some dotted keys put in."""
        return read_settings(self.stage.settings, self._tree_at(point), problems)

    def check_at(self, point: Mapping[str, Node], problems: Problems) -> Settings:
        """As `settings_at`, with what the stage can check before it runs."""
        found = len(problems.messages)
        settings = self.settings_at(point, problems)
        if len(problems.messages) == found:
            add_early_problems(self.stage, settings, self._tree_at(point), problems, self.opened)
        return settings

    def _tree_at(self, point: Mapping[str, Node]) -> Node:
        tree = self.base
        for key, node in sorted(point.items(), key=lambda one: one[0].count(".")):  # what is below a key comes after it
            if isinstance(node.value, dict):  # the value as it stands: nothing of what the settings have there
                tree = merge(tree, at_key(key, Node(None, node.where)))
            tree = merge(tree, at_key(key, node))
        return replace(tree, where=self.base.where)


def read_space(stage: Stage, base: Node, space: Mapping[str, Parameter], nodes: Node, problems: Problems) -> Space:
    """Check every value of the space against the stage, as far as the stage can check it before it runs.

    `base` are its settings without `out`, `nodes` the parameters as they stand in the YAML. Use the space only if no
    problem was added.
    """
    ordered = {key: Dimension(key, space[key], nodes.value[key]) for key in _in_order(space, nodes, problems)}
    whole, found = Space(stage, base, tuple(ordered.values())), len(problems.messages)
    inputs = set(whole.check_at(_point(whole.dimensions, {}), problems).inputs)
    if len(problems.messages) > found:
        return whole
    dimensions = []
    for key, one in ordered.items():
        required = _required(ordered, one)
        points = [_point(whole.dimensions, {**required, key: probe}) for probe in one.probes()]
        for point in points:
            inputs.update(whole.check_at(point, problems).inputs)
        step, integer = one.parameter.step, _is_integer(whole, points[0], key, one.parameter)
        if integer and step is not None and not step.is_integer():
            problems.add(f"{one.node.value['step'].where}: space.{key}.step: found {step}; expected a whole number")
        dimensions.append(replace(one, integer=integer))
    whole.opened.forget_items()  # trials run in processes of their own
    return replace(whole, dimensions=tuple(dimensions), inputs=tuple(sorted(inputs)))


def label(choice: Any) -> Any:
    """A choice as Optuna records it: unchanged, or as JSON if it is a list or a mapping."""
    return json.dumps(choice, sort_keys=True) if isinstance(choice, (list, dict)) else choice


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _point(dimensions: Iterable[Dimension], fixed: Mapping[str, Node]) -> dict[str, Node]:
    """The first value of every dimension that is not fixed and whose conditions hold."""
    point: dict[str, Node] = {}
    for one in dimensions:
        if one.applies({key: node.plain() for key, node in point.items()}):
            point[one.key] = fixed.get(one.key, one.probes()[0])
    return point


def _required(dimensions: Mapping[str, Dimension], one: Dimension) -> dict[str, Node]:
    """Values of other dimensions with which the conditions of one hold."""
    found: dict[str, Node] = {}
    for key, wanted in (one.parameter.when or {}).items():
        fitting = [probe for probe in dimensions[key].probes() if probe.plain() in _as_list(wanted)]
        found |= {**_required(dimensions, dimensions[key]), key: fitting[0]}
    return found


def _is_integer(space: Space, point: Mapping[str, Node], key: str, parameter: Parameter) -> bool:
    """Whether the stage takes the ends of a range, but refuses a fraction between them."""
    if parameter.low is None or parameter.high is None:
        return False
    if not (parameter.low.is_integer() and parameter.high.is_integer()):
        return False
    silent = Problems("")
    space.settings_at({**point, key: Node(parameter.low + 0.5, "")}, silent)
    return any("an integer" in message for message in silent.messages)


def _in_order(space: Mapping[str, Parameter], nodes: Node, problems: Problems) -> list[str]:
    """Keys in an order in which a setting comes before those whose conditions name it."""
    found = len(problems.messages)
    for key, parameter in space.items():
        for other, value in (parameter.when or {}).items():
            for problem in _condition_problems(space, other, value):
                problems.add(f"{nodes.value[key].where}: space.{key}.when.{other}: {problem}")
    if len(problems.messages) > found:
        raise DomainbertError("\n".join(problems.messages), problems.messages)
    ordered: list[str] = []
    while len(ordered) < len(space):
        ready = [key for key in space if key not in ordered and set(space[key].when or {}) <= set(ordered)]
        if not ready:
            raise DomainbertError(f"{nodes.where}: space: conditions depend on each other; expected an order")
        ordered.append(ready[0])
    return ordered


def _condition_problems(space: Mapping[str, Parameter], other: str, value: Any) -> list[str]:
    if other not in space:
        return [f"is not in the space; {nearest(other, list(space))}"]
    choices = space[other].choices
    if choices is None:
        return ["is a range; expected a setting with choices"]
    return [f"found {one!r}; expected among {list(choices)}" for one in _as_list(value) if one not in choices]
