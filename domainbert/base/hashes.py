"""Content hashes of files, folders and plain values, which decide whether a stage has to run again."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.base.files import read_json, write_json
from domainbert.base.signals import raise_if_stopped

_BLOCK_BYTES = 1 << 20
_ENTRY_LENGTH = 5  # of an entry of the cache: the 4 numbers of a quick look, and a hash; other entries are ignored
_NOT_HASHED = {"manifest.json", "status.json", "README.md"}  # describe the run and the model; no stage reads them
RUN_FILES = {*_NOT_HASHED, "running.lock", "config.yaml", "training.json"}
"""Files in a stage folder that describe the run; no other stage reads them."""
RUN_FOLDERS = {"logs", "checkpoints"}
"""Subfolders of a stage folder that no other stage reads."""
_RECORDED = {"prepared.json": "parts"}  # file that records the hashes of all files in the folder next to it


def hash_file(path: Path) -> str:
    """Return the SHA-256 of the bytes of one file, as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(_BLOCK_BYTES):
            raise_if_stopped()
            digest.update(block)
    return digest.hexdigest()


def hash_json(value: Any) -> str:
    """Return the SHA-256 of a plain value (dict, list, str, numbers, None), as 64 hexadecimal digits; the order of
    dictionary keys has no effect."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def quick_look(status: os.stat_result) -> list[int]:
    """Return size, modification time, change time (both in ns) and inode of a file: at least one of them changes with
    its content, because no program can set the change time."""
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


class FileHashes:
    """Hashes files; caches the hashes by path and `quick_look`, in memory and in the JSON file `cache` if it is given.

    `trust_cache=False` ignores the hashes in that file."""

    def __init__(self, cache: Path | None = None, trust_cache: bool = True) -> None:
        self._cache = cache
        self._entries: dict[str, list[Any]] = {}
        if cache is not None and cache.is_file() and trust_cache:
            self._entries = _read_cache(cache)

    def of_file(self, path: Path) -> str:
        """Return `hash_file` of a file, from the cache if its `quick_look` is the same."""
        name, stamp = str(path.resolve()), quick_look(path.stat())
        entry = self._entries.get(name)
        if entry is None or entry[:-1] != stamp:
            entry = self._entries[name] = [*stamp, hash_file(path)]
        return str(entry[-1])

    def hash_path(self, path: Path) -> str:
        """Return the hash of a file, or of the relative names and contents of all files below a folder.

        Ignored are `manifest.json`, `status.json`, model cards, `RUN_FILES` and `RUN_FOLDERS` in a stage folder, and
        the parts of a corpus whose hashes are in `prepared.json`: they may be too large to read at each start."""
        if not path.is_dir():
            return self.of_file(path)
        in_stage = any((folder / "manifest.json").is_file() for folder in (path, path.parent))  # parent: `seed-1`
        not_hashed, skipped = (RUN_FILES, RUN_FOLDERS) if in_stage else (_NOT_HASHED, set())
        recorded = {path / folder for record, folder in _RECORDED.items() if (path / record).is_file()}
        files = (file for file in path.rglob("*") if file.is_file() and file.name not in not_hashed)
        names = [file.relative_to(path) for file in files if recorded.isdisjoint(file.parents)]
        names = [name for name in names if skipped.isdisjoint(name.parts)]
        return hash_json({name.as_posix(): self.of_file(path / name) for name in names})

    def save(self) -> None:
        """Write the cache file, if there is one."""
        if self._cache is not None:
            self._cache.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._cache, self._entries, unredacted=True)


HASHES = FileHashes()
"""Hashes of this process, in memory only; several checks of a stage need the same files."""


def _read_cache(path: Path) -> dict[str, list[Any]]:
    try:
        entries = read_json(path, "hashes of files by name")
    except DomainbertError:  # truncated by a crash: only costs time
        return {}
    return {name: entry for name, entry in entries.items() if isinstance(entry, list) and len(entry) == _ENTRY_LENGTH}
