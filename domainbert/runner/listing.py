"""`domainbert runs`: finds the runs below a folder, and the state of each stage. Only small files are read."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.base.files import read_json
from domainbert.base.freshness import in_short
from domainbert.base.sealed import MANIFEST, damages, read_manifest
from domainbert.runner.claim import (
    CONFIG,
    DONE,
    INTERRUPTED,
    NEVER_RUN,
    RUNNING,
    STATUS,
    UNSEALED,
    is_running,
    left_in,
    read_status,
)
from domainbert.runner.recipe_run import RECIPE
from domainbert.runner.results_table import SystemScore, system_scores

STATES = ("damaged", "failed", "running", "killed", "stopped", "unfinished")
"""States of a stage or search that is not done, the most urgent first."""
_SEARCH, _TRIALS = "study.json", "trials"  # of `domainbert tune`, whose trials are not listed
_RESULTS = "results.json"
_TAIL = 1 << 14  # bytes at the end of a log that contain its last line
_BROKEN = (DomainbertError, OSError, AttributeError, IndexError, KeyError, TypeError, ValueError)


@dataclass(frozen=True)
class StageSeen:
    """The state of a stage's folder."""

    name: str
    stage: str
    """The stage function; empty if unknown."""
    state: str
    """`done`, `never run`, or one of `STATES`."""
    why: str = ""
    """Reason of a state other than `done`."""
    go_on: str = ""
    """The command that resumes it, where it can be resumed."""
    started: datetime | None = None
    seconds: float | None = None
    scores: list[SystemScore] = field(default_factory=list)
    validation: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """The stages of a recipe in its order; or a stage or a search by itself (`alone`)."""

    path: Path
    stages: list[StageSeen]
    alone: bool = False

    @property
    def state(self) -> str:
        """`done` if all stages are done, otherwise the most urgent state of a stage."""
        found = {stage.state for stage in self.stages}
        return DONE if found <= {DONE} else next((state for state in STATES if state in found), "unfinished")

    @property
    def started(self) -> datetime | None:
        """The start of the stage that started first."""
        return min((stage.started for stage in self.stages if stage.started), default=None)

    @property
    def seconds(self) -> float | None:
        """Time of all stages together; of a resumed stage the time since it was resumed. None if no time is known."""
        known = [stage.seconds for stage in self.stages if stage.seconds is not None]
        return sum(known) if known else None


def list_runs(folder: Path) -> tuple[list[Run], list[str]]:
    """Return the runs in a folder and below it, by path, and the folders that cannot be read, with the reason.

    Links are followed, and each folder is visited once.

    Raises:
        DomainbertError: there is no such folder.
    """
    if not folder.is_dir():
        raise DomainbertError(f"{folder}: no such folder; expected one with runs in it, or a run")
    runs, unreadable, visited = list[Run](), list[str](), set[str]()
    walk = os.walk(folder, onerror=lambda error: unreadable.append(_reason(error)), followlinks=True)
    for root, folders, files in walk:
        place = os.path.realpath(root)
        run = None if place in visited else _run_in(Path(root), folders, files)
        runs += [run] if run else []
        inside = {stage.name for stage in run.stages} if run else set()
        visible = sorted(name for name in folders if not name.startswith(".") and name not in inside)
        folders[:] = [] if place in visited or (run and run.alone) else visible
        visited.add(place)
    return runs, unreadable


def _reason(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}"


def _run_in(folder: Path, folders: Sequence[str], files: Sequence[str]) -> Run | None:
    if _is_stage(folder):
        return Run(folder, [look_at(folder)], alone=True)
    if _SEARCH in files or any((folder / _TRIALS).glob("[0-9]" * 5)):
        return Run(folder, [_look_at_search(folder)], alone=True)
    if RECIPE not in files and _RESULTS not in files and not (folder / ".cache/hashes.json").is_file():
        return None
    there = [name for name in sorted(folders) if _is_stage(folder / name)]
    kinds = _kinds(folder / RECIPE, "command") or _kinds(folder / _RESULTS, "warnings")
    names = dict.fromkeys([*kinds, *there])
    found = [look_at(folder / name) if name in there else StageSeen(name, kinds[name], NEVER_RUN) for name in names]
    return Run(folder, found) if found else None


def _is_stage(folder: Path) -> bool:
    """Whether a stage has written, or is writing, a folder; a `manifest.json` may be that of a web page."""
    try:
        names = {MANIFEST, CONFIG, STATUS} & {entry.name for entry in os.scandir(folder)}
        if len(names) > 1 or (folder / RUNNING).is_file():
            return True
        return MANIFEST in names and read_manifest(folder, foreign_too=True) is not None
    except (OSError, DomainbertError):
        return False


