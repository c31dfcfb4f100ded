"""Checkpoints on disk: written atomically, verified before use; older checkpoints are deleted only after a new write.

    checkpoints/step-00000500/training.ckpt      a checkpoint of Lightning: tensors and plain values
    checkpoints/step-00000500/checkpoint.json    step, bytes, SHA-256, validation score

A checkpoint is written to a hidden folder, synchronised to disk and renamed. This module does not import torch.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.base.files import LOGS, FileHashes, hash_file, sync_files
from domainbert.base.freshness import Freshness, damaged_files, format_examples
from domainbert.data.prepared_facts import PARTS_FOLDER, PREPARED_FILE

FOLDER = "checkpoints"
STATE = "training.ckpt"
FINISHED = "training.json"
"""Name of the file with the result of a part of a stage (one seed of several), in the folder of the part. It is written
when the part is complete and kept, so that a later run with more seeds does not repeat the part."""

MADE_FROM = "made_from.json"
"""Name of the file with the settings that produced the checkpoints in the same folder: a later run may have others."""

_INDEX_FILE = "checkpoint.json"
_FOLDER_NAME = "step-{:08d}"
_NUM_KEPT = 2  # the newest, and its predecessor in case the newest is damaged


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint on disk."""

    path: Path
    step: int  # completed optimiser steps
    score: float | None  # validation metric at this step, lower is better

    @property
    def file(self) -> Path:
        """Checkpoint of Lightning."""
        return self.path / STATE


def write_checkpoint(
    folder: Path, step: int, num_bytes: int, save: Callable[[Path], None], score: float | None = None
) -> None:
    """Write a checkpoint, then delete all but the newest two and the checkpoint with the lowest score.

    `save(path)` writes the state, of about `num_bytes`. Raises `DomainbertError` if the write fails (for example, if
    the disk is full); existing checkpoints are then unchanged.
    """
    name = _FOLDER_NAME.format(step)
    target, temporary = folder / name, folder / f".{name}.unfinished"
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        save(temporary / STATE)
        index = {"step": step, "bytes": (temporary / STATE).stat().st_size, "sha256": hash_file(temporary / STATE)}
        (temporary / _INDEX_FILE).write_text(json.dumps(index | {"score": score}), encoding="utf-8")
        sync_files(temporary)
        _delete(target)  # damaged, or an earlier write of the same step
        temporary.rename(target)
        sync_files(folder)
    except (OSError, RuntimeError) as error:  # torch reports a failed write as a RuntimeError
        shutil.rmtree(temporary, ignore_errors=True)
        free = shutil.disk_usage(folder if folder.exists() else folder.parent).free
        raise DomainbertError(
            f"the checkpoint could not be written ({error})",
            file=target,
            hint=f"it needs {num_bytes:,} bytes, {free:,} are free",
        ) from error
    _delete_old_checkpoints(folder)


def newest_checkpoint(folder: Path, warn: Callable[[str], None], deletes: bool = True) -> Checkpoint | None:
    """Return the newest undamaged checkpoint, or None if there are no checkpoints.

    If `deletes`, as in the first process, deletes the remains of interrupted writes and deletions, and damaged
    checkpoints that are newer than the returned one, and calls `warn` for each of these. Raises `DomainbertError` if
    all checkpoints are damaged.
    """
    if deletes:
        for path in folder.glob(".step-*"):
            shutil.rmtree(path)
    damages: dict[Path, str] = {}
    for path in sorted(folder.glob("step-*"), reverse=True):
        damage = _describe_damage(path)
        if damage:
            damages[path] = damage
            continue
        if deletes:
            for damaged, reason in damages.items():
                warn(f"warning: {damaged} is damaged ({reason}) and is deleted; resuming from {path.name}")
                _delete(damaged)
            _delete_old_checkpoints(folder)  # a process was killed before it deleted them
        return _read_checkpoint(path)
    if damages:
        reasons = "; ".join(f"{path.name}: {damage}" for path, damage in damages.items())
        raise DomainbertError(
            f"all checkpoints are damaged ({reasons})", file=folder, hint="delete this folder to start again"
        )
    return None


