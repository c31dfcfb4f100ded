"""Read run folders for the report: stages with their records, and small files that may be missing.

Older versions wrote fewer files, and a run may have been interrupted: missing and unreadable files are listed in the
report.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from glob import escape
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.base.files import RUN, read_json
from domainbert.base.run_record import RunRecord, check_outputs_unchanged, read_record
from domainbert.settings.yaml_files import load_yaml

_CONFIG, _RECIPE = "config.yaml", "recipe.json"


@dataclass(frozen=True)
class StageFolder:
    """Output folder of a stage."""

    name: str
    path: Path
    record: RunRecord
    """The state is `unknown` without a record."""

    @property
    def kind(self) -> str:
        """Name of the stage function: `finetune`."""
        return self.record.stage or self.name


@dataclass(frozen=True)
class Run:
    """A run: its stage folders in the order of their start."""

    name: str
    path: Path
    stages: list[StageFolder]
    command: str = ""
    """Last `domainbert run` command; empty for a stage without a recipe."""
    suffix: str = ""
    """Text after names of stages and systems that tells several runs apart, ` (NAME)`; empty for a single run."""
    missing: list[str] = field(default_factory=list)
    """Messages about parts that could not be read; filled while the report is built."""

    def json(self, path: Path, expected: str, optional: bool = False) -> dict[str, Any]:
        """Return the JSON object in a file; {} if the file is missing, broken, or changed since its stage wrote it.

        Each reason is added to `missing`, except for a missing file that is `optional`. `expected` names the contents.
        """
        if not self.is_intact(path.parent, path.name):
            return {}
        if not path.is_file():
            if not optional:
                self.missing.append(f"{path}: does not exist; {expected} is left out")
            return {}
        try:
            content: dict[str, Any] = read_json(path, expected)
        except DomainbertError as error:
            self.missing.append(str(error))
            return {}
        return content

    def lines(self, path: Path) -> list[dict[str, Any]]:
        """Return the objects of a JSONL file; [] if the file has changed since its stage wrote it.

        Damaged lines, such as the last line of a killed run, are skipped. A message about a changed file or damaged
        lines is added to `missing`.
        """
        if not self.is_intact(path.parent, path.name):
            return []
        rows: list[dict[str, Any]] = []
        num_damaged = 0
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in filter(str.strip, file):  # without blank lines
                try:
                    row = json.loads(line)
                except ValueError:
                    row = None
                if isinstance(row, dict):
                    rows.append(row)
                else:
                    num_damaged += 1
        if num_damaged:
            self.missing.append(f"{path}: damaged lines left out: {num_damaged:,}")
        return rows

    def is_intact(self, folder: Path, pattern: str) -> bool:
        """Return whether the files that match `pattern` in `folder` are unchanged since their stage wrote them. If not,
        add a message to `missing`. Files outside of stage folders count as unchanged."""
        stage = next((stage for stage in self.stages if folder.is_relative_to(stage.path)), None)
        if stage is None:
            return True
        subfolder = folder.relative_to(stage.path).as_posix()
        try:
            check_outputs_unchanged(stage.path, pattern if subfolder == "." else f"{escape(subfolder)}/{pattern}")
        except DomainbertError as error:
            if (message := f"left out: {error}") not in self.missing:
                self.missing.append(message)
            return False
        return True

    def stages_with_file(self, file: str) -> list[StageFolder]:
        """Return the stages whose folders contain this file, or whose records list it even if it is missing now."""
        return [stage for stage in self.stages if (stage.path / file).is_file() or file in stage.record.outputs]


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """Return the runs in these folders; a folder belongs to a recipe or to a single stage.

    Raises:
        DomainbertError: a folder does not exist or contains no stage.
    """
    names = [folder.resolve().name for folder in folders]
    if len(set(names)) < len(names):
        names = [str(folder) for folder in folders]  # the last part of the paths is not enough
    runs = [_read_run(folder, name) for folder, name in zip(folders, names, strict=True)]
    return runs if len(runs) == 1 else [replace(run, suffix=f" ({run.name})") for run in runs]


def missing_messages(runs: Sequence[Run]) -> list[str]:
    """Return the messages about parts of the runs that could not be read until now, each once."""
    return list(dict.fromkeys(message for run in runs for message in run.missing))


def _read_run(folder: Path, name: str) -> Run:
    if not folder.is_dir():
        raise DomainbertError(
            "no such folder", file=folder, expected="an output folder of domainbert run or of a stage"
        )
    run = Run(name, folder, [])
    recipe = run.json(folder / _RECIPE, "the stages of a recipe", optional=True)
    run = replace(run, command=str(recipe.get("command", "")))
    recipe_stages = recipe.get("stages")
    is_stage = _is_stage(folder)
    paths = [folder] if is_stage else sorted(filter(_is_stage, folder.iterdir()))
    recipes_below = sorted(folder.glob(f"*/{_RECIPE}"))
    if recipes_below and not recipe and not is_stage:
        raise DomainbertError(
            file=folder, found="a folder of runs", expected=f"a single run, such as '{recipes_below[0].parent}'"
        )
    for path in paths:
        if recipe_stages and path.name not in recipe_stages:
            run.missing.append(f"{path}: not a stage of the last recipe of this run; it is left out")
        else:
            run.stages.append(_read_stage(run, path))
    if not run.stages:
        raise DomainbertError(
            "contains no stage", file=folder, expected="an output folder of domainbert run or of a stage"
        )
    # in the order of their start; stages that are not done come last
    run.stages.sort(key=lambda stage: (not stage.record.done, stage.record.started, stage.name))
    return run


def _is_stage(folder: Path) -> bool:
    return (folder / _CONFIG).is_file() or (folder / RUN).is_file()


def _read_stage(run: Run, path: Path) -> StageFolder:
    try:
        record = read_record(path) or RunRecord(state="unknown")
    except DomainbertError as error:
        run.missing.append(str(error))
        record = RunRecord(state="unknown")
    if not record.is_unchanged:
        run.missing.append(f"left out: {path}: {RUN} has changed; run the stage {path.name} again with --force")
    return StageFolder(path.resolve().name, path, record)


def settings_of(stage: StageFolder) -> dict[str, Any]:
    """Return the settings of a stage without `out`, from its record, or else its `config.yaml`; {} if unreadable."""
    config = stage.record.config
    if not config:
        try:
            config = load_yaml(stage.path / _CONFIG).plain()
        except DomainbertError:
            config = {}
    return {key: value for key, value in config.items() if key != "out"}
