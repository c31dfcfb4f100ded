"""Run folders as the report reads them: stages with their manifests, and small files that may be missing.

Older versions wrote fewer files, and a run may have been cut off; what is missing or cannot be read is noted, and the
report says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from glob import escape
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.base.files import read_json
from domainbert.base.freshness import is_unchanged
from domainbert.base.sealed import MANIFEST, check_sealed
from domainbert.settings.yaml_files import load_yaml

_CONFIG, _STATUS, _RECIPE = "config.yaml", "status.json", "recipe.json"


@dataclass(frozen=True)
class StageFolder:
    """The folder that one stage has written."""

    name: str
    path: Path
    manifest: dict[str, Any]
    """Empty while the stage is not done."""
    status: dict[str, Any]

    @property
    def kind(self) -> str:
        """The stage: `finetune`."""
        return str(self.manifest.get("stage") or self.status.get("stage") or self.name)

    @property
    def state(self) -> str:
        """The last thing that happened: `done`, `running`, `stopped`, `failed`, or `unknown`."""
        return "done" if self.manifest else str(self.status.get("state", "unknown"))

    @property
    def metrics(self) -> dict[str, Any]:
        """The values that the stage returned."""
        return self.manifest.get("metrics") or {}


@dataclass(frozen=True)
class Run:
    """A run: the folders of its stages in the order in which they were started."""

    name: str
    path: Path
    stages: list[StageFolder]
    command: str = ""
    """The `domainbert run` that was typed last; empty of a stage that was run by itself."""
    missing: list[str] = field(default_factory=list)
    """Parts that could not be read, in sentences; filled while the report is made."""

    def json(self, path: Path, expected: str, optional: bool = False) -> dict[str, Any]:
        """The JSON object in a file; empty, and noted unless it is optional, where there is none. A file that is not as
        its stage left it is noted, too."""
        if not self.is_intact(path.parent, path.name):
            return {}
        if not path.is_file():
            if not optional:
                self.missing.append(f"{path}: not there; {expected} is left out")
            return {}
        try:
            found: dict[str, Any] = read_json(path, expected)
        except DomainbertError as error:
            self.missing.append(str(error))
            return {}
        return found

    def lines(self, path: Path) -> list[dict[str, Any]]:
        """The objects of a file of JSON lines; damaged ones, as the last of a killed run, are noted. There are none
        if the file is not as its stage left it, which is noted, too."""
        if not self.is_intact(path.parent, path.name):
            return []
        rows: list[dict[str, Any]] = []
        damaged = 0
        for line in _text_lines(path):
            try:
                row = json.loads(line)
            except ValueError:
                row = None
            if isinstance(row, dict):
                rows.append(row)
            else:
                damaged += 1
        if damaged:
            self.missing.append(f"{path}: {damaged:,} damaged lines are left out")
        return rows

    def is_intact(self, folder: Path, pattern: str) -> bool:
        """Whether the files in a stage's folder, or below it, are as it left them; noted if not. Others are intact."""
        stage = next((stage for stage in self.stages if folder.is_relative_to(stage.path)), None)
        if stage is None:
            return True
        inside = folder.relative_to(stage.path).as_posix()
        try:
            check_sealed(stage.path, pattern if inside == "." else f"{escape(inside)}/{pattern}")
        except DomainbertError as error:
            if (told := f"left out: {error}") not in self.missing:
                self.missing.append(told)
            return False
        return True

    def of_kind(self, file: str) -> list[StageFolder]:
        """The stages that have written a file, even if it is missing now."""
        return [
            stage for stage in self.stages if (stage.path / file).is_file() or file in stage.manifest.get("outputs", ())
        ]


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """The runs in these folders, each that of a recipe or of a single stage.

    Raises:
        DomainbertError: a folder is not there, or no stage has written in it.
    """
    names = [folder.resolve().name for folder in folders]
    shown = names if len(set(names)) == len(names) else [str(folder) for folder in folders]
    return [_read_run(folder, name) for folder, name in zip(folders, shown, strict=True)]


def _read_run(folder: Path, name: str) -> Run:
    if not folder.is_dir():
        raise DomainbertError(f"{folder}: no such folder; expected one of domainbert run, or of one stage")
    missing: list[str] = []
    known = Run(name, folder, [], missing=missing).json(folder / _RECIPE, "the stages of a recipe", optional=True)
    run, recipe = Run(name, folder, [], str(known.get("command", "")), missing), known.get("stages")
    paths = [folder] if _is_stage(folder) else sorted(filter(_is_stage, folder.iterdir()))
    for path in paths:
        if recipe and path.name not in recipe:
            run.missing.append(f"{path}: not a stage of the recipe that was run last; it is left out")
        else:
            run.stages.append(_read_stage(run, path))
    if not run.stages:
        raise DomainbertError(f"{folder}: holds no stage; expected a folder of domainbert run, or of one stage")
    run.stages.sort(key=lambda stage: (not stage.manifest, stage.manifest.get("started", ""), stage.name))
    return run


def _is_stage(folder: Path) -> bool:
    return (folder / _CONFIG).is_file() or (folder / MANIFEST).is_file()


def _read_stage(run: Run, path: Path) -> StageFolder:
    manifest = run.json(path / MANIFEST, "a manifest of domainbert", optional=True)
    status = run.json(path / _STATUS, "the status of a stage", optional=True)
    if not is_unchanged(manifest):
        run.missing.append(f"left out: {path}: {MANIFEST} has changed; expected it as the stage left it")
        manifest = {}
    return StageFolder(path.resolve().name, path, manifest, status)


def settings_of(stage: StageFolder) -> dict[str, Any]:
    """The settings of a stage, as its manifest or else its `config.yaml` has them."""
    if stage.manifest:
        found = stage.manifest.get("config") or {}
    else:
        try:
            found = load_yaml(stage.path / _CONFIG).plain()
        except DomainbertError:
            found = {}
    return {key: value for key, value in found.items() if key != "out"}


def _text_lines(path: Path) -> Iterator[str]:
    with open(path, encoding="utf-8", errors="replace") as file:
        yield from (line for line in file if line.strip())
