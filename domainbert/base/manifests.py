"""Checks finished stage folders: `manifest.json` records the output files, which are checked before they are read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from fnmatch import fnmatch
from glob import escape
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.base.files import HASHES, FileHashes, hash_json, quick_look, read_json
from domainbert.base.freshness import INPUT_FILES, damaged_files, flatten, format_examples, is_unchanged

MANIFEST = "manifest.json"
_TYPES: dict[str, type] = {"stage": str, "key": str, "config": dict, "metrics": dict}  # of keys in a manifest

# folder to the quick look of its manifest and the manifest: a folder is checked for each file that is opened
_manifests: dict[Path, tuple[list[int], dict[str, Any] | None]] = {}


def find_damaged_outputs(
    folder: Path,
    manifest: Mapping[str, Any],
    hashes: FileHashes | None = HASHES,
    thorough: bool = False,
    selects: Callable[[str], bool] = lambda name: True,
) -> list[str]:
    """Return the problems of the outputs in a manifest whose names `selects` accepts, as `damaged_files` does; [] for a
    manifest of an older version, without a list of outputs."""
    if not is_unchanged(manifest):
        return [f"{MANIFEST} has changed"]
    outputs = {name: facts for name, facts in manifest.get("outputs", {}).items() if selects(name)}
    return damaged_files(folder, outputs, hashes, thorough)


def check_outputs_unchanged(folder: Path, *patterns: str) -> None:
    """Raise `DomainbertError` if files to be read are missing or have changed since a stage wrote them.

    `folder` is a stage folder or a folder inside it (`seed-1`), and `patterns` match names relative to it. A folder
    without a manifest is not checked.
    """
    stage_folder, prefix, absolute = Path(folder), "", Path(os.path.abspath(folder))
    manifest = _cached_manifest(absolute)
    if manifest is None:  # perhaps a folder inside the stage folder
        stage_folder, prefix, absolute = stage_folder.parent, f"{escape(absolute.name)}/", absolute.parent
        manifest = _cached_manifest(absolute)
    if manifest is None:
        return
    full_patterns = [prefix + pattern for pattern in patterns]

    def matches(name: str) -> bool:
        """Whether a pattern matches a name; `*` matches no slash, unlike in `fnmatch`."""
        return any(name.count("/") == pattern.count("/") and fnmatch(name, pattern) for pattern in full_patterns)

    if problems := find_damaged_outputs(absolute, manifest, selects=matches):
        raise DomainbertError(
            f"{stage_folder}: changed since stage {manifest['stage']} finished: {format_examples(problems)}; restore "
            f"the files, or run {manifest['stage']} again with --force (in a recipe: --force {absolute.name})"
        )


def _cached_manifest(folder: Path) -> dict[str, Any] | None:
    """Return the manifest of a folder, read again only after the file has changed; None if there is no manifest of
    domainbert."""
    try:
        look = quick_look((folder / MANIFEST).stat())
    except (FileNotFoundError, NotADirectoryError):
        return None
    if folder not in _manifests or _manifests[folder][0] != look:
        _manifests[folder] = look, read_manifest(folder, accept_foreign=True)
    _, manifest = _manifests[folder]
    return manifest


def read_manifest(folder: Path, accept_foreign: bool = False) -> dict[str, Any] | None:
    """Return the manifest of a stage folder, or None if there is no file.

    With `accept_foreign`, return None for another program's `manifest.json`, too.

    Raises:
        DomainbertError: the file is not a valid manifest of domainbert.
    """
    path = folder / MANIFEST
    if not path.is_file():
        return None
    expected = "a manifest of domainbert: remove the file and use --force, or use a new folder"
    manifest = read_json(path, expected, kind=object)
    try:
        hash_json(manifest)  # fails early if it is nested too deeply to be written again
    except RecursionError as error:
        raise DomainbertError(f"{path}: not valid JSON ({error}); expected {expected}") from error
    keys = set(manifest) if isinstance(manifest, dict) else set()
    is_of_domainbert = {"stage", "key"} <= keys and ("made_from" in keys or "seal" in keys)  # `seal`: older versions
    if not is_of_domainbert:
        if accept_foreign:
            return None
        raise DomainbertError(f"{path}: found no key 'stage', 'key' or 'made_from'; expected {expected}")
    malformed = [name for name, kind in _TYPES.items() if not isinstance(manifest.get(name), kind)]
    malformed += [] if recorded_facts(manifest) else ["made_from"]
    if malformed:
        raise DomainbertError(
            f"{path}: the key '{malformed[0]}' is missing or has an invalid value; remove the folder, and run the "
            f"stage that writes {folder} again"
        )
    return manifest


def recorded_facts(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the facts (see `freshness`) that a manifest or status of a stage records; None if it has no valid facts.

    Earlier versions wrote a nested `seal`, in which inputs were listed by path.
    """
    current, seal = record.get("made_from"), record.get("seal")
    if isinstance(current, dict):
        return current
    if not isinstance(seal, dict):
        return None
    config, inputs, stages = (seal.get(part) for part in ("config", "inputs", "stages"))
    if not (isinstance(config, dict) and isinstance(inputs, dict) and isinstance(stages, dict)):
        return None
    # the content of a file that a setting names is in the settings; the other inputs are files of folders and patterns
    contents = [f"{Path(path).name} {digest}" for path, digest in inputs.items()]
    settings = json.dumps(config, ensure_ascii=False)
    not_in_settings = [content for content in contents if content not in settings]
    facts = {**flatten(config), "stage": seal.get("stage"), INPUT_FILES: not_in_settings}
    return {**facts, **seal.get("order", {}), **{f"@{name}": key for name, key in stages.items()}}
