"""Cache keys: hashes of the settings that decide the result of a stage."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from domainbert.base.hashes import HASHES, hash_json
from domainbert.base.redact import redact
from domainbert.settings.reader import as_plain, replace_strings
from domainbert.settings.schema import PARTS, SPEED_ONLY, defaults_of, marked
from domainbert.settings.trainer_arguments import SPEED_ONLY as TRAINER_SPEED_ONLY


def part_key(settings: Any) -> str:
    """SHA-256 of everything that decides one part of a stage (one seed of several), without the number of the part.

    Settings marked `PARTS` or `SPEED_ONLY`, and settings with their default values, are left out: a version with more
    settings reuses the parts of an older version. Input files count by name and content, not by folder.
    """
    cls = type(settings)
    counted = {name: value for name, value in vars(settings).items() if name not in marked(cls, PARTS)}
    inputs = {str(path): named_content(str(path), HASHES.of(path)) for path in _input_paths(counted)}
    chosen = without_unknown(as_plain(settings), settings, {})
    chosen = {name: value for name, value in chosen.items() if name in counted}
    deciding = without_speed(chosen, marked(cls, SPEED_ONLY))
    deciding = {name: value for name, value in deciding.items() if (name, value) != ("trainer", None)}
    config = replace_strings(deciding, inputs)
    plain = json.loads(json.dumps(redact(config), default=str))
    return hash_json({"config": plain, "inputs": sorted(inputs.values())})


def without_unknown(plain: Any, settings: Any, older: Any) -> Any:
    """Remove the keys of plain settings that have their default value and are not in `older`.

    With the plain settings of an older version as `older`, the result equals them unless a value or a default has
    changed. `settings` are the values behind `plain`.
    """
    if isinstance(settings, (list, tuple)):
        items = older if isinstance(older, list) and len(older) == len(plain) else [None] * len(plain)
        return [without_unknown(*item) for item in zip(plain, settings, items, strict=True)]
    if not isinstance(plain, dict):
        return plain
    older = older if isinstance(older, dict) else {}
    if "class_path" in plain:
        arguments = without_unknown(plain["init_args"], settings, older.get("init_args"))
        return {**plain, "init_args": arguments}
    is_mapping = isinstance(settings, Mapping)
    values, defaults = (settings, {}) if is_mapping else (vars(settings), defaults_of(type(settings)))
    return {
        name: without_unknown(value, values.get(name), older.get(name))  # hidden names have no value
        for name, value in plain.items()
        if name in older or name not in defaults or values[name] != defaults[name]
    }


def without_speed(config: Any, speed_only: Iterable[str]) -> Any:
    """Remove the settings of the stage and of the trainer that change only the speed."""
    for key in [*speed_only, *(f"trainer.{name}" for name in TRAINER_SPEED_ONLY)]:
        config = without(config, key.split("."))
    return {**config, "trainer": None} if config.get("trainer") == {} else config


def without(config: Any, key: list[str]) -> Any:
    """Copy nested dictionaries without one dotted key; in a list, the key is removed from each item."""
    if isinstance(config, list):
        return [without(item, key) for item in config]
    if not isinstance(config, dict) or key[0] not in config:
        return config
    rest = {name: value for name, value in config.items() if name != key[0]}
    return rest if len(key) == 1 else {**rest, key[0]: without(config[key[0]], key[1:])}


def named_content(path: str, digest: str) -> str:
    """Name and digest of a file; the name counts because its suffix selects the reader."""
    return f"{Path(path).name} {digest}"


def _input_paths(value: Any) -> Iterator[Path]:
    if isinstance(value, Path):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _input_paths(item)
    elif isinstance(value, Mapping):
        yield from _input_paths(list(value.values()))
    elif dataclasses.is_dataclass(value):
        if hasattr(value, "input_files"):
            yield from value.input_files()
        yield from _input_paths([getattr(value, item.name) for item in dataclasses.fields(value)])
