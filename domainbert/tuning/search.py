"""Read a search from YAML and validate it completely before the first trial."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from domainbert.base.choices import as_plain
from domainbert.base.errors import DomainbertError, Problems, suggest_name
from domainbert.base.files import FileHashes
from domainbert.base.paths import WHOLE_PATH, starts_at_home
from domainbert.base.redact import redact
from domainbert.metrics.headline import LOSS, Headline
from domainbert.runner.stage_table import STAGES, load_stage
from domainbert.settings.reader import Settings, read_settings
from domainbert.settings.schema import defaults_of
from domainbert.settings.tree import (
    as_mapping,
    check_variables_read,
    read_config,
    read_variables,
    select_environment_variables,
    substitute,
)
from domainbert.settings.yaml_files import Node
from domainbert.tasks.config import TaskConfig
from domainbert.tuning.config import COST, VALIDATION, TuneConfig, Values
from domainbert.tuning.slots import check_gpus
from domainbert.tuning.space import Dimension, Space, read_space

_HASH_DIGITS = 16  # recorded digits of a file hash
_FOLD_SETTINGS = ("train", "validation")
_LENGTH_SETTINGS, _TIME_COSTS = ("max_epochs", "max_steps", "max_tokens"), ("cost/latency", "cost/words_per_second")


@dataclass(frozen=True)
class Search:
    """A validated search."""

    config: TuneConfig
    space: Space
    out: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables that were set by the environment."""

    @property
    def headline(self) -> Headline | None:
        """Metric that selects the best evaluation of a training on a task; None for stages without `select_by`."""
        if "select_by" not in defaults_of(self.space.stage.settings):
            return None
        metric: Headline = self.space.settings(self.space.first_point()).instance.selection_metric
        return metric

    @property
    def terms(self) -> dict[str, Any]:
        """Settings and file hashes that all workers of a study have to share, recorded in the study; plain values."""
        config, hashes = self.config, FileHashes()
        return {
            "stage": config.stage,
            "objective": dict(zip(config.objective, config.directions, strict=True)),
            "k_folds": None if config.k_folds is None else {"number": config.k_folds, "seed": config.seed},
            "space": {dim.key: {**as_plain(dim.parameter), "integer": dim.integer} for dim in self.space.dimensions},
            "enqueue": list(config.enqueue),
            "settings": redact(self.space.base.plain()),
            "inputs": {str(path): hashes.hash_path(path)[:_HASH_DIGITS] for path in self.space.inputs},
        }


