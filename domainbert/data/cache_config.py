"""Settings of the folder in which files of a corpus at a URL are kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from domainbert.base.paths import check_url, check_whole
from domainbert.base.ranges import Range
from domainbert.base.validation import check_fields

Gigabytes = Annotated[float, Range(0, 1e6, above=True)]


@dataclass(frozen=True)
class CacheConfig:
    """The files of a corpus at a URL that are kept on this machine."""

    folder: str
    """Folder on a disk of this machine, the same for all its processes and for any number of runs and corpora; it is
    made where there is none. What it holds may be deleted while nothing runs."""

    gigabytes: Gigabytes
    """Gigabytes (of a thousand million bytes) that the folder holds at most, files on their way included: those used
    longest ago make room. Two windows of parts, or more."""

    url: str | None = None
    """URL of the parts, where these have moved since `merge` was told of theirs: an interrupted run resumes from there.
    None is the one that `merge` was told."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_whole("folder", self.folder)
        if self.url is not None:
            check_url("url", self.url)

    @property
    def bytes(self) -> int:
        """The bound in bytes."""
        return round(self.gigabytes * 1e9)
