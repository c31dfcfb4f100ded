"""`domainbert runs`: finds the runs below a folder, and says how far each has come. Only small files are read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from domainbert.base.errors import DomainbertError
from domainbert.base.files import read_json
from domainbert.base.sealed import MANIFEST, read_manifest
from domainbert.runner.claim import CONFIG, DONE, NEVER_RUN, RUNNING, STATUS
from domainbert.runner.looking import (
    DAMAGED,
    FAILED,
    IS_RUNNING,
    KILLED,
    SEARCH,
    STOPPED,
    TRIALS,
    UNFINISHED,
    StageSeen,
    bytes_below,
    look_at,
    look_at_search,
)
from domainbert.runner.recipe_run import RECIPE

_OF_A_STAGE = {MANIFEST, CONFIG, STATUS}
_OF_A_RECIPE = (RECIPE, "results.json", ".cache/hashes.json")


@dataclass(frozen=True)
class Run:
    """The stages of a recipe in its order, a stage that was run alone, or a search."""

    path: Path
    stages: list[StageSeen]
    num_bytes: int
    alone: bool = False
    """A stage by itself, or a search: the folder is that of its only stage."""

    @property
    def state(self) -> str:
        """`done` where all stages are; else the most pressing state of one of them."""
        found = {one.state for one in self.stages}
        if found <= {DONE}:
            return DONE
        return next((one for one in (DAMAGED, FAILED, IS_RUNNING, KILLED, STOPPED) if one in found), UNFINISHED)

    @property
    def started(self) -> datetime | None:
        """The start of the stage that was begun first."""
        return min((one.started for one in self.stages if one.started), default=None)

    @property
    def seconds(self) -> float | None:
        """Time of all stages together."""
        known = [one.seconds for one in self.stages if one.seconds is not None]
        return sum(known) if known else None


@dataclass
class Listing:
    """The runs below a folder, sorted by path, and what stands beside them."""

    runs: list[Run] = field(default_factory=list)
    others: list[Path] = field(default_factory=list)
    """Folders directly in it that hold no run."""
    unreadable: list[str] = field(default_factory=list)
    """Folders that cannot be looked into, and why."""


def list_runs(folder: Path) -> Listing:
    """Find the runs in a folder and below it, at any depth; links are followed, each folder is looked into once.

    Raises:
        DomainbertError: there is no such folder.
    """
    if not folder.is_dir():
        raise DomainbertError(f"{folder}: no such folder; expected one with runs in it, or a run")
    listing = Listing()
    seen = {os.path.realpath(folder)}
    listing.runs = list(_runs_in(folder, seen, listing))
    held = {path for run in listing.runs for path in (run.path, *run.path.parents)}
    if not any(run.path == folder for run in listing.runs):
        listing.others = [child for child in _children(folder, Listing()) if child not in held]
    return listing


def _runs_in(folder: Path, seen: set[str], listing: Listing) -> Iterator[Run]:
    if _is_stage(folder):
        yield Run(folder, [one := look_at(folder)], one.num_bytes, alone=True)
        return
    known = len(listing.unreadable)
    children = _children(folder, listing)
    if len(listing.unreadable) > known:
        return
    if (folder / SEARCH).is_file() or any((folder / TRIALS).glob("[0-9]" * 5)):
        yield Run(folder, [one := look_at_search(folder)], one.num_bytes, alone=True)
        return
    is_recipe = any((folder / name).is_file() for name in _OF_A_RECIPE)
    stages = [child for child in children if is_recipe and _is_stage(child)]
    if is_recipe and (run := _recipe(folder, stages)).stages:
        yield run
    for child in children:
        place = os.path.realpath(child)
        if child not in stages and place not in seen:
            seen.add(place)
            yield from _runs_in(child, seen, listing)


def _children(folder: Path, listing: Listing) -> list[Path]:
    """The folders in a folder, hidden ones apart; none where it cannot be looked into, which is noted."""
    try:
        with os.scandir(folder) as entries:
            return sorted(Path(entry.path) for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        listing.unreadable.append(f"{folder}: {error.strerror}")
        return []


def _is_stage(folder: Path) -> bool:
    """Whether a stage has written, or is writing, a folder; a `manifest.json` may be that of a web page."""
    try:
        names = _OF_A_STAGE & {entry.name for entry in os.scandir(folder)}
        if len(names) > 1 or (folder / RUNNING).is_file():
            return True
        return MANIFEST in names and read_manifest(folder, foreign_too=True) is not None
    except (OSError, DomainbertError):
        return False


def _recipe(folder: Path, stages: list[Path]) -> Run:
    """A recipe's run: its stages in order, then those that it has no more."""
    kinds = _kinds(folder / RECIPE, "command") or _kinds(folder / "results.json", "warnings")
    there = {child.name: child for child in stages}
    yet = {name: StageSeen(name, kind, NEVER_RUN) for name, kind in kinds.items() if name not in there}
    names = [*kinds, *(name for name in there if name not in kinds)]
    found = [yet[name] if name in yet else look_at(there[name]) for name in names]
    rest = bytes_below(folder, lambda child: child in stages)
    return Run(folder, found, rest + sum(one.num_bytes for one in found))


def _kinds(path: Path, beside: str) -> dict[str, str]:
    """The stages that a recipe's file names, with the stage function of each; none if it cannot be read, or lacks what
    stands beside them, as a file of another program does."""
    try:
        found = read_json(path, "the stages of a recipe")
        stages = found["stages"] if beside in found else {}
        return {str(name): str(one["stage"] if isinstance(one, dict) else one) for name, one in stages.items()}
    except (DomainbertError, AttributeError, KeyError):
        return {}