def _kinds(path: Path, beside: str) -> dict[str, str]:
    """The stage function of each stage in a recipe's file; empty if the file cannot be read, or lacks the key `beside`
    (a file of another program)."""
    try:
        found = read_json(path, "the stages of a recipe")
        stages = found["stages"] if beside in found else {}
        return {str(name): str(one["stage"] if isinstance(one, dict) else one) for name, one in stages.items()}
    except _BROKEN:
        return {}


def look_at(folder: Path) -> StageSeen:
    """Return the state of a stage's folder; whatever is wrong with it is its state."""
    status, began = read_status(folder), _changed(folder / STATUS)
    kind = str(status.get("stage", ""))
    try:
        left, manifest = left_in(folder)
        if manifest is not None:
            return _finished(folder, manifest)
    except _BROKEN as error:
        reason = error if isinstance(error, DomainbertError) else f"{MANIFEST}: not as a stage writes it ({error!r})"
        return StageSeen(folder.name, kind, "damaged", " ".join(str(reason).split()), started=began)
    if is_running(folder):
        seconds = None if began is None else max(0.0, time.time() - began.timestamp())
        return StageSeen(folder.name, kind, "running", _progress(folder), "", began, seconds)
    state, reason = str(status.get("state", "")), " ".join(str(status.get("reason", "")).split())
    if state in ("failed", "stopped"):
        why = f"{reason or 'it does not say why'}; {left}"
    else:
        state, why = ("damaged", left) if left == UNSEALED else ("killed", f"killed, or its machine went down; {left}")
    return StageSeen(folder.name, kind, state, why, str(status.get("go_on", "")) if left == INTERRUPTED else "", began)


def _finished(folder: Path, manifest: dict[str, Any]) -> StageSeen:
    """The state of a finished stage: the sizes of its files are compared, nothing is hashed."""
    damage, metrics = in_short(damages(folder, manifest, None)), manifest["metrics"]
    errors = in_short(metrics.get("errors", []))
    validation = {name: value for name, value in metrics.items() if name.startswith("validation_")}
    last = metrics.get("validation")
    if isinstance(last, dict) and "loss" in last:
        validation["validation_loss"] = last["loss"]
    return StageSeen(
        folder.name,
        manifest["stage"],
        "damaged" if damage else "failed" if errors else DONE,
        damage or (errors and f"errors in the data: {errors}"),
        started=datetime.fromisoformat(manifest["started"]).astimezone(timezone.utc),
        seconds=float(manifest["wall_seconds"]),
        scores=[] if damage else system_scores(metrics),
        validation={} if damage else {name: float(value) for name, value in validation.items()},
    )


def _progress(folder: Path) -> str:
    """The last step that a training has logged, and in which part of it (a seed)."""
    logs = [*folder.glob("logs/metrics.jsonl"), *folder.glob("*/logs/metrics.jsonl")]
    try:
        newest = max(logs, key=lambda path: path.stat().st_mtime)
        with open(newest, "rb") as file:
            file.seek(max(0, newest.stat().st_size - _TAIL))
            lines = file.read().split(b"\n")[:-1]  # the last line may be incomplete
        step = f"step {int(json.loads(lines[-1])['step']):,}"
    except _BROKEN:
        return ""
    part = newest.parent.parent
    return step if part == folder else f"{part.name}, {step}"


def _look_at_search(folder: Path) -> StageSeen:
    """The state of a search; the trials that count are those in its summary."""
    state, why, validation, seconds = "unfinished", "no trial is finished yet", {}, None
    try:
        facts = read_json(folder / _SEARCH, "the summary of a search")
        trials, wanted, best, seconds = facts["trials"], facts["asked"], facts["best"], float(facts["seconds"])
        state, why = DONE if trials >= wanted else "unfinished", f"{trials:,} of {wanted:,} trials"
        if best is not None:
            validation = {name: float(one) for name, one in zip(facts["objective"], best["values"], strict=True)}
    except _BROKEN as error:
        if (folder / _SEARCH).exists():
            state, why = "damaged", f"{_SEARCH}: not as a search writes it ({error})"
    if state != DONE and any(is_running(marker.parent) for marker in folder.glob(f"{_TRIALS}/*/*/{RUNNING}")):
        state = "running"
    return StageSeen(folder.name, "tune", state, why, "", _changed(folder / _SEARCH), seconds, validation=validation)


def _changed(path: Path) -> datetime | None:
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, timezone.utc).replace(microsecond=0)
    except OSError:
        return None
