"""What may stand under a `class_path`: the subclasses of an abstract configuration class, and nothing else.

They are found in the package of the base: in its own module and in every `config.py` or `*_config.py` below it. Such
modules are free of torch. A name in a YAML is compared with the classes found, never imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from functools import lru_cache
from pathlib import Path


def is_choice(hint: object) -> bool:
    """Whether a type is an abstract class, so that a value has to say which subclass it means."""
    return inspect.isclass(hint) and inspect.isabstract(hint)


def class_path(kind: type) -> str:
    """`package.module.Class`."""
    return f"{kind.__module__}.{kind.__qualname__}"


@lru_cache
def choices_of(base: type) -> dict[str, type]:
    """The subclasses of `base` by class name, in alphabetical order."""
    for module in _config_modules(base.__module__):
        importlib.import_module(module)
    found = [kind for kind in _descendants(base) if not inspect.isabstract(kind)]
    return {kind.__name__: kind for kind in sorted(found, key=lambda kind: kind.__name__)}


def find_choice(base: type, name: str) -> type | None:
    """The subclass of `base` called `name` (short, or the whole class path); None when there is none."""
    kind = choices_of(base).get(name.rpartition(".")[2])
    return kind if kind is not None and name in (kind.__name__, class_path(kind)) else None


def _config_modules(module: str) -> list[str]:
    package = module.rpartition(".")[0]
    spec = importlib.util.find_spec(package) if package else None
    folders = list(spec.submodule_search_locations or []) if spec is not None else []
    files = sorted(file for folder in folders for file in Path(folder).rglob("*.py") if _holds_choices(file))
    return [".".join([package, *file.relative_to(folders[0]).with_suffix("").parts]) for file in files]


def _holds_choices(file: Path) -> bool:
    return file.stem == "config" or file.stem.endswith("_config")


def _descendants(base: type) -> list[type]:
    direct: list[type] = base.__subclasses__()
    return direct + [kind for child in direct for kind in _descendants(child)]
