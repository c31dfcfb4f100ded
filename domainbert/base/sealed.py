"""Finished stage folders: what a stage wrote is recorded in its `manifest.json`, and checked before it is used.

A quick look compares size, modification time, change time and inode. Where these differ, as in a copied folder, the
content is hashed: only changed content, or a missing file, is damage. Model cards, logs and the runner's notes about
the run may be edited.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from glob import escape
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.base.files import read_json, write_json
from domainbert.base.hashes import FOLDERS_OF_THE_RUN, HASHES, OF_THE_RUN, FileHashes, hash_file, hash_json, quick_look
from domainbert.base.redact import redact

MANIFEST = "manifest.json"
_SHAPE: dict[str, type] = {"stage": str, "key": str, "seal": dict, "config": dict, "metrics": dict}
_SHAPE_OF_SEAL: dict[str, type] = {"stage": str, "config": dict, "inputs": dict, "stages": dict}
_SHOWN = 3

_manifests: dict[Path, tuple[list[int], dict[str, Any] | None]] = {}  # several files of a folder are opened one by one


def record_outputs(folder: Path) -> dict[str, dict[str, Any]]:
    """Hash every file that a stage wrote for others: relative name to `bytes`, `sha256` and `quick_look`."""
    names = sorted(output_names(folder))
    with ThreadPoolExecutor() as pool:  # hashing leaves Python's lock
        return dict(zip(names, pool.map(_facts, map(folder.joinpath, names)), strict=True))


def output_names(folder: Path) -> Iterator[str]:
    """Files that a stage wrote for others to read, relative to its folder: no logs, model cards or runner's notes.
    `OSError` if a folder cannot be listed."""
    for place, folders, files in os.walk(folder, onerror=_raise):
        folders[:] = [name for name in folders if name not in FOLDERS_OF_THE_RUN and not name.startswith(".")]
        kept = (name for name in files if name not in OF_THE_RUN and not name.startswith("."))
        yield from (Path(place, name).relative_to(folder).as_posix() for name in kept)


def _raise(error: OSError) -> None:
    raise error


def _facts(path: Path) -> dict[str, Any]:
    status = path.stat()
    return {"bytes": status.st_size, "sha256": hash_file(path), "quick_look": quick_look(status)}


def damages(
    folder: Path,
    manifest: Mapping[str, Any],
    hashes: FileHashes | None,
    concerns: Callable[[str], bool] = lambda name: True,
    thorough: bool = False,
    record: str = MANIFEST,
) -> list[str]:
    """The files that are missing in a folder or have changed, each as "NAME is missing" or "NAME has changed".

    The manifest is what the file `record` holds; with one of an older version, which lists no outputs, nothing is
    found. Of the names that it `concerns`, files whose quick look differs are hashed; if `thorough`, all; without
    `hashes` none, so that only what is missing or has another size is found.
    """
    if not _is_unchanged(manifest):
        return [f"{record} has changed"]
    outputs = manifest.get("outputs", {})

    def problem(name: str) -> str:
        path, recorded = folder / name, outputs[name]
        try:
            status = path.stat()
            if status.st_size != recorded["bytes"]:
                return f"{name} has changed ({status.st_size:,} bytes; it had {recorded['bytes']:,})"
            if hashes is None or (not thorough and quick_look(status) == recorded["quick_look"]):
                return ""
            return "" if hashes.of_file(path) == recorded["sha256"] else f"{name} has changed"
        except (FileNotFoundError, NotADirectoryError):
            return f"{name} is missing"
        except OSError as error:
            return f"{name} cannot be read ({error.strerror})"

    with ThreadPoolExecutor() as pool:
        return [found for found in pool.map(problem, filter(concerns, outputs)) if found]


def in_short(found: Sequence[str]) -> str:
    """The first three damages or changes, and how many more there are."""
    more = f" and {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else ""
    return ", ".join(found[:_SHOWN]) + more


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

    found = damages(sealed, manifest, HASHES, concerns)
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
    if not (isinstance(found, dict) and {"stage", "key", "seal"} <= set(found)):
        if foreign_too:
            return None
        raise DomainbertError(f"{path}: expected a manifest of domainbert, with the keys stage, key and seal")
    odd = [name for name, kind in _SHAPE.items() if not isinstance(found.get(name), kind)]
    odd = odd or [f"seal.{name}" for name in odd_in_seal(found["seal"])]
    if odd:
        raise DomainbertError(
            f"{path}: {odd[0]} is missing, or not what a stage writes there; expected the manifest of a finished "
            "stage: remove the folder, and run the stage again"
        )
    return found


def odd_in_seal(seal: Any) -> list[str]:
    """The parts of a seal, read from a file, that are missing or have a form that no stage writes."""
    parts = seal if isinstance(seal, dict) else {}
    return [name for name, kind in _SHAPE_OF_SEAL.items() if not isinstance(parts.get(name), kind)]


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write `manifest.json` with the outputs of the stage and its own hash: this seals the folder."""
    write_record(folder / MANIFEST, manifest, record_outputs(folder))


def write_record(path: Path, facts: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
    """Write facts as JSON, with outputs (see `record_outputs`) and the hash of it all. Secrets are left out of the
    facts, but not out of the names of outputs: these files have to be found again."""
    plain = json.loads(json.dumps({**redact(facts), "outputs": outputs}))
    write_json(path, {**plain, "sha256": hash_json(plain)}, as_is=True)


def _is_unchanged(manifest: Mapping[str, Any]) -> bool:
    """Whether a manifest is unchanged; an older one, without outputs and hash, counts as unchanged."""
    if "sha256" not in manifest:
        return "outputs" not in manifest
    return bool(manifest["sha256"] == hash_json({name: manifest[name] for name in manifest if name != "sha256"}))
