"""Files of a prepared corpus."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from domainbert.base.errors import DomainbertError


class FileFacts(NamedTuple):
    """A file below the root of a corpus."""

    name: str
    bytes: int
    sha256: str


class LocalFiles:
    """Files on a disk."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, file: FileFacts) -> Path:
        """The path; `DomainbertError` if it is missing or has another size."""
        path = self.root / file.name
        size = path.stat().st_size if path.is_file() else None
        if size != file.bytes:
            found = "missing" if size is None else f"{size:,} bytes"
            raise DomainbertError(f"{path}: {found}; expected {file.bytes:,} bytes")
        return path

    def prefetch(self, files: Sequence[FileFacts]) -> None:
        """Nothing: they are here."""


Files = LocalFiles
