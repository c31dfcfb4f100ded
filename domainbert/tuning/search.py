"""A search as it is read from YAML, checked as a whole before its first trial."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError, Problems
from domainbert.base.redact import redact
from domainbert.runner.stage_table import STAGES, load_stage
from domainbert.settings.reader import Settings, as_plain, read_settings
from domainbert.settings.schema import defaults_of
from domainbert.settings.tree import as_mapping, nearest, read_config
from domainbert.settings.variables import read_variables, substitute
from domainbert.settings.yaml_files import Node
from domainbert.tasks.config import Headline, TaskConfig
from domainbert.tuning.config import COST, TuneConfig
from domainbert.tuning.methods import enqueued_problems, grid_size, method_problems
from domainbert.tuning.slots import check_gpus
from domainbert.tuning.space import Space, read_space

_LENGTHS, _TIMED = ("max_epochs", "max_steps", "max_tokens"), ("cost/latency", "cost/words_per_second")


@dataclass(frozen=True)
class Search:
    """A checked search."""

    config: TuneConfig
    space: Space
    out: Path

    @property
    def headline(self) -> Headline | None:
        """The metric by which the stage keeps its best evaluation: that of its task, where it can stop early."""
        if "patience" not in defaults_of(self.space.stage.settings):
            return None
        task: TaskConfig = self.space.settings(self.space.first()).arguments["task"]
        return task.headline

    @property
    def terms(self) -> dict[str, Any]:
        """The terms of all trials of a study."""
        config = self.config
        return {
            "stage": config.stage,
            "objective": dict(zip(config.objective, config.directions, strict=True)),
            "k_folds": None if config.k_folds is None else {"number": config.k_folds, "seed": config.seed},
            "space": {one.key: {**as_plain(one.parameter), "integer": one.integer} for one in self.space.dimensions},
            "enqueue": list(config.enqueue),
            "settings": redact(self.space.base.plain()),
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
    tree = substitute(tree, read_variables(tree, os.environ, problems), problems)
    problems.raise_if_any()
    rest = {key: node for key, node in tree.value.items() if key not in ("out", "vars")}
    settings = read_settings(TuneConfig, replace(tree, value=rest), problems)
    out = tree.value.get("out")
    if out is None or not isinstance(out.value, str) or not out.value.strip():
        problems.add(f"{(out or tree).where}: out: expected the folder of the study")
    problems.raise_if_any()
    assert out is not None
    config = _config(settings, tree, Path(out.value))
    return _checked(config, Path(out.value), replace(tree, value=rest), problems)


def _config(settings: Settings, tree: Node, out: Path) -> TuneConfig:
    try:
        config = TuneConfig(**settings.arguments)
        check_gpus(config.gpus)
    except DomainbertError as error:
        raise DomainbertError(f"{tree.where}: {error}") from error
    return replace(config, study=config.study or out.name)


def _checked(config: TuneConfig, out: Path, tree: Node, problems: Problems) -> Search:
    if config.stage not in STAGES:
        raise DomainbertError(
            f"{tree.at(['stage']).where}: stage: no stage '{config.stage}'; {nearest(config.stage, list(STAGES))}"
        )
    stage, base = load_stage(config.stage), tree.value["settings"]
    if "test" in defaults_of(stage.settings):
        raise DomainbertError(
            f"{tree.at(['stage']).where}: stage: {stage.name} opens the test set; a search never does"
        )
    if "out" in base.value:
        problems.add(f"{base.value['out'].where}: settings.out: trials have folders of their own; expected no out here")
    space = read_space(stage, base, config.space, tree.value["space"], problems)
    problems.raise_if_any()
    enqueued_problems(space, config.enqueue, tree.at(["enqueue"]), problems)
    method_problems(config, space, tree.where, problems)
    problems.raise_if_any()
    _check_stage(config, space.settings(space.first()), tree)
    return _with_direction(Search(config, space, out))


def _with_direction(search: Search) -> Search:
    """Take the direction of the headline from the task, unless the YAML gives directions."""
    config, headline = search.config, search.headline
    if config.direction is not None or headline is None:
        return search
    usual = zip(config.objective, config.directions, strict=True)
    directions = [headline.direction if name == headline.monitor else direction for name, direction in usual]
    return replace(search, config=replace(config, direction=tuple(directions)))


def within_grid(search: Search) -> Search:
    """Limit the trials of a grid to its number of points, and print that."""
    config = search.config
    if config.sampler != "grid" or (points := grid_size(search.space)) >= config.trials:
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
