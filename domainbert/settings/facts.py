"""Facts that decide the result of a stage: settings, contents of input files, and keys of earlier stages."""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from domainbert.base.choices import as_plain
from domainbert.base.freshness import INPUT_FILES, Freshness, flatten, is_below
from domainbert.base.hashes import HASHES, FileHashes, hash_json
from domainbert.base.marks import ORDERED, SPEED_ONLY, renamed_fields
from domainbert.base.ranks import launch_id, launched_world_size
from domainbert.settings.reader import Settings, replace_strings
from domainbert.settings.schema import defaults_of, fields_with_metadata
from domainbert.settings.trainer_arguments import SPEED_ONLY as TRAINER_SPEED_ONLY

_STREAM = "stream "


def hashes_of_inputs(settings: Settings, hashes: FileHashes = HASHES) -> dict[str, str]:
    """Return the hash of each input by its path.

    The content of a stream cannot be hashed, so each read counts as new; all processes of a launch share a value.
    """
    reading = f"{_STREAM}{launch_id() if launched_world_size() > 1 else uuid.uuid4().hex}"
    return {str(path): hashes.of(path) for path in settings.inputs} | {str(path): reading for path in settings.streams}


def stage_facts(
    stage: str, cls: type, settings: Settings, inputs: Mapping[str, str], keys: Mapping[str, str] | None = None
) -> Freshness:
    """Return everything that decides what a stage writes.

    Settings that change only the speed are left out. Input files count by name (the suffix selects the reader) and
    content, not by folder; the files of a folder or glob count in their order, and the glob as text; earlier stages
    count by their `keys`.
    """
    digests = {path: hash_json(digest) if digest.startswith(_STREAM) else digest for path, digest in inputs.items()}
    contents = {path: f"{Path(path).name} {digest}" for path, digest in digests.items()}
    config = replace_strings(settings.plain, {**contents, **settings.references})
    speed_only = {*fields_with_metadata(cls, SPEED_ONLY), *(f"trainer.{name}" for name in TRAINER_SPEED_ONLY)}
    facts = {name: fact for name, fact in flatten(config).items() if not is_below(name, *speed_only)}
    if facts.get("trainer") is None:  # no arguments: equal to arguments that change only the speed
        facts.pop("trainer", None)
    text = json.dumps(config, ensure_ascii=False)
    facts |= {"stage": stage, INPUT_FILES: [content for content in contents.values() if content not in text]}
    facts |= {f"@{name}": key for name, key in (keys or {}).items()}
    order = {name: list(settings.plain[name]) for name in fields_with_metadata(cls, ORDERED)}
    defaults = flatten(config).keys() - flatten(as_plain(settings.instance, defaults=False)).keys()
    return Freshness({**facts, **order}, {*defaults, *order}, _renamed(settings.instance))


def _renamed(value: Any, name: str = "") -> dict[str, str]:
    """Current names of the renamed settings in `value`, by old name, both dotted and below `name`."""
    found, items, prefix = {}, {}, f"{name}.".lstrip(".")
    if dataclasses.is_dataclass(value):
        found = {prefix + old: prefix + new for old, new in renamed_fields(type(value)).items()}
        items = {prefix + field: getattr(value, field) for field in defaults_of(type(value))}
    elif isinstance(value, Mapping):
        items = {f"{name}.{key}": item for key, item in value.items()}
    elif isinstance(value, (list, tuple)):
        items = {f"{name}[{number}]": item for number, item in enumerate(value)}
    for inner, item in items.items():
        found |= _renamed(item, inner)
    return found
