"""How runs were made: settings that differ, commands, versions, hashes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from domainbert.base.progress import format_duration
from domainbert.base.table import Cell, Number, Table
from domainbert.report.runs import Run, StageFolder, settings_of

_NOT_SET = "not set"
_WEIGHTS = ".safetensors"


def setting_tables(runs: Sequence[Run]) -> list[Table]:
    """Return tables of the settings that differ between runs, by stage; for a single run, between its trainings."""
    tables = _tables_by_stage(runs) if len(runs) > 1 else _training_tables(runs[0])
    return [table for table in tables if table.rows]


def _tables_by_stage(runs: Sequence[Run]) -> list[Table]:
    by_stage: dict[str, dict[str, dict[str, str]]] = {}  # stage name, run name, settings
    for run in runs:
        for stage in run.stages:
            by_stage.setdefault(stage.name, {})[run.name] = _flatten_settings(settings_of(stage))
    return [_difference_table(f"Stage {name}", settings) for name, settings in by_stage.items()]


def _training_tables(run: Run) -> list[Table]:
    groups: dict[tuple[str, str], dict[str, dict[str, str]]] = {}  # by function and task: stage name, settings
    for stage in run.stages:
        settings = _flatten_settings(settings_of(stage))
        if "optim.name" in settings:  # the stage trains
            groups.setdefault((stage.kind, settings.get("task.class_path", "")), {})[stage.name] = settings
    return [_difference_table(f"Trainings by {kind}", group) for (kind, _), group in groups.items() if len(group) > 1]


def _difference_table(caption: str, settings: Mapping[str, Mapping[str, str]]) -> Table:
    keys = list(dict.fromkeys(key for values in settings.values() for key in values))
    rows: list[list[Cell]] = []
    for key in keys:
        values = [flat_settings.get(key, _NOT_SET) for flat_settings in settings.values()]
        if len(set(values)) > 1:
            rows.append([key, *values])
    return Table(["setting", *settings], rows, caption)


def _flatten_settings(value: Any, prefix: str = "") -> dict[str, str]:
    """Return nested settings as texts by dotted key, without `init_args` in the keys; None values are left out."""
    if isinstance(value, dict) and value:
        settings: dict[str, str] = {}
        for key, item in value.items():
            settings |= _flatten_settings(item, prefix if key == "init_args" else f"{prefix}{key}.")
        return settings
    if value is None:
        return {}
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return {prefix.rstrip("."): text}


def format_time(timestamp: str) -> str:
    """Format the start time in a record to the minute.

    >>> format_time("2026-11-22T18:11:49+00:00")
    '2026-11-22 18:11 UTC'
    """
    return timestamp[:16].replace("T", " ") + (" UTC" if timestamp.endswith("+00:00") else "")


def stages_table(run: Run) -> Table:
    """Return a table of the stages of a run: state, start, duration, seeds, cache key."""
    rows: list[list[Cell]] = []
    for stage in run.stages:
        record, seeds = stage.record, stage.record.seed
        if not isinstance(seeds, list):
            seeds = [] if seeds is None else [seeds]
        row: list[Cell] = [stage.name, stage.kind, record.state, format_time(record.started)]
        row.append(Number(format_duration(record.wall_seconds), record.wall_seconds) if record.done else "")
        row += [", ".join(map(str, seeds)), record.key[:12]]
        rows.append(row)
    heads = ["folder", "stage", "state", "started", "time", "seeds", "key"]
    return Table(heads, rows, f"{run.name}: {run.path}")


def versions_table(runs: Sequence[Run]) -> Table:
    """Return a table of the versions of Python and packages, and the git commit, by run.

    A cell has several versions if the stages of a run differ.
    """
    versions: dict[str, dict[str, set[str]]] = {}  # by package and run
    for run in runs:
        for stage in run.stages:
            facts = {**stage.record.versions, "git commit": stage.record.git_commit}
            for package, version in facts.items():
                if version:
                    versions.setdefault(package, {}).setdefault(run.name, set()).add(str(version))
    names = [run.name for run in runs]
    rows: list[list[Cell]] = []
    for package, by_run in versions.items():
        rows.append([package, *(", ".join(sorted(by_run.get(name, ()))) for name in names)])
    return Table(["package", *names], rows, "Versions")


def hashes_table(runs: Sequence[Run]) -> Table:
    """Return a table of the SHA-256 hashes of all input files and all written weights."""
    rows: dict[tuple[str, str], list[Cell]] = {}  # by file and hash: several stages may read a file
    for run in runs:
        for stage in run.stages:
            inputs, outputs = stage.record.inputs, stage.record.outputs
            files = {name: digest for name, digest in inputs.items() if not name.startswith("@")}  # @NAME is a stage
            weights = {str(stage.path / name): outputs[name]["sha256"] for name in outputs if name.endswith(_WEIGHTS)}
            for name, digest in {**files, **weights}.items():
                rows[name, digest] = [name, digest]
    return Table(["file", "hash"], list(rows.values()), "SHA-256 of inputs and weights")


def commands(runs: Sequence[Run]) -> list[str]:
    """Return the commands to run each stage again that has a `config.yaml`, with --force.

    A stage of a recipe runs with `domainbert run --only`, because later stages check that the recipe made their input;
    any other stage runs with its `config.yaml`.
    """
    stages = [(run, stage) for run in runs for stage in run.stages if (stage.path / "config.yaml").is_file()]
    return [shlex.join(_command(run, stage)) for run, stage in stages]


def _command(run: Run, stage: StageFolder) -> list[str]:
    if not run.command:
        return ["domainbert", stage.kind, "-c", str(stage.path / "config.yaml"), "--force"]
    # the recorded command without its selection of stages; `run` records options with "="
    words = [word for word in shlex.split(run.command) if not word.startswith(("--only=", "--from="))]
    return [*words, "--only", stage.name, "--force", stage.name]
