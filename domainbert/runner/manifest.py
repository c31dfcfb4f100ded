"""Package versions and git commit of a manifest, and the earlier stages that settings refer to."""

from __future__ import annotations

import platform
import subprocess
from importlib import metadata

from domainbert.settings.reader import Settings

_PACKAGES = ("domainbert", "torch", "lightning", "tokenizers", "datasets", "numpy")


def referred_stages(settings: Settings) -> list[str]:
    """Return the sorted names of the earlier stages that settings refer to."""
    return sorted({stage_of(reference) for reference in settings.references.values()})


def stage_of(reference: str) -> str:
    """Return the stage name of a reference: `vocab` for `@vocab/vocab.txt`."""
    return reference.removeprefix("@").partition("/")[0]


def versions() -> dict[str, str | None]:
    """Return the versions of Python and of the main dependencies, without importing them; None if not installed."""
    versions_by_name: dict[str, str | None] = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions_by_name[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions_by_name[name] = None
    return versions_by_name


def git_commit() -> str | None:
    """Return the git commit of the current folder; None outside a repository or without git."""
    try:
        command = ["git", "rev-parse", "HEAD"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() if result.returncode == 0 else None
