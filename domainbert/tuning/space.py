"""Search space over a stage's settings: validate it, sample points, and convert points to settings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from domainbert.base.errors import DomainbertError, Problems, suggest_name
from domainbert.runner.stage_table import Stage, add_early_problems
from domainbert.settings.reader import Settings, read_settings
from domainbert.settings.tree import at_key, merge, yaml_file
from domainbert.settings.yaml_files import Node, to_node
from domainbert.stages.stage import Inputs
from domainbert.tuning.config import Parameter

if TYPE_CHECKING:
    from optuna.trial import Trial

_STEP_TOLERANCE = 1e-8  # tolerance for a number of steps


@dataclass(frozen=True)
class Dimension:
    """A setting that varies."""

    key: str
    parameter: Parameter
    node: Node  # node of the parameter in the YAML
    integer: bool = False  # whether the stage accepts only integers

    def nodes_to_validate(self) -> list[Node]:
        """Return the YAML nodes of the values to validate: all choices, or both ends of a range."""
        if self.parameter.choices is None:
            return [self.node.value["low"], self.node.value["high"]]
        choices: Node = self.node.value["choices"]
        return choices.value if isinstance(choices.value, list) else [choices]  # not a list: a single choice

    def draw(self, trial: Trial) -> Any:
        """Return a value that Optuna samples for a trial."""
        low, high, step, log = self.parameter.low, self.parameter.high, self.parameter.step, self.parameter.log
        if self.parameter.choices is not None:
            choices = [optuna_value(choice) for choice in self.parameter.choices]
            return self.from_optuna(trial.suggest_categorical(self.key, choices))
        assert low is not None and high is not None
        if self.integer:
            return trial.suggest_int(self.key, int(low), int(high), step=int(step or 1), log=log)
        return trial.suggest_float(self.key, low, high, step=step, log=log)

    def from_optuna(self, value: Any) -> Any:
        """Return the value of the setting for a value that Optuna has recorded: the inverse of `optuna_value`."""
        return next((choice for choice in self.parameter.choices or () if optuna_value(choice) == value), value)

    def expected_for(self, value: Any) -> str | None:
        """Return what the setting expects in place of a value; None if the value is in the range or choices."""
        low, high, choices = self.parameter.low, self.parameter.high, self.parameter.choices
        if choices is not None:
            return None if value in choices else f"one of {list(choices)}"
        assert low is not None and high is not None
        if type(value) not in (int, float) or not low <= value <= high:
            return f"a number from {low} to {high}"
        step = self.parameter.step or (1 if self.integer else None)
        if step is not None:
            num_steps = (value - low) / step
            if abs(num_steps - round(num_steps)) > _STEP_TOLERANCE:
                return f"{low} plus a multiple of {step}"
        return None

    def excluded_by(self, point: Mapping[str, Any]) -> str | None:
        """Return the first key of a point whose value violates a condition (`when`), or None; keys may be missing."""
        conditions = (self.parameter.when or {}).items()
        return next((key for key, value in conditions if key in point and point[key] not in _as_list(value)), None)

    def applies(self, values: Mapping[str, Any]) -> bool:
        """Return whether the setting varies, given the values of earlier dimensions."""
        conditions = (self.parameter.when or {}).items()
        return all(key in values and values[key] in _as_list(value) for key, value in conditions)


@dataclass(frozen=True)
class Space:
    """Settings of a stage, and the dimensions that vary, sorted so that conditions name earlier dimensions only."""

    stage: Stage
    base: Node  # settings that do not vary
    dimensions: tuple[Dimension, ...]
    inputs: tuple[Path, ...] = ()  # files and folders that the stage reads at any point, and YAML files of settings
    input_cache: Inputs = field(default_factory=Inputs, compare=False)
    """Opens the inputs for the validation of all points."""

    def first_point(self) -> dict[str, Any]:
        """Return the point with the first choices and the lowest values: dotted keys to plain values."""
        return {key: node.plain() for key, node in _point(self.dimensions, fixed={}).items()}

    def first_settings(self) -> Settings:
        """Return the stage's settings at the first point."""
        return self.settings(self.first_point())

    def draw(self, trial: Trial) -> dict[str, Any]:
        """Return the point that Optuna samples for a trial: dotted keys to values."""
        values: dict[str, Any] = {}
        for dimension in self.dimensions:
            if dimension.applies(values):
                values[dimension.key] = dimension.draw(trial)
        return values

    def values_of(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of a trial; parameters of an earlier space only are as Optuna recorded them."""
        recorded = [dimension for dimension in self.dimensions if dimension.key in params]
        return {**params, **{dimension.key: dimension.from_optuna(params[dimension.key]) for dimension in recorded}}

    def settings(self, values: Mapping[str, Any]) -> Settings:
        """Return the stage's validated settings at a point; raise `DomainbertError` if values are incompatible."""
        problems = Problems(self.stage.name)
        settings = self.settings_at({key: to_node(value, key) for key, value in values.items()}, problems)
        problems.raise_if_any()
        return settings

    def settings_at(self, point: Mapping[str, Node], problems: Problems) -> Settings:
        """Return the stage's settings with the nodes of `point` at their dotted keys. Add their problems to
        `problems`."""
        return read_settings(self.stage.settings, self._tree_at(point), problems)

    def check_at(self, point: Mapping[str, Node], problems: Problems) -> Settings:
        """Return `settings_at(point)`; if the settings have no problems, add the problems of their input files."""
        before = len(problems.messages)
        settings = self.settings_at(point, problems)
        if len(problems.messages) == before:
            add_early_problems(self.stage, settings, self._tree_at(point), problems, self.input_cache)
        return settings

    def _tree_at(self, point: Mapping[str, Node]) -> Node:
        tree = self.base
        for key, node in sorted(point.items(), key=lambda entry: entry[0].count(".")):  # parents before children
            if isinstance(node.value, dict):  # first remove the mapping in the settings, which would be merged
                tree = merge(tree, at_key(key, Node(None, node.where)))
            tree = merge(tree, at_key(key, node))
        return replace(tree, where=self.base.where)


def read_space(stage: Stage, base: Node, space: Mapping[str, Parameter], nodes: Node, problems: Problems) -> Space:
    """Return the search space, after validating every value as far as possible before the stage runs.

    `base` has the stage's settings without `out`, and `nodes` the YAML nodes of the parameters. Use the result only if
    no problem was added.
    """
    ordered = {key: Dimension(key, space[key], nodes.value[key]) for key in _ordered_keys(space, nodes, problems)}
    base_space = Space(stage, base, tuple(ordered.values()))
    before = len(problems.messages)
    inputs = set(base_space.check_at(_point(base_space.dimensions, fixed={}), problems).inputs)
    if len(problems.messages) > before:  # the other points would repeat these problems
        return base_space

    dimensions = []
    for dimension in ordered.values():
        points = _points_to_validate(ordered, dimension)
        for point in points:
            inputs.update(base_space.check_at(point, problems).inputs)
        dimensions.append(_with_integer(base_space, points[0], dimension, problems))
    for node in (base, *(dimension.node for dimension in dimensions)):
        inputs.update(file for file in map(yaml_file, node.leaves()) if file is not None)
    base_space.input_cache.forget_items()  # trials run in separate processes
    return replace(base_space, dimensions=tuple(dimensions), inputs=tuple(sorted(inputs)))


def optuna_value(choice: Any) -> Any:
    """Return a choice in the form that Optuna records: lists and mappings as JSON, other values unchanged."""
    return json.dumps(choice, sort_keys=True) if isinstance(choice, (list, dict)) else choice


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _point(dimensions: Iterable[Dimension], fixed: Mapping[str, Node]) -> dict[str, Node]:
    """Return a point: the value in `fixed`, or else the first value, of each dimension whose conditions hold."""
    point: dict[str, Node] = {}
    for dimension in dimensions:
        if dimension.applies({key: node.plain() for key, node in point.items()}):
            point[dimension.key] = fixed.get(dimension.key, dimension.nodes_to_validate()[0])
    return point


def _required_values(dimensions: Mapping[str, Dimension], dimension: Dimension) -> dict[str, Node]:
    """Return values of other dimensions that fulfil the conditions (`when`) of `dimension`; recursive."""
    required: dict[str, Node] = {}
    for key, allowed in (dimension.parameter.when or {}).items():
        matching = [node for node in dimensions[key].nodes_to_validate() if node.plain() in _as_list(allowed)]
        required |= {**_required_values(dimensions, dimensions[key]), key: matching[0]}
    return required


def _points_to_validate(dimensions: Mapping[str, Dimension], dimension: Dimension) -> list[dict[str, Node]]:
    required = _required_values(dimensions, dimension)
    nodes = dimension.nodes_to_validate()
    return [_point(dimensions.values(), {**required, dimension.key: node}) for node in nodes]


def _with_integer(space: Space, point: Mapping[str, Node], dimension: Dimension, problems: Problems) -> Dimension:
    """Set `integer`: whether the stage rejects a fraction in a range with integer ends. `point` has the dimension."""
    low, high, step = dimension.parameter.low, dimension.parameter.high, dimension.parameter.step
    if low is None or high is None or not (low.is_integer() and high.is_integer()):
        return dimension
    ignored_problems = Problems("")
    space.settings_at({**point, dimension.key: Node(low + 0.5, where="")}, ignored_problems)
    integer = any("an integer" in message for message in ignored_problems.messages)
    if integer and step is not None and not step.is_integer():
        location = f"{dimension.node.value['step'].where}: space.{dimension.key}.step"
        problems.add(where=location, found=step, expected=f"an integer, because {dimension.key} is an integer")
    return replace(dimension, integer=integer)


def _ordered_keys(space: Mapping[str, Parameter], nodes: Node, problems: Problems) -> list[str]:
    """Return the keys of the space in its order, except that a key comes after the keys that its conditions name."""
    for key, parameter in space.items():
        for other, value in (parameter.when or {}).items():
            for error in _condition_errors(space, other, value):
                problems.add(error.within(f"{nodes.value[key].where}: space.{key}.when.{other}"))
    problems.raise_if_any()
    ordered: list[str] = []
    while len(ordered) < len(space):
        ready = [key for key in space if key not in ordered and set(space[key].when or {}) <= set(ordered)]
        if not ready:
            names = ", ".join(key for key in space if key not in ordered)
            raise DomainbertError(
                f"the conditions 'when' of {names} form a cycle",
                where=f"{nodes.where}: space",
                hint="remove 'when' from one of them",
            )
        ordered.append(ready[0])  # one at a time: a key that precedes ready[1] may be ready next
    return ordered


def _condition_errors(space: Mapping[str, Parameter], key: str, value: Any) -> list[DomainbertError]:
    """`value` is the value of the setting `key` that the condition requires, or a list of allowed values."""
    if key not in space:
        return [DomainbertError(f"'{key}' is not in the space", **suggest_name(key, space))]
    choices = space[key].choices
    if choices is None:
        return [DomainbertError(f"space.{key} is a range", hint="use choices there, or remove this condition")]
    expected = f"one of {list(choices)}"
    return [DomainbertError(found=repr(item), expected=expected) for item in _as_list(value) if item not in choices]
