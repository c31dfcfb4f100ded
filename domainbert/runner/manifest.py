"""What a manifest says of a run beside its facts: versions and commit; and the stages that settings refer to."""

from __future__ import annotations

import platform
import subprocess
from importlib import metadata

from domainbert.settings.reader import Settings

_PACKAGES = ("domainbert", "torch", "lightning", "tokenizers", "datasets", "numpy")


def referred_stages(settings: Settings) -> list[str]:
    """Names of the earlier stages that settings refer to, sorted."""
    return sorted({stage_of(reference) for reference in settings.references.values()})


def stage_of(reference: str) -> str:
    """The stage that a reference names: `vocab` for `@vocab/vocab.txt`."""
    return reference.removeprefix("@").partition("/")[0]


def versions() -> dict[str, str | None]:
    """Versions of Python and of the packages that matter, without importing them."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def git_commit() -> str | None:
    """The commit of the current folder; None outside a repository or without git."""
    try:
        command = ["git", "rev-parse", "HEAD"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() if result.returncode == 0 else None
