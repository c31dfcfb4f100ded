"""Seals finished stage folders: `manifest.json` records the output files, which are checked before they are used.

A quick look compares size, modification time, change time and inode. If these differ, as in a copied folder, the
content is hashed: only changed content and missing files are damage. Model cards, logs and the runner's notes about the
run may be edited.
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
from domainbert.base.hashes import HASHES, RUN_FILES, RUN_FOLDERS, FileHashes, hash_file, hash_json, quick_look
from domainbert.base.redact import redact

MANIFEST = "manifest.json"
_TYPES: dict[str, type] = {"stage": str, "key": str, "seal": dict, "config": dict, "metrics": dict}
_SEAL_TYPES: dict[str, type] = {"stage": str, "config": dict, "inputs": dict, "stages": dict}
_EXAMPLES = 3

_manifests: dict[Path, tuple[list[int], dict[str, Any] | None]] = {}  # cache: a folder is checked for each file opened


def record_outputs(folder: Path) -> dict[str, dict[str, Any]]:
    """Hash every output file of a stage: relative name to `bytes`, `sha256` and `quick_look`."""
    names = sorted(output_names(folder))
    with ThreadPoolExecutor() as pool:  # hashing releases the GIL
        return dict(zip(names, pool.map(_facts, map(folder.joinpath, names)), strict=True))


def output_names(folder: Path) -> Iterator[str]:
    """Output files of a stage, relative to its folder, without logs, model cards and the runner's notes.
    Raises `OSError` if a folder cannot be listed."""
    for parent, folders, files in os.walk(folder, onerror=_raise):
        folders[:] = [name for name in folders if name not in RUN_FOLDERS and not name.startswith(".")]
        outputs = (name for name in files if name not in RUN_FILES and not name.startswith("."))
        yield from (Path(parent, name).relative_to(folder).as_posix() for name in outputs)


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
    """Missing and changed files of a folder, each as "NAME is missing" or "NAME has changed".

    Args:
        folder: the folder that `manifest` describes.
        manifest: content of the file `record`; an older version without a list of outputs reports nothing.
        hashes: hashes files whose quick look differs; None finds only missing files and other sizes.
        concerns: selects the names to check.
        thorough: hash all files.
        record: name of the manifest in messages.
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
        return [text for text in pool.map(problem, filter(concerns, outputs)) if text]


def in_short(problems: Sequence[str]) -> str:
    """The first three problems or changes, and the number of the others."""
    more = f" and {len(problems) - _EXAMPLES:,} more" if len(problems) > _EXAMPLES else ""
    return ", ".join(problems[:_EXAMPLES]) + more


def check_sealed(folder: Path, *patterns: str) -> None:
    """Raise `DomainbertError` if files to be read are missing or have changed since a stage wrote them.

    `folder` is a stage folder or a folder inside it (`seed-1`), and `patterns` match names relative to it. A folder
    without a manifest is not checked.
    """
    absolute = Path(os.path.abspath(folder))
    for sealed in (absolute, absolute.parent):
        if (manifest := _cached_manifest(sealed)) is not None:
            break
    else:
        return
    prefix = "" if sealed == absolute else f"{escape(absolute.name)}/"
    full_patterns = [prefix + pattern for pattern in patterns]

    def concerns(name: str) -> bool:
        return any(name.count("/") == pattern.count("/") and fnmatch(name, pattern) for pattern in full_patterns)

    if problems := damages(sealed, manifest, HASHES, concerns):
        raise DomainbertError(
            f"{folder if sealed == absolute else Path(folder).parent}: changed since stage {manifest['stage']} "
            f"finished: {in_short(problems)}; expected unchanged files: run the stage again with --force "
            f"(in a recipe: --force {sealed.name})"
        )


def _cached_manifest(folder: Path) -> dict[str, Any] | None:
    """`read_manifest`, again only after the file has changed; None if there is no manifest."""
    try:
        look = quick_look((folder / MANIFEST).stat())
    except (FileNotFoundError, NotADirectoryError):
        return None
    if folder not in _manifests or _manifests[folder][0] != look:
        _manifests[folder] = look, read_manifest(folder, foreign_too=True)
    return _manifests[folder][1]


def read_manifest(folder: Path, foreign_too: bool = False) -> dict[str, Any] | None:
    """Read the manifest of a stage folder; None if there is no file.
    Another program's manifest raises `DomainbertError`, or is None if `foreign_too`."""
    path = folder / MANIFEST
    if not path.is_file():
        return None
    manifest = read_json(path, "a manifest of domainbert", kind=object)
    try:
        hash_json(manifest)  # fails early if it is nested too deeply to be written again
    except RecursionError as error:
        raise DomainbertError(f"{path}: not valid JSON ({error}); expected a manifest of domainbert") from error
    if not (isinstance(manifest, dict) and {"stage", "key", "seal"} <= set(manifest)):
        if foreign_too:
            return None
        raise DomainbertError(f"{path}: expected a manifest of domainbert, with the keys stage, key and seal")
    malformed = [name for name, expected in _TYPES.items() if not isinstance(manifest.get(name), expected)]
    malformed = malformed or [f"seal.{name}" for name in odd_in_seal(manifest["seal"])]
    if malformed:
        raise DomainbertError(
            f"{path}: {malformed[0]} is missing or has an invalid value; expected the manifest of a finished stage: "
            "remove the folder and run the stage again"
        )
    return manifest


def odd_in_seal(seal: Any) -> list[str]:
    """Keys of a seal from a file that are missing or have a value of the wrong type."""
    parts = seal if isinstance(seal, dict) else {}
    return [name for name, expected in _SEAL_TYPES.items() if not isinstance(parts.get(name), expected)]


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Seal a stage folder: write `manifest.json` with the hashes of the outputs and of the manifest."""
    write_record(folder / MANIFEST, manifest, record_outputs(folder))


def write_record(path: Path, facts: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
    """Write `facts`, `outputs` (see `record_outputs`) and a hash of both as JSON.
    Secrets are removed from the facts, but not from the names of the outputs, which must match the files."""
    plain = json.loads(json.dumps({**redact(facts), "outputs": outputs}))
    write_json(path, {**plain, "sha256": hash_json(plain)}, as_is=True)


def _is_unchanged(manifest: Mapping[str, Any]) -> bool:
    """Whether the hash of a manifest matches; an older version without outputs and hash counts as unchanged."""
    if "sha256" not in manifest:
        return "outputs" not in manifest
    return bool(manifest["sha256"] == hash_json({name: manifest[name] for name in manifest if name != "sha256"}))
