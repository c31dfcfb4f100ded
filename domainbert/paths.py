"""Paths that users write: also `package:NAME/sub/folder`, a folder inside an installed Python package."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from domainbert.errors import DomainbertError

_PREFIX = "package:"


def resolve_package_path(path: str | Path) -> Path:
    """`package:NAME/sub` as the folder inside the installed package NAME; any other path as it is.

    The package is found without importing it.

    Raises:
        DomainbertError: the package is not installed, or the path leads out of it.
    """
    text = str(path)
    if not text.startswith(_PREFIX):
        return Path(path)
    name, _, rest = text.removeprefix(_PREFIX).partition("/")
    spec = importlib.util.find_spec(name) if name.isidentifier() else None
    if spec is None or spec.origin is None:
        raise DomainbertError(
            f"{text}: no installed Python package has the name '{name}'; expected package:NAME/folder"
        )
    root = Path(spec.origin).parent if spec.submodule_search_locations else None
    if root is None or ".." in Path(rest).parts:
        raise DomainbertError(f"{text}: expected a folder inside the Python package '{name}'")
    return root / rest
