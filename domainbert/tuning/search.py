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
from domainbert.tuning.config import COST, TuneConfig
from domainbert.tuning.space import Dimension, Space, read_space

_HASH_DIGITS = 16  # recorded digits of a file hash
_FOLD_SETTINGS = ("train", "validation")
_LENGTH_SETTINGS = ("max_epochs", "max_steps", "max_tokens")


@dataclass(frozen=True)
class Search:
    """A validated search."""

    config: TuneConfig
    space: Space
    out: Path
    variables: Mapping[str, str] = field(default_factory=dict)  # variables that were set by the environment

    @property
    def headline(self) -> Headline | None:
        """Metric that selects the best evaluation of a training on a task; None for stages without `select_by`."""
        if "select_by" not in defaults_of(self.space.stage.settings):
            return None
        metric: Headline = self.space.first_settings().instance.selection_metric
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

    Later files override earlier files. `options` are `(dotted.key, text)` pairs that override the files, such as
    `settings.optim.lr` and `vars.data`. The space cannot be overridden, because its keys contain dots.
    """
    problems = Problems(", ".join(map(str, files)) or "command line")
    tree = read_config(files, options)
    if "settings" in tree.value:  # perhaps the name of a YAML file
        tree = replace(tree, value={**tree.value, "settings": as_mapping(tree.value["settings"])})
    variables = read_variables(tree, os.environ, problems)
    declared_variables = read_config(files, []).value.get("vars")  # in the files, not in options
    check_variables_read(tree, declared_variables, options, problems)
    tree = substitute(tree, variables, problems)
    problems.raise_if_any()
    out, config_tree = tree.value.get("out"), tree.without("out", "vars")
    settings = read_settings(TuneConfig, config_tree, problems)
    if out is None or not isinstance(out.value, str) or not out.value.strip():
        problems.add(
            "missing, or no text", where=f"{(out or tree).where}: out", expected="a folder, such as 'runs/search'"
        )
    elif starts_at_home(out.value):
        problems.add(where=f"{out.where}: out", found=out.short_text(), expected=WHOLE_PATH)
    problems.raise_if_any()
    assert out is not None
    folder = Path(out.value)
    config = replace(settings.instance, study=settings.instance.study or folder.name)
    search = _build_search(config, folder, config_tree, problems)
    return replace(search, variables=select_environment_variables(variables, options, os.environ))


def _build_search(config: TuneConfig, out: Path, tree: Node, problems: Problems) -> Search:
    location = f"{tree.at(['stage']).where}: stage"
    if config.stage not in STAGES:
        raise DomainbertError(f"no stage '{config.stage}'", where=location, **suggest_name(config.stage, STAGES))
    stage = load_stage(config.stage)
    if "test" in defaults_of(stage.settings):
        raise DomainbertError(
            f"{stage.name} reads the test set", where=location, hint="use another stage, such as finetune"
        )
    base = tree.value["settings"]
    if "out" in base.value:
        problems.add(
            "remove this key", where=f"{base.value['out'].where}: settings.out", hint="each trial has its own folder"
        )
    if config.k_folds and "train" in base.value:  # `validation` may be omitted: each fold replaces both sets
        base = replace(base, value={"validation": base.value["train"], **base.value})
    space = read_space(stage, base, config.space, tree.value["space"], problems)
    problems.raise_if_any()
    _check_enqueued(space, config.enqueue, tree.at(["enqueue"]), problems)
    _check_sampler(config, space, tree.where, problems)
    problems.raise_if_any()
    _check_stage(config, space.first_settings(), tree)
    return _with_objective(Search(config, space, out))


def _with_objective(search: Search) -> Search:
    """Return the search; an objective or directions that the YAML does not set follow from the stage's task."""
    config, headline = search.config, search.headline
    if not config.objective:
        default_objective = LOSS.monitor if headline is None else headline.monitor
        config = replace(config, objective=(default_objective,))
        search = replace(search, config=config)
    if headline not in (None, LOSS) and LOSS.monitor in config.objective:
        raise DomainbertError(
            f"{config.stage} measures {LOSS.monitor} only with select_by: loss",
            where="objective",
            hint=f"add this to settings, or use the objective {headline.monitor}",
        )
    if config.direction is not None or headline is None:
        return search
    # directions that the task defines for its metrics; other metrics keep the default
    task = search.space.first_settings().arguments.get("task")
    task_metrics = [*task.further, headline] if isinstance(task, TaskConfig) else [headline]
    task_directions = {metric.monitor: metric.direction for metric in task_metrics}
    defaults = zip(config.objective, config.directions, strict=True)
    directions = [task_directions.get(name, default) for name, default in defaults]
    return replace(search, config=replace(config, direction=tuple(directions)))


def limit_to_grid(search: Search) -> Search:
    """Return the search with at most as many trials as its grid has points; print a note if it is limited."""
    config = search.config
    if config.sampler != "grid":
        return search
    points = _grid_size(search.space)
    if points >= config.trials:
        return search
    print(f"sampler: trials is limited to the points of the grid: {points}, not {config.trials}", flush=True)
    return replace(search, config=replace(config, trials=points))