def read_search(files: Sequence[Path], options: Sequence[tuple[str, str]]) -> Search:
    """Return a search from YAML, after validating its keys, the stage's settings, and every value of the space.

    Args:
        files: YAML files; later files override earlier files.
        options: `(dotted.key, text)` pairs that override the files, such as `settings.optim.lr` and `vars.data`. The
            space cannot be overridden, because its keys contain dots.

    Raises:
        DomainbertError: lists all problems.
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
        problems.add(f"{out.where}: out: found {out.short_text()}; {WHOLE_PATH}")
    problems.raise_if_any()
    assert out is not None
    try:
        check_gpus(settings.instance.gpus)
    except DomainbertError as error:
        raise DomainbertError(f"{tree.where}: {error}") from error
    folder = Path(out.value)
    config = replace(settings.instance, study=settings.instance.study or folder.name)
    search = _build_search(config, folder, rest, problems)
    return replace(search, variables=select_environment_variables(variables, options, os.environ))


def _build_search(config: TuneConfig, out: Path, tree: Node, problems: Problems) -> Search:
    key = f"{tree.at(['stage']).where}: stage"
    if config.stage not in STAGES:
        raise DomainbertError(f"{key}: no stage '{config.stage}'; {suggest_name(config.stage, list(STAGES))}")
    stage, base = load_stage(config.stage), tree.value["settings"]
    if "test" in defaults_of(stage.settings):
        raise DomainbertError(f"{key}: {stage.name} reads the test set; expected a stage that does not")
    if "out" in base.value:
        problems.add(f"{base.value['out'].where}: settings.out: expected no out here, each trial has its folder")
    if config.k_folds and "train" in base.value:  # each fold replaces both sets
        base = replace(base, value={"validation": base.value["train"], **base.value})
    space = read_space(stage, base, config.space, tree.value["space"], problems)
    problems.raise_if_any()
    _check_enqueued(space, config.enqueue, tree.at(["enqueue"]), problems)
    _check_sampler(config, space, tree.where, problems)
    problems.raise_if_any()
    _check_stage(config, space.settings(space.first_point()), tree)
    return _with_objective(Search(config, space, out))


def _with_objective(search: Search) -> Search:
    """Return the search with objective and directions from the task, unless the YAML sets them."""
    config, headline = search.config, search.headline
    if not config.objective:
        default = f"{VALIDATION}loss" if headline is None else headline.monitor
        config = replace(config, objective=(default,))
        search = replace(search, config=config)
    if headline not in (None, LOSS) and LOSS.monitor in config.objective:
        raise DomainbertError(
            f"objective: {config.stage} measures {LOSS.monitor} only with settings.select_by: loss; expected this "
            "setting, or another objective"
        )
    if config.direction is not None or headline is None:
        return search
    task = search.space.settings(search.space.first_point()).arguments.get("task")
    further = task.further if isinstance(task, TaskConfig) else ()
    task_directions = {metric.monitor: metric.direction for metric in (*further, headline)}
    defaults = zip(config.objective, config.directions, strict=True)
    directions = [task_directions.get(name, direction) for name, direction in defaults]
    return replace(search, config=replace(config, direction=tuple(directions)))


def limit_to_grid(search: Search) -> Search:
    """Return the search with at most as many trials as its grid has points; print a note if it is limited."""
    config = search.config
    if config.sampler != "grid" or (points := _grid_size(search.space)) >= config.trials:
        return search
    print(f"sampler: the grid has {points} points; trials: {points} instead of {config.trials}", flush=True)
    return replace(search, config=replace(config, trials=points))


def warn_unfair_comparison(search: Search) -> None:
    """Print a warning if pruning compares schedules of different lengths, or speed is measured under load."""
    config = search.config
    keys = [dimension.key for dimension in search.space.dimensions]
    lengths = [key for key in keys if key.split(".")[-1] in _LENGTH_SETTINGS]
    if lengths and config.prunes:
        text = f"space.{lengths[0]}: {config.pruner} compares trials after the same number of evaluations, where"
        print(f"{text} trials with a longer schedule score worse; expected a fixed length, or pruner: none", flush=True)
    time_costs = [name for name in config.objective if name.startswith(_TIME_COSTS)]
    if time_costs and config.num_slots > 1:
        print(f"objective: {time_costs[0]} is measured while other trials run; expected parallel: 1", flush=True)


def _check_stage(config: TuneConfig, settings: Settings, tree: Node) -> None:
    costs = [name for name in config.objective if name.startswith(COST)]
    if costs and config.stage != "finetune":
        raise DomainbertError(
            f"{tree.at(['objective']).where}: objective: {costs[0]} requires stage finetune; expected validation/..."
        )
    if config.prunes and "jsonl" not in settings.plain.get("loggers", ["jsonl"]):
        raise DomainbertError(
            f"{tree.where}: pruner: {config.pruner} reads metrics.jsonl; expected jsonl in settings.loggers"
        )
    if config.k_folds and config.stage != "finetune":  # the teachers of distill-task were trained on held-out folds
        raise DomainbertError(f"{tree.at(['k_folds']).where}: k_folds: requires stage finetune; found {config.stage}")
    for key in tree.value["space"].value if config.k_folds else ():
        if key.partition(".")[0] in _FOLD_SETTINGS:
            where = tree.at(["space", key]).where
            raise DomainbertError(f"{where}: space.{key}: found with k_folds, which set it; expected only one of them")


def _check_enqueued(space: Space, enqueue: Sequence[Values], nodes: Node, problems: Problems) -> None:
    dimensions = {dimension.key: dimension for dimension in space.dimensions}
    for number, point in enumerate(enqueue):
        for key, value in point.items():
            location = f"{nodes.at([str(number), key]).where}: enqueue[{number}]"
            if key not in dimensions:
                problems.add(f"{location}: '{key}' is not in the space; {suggest_name(key, list(dimensions))}")
            elif (message := dimensions[key].problem_of(value)) is not None:
                problems.add(f"{location}.{key}: {message}")
            elif (other := dimensions[key].excluded_by(point)) is not None:
                problems.add(f"{location}.{key}: does not vary if {other} is {point[other]!r}; omit it")


def _check_sampler(config: TuneConfig, space: Space, where: str, problems: Problems) -> None:
    from domainbert.tuning.methods import build_sampler

    for dimension in space.dimensions:
        location, parameter = f"{dimension.node.where}: space.{dimension.key}", dimension.parameter
        continuous = parameter.choices is None and not dimension.integer and parameter.step is None
        if config.sampler == "grid" and continuous:
            problems.add(f"{location}: is a range without step; expected a step for sampler: grid")
        if config.sampler == "cmaes" and parameter.choices is not None:
            problems.add(f"{location}: has choices; expected a range for sampler: cmaes")
    if config.sampler == "cmaes" and len(config.objective) > 1:
        problems.add(f"{where}: sampler: cmaes supports one objective; expected another sampler, or one objective")
    try:
        build_sampler(config, 0)
    except ImportError as error:
        problems.add(
            f"{where}: sampler: {config.sampler} needs a package ({error}); run pip install 'domainbert[tune]'"
        )


def _grid_size(space: Space) -> int:
    """Return the number of points of a grid; a setting does not multiply the points where it does not vary."""
    points: list[dict[str, Any]] = [{}]
    for dimension in space.dimensions:
        axis = [{dimension.key: value} for value in _grid_values(dimension)]
        points = [point | change for point in points for change in (axis if dimension.applies(point) else [{}])]
        if len(points) > 1_000_000:
            raise DomainbertError("space: has more than a million points; expected fewer for sampler: grid")
    return len(points)


def _grid_values(dimension: Dimension) -> list[Any]:
    parameter = dimension.parameter
    if parameter.choices is not None:
        return list(parameter.choices)
    assert parameter.low is not None and parameter.high is not None
    step = parameter.step or 1
    return [parameter.low + number * step for number in range(int((parameter.high - parameter.low) / step + 1e-9) + 1)]
