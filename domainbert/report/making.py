"""The making of runs: settings that differ, commands, versions, hashes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from domainbert.base.progress import format_duration
from domainbert.report.runs import Run, StageFolder, settings_of
from domainbert.report.tables import Cell, Number, Table

_NOT_SET = "not set"
_MODEL = ".safetensors"


@dataclass(frozen=True)
class Command:
    """The command that makes a stage again by itself."""

    stage: str
    text: str


def setting_tables(runs: Sequence[Run]) -> list[Table]:
    """The settings in which the same stage of several runs differs, or the trainings of one run among each other."""
    tables = [_between_runs(name, runs) for name in _names(runs)] if len(runs) > 1 else _between_trainings(runs[0])
    return [table for table in tables if table.rows]


def _names(runs: Sequence[Run]) -> list[str]:
    return list(dict.fromkeys(stage.name for run in runs for stage in run.stages))


def _between_runs(name: str, runs: Sequence[Run]) -> Table:
    folders = {run.name: [stage for stage in run.stages if stage.name == name] for run in runs}
    settings = {run: flat(settings_of(found[0])) for run, found in folders.items() if found}
    return _differing(f"Stage {name}", settings)


def _between_trainings(run: Run) -> list[Table]:
    """Trainings of the same stage and task, side by side."""
    alike: dict[tuple[str, str], dict[str, dict[str, str]]] = {}
    for stage in run.stages:
        settings = flat(settings_of(stage))
        if "optim.name" in settings:
            alike.setdefault((stage.kind, settings.get("task.class_path", "")), {})[stage.name] = settings
    return [_differing(f"Trainings by {kind}", found) for (kind, _), found in alike.items() if len(found) > 1]


def _differing(caption: str, settings: Mapping[str, Mapping[str, str]]) -> Table:
    keys = list(dict.fromkeys(key for one in settings.values() for key in one))
    rows: list[list[Cell]] = []
    for key in keys:
        values = [one.get(key, _NOT_SET) for one in settings.values()]
        if len(set(values)) > 1:
            rows.append([key, *values])
    return Table(caption, ["setting", *settings], rows)


def flat(value: Any, prefix: str = "") -> dict[str, str]:
    """Nested settings by dotted key; `init_args` is left out of the keys, and what is not set is no setting."""
    if isinstance(value, dict) and value:
        found: dict[str, str] = {}
        for key, one in value.items():
            found |= flat(one, prefix if key == "init_args" else f"{prefix}{key}.")
        return found
    if value is None:
        return {}
    return {prefix.rstrip("."): value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}


def shown_time(moment: str) -> str:
    """A moment of a manifest to the minute.

    >>> shown_time("2026-11-22T18:11:49+00:00")
    '2026-11-22 18:11 UTC'
    """
    return moment[:16].replace("T", " ") + (" UTC" if moment.endswith("+00:00") else "")


def stages_table(run: Run) -> Table:
    """A table of when and with what each stage was made: its key tells whether two are the same."""
    rows: list[list[Cell]] = []
    for stage in run.stages:
        made, seed = stage.manifest, stage.manifest.get("seed")
        seconds = made.get("wall_seconds")
        rows.append(
            [
                stage.name,
                stage.kind,
                stage.state,
                shown_time(made.get("started", "")),
                Number(format_duration(seconds), seconds) if seconds is not None else "",
                ", ".join(map(str, seed)) if isinstance(seed, list) else "" if seed is None else str(seed),
                str(made.get("key", ""))[:12],
            ]
        )
    heads = ["folder", "stage", "state", "started", "time", "seeds", "key"]
    return Table(f"{run.name}: {run.path}", heads, rows)


def versions_table(runs: Sequence[Run]) -> Table:
    """Versions of Python and packages and the commit, of each run; several where its stages differ."""
    found: dict[str, dict[str, set[str]]] = {}
    for run in runs:
        for stage in run.stages:
            facts = {**stage.manifest.get("versions", {}), "git commit": stage.manifest.get("git_commit")}
            for name, version in facts.items():
                if version:
                    found.setdefault(name, {}).setdefault(run.name, set()).add(str(version))
    rows = [[name, *(", ".join(sorted(one.get(run.name, ()))) for run in runs)] for name, one in found.items()]
    return Table("Versions", ["package", *(run.name for run in runs)], rows)


def hashes_table(runs: Sequence[Run]) -> Table:
    """SHA-256 of every input that is a file, and of the weights that were written."""
    rows: dict[tuple[str, str], list[Cell]] = {}
    for run in runs:
        for stage in run.stages:
            inputs = {name: digest for name, digest in stage.manifest.get("inputs", {}).items() if name[:1] != "@"}
            outputs = stage.manifest.get("outputs", {})
            weights = {str(stage.path / name): one["sha256"] for name, one in outputs.items() if name.endswith(_MODEL)}
            for name, digest in {**inputs, **weights}.items():
                rows[name, digest] = [name, digest]
    return Table("SHA-256 of inputs and weights", ["file", "hash"], list(rows.values()))


def commands(runs: Sequence[Run]) -> list[Command]:
    """The command that makes each stage again: that of its recipe, by which the others know it afterwards, or one that
    reads its `config.yaml`."""
    return [
        Command(stage.name, shlex.join(_command(run, stage)))
        for run in runs
        for stage in run.stages
        if (stage.path / "config.yaml").is_file()
    ]


def _command(run: Run, stage: StageFolder) -> list[str]:
    if not run.command:
        return ["domainbert", stage.kind, "-c", str(stage.path / "config.yaml"), "--force"]
    selecting = ("--only=", "--from=")
    kept = [word for word in shlex.split(run.command) if not word.startswith(selecting)]
    return [*kept, "--only", stage.name, "--force", stage.name]