def warn_unfair_comparison(search: Search) -> None:
    """Print a warning if pruning compares schedules of different lengths."""
    config = search.config
    keys = [dimension.key for dimension in search.space.dimensions]
    lengths = [key for key in keys if key.split(".")[-1] in _LENGTH_SETTINGS]
    if lengths and config.prunes:
        text = f"space.{lengths[0]}: the pruner {config.pruner} compares trials at equal numbers of evaluations, where"
        print(f"{text} longer schedules score worse; remove this key from space, or set pruner: none", flush=True)


def _check_stage(config: TuneConfig, settings: Settings, tree: Node) -> None:
    costs = [name for name in config.objective if name.startswith(COST)]
    if costs and config.stage != "finetune":
        raise DomainbertError(
            f"only finetune measures {costs[0]}",
            where=f"{tree.at(['objective']).where}: objective",
            hint="use validation/NAME",
        )
    if config.prunes and "jsonl" not in settings.plain.get("loggers", ["jsonl"]):
        raise DomainbertError(
            f"{config.pruner} needs jsonl in settings.loggers",
            where=f"{tree.where}: pruner",
            hint="add it, or set pruner: none",
        )
    if config.k_folds and config.stage != "finetune":  # the teachers of distill-task were trained on held-out folds
        raise DomainbertError(
            where=f"{tree.at(['k_folds']).where}: k_folds",
            found=f"with stage {config.stage}",
            hint="remove it, or set stage: finetune",
        )
    for key in tree.value["space"].value:
        if config.k_folds and key.partition(".")[0] in _FOLD_SETTINGS:
            where = tree.at(["space", key]).where
            raise DomainbertError(
                where=f"{where}: space.{key}",
                found=f"together with k_folds, which sets {key}",
                hint="remove one of these keys",
            )


def _check_enqueued(space: Space, enqueue: Sequence[Mapping[str, Any]], nodes: Node, problems: Problems) -> None:
    dimensions = {dimension.key: dimension for dimension in space.dimensions}
    for number, point in enumerate(enqueue):
        for key, value in point.items():
            location = f"{nodes.at([str(number), key]).where}: enqueue[{number}]"
            if key not in dimensions:
                problems.add(f"'{key}' is not in the space", where=location, **suggest_name(key, dimensions))
            elif (expected := dimensions[key].expected_for(value)) is not None:
                problems.add(where=f"{location}.{key}", found=repr(value), expected=expected)
            elif (condition_key := dimensions[key].excluded_by(point)) is not None:
                excluded = f"{condition_key} {point[condition_key]!r}, which space.{key}.when excludes"
                problems.add(where=f"{location}.{key}", found=f"together with {excluded}", hint=f"remove {key} here")


def _check_sampler(config: TuneConfig, space: Space, where: str, problems: Problems) -> None:
    from domainbert.tuning.study import build_sampler  # here: imports Optuna

    for dimension in space.dimensions:
        location, parameter = f"{dimension.node.where}: space.{dimension.key}", dimension.parameter
        continuous = parameter.choices is None and not dimension.integer and parameter.step is None
        if config.sampler == "grid" and continuous:
            problems.add("is a range without step", where=location, hint="add step, or use another sampler than grid")
        if config.sampler == "cmaes" and parameter.choices is not None:
            problems.add("has choices", where=location, hint="use low and high, or another sampler than cmaes")
    if config.sampler == "cmaes" and len(config.objective) > 1:
        problems.add(
            "cmaes supports only one objective", where=f"{where}: sampler", hint="use another sampler, or one objective"
        )
    try:
        build_sampler(config, number=0)  # imports the packages of the sampler
    except ImportError as error:
        problems.add(
            f"{config.sampler} needs a package ({error})",
            where=f"{where}: sampler",
            hint="run pip install 'domainbert[tune]'",
        )


def _grid_size(space: Space) -> int:
    """Return the number of points of a grid; a point has no value of a setting whose condition (`when`) it violates."""
    points: list[dict[str, Any]] = [{}]
    for dimension in space.dimensions:
        values = _grid_values(dimension)
        extended_points = []
        for point in points:
            if dimension.applies(point):
                extended_points += [{**point, dimension.key: value} for value in values]
            else:
                extended_points.append(point)
        points = extended_points
        if len(points) > 1_000_000:
            raise DomainbertError(
                "has more than a million points", where="space", hint="use larger steps, or another sampler"
            )
    return len(points)


def _grid_values(dimension: Dimension) -> list[Any]:
    parameter = dimension.parameter
    if parameter.choices is not None:
        return list(parameter.choices)
    assert parameter.low is not None and parameter.high is not None
    step = parameter.step or 1  # only a range of integers may have no step
    num_steps = int((parameter.high - parameter.low) / step + 1e-9)  # rounding errors must not lose the last step
    return [parameter.low + number * step for number in range(num_steps + 1)]
