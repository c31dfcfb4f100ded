"""A stage's folder as it stands on disk, for `domainbert runs`: how far it has come. Only small files are read."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.base.files import read_json
from domainbert.base.sealed import MANIFEST, damages, in_short
from domainbert.runner.claim import DONE, INTERRUPTED, RUNNING, STATUS, UNSEALED, is_running, left_in, read_status
from domainbert.runner.results_table import SystemScore, system_scores

DAMAGED, FAILED, IS_RUNNING = "damaged", "failed", "running"
KILLED, STOPPED, UNFINISHED = "killed", "stopped", "unfinished"
SEARCH, TRIALS = "study.json", "trials"  # of `domainbert tune`, whose trials are no runs of their own
_TAIL = 1 << 14  # bytes at the end of a log in which its last line stands
_BROKEN = (DomainbertError, OSError, AttributeError, KeyError, TypeError, ValueError)  # a file in another form, or gone


@dataclass(frozen=True)
class StageSeen:
    """A stage's folder as it stands on disk."""

    name: str
    stage: str
    """The stage function; empty where nothing says it."""
    state: str
    """`done`, `running`, `stopped`, `failed`, `killed`, `damaged` or `never run`."""
    why: str = ""
    """Of a stage that is not done: what the last run said, in the words of `run --dry-run` where these fit."""
    go_on: str = ""
    """The command that resumes it, where it can be resumed."""
    started: datetime | None = None
    seconds: float | None = None
    resumed: bool = False
    """It was interrupted once: the seconds are those of its last part."""
    num_bytes: int = 0
    scores: list[SystemScore] = field(default_factory=list)
    validation: dict[str, float] = field(default_factory=dict)

    @property
    def told(self) -> str:
        """State and reason in a line."""
        if not self.why:
            return self.state
        return self.why if self.why.startswith(self.state) else f"{self.state}: {self.why}"


def look_at(folder: Path) -> StageSeen:
    """A stage's folder as it stands; whatever is wrong with it is its state."""
    size, status = bytes_below(folder), read_status(folder)
    kind, began = str(status.get("stage", "")), _changed(folder / STATUS)
    try:
        left, manifest = left_in(folder)
        if manifest is not None:
            return _finished(folder, manifest, size)
    except _BROKEN as error:
        told = str(error) if isinstance(error, DomainbertError) else f"{MANIFEST}: not as a stage writes it ({error!r})"
        why = " ".join(told.split())
        return StageSeen(folder.name, kind, DAMAGED, why, started=began, num_bytes=size)
    if is_running(folder):
        seconds = None if began is None else max(0.0, time.time() - began.timestamp())
        return StageSeen(folder.name, kind, IS_RUNNING, _progress(folder), "", began, seconds, num_bytes=size)
    state, why = _ended(left, str(status.get("state", "")), str(status.get("reason", "")))
    go_on = str(status.get("go_on", "")) if left == INTERRUPTED else ""
    return StageSeen(folder.name, kind, state, why, go_on, began, num_bytes=size)


def _finished(folder: Path, manifest: Mapping[str, Any], size: int) -> StageSeen:
    """A stage that was done: of its files only size is compared, nothing is hashed."""
    damage, metrics = in_short(damages(folder, manifest, None)), manifest["metrics"]
    errors = in_short(metrics.get("errors", []))
    validation = {name: value for name, value in metrics.items() if name.startswith("validation_")}
    last = metrics.get("validation")
    if isinstance(last, dict) and "loss" in last:
        validation["validation_loss"] = last["loss"]
    return StageSeen(
        folder.name,
        manifest["stage"],
        DAMAGED if damage else FAILED if errors else DONE,
        damage or (errors and f"errors in the data: {errors}"),
        started=datetime.fromisoformat(manifest["started"]).astimezone(timezone.utc),
        seconds=float(manifest["wall_seconds"]),
        resumed=bool(manifest.get("resumed")),
        num_bytes=size,
        scores=[] if damage else system_scores(metrics),
        validation={} if damage else {name: float(value) for name, value in validation.items()},
    )


def _ended(left: str, state: str, reason: str) -> tuple[str, str]:
    """State and words of a stage that ended early: what `--dry-run` says of it, then what it said itself."""
    if state in (FAILED, STOPPED):
        told = " ".join(reason.split()) or "it does not say why"
        return state, f"{told}; {left}"
    return (DAMAGED, left) if left == UNSEALED else (KILLED, f"{KILLED}, or its machine went down; {left}")


def _progress(folder: Path) -> str:
    """The last step that a training has logged, and of which part of it (a seed)."""
    logs = [*folder.glob("logs/metrics.jsonl"), *folder.glob("*/logs/metrics.jsonl")]
    try:
        newest = max(logs, key=lambda path: path.stat().st_mtime)
        with open(newest, "rb") as file:
            file.seek(max(0, newest.stat().st_size - _TAIL))
            lines = file.read().split(b"\n")[:-1]  # the last one may not be complete yet
        step = f"step {int(json.loads(lines[-1])['step']):,}"
    except (IndexError, *_BROKEN):
        return ""
    part = newest.parent.parent
    return step if part == folder else f"{part.name}, {step}"


def look_at_search(folder: Path) -> StageSeen:
    """A search; the trials that count are those in its summary."""
    state, why, validation, seconds = UNFINISHED, "no trial is finished yet", {}, None
    try:
        facts = read_json(folder / SEARCH, "the summary of a search")
        done, asked, best, seconds = facts["trials"], facts["asked"], facts["best"], float(facts["seconds"])
        state, why = DONE if done >= asked else UNFINISHED, f"{done:,} of {asked:,} trials"
        if best is not None:
            validation = {name: float(one) for name, one in zip(facts["objective"], best["values"], strict=True)}
    except _BROKEN as error:
        if (folder / SEARCH).exists():
            state, why = DAMAGED, f"{SEARCH}: not as a search writes it ({error})"
    if state != DONE and any(is_running(marker.parent) for marker in folder.glob(f"{TRIALS}/*/*/{RUNNING}")):
        state = IS_RUNNING
    size, began = bytes_below(folder), _changed(folder / SEARCH)
    return StageSeen(folder.name, "tune", state, why, "", began, seconds, num_bytes=size, validation=validation)


def _changed(path: Path) -> datetime | None:
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, timezone.utc).replace(microsecond=0)
    except OSError:
        return None


def bytes_below(folder: Path, skipped: Callable[[Path], bool] = lambda child: False) -> int:
    """Bytes of the files below a folder, links apart; what another process removes meanwhile does not count."""
    total = 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    total += 0 if skipped(Path(entry.path)) else bytes_below(Path(entry.path))
                elif entry.is_file(follow_symlinks=False):
                    total += entry.stat().st_size
    except OSError:
        return total
    return total
