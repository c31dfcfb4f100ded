"""A search as it is read from YAML, checked as a whole before its first trial."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from domainbert.base.choices import as_plain
from domainbert.base.errors import DomainbertError, Problems, nearest
from domainbert.base.hashes import FileHashes
from domainbert.base.paths import WHOLE_PATH, starts_at_home
from domainbert.base.redact import redact
from domainbert.metrics.headline import LOSS, Headline
from domainbert.runner.stage_table import STAGES, load_stage
from domainbert.settings.reader import Settings, read_settings
from domainbert.settings.schema import defaults_of
from domainbert.settings.tree import (
    as_mapping,
    check_variables_read,
    of_environment,
    read_config,
    read_variables,
    substitute,
)
from domainbert.settings.yaml_files import Node
from domainbert.tasks.config import TaskConfig
from domainbert.tuning.config import COST, VALIDATION, TuneConfig, Values
from domainbert.tuning.slots import check_gpus
from domainbert.tuning.space import Dimension, Space, read_space

_DIGITS = 16  # of the hash of a file
_OF_FOLDS = ("train", "validation")
_LENGTHS, _TIMED = ("max_epochs", "max_steps", "max_tokens"), ("cost/latency", "cost/words_per_second")


@dataclass(frozen=True)
class Search:
    """A checked search."""

    config: TuneConfig
    space: Space
    out: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    """Those that the environment has set."""

    @property
    def headline(self) -> Headline | None:
        """The metric by which the stage keeps its best evaluation, where it trains on a task."""
        if "select_by" not in defaults_of(self.space.stage.settings):
            return None
        chosen_by: Headline = self.space.settings(self.space.first()).instance.chosen_by
        return chosen_by

    @property
    def terms(self) -> dict[str, Any]:
        """The terms of all trials of a study, the contents of the files that they read among them."""
        config, hashes = self.config, FileHashes()
        return {
            "stage": config.stage,
            "objective": dict(zip(config.objective, config.directions, strict=True)),
            "k_folds": None if config.k_folds is None else {"number": config.k_folds, "seed": config.seed},
            "space": {one.key: {**as_plain(one.parameter), "integer": one.integer} for one in self.space.dimensions},
            "enqueue": list(config.enqueue),
            "settings": redact(self.space.base.plain()),
            "inputs": {str(path): hashes.of(path)[:_DIGITS] for path in self.space.inputs},
        }


def read_search(files: Sequence[Path], options: Sequence[tuple[str, str]]) -> Search:
    """Read a search and check it: its own keys, the stage's settings, and every value that may be tried.

    Args:
        files: YAML files; later wins.
        options: `(dotted.key, text)` that override them; `settings.optim.lr` and `vars.data`, too. Keys of the space
            hold dots themselves, and stand in the YAML only.

    Raises:
        DomainbertError: lists every problem.
    """
    problems = Problems(", ".join(map(str, files)) or "command line")
    tree = read_config(files, options, "command line")
    if "settings" in tree.value:
        tree = replace(tree, value={**tree.value, "settings": as_mapping(tree.value["settings"])})
    variables = read_variables(tree, os.environ, problems)
    check_variables_read(tree, read_config(files, [], "command line").value.get("vars"), options, problems)
    tree = substitute(tree, variables, problems)
    problems.raise_if_any()
    out, rest = tree.value.get("out"), tree.without("out", "vars")
    settings = read_settings(TuneConfig, rest, problems)
    if out is None or not isinstance(out.value, str) or not out.value.strip():
        problems.add(f"{(out or tree).where}: out: expected the folder of the study")
    elif starts_at_home(out.value):
        problems.add(f"{out.where}: out: found {out.shown()}; {WHOLE_PATH}")
    problems.raise_if_any()
    assert out is not None
    try:
        check_gpus(settings.instance.gpus)
    except DomainbertError as error:
        raise DomainbertError(f"{tree.where}: {error}") from error
    folder = Path(out.value)
    config = replace(settings.instance, study=settings.instance.study or folder.name)
    checked = _checked(config, folder, rest, problems)
    return replace(checked, variables=of_environment(variables, options, os.environ))


def _checked(config: TuneConfig, out: Path, tree: Node, problems: Problems) -> Search:
    key = f"{tree.at(['stage']).where}: stage"
    if config.stage not in STAGES:
        raise DomainbertError(f"{key}: no stage '{config.stage}'; {nearest(config.stage, list(STAGES))}")
    stage, base = load_stage(config.stage), tree.value["settings"]
    if "test" in defaults_of(stage.settings):
        raise DomainbertError(f"{key}: {stage.name} opens the test set; a search never does")
    if "out" in base.value:
        problems.add(f"{base.value['out'].where}: settings.out: trials have folders of their own; expected no out here")
    if config.k_folds and "train" in base.value:  # each fold replaces both sets
        base = replace(base, value={"validation": base.value["train"], **base.value})
    space = read_space(stage, base, config.space, tree.value["space"], problems)
    problems.raise_if_any()
    _check_enqueued(space, config.enqueue, tree.at(["enqueue"]), problems)
    _check_sampler(config, space, tree.where, problems)
    problems.raise_if_any()
    _check_stage(config, space.settings(space.first()), tree)
    return _with_objective(Search(config, space, out))


def _with_objective(search: Search) -> Search:
    """Take the objective and the directions of its metrics from the task, unless the YAML gives them."""
    config, headline = search.config, search.headline
    if not config.objective:
        own = f"{VALIDATION}loss" if headline is None else headline.monitor
        config = replace(config, objective=(own,))
        search = replace(search, config=config)
    if headline not in (None, LOSS) and LOSS.monitor in config.objective:
        raise DomainbertError(
            f"objective: {config.stage} measures {LOSS.monitor} where epochs are chosen by it; expected "
            "settings.select_by: loss, or another objective"
        )
    if config.direction is not None or headline is None:
        return search
    task = search.space.settings(search.space.first()).arguments.get("task")
    further = task.further if isinstance(task, TaskConfig) else ()
    known = {one.monitor: one.direction for one in (*further, headline)}
    usual = zip(config.objective, config.directions, strict=True)
    directions = [known.get(name, direction) for name, direction in usual]
    return replace(search, config=replace(config, direction=tuple(directions)))


def within_grid(search: Search) -> Search:
    """Limit the trials of a grid to its number of points, and print that."""
    config = search.config
    if config.sampler != "grid" or (points := _grid_size(search.space)) >= config.trials:
        return search
    print(f"sampler: the grid has {points} points, so trials: {points} in place of {config.trials}", flush=True)
    return replace(search, config=replace(config, trials=points))


def warn_of_unfairness(search: Search) -> None:
    """Warn if trials early in a long schedule are compared with trials late in a short one, or speeds under load."""
    config = search.config
    lengths = [one.key for one in search.space.dimensions if one.key.split(".")[-1] in _LENGTHS]
    if lengths and config.prunes:
        what = f"space.{lengths[0]}: {config.pruner} compares trials after equally many evaluations,"
        print(f"{what} where those with a longer schedule are behind; expected one length, or pruner: none", flush=True)
    timed = [name for name in config.objective if name.startswith(_TIMED)]
    if timed and config.num_slots > 1:
        print(f"objective: {timed[0]} is measured while other trials run; expected parallel: 1", flush=True)


def _check_stage(config: TuneConfig, settings: Settings, tree: Node) -> None:
    """Refuse a search that the stage does not support."""
    costs = [name for name in config.objective if name.startswith(COST)]
    if costs and config.stage != "finetune":
        raise DomainbertError(
            f"{tree.at(['objective']).where}: objective: {costs[0]} works with finetune only; expected validation/..."
        )
    if config.prunes and "jsonl" not in settings.plain.get("loggers", ["jsonl"]):
        raise DomainbertError(
            f"{tree.where}: pruner: {config.pruner} follows metrics.jsonl; expected jsonl among settings.loggers"
        )
    if config.k_folds and config.stage != "finetune":  # the teachers of distill-task have seen what is held out
        raise DomainbertError(f"{tree.at(['k_folds']).where}: k_folds: works with finetune only; found {config.stage}")
    for key in tree.value["space"].value if config.k_folds else ():
        if key.partition(".")[0] in _OF_FOLDS:
            where = tree.at(["space", key]).where
            raise DomainbertError(
                f"{where}: space.{key}: found beside k_folds, which divide one set; expected one of them"
            )


def _check_enqueued(space: Space, enqueue: Sequence[Values], nodes: Node, problems: Problems) -> None:
    dimensions = {one.key: one for one in space.dimensions}
    for number, point in enumerate(enqueue):
        for key, value in point.items():
            place = f"{nodes.at([str(number), key]).where}: enqueue[{number}]"
            if key not in dimensions:
                problems.add(f"{place}: '{key}' is not in the space; {nearest(key, list(dimensions))}")
            elif (message := dimensions[key].problem_of(value)) is not None:
                problems.add(f"{place}.{key}: {message}")
            elif (other := dimensions[key].excluded_by(point)) is not None:
                problems.add(f"{place}.{key}: does not vary where {other} is {point[other]!r}")


def _check_sampler(config: TuneConfig, space: Space, where: str, problems: Problems) -> None:
    """Check that the sampler can draw from the space, and that it is installed."""
    from domainbert.tuning.methods import build_sampler

    for one in space.dimensions:
        place, parameter = f"{one.node.where}: space.{one.key}", one.parameter
        if config.sampler == "grid" and parameter.choices is None and not one.integer and parameter.step is None:
            problems.add(f"{place}: is a range without steps; expected a step for sampler: grid")
        if config.sampler == "cmaes" and parameter.choices is not None:
            problems.add(f"{place}: has choices; expected ranges only for sampler: cmaes")
    if config.sampler == "cmaes" and len(config.objective) > 1:
        problems.add(f"{where}: sampler: cmaes has one objective; expected another sampler, or one objective")
    try:
        build_sampler(config, 0)
    except ImportError as error:
        what = f"{config.sampler} needs what is not installed ({error}); pip install 'domainbert[tune]'"
        problems.add(f"{where}: sampler: {what}")


def _grid_size(space: Space) -> int:
    """Points of a grid over a space; settings that do not vary at a point do not multiply it.

    More than a million are a `DomainbertError`: too many for a search.
    """
    points: list[dict[str, Any]] = [{}]
    for one in space.dimensions:
        values = _grid_values(one)
        wider = ([{**point, one.key: value} for value in values] if one.applies(point) else [point] for point in points)
        points = [point for group in wider for point in group]
        if len(points) > 1_000_000:
            raise DomainbertError("space: more than a million points; expected fewer for sampler: grid")
    return len(points)


def _grid_values(one: Dimension) -> list[Any]:
    parameter = one.parameter
    if parameter.choices is not None:
        return list(parameter.choices)
    assert parameter.low is not None and parameter.high is not None
    step = parameter.step or 1
    return [parameter.low + number * step for number in range(int((parameter.high - parameter.low) / step + 1e-9) + 1)]
