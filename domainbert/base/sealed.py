"""Finished stage folders: what a stage wrote is recorded in its `manifest.json`, and checked before it is read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from fnmatch import fnmatch
from glob import escape
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.base.files import read_json
from domainbert.base.freshness import INPUT_FILES, damaged_files, flatten, in_short, is_unchanged
from domainbert.base.hashes import HASHES, FileHashes, hash_json, quick_look

MANIFEST = "manifest.json"
_SHAPE: dict[str, type] = {"stage": str, "key": str, "config": dict, "metrics": dict}

_manifests: dict[Path, tuple[list[int], dict[str, Any] | None]] = {}  # several files of a folder are opened one by one


def damages(
    folder: Path,
    manifest: Mapping[str, Any],
    hashes: FileHashes | None = HASHES,
    thorough: bool = False,
    concerns: Callable[[str], bool] = lambda name: True,
) -> list[str]:
    """See `damaged_files`; a manifest of an older version, which lists no outputs, has none."""
    if not is_unchanged(manifest):
        return [f"{MANIFEST} has changed"]
    outputs = {name: facts for name, facts in manifest.get("outputs", {}).items() if concerns(name)}
    return damaged_files(folder, outputs, hashes, thorough)


def check_sealed(folder: Path, *patterns: str) -> None:
    """Raise an error if files that are about to be read are missing, or have changed since a stage wrote them.

    The folder is that of a stage, or one inside it (`seed-1`), and the patterns match names relative to it. A folder
    that no stage sealed is not checked.
    """
    place = Path(os.path.abspath(folder))
    for sealed in (place, place.parent):
        if (manifest := _known_manifest(sealed)) is not None:
            break
    else:
        return
    inside = "" if sealed == place else f"{escape(place.name)}/"
    wanted = [inside + pattern for pattern in patterns]

    def concerns(name: str) -> bool:
        return any(name.count("/") == pattern.count("/") and fnmatch(name, pattern) for pattern in wanted)

    found = damages(sealed, manifest, concerns=concerns)
    if found:
        raise DomainbertError(
            f"{folder if sealed == place else Path(folder).parent}: not as stage {manifest['stage']} left it: "
            f"{in_short(found)}; expected it as it was: run the stage again with --force "
            f"(in a recipe: --force {sealed.name})"
        )


def _known_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a stage folder, read again only after it has changed; None where there is none."""
    try:
        look = quick_look((folder / MANIFEST).stat())
    except (FileNotFoundError, NotADirectoryError):
        return None
    if folder not in _manifests or _manifests[folder][0] != look:
        _manifests[folder] = look, read_manifest(folder, foreign_too=True)
    return _manifests[folder][1]


def read_manifest(folder: Path, foreign_too: bool = False) -> dict[str, Any] | None:
    """The manifest of a stage folder, None where there is none; an error, or if `foreign_too` None, where it is not one
    of domainbert."""
    path = folder / MANIFEST
    if not path.is_file():
        return None
    found = read_json(path, "a manifest of domainbert", kind=object)
    try:
        hash_json(found)  # what is nested too deeply to be written is told here, too
    except RecursionError as error:
        raise DomainbertError(f"{path}: not valid JSON ({error}); expected a manifest of domainbert") from error
    if not (isinstance(found, dict) and {"stage", "key"} <= set(found) and {"made_from", "seal"} & set(found)):
        if foreign_too:
            return None
        raise DomainbertError(f"{path}: expected a manifest of domainbert, with the keys stage, key and made_from")
    odd = [name for name, kind in _SHAPE.items() if not isinstance(found.get(name), kind)]
    odd += [] if made_from(found) else ["made_from"]
    if odd:
        raise DomainbertError(
            f"{path}: {odd[0]} is missing, or not what a stage writes there; expected the manifest of a finished "
            "stage: remove the folder, and run the stage again"
        )
    return found


def made_from(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the facts that a stage was made from, by its manifest or status; None if there are none to read.

    Earlier versions wrote a nested `seal`, in which inputs were listed by path.
    """
    found, seal = record.get("made_from"), record.get("seal") or {}
    if isinstance(found, dict) or not isinstance(seal, dict):
        return found if isinstance(found, dict) else None
    config, inputs, stages = (seal.get(part) for part in ("config", "inputs", "stages"))
    if not (isinstance(config, dict) and isinstance(inputs, dict) and isinstance(stages, dict)):
        return None
    contents = [f"{Path(path).name} {digest}" for path, digest in inputs.items()]
    named = json.dumps(config, ensure_ascii=False)
    facts = {**flatten(config), "stage": seal.get("stage"), INPUT_FILES: [one for one in contents if one not in named]}
    return {**facts, **seal.get("order", {}), **{f"@{name}": key for name, key in stages.items()}}
