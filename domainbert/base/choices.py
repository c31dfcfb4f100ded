"""The classes that a `class_path` may name: the subclasses of an abstract configuration class, and nothing else.

They are found in the package of the base: in its own module and in every `config.py` or `*_config.py` below it. Such
modules are free of torch. Installed packages register further ones by Python entry points, in the group that the base
names. A name in a YAML is compared with the classes found, never imported, unless it lies in a package that the command
line allows, which need not be installed: `--allow-import mypkg`. Neither a YAML nor the environment can allow one.
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
    """Import the modules that `--allow-import` names, and let a `class_path` name classes in them and below them.

    Every `config.py` and `*_config.py` below a package is imported, too: then its families, kinds of vocabulary and
    tasks are known when a folder names them. Modules that were allowed before are not allowed any more. None allows
    nothing.

    Raises:
        DomainbertError: a name is not valid, or a module cannot be imported.
    """
    global _allowed
    _allowed = ()
    asked = () if names is None else tuple(names.split(","))
    for name in asked:
        if not _DOTTED.fullmatch(name):
            raise DomainbertError(f"--allow-import: found {name!r}; expected packages, such as mypkg,other.part")
    for name in asked:
        folders = getattr(_import(name, "--allow-import: "), "__path__", ())
        for module in _modules_with_choices(name, folders):
            _import(module, "--allow-import: ")
    _allowed = asked


def allow_import_words() -> list[str]:
    """The command-line arguments that allow the same modules, for processes that read the same settings."""
    return ["--allow-import", ",".join(_allowed)] if _allowed else []


def is_allowed(name: str) -> bool:
    """Whether a class path lies in a module that the command line allows."""
    return bool(_DOTTED.fullmatch(name)) and any(name.startswith(f"{module}.") for module in _allowed)


def import_advice(name: str) -> str:
    """A hint how to allow a class in a user package; empty for a name without a package."""
    package = name.partition(".")[0]
    if not _DOTTED.fullmatch(name) or package in (name, __name__.partition(".")[0]):
        return ""
    return f" (a package of your own is allowed by --allow-import {package} on the command line)"


def is_choice(hint: object) -> bool:
    """Whether a type is an abstract class, so that a value has to say which subclass it means."""
    return inspect.isclass(hint) and inspect.isabstract(hint)


def class_path(kind: type) -> str:
    """`package.module.Class`."""
    return f"{kind.__module__}.{kind.__qualname__}"


def as_plain(value: Any, defaults: bool = True) -> Any:
    """Return dataclasses, paths and tuples as plain YAML values, and a choice as `class_path` and `init_args`.

    With `defaults=False`, fields that have their default are left out.
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
    """The subclasses of `base` in its own package, and those that installed packages register, by class name in order.
    A registered class that is called like another one has its whole class path as its name.

    Raises:
        DomainbertError: an entry point cannot be loaded, or names no configuration of this kind.
    """
    package = base.__module__.rpartition(".")[0]
    spec = importlib.util.find_spec(package) if package else None
    for module in _modules_with_choices(package, (spec and spec.submodule_search_locations) or ()):
        importlib.import_module(module)
    own = base.__module__.partition(".")[0]
    found = [kind for kind in concrete_subclasses(base) if kind.__module__.partition(".")[0] == own]
    choices = {kind.__name__: kind for kind in found}
    for kind in _registered(base):
        choices[class_path(kind) if kind.__name__ in choices else kind.__name__] = kind
    return dict(sorted(choices.items()))


def _registered(base: type) -> Iterator[type]:
    """The subclasses of `base` that installed packages register."""
    group = getattr(base, "entry_point_group", None)
    for entry in entry_points(group=group) if group is not None else ():
        package = "" if entry.dist is None else f" of {entry.dist.name}"
        where = f"entry point {group}: {entry.name} = {entry.value}{package}"
        try:
            kind = entry.load()
        except Exception as error:  # a module of another package may raise anything while it is imported
            raise DomainbertError(f"{where}: cannot be loaded: {type(error).__name__}: {error}") from error
        try:
            yield _checked(kind, base, entry.value.replace(":", "."))
        except DomainbertError as error:
            raise DomainbertError(f"{where}: {error}") from error


def concrete_subclasses(base: type) -> list[Any]:
    """The subclasses of `base` that have been imported, of user packages too, and are not abstract."""
    direct: list[type] = base.__subclasses__()
    concrete = [kind for kind in direct if not inspect.isabstract(kind)]
    return concrete + [kind for child in direct for kind in concrete_subclasses(child)]


def named_files(base: type) -> dict[str, Path]:
    """The YAML files that come with an abstract class, in the folder that it names as its `files`, by name."""
    folder = getattr(base, "files", None)
    return {} if folder is None else {file.stem: file for file in sorted(Path(folder).glob("*.yaml"))}


def find_choice(base: type, name: str) -> type | None:
    """The subclass of `base` called `name` (short, in snake case, or the whole class path); None when there is none.

    `multi_label` is `MultiLabel`, and `byte_bpe` is `ByteBPE`.

    Raises:
        DomainbertError: the name is allowed, but what it names cannot be imported or is no configuration of this kind.
    """
    choices = choices_of(base)
    snake = {short.lower(): kind for short, kind in choices.items()}
    if re.fullmatch("[a-z0-9_]+", name) and name.replace("_", "") in snake:
        return snake[name.replace("_", "")]
    kind = choices.get(name) or choices.get(name.rpartition(".")[2])
    if kind is not None and name in (kind.__name__, class_path(kind)):
        return kind
    return _imported(base, name) if is_allowed(name) else None


def _imported(base: type, name: str) -> type:
    module, _, attribute = name.rpartition(".")
    return _checked(getattr(_import(module), attribute, None), base, name)


def _checked(found: object, base: type, name: str) -> type:
    """The class, if it is a configuration of this kind; `DomainbertError` otherwise."""
    if not (isinstance(found, type) and issubclass(found, base)) or inspect.isabstract(found):
        raise DomainbertError(f"{name} is not a class that inherits {class_path(base)} and has all that it asks for")
    if not dataclasses.is_dataclass(found) or "__dataclass_fields__" not in vars(found):
        raise DomainbertError(f"{name} is not a dataclass; expected @dataclass(frozen=True) above it")
    try:
        get_type_hints(found)
    except NameError as error:
        raise DomainbertError(
            f"{name}: a type in it is unknown ({error}); import it at the top of {found.__module__}"
        ) from error
    return found


def _import(module: str, before: str = "") -> object:
    try:
        return importlib.import_module(module)
    except Exception as error:  # a module of a user package may raise anything while it is imported
        where = "" if type(error) is not ModuleNotFoundError else "; expected one that is installed, or on PYTHONPATH"
        raise DomainbertError(f"{before}{module} cannot be imported: {type(error).__name__}: {error}{where}") from error


def _modules_with_choices(package: str, folders: Iterable[str]) -> list[str]:
    """The `config.py` and `*_config.py` in the folders of a package and below them, by their dotted names."""
    files = {file.relative_to(folder) for folder in folders for file in Path(folder).rglob("*.py")}
    chosen = [file for file in sorted(files) if file.stem == "config" or file.stem.endswith("_config")]
    return [".".join([package, *file.with_suffix("").parts]) for file in chosen]
