"""The record of a stage, `run.json` in its folder: state, settings, inputs, outputs with hashes, and results.

The runner writes it when the stage starts, stops, fails or is done. A reader of a file of a finished stage compares
the file with the record first.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from glob import escape
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.base.files import HASHES, RUN, FileHashes, quick_look, read_json
from domainbert.base.freshness import damaged_files, format_examples, is_unchanged, write_record

_SEED = re.compile(r"seed-[0-9]+")


@dataclass(frozen=True)
class RunRecord:
    """Content of `run.json`."""

    stage: str = ""  # name of the stage function
    state: str = "running"  # or `stopped` by a signal, `failed` or `done`
    reason: str = ""  # why the stage stopped or failed
    resume_command: str = ""  # resumes the stage after an interruption
    key: str = ""  # equal keys give equal results
    made_from: dict[str, Any] = field(default_factory=dict)  # facts that decide the outputs, see `freshness`
    config: dict[str, Any] = field(default_factory=dict)  # all settings, and `out`
    inputs: dict[str, str] = field(default_factory=dict)  # hashes of files by path, keys of earlier stages by `@name`
    seed: Any = None  # the setting `seed` or `seeds`
    versions: dict[str, Any] = field(default_factory=dict)
    git_commit: str | None = None
    launch: str = ""  # the same text in all processes of a distributed launch; empty for a single process
    started: str = ""  # last start, ISO 8601
    resumed: bool = False  # whether the last start resumed an earlier run
    wall_seconds: float = 0.0  # from the last start to the end
    metrics: dict[str, Any] = field(default_factory=dict)  # results, with `warnings`, and `errors` in the data
    outputs: dict[str, Any] = field(default_factory=dict)  # size, hash and quick look of each file; {} until `done`
    is_unchanged: bool = True  # whether the file is as it was written; not in the file

    @property
    def done(self) -> bool:
        """Whether the stage is finished."""
        return self.state == "done"

    @property
    def reads_stream(self) -> bool:
        """Whether an input is standard input or a pipe, which cannot be read again."""
        return any(str(digest).startswith("stream ") for digest in self.inputs.values())  # see `hashes_of_inputs`

    def write(self, folder: Path) -> None:
        """Write the record atomically, with the hashes of the files in the folder if the stage is done."""
        content = {name: value for name, value in vars(self).items() if name not in ("is_unchanged", "outputs")}
        write_record(folder / RUN, content, None if self.done else {})

    def damage(
        self,
        folder: Path,
        hashes: FileHashes | None = HASHES,
        thorough: bool = False,
        selects: Callable[[str], bool] = lambda name: True,
    ) -> list[str]:
        """Return the problems of the outputs whose names `selects` accepts, as `damaged_files` does."""
        if not self.is_unchanged:
            return [f"{RUN} has changed"]
        outputs = {name: facts for name, facts in self.outputs.items() if selects(name)}
        return damaged_files(folder, outputs, hashes, thorough)


def read_record(folder: Path) -> RunRecord | None:
    """Return the record in a folder; None without a file, or if it belongs to another program.

    A file that has changed since it was written gives the record of a finished stage with nothing but `stage`.
    """
    path = folder / RUN
    if not path.is_file():
        return None
    expected = "the record of a stage: remove the file and use --force, or use a new folder"
    content = read_json(path, expected, kind=object)
    if not isinstance(content, dict) or not {"stage", "key", "made_from"} <= set(content):
        return None
    with suppress(RecursionError):  # nested too deeply
        if is_unchanged(content):
            return RunRecord(**{name: content[name] for name in vars(RunRecord()) if name in content})
    return RunRecord(str(content["stage"]), "done", is_unchanged=False)


# folder to the quick look of its record and the record: a folder is checked for each file that is opened
_records: dict[Path, tuple[list[int], RunRecord | None]] = {}


def _cached_record(folder: Path) -> RunRecord | None:
    try:
        look = quick_look((folder / RUN).stat())
    except (FileNotFoundError, NotADirectoryError):
        return None
    if folder not in _records or _records[folder][0] != look:
        _records[folder] = look, read_record(folder)
    return _records[folder][1]


def seed_folders(folder: Path) -> list[Path]:
    """Return the folders `seed-N` in a stage folder, by seed; a copy such as `seed-1-backup` is not a seed."""
    folders = (path for path in folder.glob("seed-*") if _SEED.fullmatch(path.name))
    return sorted(folders, key=lambda path: int(path.name.removeprefix("seed-")))


def check_outputs_unchanged(folder: Path, *patterns: str) -> None:
    """Raise `DomainbertError` if files to be read are missing or have changed since a stage wrote them.

    `folder` is a stage folder or a folder inside it (`seed-1`), and `patterns` match names relative to it. A folder
    without a record is not checked.
    """
    stage_folder, absolute = Path(folder), Path(os.path.abspath(folder))
    prefix = ""  # from the stage folder to the files
    record = _cached_record(absolute)
    if record is None:  # perhaps a folder inside the stage folder
        prefix = f"{escape(absolute.name)}/"
        stage_folder, absolute = stage_folder.parent, absolute.parent
        record = _cached_record(absolute)
    if record is None or not record.done:
        return
    full_patterns = [prefix + pattern for pattern in patterns]

    def matches(name: str) -> bool:
        """Whether a pattern matches a name; `*` matches no slash, unlike in `fnmatch`."""
        return any(name.count("/") == pattern.count("/") and fnmatch(name, pattern) for pattern in full_patterns)

    if problems := record.damage(absolute, selects=matches):
        raise DomainbertError(
            f"changed since stage {record.stage} finished: {format_examples(problems)}",
            file=stage_folder,
            hint=f"restore the files, or run {record.stage} again with --force (in a recipe: --force {absolute.name})",
        )