def holds_progress(out: Path) -> bool:
    """Return whether a stage can resume in `out`: it has checkpoints, finished seeds, or parts of a corpus."""
    patterns = (f"{FOLDER}/step-*", f"*/{FOLDER}/step-*", f"*/{FINISHED}", f"{PARTS_FOLDER}/*/{PREPARED_FILE}")
    return any(any(out.glob(pattern)) for pattern in patterns)


def check_same_training(out: Path, facts: Freshness) -> None:
    """Record the facts of a training in `out`, next to its checkpoints.

    Raises `DomainbertError` if `out` has checkpoints of a training with other facts. Checkpoints without a record, of
    an earlier version, are accepted.
    """
    folder = out / FOLDER
    _, change = facts.read_if_current(folder / MADE_FROM)
    if change and any(folder.glob("step-*")):
        raise DomainbertError(
            f"holds checkpoints of another training ({change})",
            file=folder,
            expected="the same settings, or another `out`",
            hint=f"to start again in this `out`, delete {folder}",
        )
    record_facts(out, facts)


def record_facts(out: Path, facts: Freshness) -> None:
    """Record the facts of a training with its checkpoints in `out`."""
    record = out / FOLDER / MADE_FROM
    record.parent.mkdir(parents=True, exist_ok=True)
    facts.record(record, {}, outputs={})


def is_finished_output(out: Path, name: str) -> bool:
    """Return whether an output of a stage belongs to a finished seed or to a finished part of a corpus, or is a log, to
    which a resumed training appends.

    `name` is the path of the output relative to `out`.
    """
    path = Path(name)
    if path.parent.name == LOGS or (out / path.parent / FINISHED).is_file():
        return True
    part_folder = out.joinpath(*path.parts[:2])  # such as parts/00001
    return path.parts[0] == PARTS_FOLDER and (part_folder / PREPARED_FILE).is_file()


def remove_checkpoints(out: Path) -> None:
    """Delete the checkpoints of a finished stage and of its seeds."""
    for pattern in (FOLDER, f"*/{FOLDER}"):
        for path in out.glob(pattern):
            shutil.rmtree(path, ignore_errors=True)


def check_disk_space(out: Path, checkpoint_bytes: int, model_bytes: int) -> None:
    """Raise `DomainbertError` if the disk has no room for the checkpoints and the model."""
    num_checkpoints = _NUM_KEPT + 2  # the newest two, the best, and an unfinished write
    present = sum(path.stat().st_size for path in (out / FOLDER).glob("step-*/*"))  # of an earlier run
    needed, free = num_checkpoints * checkpoint_bytes - present + model_bytes, shutil.disk_usage(out).free
    if free < needed:
        raise DomainbertError(
            f"the disk has {free:,} bytes free",
            where=out,
            expected=f"at least {needed:,} for the checkpoints and the model",
        )


def _delete_old_checkpoints(folder: Path) -> None:
    paths = sorted(folder.glob("step-*"))
    scores = {path: _read_checkpoint(path).score for path in paths}
    scored = [(score, path) for path, score in scores.items() if score is not None and not math.isnan(score)]
    kept = paths[-_NUM_KEPT:]
    if scored:
        _, best = min(scored)
        kept.append(best)
    for path in paths:
        if path not in kept:
            _delete(path)


def _delete(path: Path) -> None:
    """Rename a checkpoint, then delete it, so that an interrupted deletion does not look like a damaged checkpoint.
    Files that cannot be deleted now (on NFS, while a process maps them) are deleted at the next start."""
    if path.exists():
        hidden = path.with_name(f".{path.name}.removed")
        shutil.rmtree(hidden, ignore_errors=True)
        path.rename(hidden)
        shutil.rmtree(hidden, ignore_errors=True)


def _describe_damage(path: Path) -> str:
    # "" if the checkpoint is intact
    try:
        index = _read_index(path)  # with the size and hash of the state when it was written
        return format_examples(damaged_files(path, {STATE: index}, FileHashes()))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        return f"cannot be read ({error!r})"


def _read_checkpoint(path: Path) -> Checkpoint:
    try:
        score = _read_index(path)["score"]
    except (OSError, ValueError, KeyError, TypeError):  # the index is damaged
        score = None
    return Checkpoint(path, int(path.name.removeprefix("step-")), score)


def _read_index(path: Path) -> dict[str, Any]:
    index: dict[str, Any] = json.loads((path / _INDEX_FILE).read_text(encoding="utf-8"))
    return index
