"""Output of `domainbert runs`: a table that fits a terminal, or JSON."""

from __future__ import annotations

import json
import math
import shutil
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.base.layout import printable
from domainbert.base.progress import format_duration
from domainbert.base.redact import redact
from domainbert.base.sealed import in_short
from domainbert.runner.claim import DONE
from domainbert.runner.listing import Listing, Run, list_runs
from domainbert.runner.looking import StageSeen
from domainbert.settings.command_line import Typed

FLAGS = {"json": "none"}
HELP = """\
usage: domainbert runs [FOLDER] [--json]

List the runs in a folder and below it (runs unless told): how far each has come, scores of test sets with their
intervals, time, and size on disk. Stages that are done are counted; a single run is listed with all its stages.

  --json               the same as JSON, with all stages of all runs

Files are compared by size alone; `domainbert run RECIPE --dry-run --verify` hashes them.
"""
_GAP = "  "
_WRAP = partial(textwrap.wrap, break_long_words=False, break_on_hyphens=False)  # paths and commands can be copied
_UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def help_text() -> str:
    """Text of `domainbert runs --help`."""
    return HELP


def perform(typed: Typed) -> int:
    """Print the list; `DomainbertError` if there is no such folder."""
    if len(typed.words) > 1 or typed.files or typed.options:
        raise DomainbertError("runs: expected at most one folder, and --json: domainbert runs FOLDER")
    folder = Path(typed.words[0] if typed.words else "runs")
    listing = list_runs(folder)
    if "json" in typed.flags:
        print(json.dumps(redact(as_json(folder, listing)), indent=2))
    else:
        print("\n".join(table(listing, folder, shutil.get_terminal_size((100, 24)).columns)))
    return 0


def as_json(folder: Path, listing: Listing) -> dict[str, Any]:
    """All that was found, as plain values; times in UTC."""
    runs = [
        {
            "path": str(run.path),
            "state": run.state,
            "started": run.started and run.started.isoformat(),
            "seconds": run.seconds,
            "bytes": run.num_bytes,
            "stages": [_stage_as_json(one) for one in run.stages],
        }
        for run in listing.runs
    ]
    others = [str(path) for path in listing.others]
    return {"folder": str(folder), "runs": runs, "without_runs": others, "unreadable": listing.unreadable}


def _stage_as_json(one: StageSeen) -> dict[str, Any]:
    found = asdict(one)
    found["bytes"] = found.pop("num_bytes")
    found["validation"] = {name: value if math.isfinite(value) else None for name, value in one.validation.items()}
    return {**found, "started": one.started and one.started.isoformat()}


def table(listing: Listing, folder: Path, width: int) -> list[str]:
    """Lines of at most `width` characters where words allow it: when, time, size, and what; nothing is cut off."""
    rows = [("started", "time", "size", "run")]
    for run in listing.runs:
        rows += _rows(run, whole=run.path == folder)
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:3]]
    lines = [line for row in rows for line in _wrapped(row, widths, width)] if listing.runs else []
    lines += ["no runs"] if not listing.runs else []
    if listing.others:
        lines += ["", f"without runs: {in_short([str(path) for path in listing.others])}"]
    lines += [f"cannot be read: {told}" for told in listing.unreadable]
    return [printable(line) for line in lines]  # names and messages come from files


def _rows(run: Run, whole: bool) -> Iterator[tuple[str, str, str, str]]:
    """The row of a run, and those of its stages that have something to tell, or of all."""
    resumed, first = any(one.resumed for one in run.stages), run.stages[0]
    done = sum(one.state == DONE for one in run.stages)
    told = f"{first.stage or 'a stage'}, {_told(first)}" if run.alone else f"{done} of {len(run.stages)} stages done"
    yield _when(run.started), _time(run.seconds, resumed), _size(run.num_bytes), f"{run.path}: {told}"
    shown = [one for one in run.stages if one.scores or (not run.alone and (whole or one.state != DONE))]
    names = max((len(one.name) for one in shown), default=0)
    for one in shown:
        name = "" if run.alone else f"{one.name.ljust(names)}{_GAP}"
        for number, line in enumerate(_scores(one) or [_told(one)]):
            facts = ("", _time(one.seconds, one.resumed), _size(one.num_bytes)) if whole and not number else ("",) * 3
            yield (*facts, f"{_GAP}{' ' * len(name) if number else name}{line}")


def _told(one: StageSeen) -> str:
    """State, reason and what resumes it; of a training that is done the scores on validation."""
    scores = ", ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in one.validation.items())
    if scores:
        return f"{one.told}, {scores}" if one.why else scores
    return f"{one.told}; to resume: {one.go_on}" if one.go_on else one.told


def _scores(one: StageSeen) -> list[str]:
    if not one.scores:
        return []
    systems, metrics = (max(len(getattr(score, name)) for score in one.scores) for name in ("system", "metric"))
    names = [f"{score.system.ljust(systems)}{_GAP}{score.metric.ljust(metrics)}" for score in one.scores]
    return [
        f"{name} {score.shown_score} {score.shown_interval}".rstrip()
        for name, score in zip(names, one.scores, strict=True)
    ]


def _wrapped(row: tuple[str, str, str, str], widths: list[int], width: int) -> list[str]:
    """A row as lines: its last column goes on below where it is too long."""
    left = _GAP.join([row[0].ljust(widths[0]), *(row[i].rjust(widths[i]) for i in (1, 2))]) + _GAP
    text, indent = row[3].lstrip(), len(row[3]) - len(row[3].lstrip())
    room = max(width - len(left) - indent, 30)
    parts = [text] if len(text) <= room else _WRAP(text, room, subsequent_indent=_GAP * 2)
    lines = [(left if not number else " " * len(left)) + " " * indent + part for number, part in enumerate(parts)]
    return [line.rstrip() for line in lines]


def _when(started: Any) -> str:
    """A time in the time zone of the machine."""
    return started.astimezone().strftime("%Y-%m-%d %H:%M") if started else ""


def _time(seconds: float | None, resumed: bool) -> str:
    """A duration; of a stage that was resumed at least so much."""
    return "" if seconds is None else f"{'>' if resumed else ''}{format_duration(seconds)}"


def _size(num_bytes: int) -> str:
    """Three digits, in powers of a thousand as `df -H` has them."""
    unit, name = next(((unit, name) for unit, name in _UNITS if num_bytes >= unit), (1, "B"))
    return f"{num_bytes / unit:.{1 if unit > 1 and num_bytes < 100 * unit else 0}f} {name}"
