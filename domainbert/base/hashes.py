"""Content hashes of files, folders and plain values; they decide whether a stage has to run again."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.base.files import read_json, write_json
from domainbert.base.signals import stop_if_asked

_BLOCK_BYTES = 1 << 20
_ENTRY = 5  # a quick look and a hash; entries of older versions, which looked at less, do not count
_NOT_READ = {"manifest.json", "status.json", "README.md"}  # they tell of the run and the model: nothing reads them
OF_THE_RUN = {*_NOT_READ, "running.lock", "config.yaml", "training.json"}
"""Files in the folder of a stage that tell of the run, and that nothing reads."""
FOLDERS_OF_THE_RUN = {"logs", "checkpoints"}
"""Folders like these files."""
_RECORDED = {"prepared.json": "parts"}  # files that hold the hashes of all others in a folder beside them


def hash_file(path: Path) -> str:
    """SHA-256 of the bytes of one file, as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(_BLOCK_BYTES):
            stop_if_asked()
            digest.update(block)
    return digest.hexdigest()


def hash_json(value: Any) -> str:
    """SHA-256 of a plain value (dict, list, str, numbers, None); the order of dictionary keys does not count."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def quick_look(status: os.stat_result) -> list[int]:
    """Size, modification time, change time (both in ns) and inode: these change with the content of a file. A program
    may reset the modification time, or replace the file with another one; it cannot set the change time."""
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


class FileHashes:
    """Hashes of files, remembered by path and `quick_look`, also in a JSON file, the cache, if one is given. Hashes
    that are stored there are computed again if they are not to be believed."""

    def __init__(self, cache: Path | None = None, believe: bool = True) -> None:
        self._cache = cache
        self._known: dict[str, list[Any]] = {}
        if cache is not None and cache.is_file() and believe:
            self._known = _read_cache(cache)

    def of_file(self, path: Path) -> str:
        """`hash_file`, or what it was when size, modification time, change time and inode are the same."""
        name, stamp = str(path.resolve()), quick_look(path.stat())
        known = self._known.get(name)
        if known is None or known[:-1] != stamp:
            known = self._known[name] = [*stamp, hash_file(path)]
        return str(known[-1])

    def of(self, path: Path) -> str:
        """Hash of a file; or of the relative names and contents of the files below a folder, but for `manifest.json`,
        `status.json` and model cards, in the folder of a stage also its logs and notes, and for what `prepared.json`
        has the hashes of: parts of a corpus, which may be too large to be read at each start."""
        if not path.is_dir():
            return self.of_file(path)
        of_a_stage = any((place / "manifest.json").is_file() for place in (path, path.parent))  # or of one of its seeds
        not_read, apart = (OF_THE_RUN, FOLDERS_OF_THE_RUN) if of_a_stage else (_NOT_READ, set())
        recorded = {path / folder for record, folder in _RECORDED.items() if (path / record).is_file()}
        found = (file for file in path.rglob("*") if file.is_file() and file.name not in not_read)
        names = [file.relative_to(path) for file in found if recorded.isdisjoint(file.parents)]
        return hash_json({name.as_posix(): self.of_file(path / name) for name in names if apart.isdisjoint(name.parts)})

    def save(self) -> None:
        """Write the cache file, if there is one."""
        if self._cache is not None:
            self._cache.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._cache, self._known, as_is=True)


HASHES = FileHashes()
"""Hashes that this process has computed; several checks of a stage hash the same files."""


def _read_cache(path: Path) -> dict[str, list[Any]]:
    try:
        known = read_json(path, "hashes of files by name")
    except DomainbertError:  # cut off by a crash: that only costs time
        return {}
    return {name: entry for name, entry in known.items() if isinstance(entry, list) and len(entry) == _ENTRY}
