"""Classes allowed in a `class_path`: the subclasses of an abstract configuration class, and nothing else.

They are searched for in the package of the base class: in its module and in every `config.py` or `*_config.py` below.
These modules do not import torch. Installed packages register further classes by Python entry points, in the group that
the base class names. A name in a YAML is compared with these classes and never imported, except from a package that the
command line allows: `--allow-import mypkg`, which need not be installed. A YAML or the environment cannot allow one.
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
from types import ModuleType
from typing import Any, get_type_hints

from domainbert.base.errors import DomainbertError

_DOTTED_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_allowed_modules: tuple[str, ...] = ()  # set by `allow_imports`


def allow_imports(names: str | None) -> None:
    """Import the modules that `--allow-import` names, and allow a `class_path` in these modules and below.

    Also imports every `config.py` and `*_config.py` below a package: this registers its encoder families, vocabulary
    kinds and tasks, which model folders refer to. The list replaces an earlier list; None allows nothing.

    Raises:
        DomainbertError: a name is not valid, or a module cannot be imported.
    """
    global _allowed_modules
    _allowed_modules = ()
    modules = () if names is None else tuple(names.split(","))
    for name in modules:
        if not _DOTTED_NAME.fullmatch(name):
            raise DomainbertError(
                where="--allow-import", found=repr(name), expected="packages, such as mypkg,other.part"
            )
    for name in modules:
        folders = getattr(_import(name, "--allow-import: "), "__path__", ())
        for module in _modules_with_choices(name, folders):
            _import(module, "--allow-import: ")
    _allowed_modules = modules


def allow_import_arguments() -> list[str]:
    """Return `["--allow-import", "module,..."]` with the modules that this process allows, for a child process; [] if
    it allows none."""
    return ["--allow-import", ",".join(_allowed_modules)] if _allowed_modules else []


def is_user_class(name: str) -> bool:
    """Return whether a class path is in a user package: in a module that `--allow-import` names, or below it."""
    return bool(_DOTTED_NAME.fullmatch(name)) and any(name.startswith(f"{module}.") for module in _allowed_modules)


def import_hint(name: str) -> str:
    """Return a hint, for an error message, to allow the package of a class path; empty if the name has no package or is
    in domainbert."""
    package = name.partition(".")[0]
    if not _DOTTED_NAME.fullmatch(name) or package in (name, __name__.partition(".")[0]):
        return ""
    return f" (to use your package, add --allow-import {package} to the command line)"


def is_choice(hint: object) -> bool:
    """Return whether a type is an abstract class: a setting of this type selects a subclass by `class_path`."""
    return inspect.isclass(hint) and inspect.isabstract(hint)


def class_path(cls: type) -> str:
    """Return the full name of a class: `package.module.Class`."""
    return f"{cls.__module__}.{cls.__qualname__}"


def as_plain(value: Any, defaults: bool = True) -> Any:
    """Convert a setting to plain YAML values: a dataclass to a mapping, a path to text, a tuple or set to a list.

    An instance of a choice (see `is_choice`) becomes a mapping with `class_path` and `init_args`. With
    `defaults=False`, fields that have their default are left out.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        values = {field: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
        fields = {
            field.name: as_plain(setting, defaults)
            for field, setting in values.items()
            if defaults or setting != default_of(field)
        }
        if any(is_choice(base) for base in type(value).__mro__):
            return {"class_path": class_path(type(value)), "init_args": fields}
        return fields
    if isinstance(value, Mapping):
        return {key: as_plain(item, defaults) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [as_plain(item, defaults) for item in value]
    return str(value) if isinstance(value, Path) else value


def default_of(field: dataclasses.Field[Any]) -> Any:
    """Return the default of a field, or `dataclasses.MISSING` if it has none."""
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


@lru_cache
def choices_of(base: type) -> dict[str, type]:
    """Return the concrete subclasses of `base` in its top-level package and from entry points, by class name in
    alphabetical order. A class from an entry point whose name is already taken is listed under its class path.

    Raises:
        DomainbertError: an entry point cannot be loaded, or its class is not a concrete subclass of `base`.
    """
    package = base.__module__.rpartition(".")[0]
    spec = importlib.util.find_spec(package) if package else None
    folders = spec.submodule_search_locations if spec is not None else None
    for module in _modules_with_choices(package, folders or ()):
        importlib.import_module(module)
    top, *_ = base.__module__.split(".")  # other packages add classes by entry points, not by being imported
    choices = {cls.__name__: cls for cls in concrete_subclasses(base) if cls.__module__.split(".")[0] == top}
    for cls in _entry_point_classes(base):
        choices[class_path(cls) if cls.__name__ in choices else cls.__name__] = cls
    return dict(sorted(choices.items()))


def _entry_point_classes(base: type) -> Iterator[type]:
    group = getattr(base, "entry_point_group", None)
    for entry in entry_points(group=group) if group is not None else ():
        package = "" if entry.dist is None else f" of the package {entry.dist.name}"
        where = f"{group}: the entry point '{entry.name} = {entry.value}'{package}"
        try:
            cls = entry.load()
        except Exception as error:  # a module of another package may raise anything during its import
            raise DomainbertError(f"{where} cannot be loaded: {type(error).__name__}: {error}") from error
        try:
            yield _checked_class(cls, base, entry.value.replace(":", "."))
        except DomainbertError as error:
            raise error.within(f"{where} is not valid") from error


def concrete_subclasses(base: type) -> list[Any]:
    """Return all imported subclasses of `base`, direct and indirect, that are not abstract."""
    children: list[type] = base.__subclasses__()
    concrete = [child for child in children if not inspect.isabstract(child)]
    return concrete + [cls for child in children for cls in concrete_subclasses(child)]


def named_files(base: type) -> dict[str, Path]:
    """Return the paths of the YAML files that are packaged with an abstract class, by name without `.yaml`; {} without
    any. The class attribute `files` is their folder."""
    folder = getattr(base, "files", None)
    return {} if folder is None else {file.stem: file for file in sorted(Path(folder).glob("*.yaml"))}


def find_choice(base: type, name: str) -> type | None:
    """Return the subclass of `base` called `name`, or None if there is no such class.

    `name` is a class name, its snake case (`byte_bpe` for `ByteBPE`), or a full class path.

    Raises:
        DomainbertError: `--allow-import` allows the name, but it cannot be imported or is not a concrete subclass of
            `base`.
    """
    choices = choices_of(base)
    by_class_path = {class_path(cls): cls for cls in choices.values()}
    by_lowercase = {short.lower(): cls for short, cls in choices.items()}
    if re.fullmatch("[a-z0-9_]+", name):  # perhaps snake case: compare without capitals and underscores
        cls = by_lowercase.get(name.replace("_", "")) or choices.get(name)
    else:
        cls = choices.get(name) or by_class_path.get(name)
    if cls is None and is_user_class(name):
        module, _, attribute = name.rpartition(".")
        return _checked_class(getattr(_import(module), attribute, None), base, name)
    return cls


def import_sibling(cls: type, module: str, owner: str) -> ModuleType:
    """Import and return the module called `module` in the package that defines `cls`.

    Raises:
        DomainbertError: there is no such module; the message calls the package "the folder of the `owner`".
    """
    package = cls.__module__.rpartition(".")[0]
    name = f"{package}.{module}" if package else module
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:  # the module exists, and imports a missing module
            raise
        raise DomainbertError(
            f"no module {name}", where=cls.__name__, hint=f"add {module}.py to the {owner}'s folder"
        ) from error


def sibling_class(cls: type, module: ModuleType, suffix: str, base: str) -> Any:
    """Return the class in `module` whose name is the name of `cls` followed by `suffix`.

    Raises:
        DomainbertError: there is no such class, or it does not inherit the class with the class path `base`.
    """
    name = f"{cls.__name__}{suffix}"
    implementation = getattr(module, name, None)
    if not isinstance(implementation, type) or base not in map(class_path, implementation.__mro__):
        raise DomainbertError(
            f"no class {name}", where=module.__name__, expected=f"a class of this name that inherits {base}"
        )
    return implementation


def _checked_class(cls: object, base: type, name: str) -> type:
    if not (isinstance(cls, type) and issubclass(cls, base)) or inspect.isabstract(cls):
        raise DomainbertError(f"not a subclass of {class_path(base)} that implements all abstract methods", where=name)
    # the second condition: a subclass of a dataclass needs the decorator, too
    if not dataclasses.is_dataclass(cls) or "__dataclass_fields__" not in vars(cls):
        raise DomainbertError("not a dataclass", where=name, expected="@dataclass(frozen=True) above the class")
    try:
        get_type_hints(cls)  # only for its error
    except NameError as error:
        hint = f"import it at the top of {cls.__module__}"
        raise DomainbertError(f"the type of a field is unknown ({error})", where=name, hint=hint) from error
    return cls


def _import(module: str, prefix: str = "") -> object:
    try:
        return importlib.import_module(module)
    except Exception as error:  # a module of a user package may raise anything during its import
        hint = "install it or add its folder to PYTHONPATH" if type(error) is ModuleNotFoundError else ""
        problem = f"{prefix}{module} cannot be imported: {type(error).__name__}: {error}"
        raise DomainbertError(problem, hint=hint) from error


def _modules_with_choices(package: str, folders: Iterable[str]) -> list[str]:
    files = {file.relative_to(folder) for folder in folders for file in Path(folder).rglob("*.py")}
    configs = [file for file in sorted(files) if file.stem == "config" or file.stem.endswith("_config")]
    return [".".join([package, *file.with_suffix("").parts]) for file in configs]
