"""Registry of the classes that a `class_path` may name: only the subclasses of an abstract configuration class.

They are defined in the package of the base class, in its module and in every `config.py` or `*_config.py` below it;
these modules are free of torch. Installed packages register further classes by Python entry points, in the group that
the base class names. A name in a YAML is compared with these classes and never imported, unless the command line allows
its package (`--allow-import mypkg`). Neither a YAML nor the environment can allow a package.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, get_type_hints

from domainbert.base.errors import DomainbertError

_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_allowed: tuple[str, ...] = ()


def allow_imports(names: str | None) -> None:
    """Import the modules that `--allow-import` names, and allow their classes in a `class_path`.

    Every `config.py` and `*_config.py` below a package is imported too, to register its families, kinds of vocabulary
    and tasks. Modules that were allowed before are no longer allowed; None allows nothing.

    Raises:
        DomainbertError: a name is not valid, or a module cannot be imported.
    """
    global _allowed
    _allowed = ()
    requested = () if names is None else tuple(names.split(","))
    for name in requested:
        if not _DOTTED.fullmatch(name):
            raise DomainbertError(f"--allow-import: found {name!r}; expected packages, such as mypkg,other.part")
    for name in requested:
        folders = getattr(_import(name, "--allow-import: "), "__path__", ())
        for module in _modules_with_choices(name, folders):
            _import(module, "--allow-import: ")
    _allowed = requested


def allow_import_words() -> list[str]:
    """Command-line arguments that allow the same modules in other processes."""
    return ["--allow-import", ",".join(_allowed)] if _allowed else []


def is_allowed(name: str) -> bool:
    """Whether a class path is in a module that the command line allows."""
    return bool(_DOTTED.fullmatch(name)) and any(name.startswith(f"{module}.") for module in _allowed)


def import_advice(name: str) -> str:
    """Hint how to allow a class in a user package; empty for a name without a package."""
    package = name.partition(".")[0]
    if not _DOTTED.fullmatch(name) or package in (name, __name__.partition(".")[0]):
        return ""
    return f" (use --allow-import {package} on the command line to allow this package)"


def is_choice(hint: object) -> bool:
    """Whether a type is an abstract class, so that a value has to name a subclass."""
    return inspect.isclass(hint) and inspect.isabstract(hint)


def class_path(cls: type) -> str:
    """Full name of a class, `package.module.Class`."""
    return f"{cls.__module__}.{cls.__qualname__}"


def as_plain(value: Any, defaults: bool = True) -> Any:
    """Convert dataclasses, paths and tuples to plain YAML values, and a choice to `class_path` and `init_args`.

    `defaults=False` leaves out fields with their default.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        items = {item: getattr(value, item.name) for item in dataclasses.fields(value) if item.init}
        fields = {
            item.name: as_plain(setting, defaults)
            for item, setting in items.items()
            if defaults or setting != default_of(item)
        }
        if any(is_choice(base) for base in type(value).__mro__):
            return {"class_path": class_path(type(value)), "init_args": fields}
        return fields
    if isinstance(value, Mapping):
        return {key: as_plain(item, defaults) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [as_plain(item, defaults) for item in value]
    return str(value) if isinstance(value, Path) else value


def default_of(item: dataclasses.Field[Any]) -> Any:
    """Return the default of a field, or `dataclasses.MISSING` if it has none."""
    return item.default if item.default_factory is dataclasses.MISSING else item.default_factory()


@lru_cache
def choices_of(base: type) -> dict[str, type]:
    """Subclasses of `base` in its package and in installed packages, sorted by class name.

    The key of a registered class is its class path if another class has the same name.

    Raises:
        DomainbertError: an entry point cannot be loaded, or is no subclass of `base`.
    """
    package = base.__module__.rpartition(".")[0]
    spec = importlib.util.find_spec(package) if package else None
    for module in _modules_with_choices(package, (spec and spec.submodule_search_locations) or ()):
        importlib.import_module(module)
    root = base.__module__.partition(".")[0]
    choices = {cls.__name__: cls for cls in concrete_subclasses(base) if cls.__module__.partition(".")[0] == root}
    for cls in _registered(base):
        choices[class_path(cls) if cls.__name__ in choices else cls.__name__] = cls
    return dict(sorted(choices.items()))


def _registered(base: type) -> Iterator[type]:
    """Subclasses of `base` that installed packages register."""
    group = getattr(base, "entry_point_group", None)
    for entry in entry_points(group=group) if group is not None else ():
        package = "" if entry.dist is None else f" of {entry.dist.name}"
        where = f"entry point {group}: {entry.name} = {entry.value}{package}"
        try:
            cls = entry.load()
        except Exception as error:  # a module of another package may raise anything while it is imported
            raise DomainbertError(f"{where}: cannot be loaded: {type(error).__name__}: {error}") from error
        try:
            yield _checked(cls, base, entry.value.replace(":", "."))
        except DomainbertError as error:
            raise DomainbertError(f"{where}: {error}") from error


def concrete_subclasses(base: type) -> list[Any]:
    """Imported subclasses of `base` that are not abstract, user packages included."""
    direct: list[type] = base.__subclasses__()
    concrete = [cls for cls in direct if not inspect.isabstract(cls)]
    return concrete + [cls for child in direct for cls in concrete_subclasses(child)]


def named_files(base: type) -> dict[str, Path]:
    """YAML files in the folder `files` of an abstract class, by name."""
    folder = getattr(base, "files", None)
    return {} if folder is None else {file.stem: file for file in sorted(Path(folder).glob("*.yaml"))}


def find_choice(base: type, name: str) -> type | None:
    """Subclass of `base` by its class name, its name in snake case, or its class path; None if there is none.

    `multi_label` is `MultiLabel`, and `byte_bpe` is `ByteBPE`.

    Raises:
        DomainbertError: the name is allowed, but cannot be imported or is no subclass of `base`.
    """
    choices = choices_of(base)
    snake = {short.lower(): cls for short, cls in choices.items()}
    if re.fullmatch("[a-z0-9_]+", name) and name.replace("_", "") in snake:
        return snake[name.replace("_", "")]
    cls = choices.get(name) or choices.get(name.rpartition(".")[2])
    if cls is not None and name in (cls.__name__, class_path(cls)):
        return cls
    return _imported(base, name) if is_allowed(name) else None


def _imported(base: type, name: str) -> type:
    module, _, attribute = name.rpartition(".")
    return _checked(getattr(_import(module), attribute, None), base, name)


def _checked(cls: object, base: type, name: str) -> type:
    """Return the object if it is a dataclass that inherits `base`; otherwise raise `DomainbertError`."""
    if not (isinstance(cls, type) and issubclass(cls, base)) or inspect.isabstract(cls):
        raise DomainbertError(f"{name} is not a class that inherits {class_path(base)} and implements all its methods")
    if not dataclasses.is_dataclass(cls) or "__dataclass_fields__" not in vars(cls):
        raise DomainbertError(f"{name} is not a dataclass; expected @dataclass(frozen=True) above it")
    try:
        get_type_hints(cls)
    except NameError as error:
        raise DomainbertError(
            f"{name}: a type in it is unknown ({error}); import it at the top of {cls.__module__}"
        ) from error
    return cls


def _import(module: str, before: str = "") -> object:
    try:
        return importlib.import_module(module)
    except Exception as error:  # a module of a user package may raise anything while it is imported
        where = "" if type(error) is not ModuleNotFoundError else "; expected it to be installed, or on PYTHONPATH"
        raise DomainbertError(f"{before}{module} cannot be imported: {type(error).__name__}: {error}{where}") from error


def _modules_with_choices(package: str, folders: Iterable[str]) -> list[str]:
    """Dotted names of all modules `config.py` and `*_config.py` in the folders of a package and below."""
    files = {file.relative_to(folder) for folder in folders for file in Path(folder).rglob("*.py")}
    configs = [file for file in sorted(files) if file.stem == "config" or file.stem.endswith("_config")]
    return [".".join([package, *file.with_suffix("").parts]) for file in configs]
