"""domainbert: small, fast BERT models of one domain, from raw text to NER F1.

`__init__.pyi` lists the public names and their modules, for type checkers and for this module. Names are imported on
first use, so that `import domainbert` is fast and does not import torch.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

_STUB = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_MODULES = {name: module for module, name in re.findall(r"^from (\S+) import (\w+) as \2$", _STUB, re.MULTILINE)}
__all__ = [*_MODULES, "__version__"]


def __getattr__(name: str) -> Any:
    """Import a public name on first use; read `__version__` from the metadata of the installed package."""
    if name == "__version__":
        from importlib.metadata import version

        return version("domainbert")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value  # Python then finds the name without this function
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
