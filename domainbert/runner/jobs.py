"""Runs one stage: its output folder, which is taken, filled and sealed, or left as it was found."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from domainbert.errors import DomainbertError
from domainbert.runner.manifest import MANIFEST, git_commit, read_manifest, seal_key, versions, what_changed, write_json
from domainbert.runner.stage_table import Stage
from domainbert.settings.reader import Settings, as_plain
from domainbert.settings.yaml_files import dump_yaml

RUNNING = "running.json"


@dataclass(frozen=True)
class Job:
    """A stage with checked arguments and the folder it writes."""

    stage: Stage
    settings: Settings
    out: Path
    seal: dict[str, Any]

    @property
    def key(self) -> str:
        """Equal keys give equal results."""
        return seal_key(self.seal)


@dataclass(frozen=True)
class FolderState:
    """What stands in a job's output folder, and whether that is what the job would write."""

    done: bool
    reason: str
    """Why there is something to do; `done` otherwise."""
    empty: bool = False
    manifest: dict[str, Any] | None = None


def folder_state(job: Job) -> FolderState:
    """Look at the output folder of a job.

    Raises:
        DomainbertError: it holds something that no stage has written.
    """
    out = job.out
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return FolderState(False, "never run", empty=True)
    if not out.is_dir():
        raise DomainbertError(f"{out}: is a file; expected a folder to write to, or none yet")
    if (out / RUNNING).exists():
        return FolderState(False, "not finished")
    manifest = read_manifest(out)
    if manifest is None:
        raise DomainbertError(
            f"{out}: holds files that domainbert did not write; expected an empty folder, or none yet"
        )
    if manifest["key"] == job.key:
        return FolderState(True, "done", manifest=manifest)
    return FolderState(False, what_changed(manifest["seal"], job.seal) or "changed", manifest=manifest)


def run_job(job: Job) -> dict[str, Any]:
    """Run a stage into its folder, whatever stage output stands there, and return the manifest.

    Raises:
        DomainbertError: from the stage; nothing of it stays behind. Or another process is writing the folder.
    """
    folder_state(job)
    started, clock = datetime.now(timezone.utc).isoformat(timespec="seconds"), time.monotonic()
    with _claimed(job):
        metrics = job.stage.function(out=job.out, **job.settings.arguments)
        config = {"out": str(job.out), **job.settings.plain}
        (job.out / "config.yaml").write_text(dump_yaml(config), encoding="utf-8")
        manifest = {
            "stage": job.stage.name,
            "key": job.key,
            "config": config,
            "inputs": {**job.seal["inputs"], **{f"@{name}": key for name, key in job.seal["stages"].items()}},
            "versions": versions(),
            "seed": config.get("seed", config.get("seeds")),
            "git_commit": git_commit(),
            "started": started,
            "wall_seconds": round(time.monotonic() - clock, 3),
            "metrics": as_plain(metrics),
            "seal": job.seal,
        }
        write_json(job.out / MANIFEST, manifest)
    return manifest


@contextmanager
def _claimed(job: Job) -> Iterator[None]:
    """The folder empty but for `running.json`, which is locked as long as this process lives."""
    created = not job.out.exists()
    job.out.mkdir(parents=True, exist_ok=True)
    with open(job.out / RUNNING, "a", encoding="utf-8") as marker:
        try:
            fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise DomainbertError(
                f"{job.out}: another process is writing this folder; wait for it, or end it"
            ) from error
        _clear(job.out)
        marker.truncate(0)
        marker.write(json.dumps({"stage": job.stage.name, "key": job.key, "process": os.getpid()}))
        marker.flush()
        try:
            yield
        except DomainbertError:
            _clear(job.out)
            (job.out / RUNNING).unlink()
            if created:
                job.out.rmdir()
            raise
        (job.out / RUNNING).unlink()


def _clear(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != RUNNING:
            path.unlink()
