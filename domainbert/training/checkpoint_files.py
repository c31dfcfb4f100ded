"""Checkpoints on disk: there as a whole or not at all, checked before use, the older ones removed only afterwards.

    checkpoints/step-00000500/state.pt           tensors and plain values
    checkpoints/step-00000500/checkpoint.json    step, bytes, SHA-256, and the validation score that it was saved with

A checkpoint is written into a hidden folder beside its place, synchronised to disk and renamed. Free of torch.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.base.freshness import damaged_files, in_short
from domainbert.base.hashes import FileHashes, hash_file
from domainbert.data.prepared_facts import PARTS_FOLDER, PREPARED_FILE

FOLDER = "checkpoints"
STATE = "state.pt"
FINISHED = "training.json"
"""Result of a part of a stage (one seed of several), in the part's folder: written when the part is complete, and kept,
so that the part need not be made again when others are asked for."""

MADE_FROM = "made_from.json"
"""Record of the training whose checkpoints stand beside it, where a folder may be trained into with other settings."""

_INDEX = "checkpoint.json"
_NAME = "step-{:08d}"
_KEPT = 2  # the newest, and the one before it in case the newest turns out to be damaged


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was complete when it was looked at."""

    path: Path
    step: int  # optimiser steps made
    score: float | None  # of the validation at this step, lower is better

    @property
    def state(self) -> Path:
        """The file to load."""
        return self.path / STATE


def write_checkpoint(
    folder: Path, step: int, num_bytes: int, save: Callable[[Path], None], score: float | None = None
) -> None:
    """Write a checkpoint, then remove those it makes superfluous: two stay, and the one with the lowest score.

    `save` writes the state, of about `num_bytes`, to the path it is given. `DomainbertError` if it cannot be written
    (disk full, say); the checkpoints there were stay as they are.
    """
    final, temporary = folder / _NAME.format(step), folder / f".{_NAME.format(step)}.unfinished"
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        save(temporary / STATE)
        _sync(temporary / STATE)
        index = {"step": step, "bytes": (temporary / STATE).stat().st_size, "sha256": hash_file(temporary / STATE)}
        (temporary / _INDEX).write_text(json.dumps(index | {"score": score}), encoding="utf-8")
        _sync(temporary / _INDEX)
        _sync(temporary)
        _remove(final)  # a damaged one, or the same again
        temporary.rename(final)
        _sync(folder)
    except (OSError, RuntimeError) as error:  # torch reports a failed write as a RuntimeError
        shutil.rmtree(temporary, ignore_errors=True)
        free = shutil.disk_usage(folder if folder.exists() else folder.parent).free
        raise DomainbertError(
            f"{final}: the checkpoint could not be written ({error}); it needs {num_bytes:,} bytes, {free:,} are free"
        ) from error
    _prune(folder)


def newest_checkpoint(folder: Path, warn: Callable[[str], None]) -> Checkpoint | None:
    """The newest undamaged checkpoint; None if there is none at all.

    Removes what an interrupted write has left behind, and damaged checkpoints where there is a sound one before them;
    `warn` is told of each of these. `DomainbertError` if there are checkpoints, and every one of them is damaged.
    """
    for path in folder.glob(".step-*"):
        shutil.rmtree(path)
    damaged: dict[Path, str] = {}
    for path in sorted(folder.glob("step-*"), reverse=True):
        damage = _damage(path)
        if not damage:
            for other, found in damaged.items():
                warn(f"warning: {other}: {found}; going on from {path.name}")
                _remove(other)
            return _read(path)
        damaged[path] = damage
    if damaged:
        found = "; ".join(f"{path}: {damage}" for path, damage in damaged.items())
        raise DomainbertError(f"{found}: no checkpoint is sound; --force starts from the beginning")
    return None


def holds_progress(out: Path) -> bool:
    """Whether a stage's folder has something that an interrupted run can resume: checkpoints, finished seeds, or parts
    of a corpus."""
    parts = f"{PARTS_FOLDER}/*/{PREPARED_FILE}"
    return any(any(out.glob(one)) for one in (f"{FOLDER}/step-*", f"*/{FOLDER}/step-*", f"*/{FINISHED}", parts))


def is_progress(out: Path, name: str) -> bool:
    """Whether an output of a stage belongs to a finished seed, or to a finished part of a corpus, and so is kept."""
    folder, of_part = (out / name).parent, (out / name).relative_to(out).parts[:2]
    part = out.joinpath(*of_part) / PREPARED_FILE
    return (folder / FINISHED).is_file() or (of_part[0] == PARTS_FOLDER and part.is_file())


def remove_progress(out: Path) -> None:
    """Remove what only an interrupted run needs, once the stage is done."""
    for pattern in (FOLDER, f"*/{FOLDER}"):
        for path in out.glob(pattern):
            shutil.rmtree(path, ignore_errors=True)


def check_room(out: Path, checkpoint_bytes: int, model_bytes: int) -> None:
    """`DomainbertError` if the disk has clearly no room for a training's checkpoints and its model."""
    # the newest, the best, and one that is being written
    needed, free = (_KEPT + 2) * checkpoint_bytes + model_bytes, shutil.disk_usage(out).free
    if free < needed:
        raise DomainbertError(
            f"{out}: {free:,} bytes are free; expected at least {needed:,} for the checkpoints and the model"
        )


def _prune(folder: Path) -> None:
    paths = sorted(folder.glob("step-*"))
    scored = [(one.score, one.path) for one in map(_read, paths) if one.score is not None and not math.isnan(one.score)]
    kept = {*paths[-_KEPT:], *(path for _, path in sorted(scored)[:1])}
    for path in paths:
        if path not in kept:
            _remove(path)


def _remove(path: Path) -> None:
    """Renamed first, so that a removal that is interrupted does not look like a damaged checkpoint.

    What cannot be removed now (over NFS, while a process has it mapped) is removed at the next start.
    """
    if path.exists():
        hidden = path.with_name(f".{path.name}.removed")
        shutil.rmtree(hidden, ignore_errors=True)
        path.rename(hidden)
        shutil.rmtree(hidden, ignore_errors=True)


def _damage(path: Path) -> str:
    try:
        return in_short(damaged_files(path, {STATE: _index(path)}, FileHashes()))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        return f"cannot be read ({error!r})"


def _read(path: Path) -> Checkpoint:
    try:
        score = _index(path)["score"]
    except (OSError, ValueError, KeyError, TypeError):
        score = None
    return Checkpoint(path, int(path.name.removeprefix("step-")), score)


def _index(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((path / _INDEX).read_text(encoding="utf-8"))
    return found


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
