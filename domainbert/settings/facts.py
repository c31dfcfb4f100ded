"""Facts that decide the result of a stage: settings, contents of input files, and keys of earlier stages."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from domainbert.base.choices import as_plain
from domainbert.base.errors import DomainbertError
from domainbert.base.fields import ORDERED, SPEED_ONLY, renamed_fields
from domainbert.base.files import HASHES, FileHashes, hash_json
from domainbert.base.freshness import INPUT_FILES, NUM_FILES, Freshness, flatten, is_below
from domainbert.base.process import launch_id, launched_world_size
from domainbert.base.redact import map_texts
from domainbert.settings.reader import Settings
from domainbert.settings.removed import removed_settings
from domainbert.settings.schema import defaults_of, fields_with_metadata
from domainbert.settings.trainer_arguments import SPEED_ONLY as TRAINER_SPEED_ONLY

_STREAM = "stream "  # begins the text in place of the hash of a stream, which is replaced by a hash in the facts


def hashes_of_inputs(settings: Settings, hashes: FileHashes = HASHES) -> dict[str, str]:
    """Return the hash of each input file, folder and stream by its path.

    The content of a stream cannot be hashed: in place of a hash it has a unique text, so that each read counts as new.
    All processes of a launch have the same text.
    """
    unique = f"{_STREAM}{launch_id() if launched_world_size() > 1 else uuid.uuid4().hex}"
    digests = {str(path): hashes.hash_path(path) for path in settings.inputs}
    return digests | {str(path): unique for path in settings.streams}


def stage_facts(
    stage: str, cls: type, settings: Settings, inputs: Mapping[str, str], keys: Mapping[str, str] | None = None
) -> Freshness:
    """Return the facts that decide what a stage writes, to compare them with the facts of its last run.

    Settings that change only the speed are left out. Input files count by name (the suffix selects the reader) and
    content, not by folder; the files of a folder or glob count in their order, and the glob as text; earlier stages
    count by their keys.

    `inputs` is the result of `hashes_of_inputs`, and `keys` has the `Freshness.key` of each earlier stage by its name.
    """
    # settings, with the content of input files in place of their paths
    digests = {path: hash_json(digest) if digest.startswith(_STREAM) else digest for path, digest in inputs.items()}
    contents = {path: f"{Path(path).name} {digest}" for path, digest in digests.items()}
    replacements = {**contents, **settings.references}
    in_settings = set[str]()

    def content_of(text: str) -> str:
        in_settings.add(text)
        return replacements.get(text, text)

    config = map_texts(settings.plain, content_of)

    # facts: settings that are not only for speed, further inputs (files of a folder or glob), keys of earlier stages
    speed_only = {*fields_with_metadata(cls, SPEED_ONLY), *(f"trainer.{name}" for name in TRAINER_SPEED_ONLY)}
    facts = {name: fact for name, fact in flatten(config).items() if not is_below(name, *speed_only)}
    if facts.get("trainer") is None:  # no arguments: equal to arguments that change only the speed
        facts.pop("trainer", None)
    not_in_settings = [content for path, content in contents.items() if path not in in_settings]
    facts |= {"stage": stage, INPUT_FILES: not_in_settings}
    file_counts = _file_counts(settings)
    facts |= file_counts
    facts |= {f"@{name}": key for name, key in (keys or {}).items()}

    # mappings whose order counts, and names of settings with default values
    key_orders = {name: list(settings.plain[name]) for name in fields_with_metadata(cls, ORDERED)}
    defaults = flatten(config).keys() - flatten(as_plain(settings.instance, defaults=False)).keys()
    renamed, removed = dict[str, str](), dict[str, Any]()
    for prefix, group in _groups(settings.instance):
        group = type(group)
        renamed |= {prefix + old_name: prefix + new_name for old_name, new_name in renamed_fields(group).items()}
        removed |= {prefix + name: setting.default for name, setting in removed_settings(group).items()}
    return Freshness({**facts, **key_orders}, {*defaults, *key_orders, *file_counts}, renamed, removed)


def check_out(settings: Settings, out: Path) -> None:
    """Raise `DomainbertError` if the output folder of a stage is inside a folder that the stage reads: its output would
    be input of the next run."""
    around = [str(path) for path in settings.inputs if path.is_dir() and out.resolve().is_relative_to(path.resolve())]
    around += [source.path for _, source in _sources(settings) if source.reads_below(out)]
    if around:
        found, expected = f"{out}, inside {around[0]}, which the stage reads", "a folder outside it"
        raise DomainbertError(where="out", found=found, expected=expected)


def _file_counts(settings: Settings) -> dict[str, int]:
    """Return the number of files of each source of several files, by name: with the list of all files it says which
    source has which files."""
    counts = {f"{name}.{NUM_FILES}": source.num_files for name, source in _sources(settings)}
    return {name: count for name, count in counts.items() if count > 1}


def _sources(settings: Settings) -> Iterator[tuple[str, Any]]:
    """Yield name and value of each source of texts, without folders of earlier stages."""
    for prefix, group in _groups(settings.instance):
        for name, source in getattr(group, "all_sources", {}).items():
            if source.path not in settings.references:
                yield prefix + name, source


def _groups(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield prefix and value of each dataclass in `value`: ("", Pretrain(...)), ("optim.", OptimConfig(...)), ...
    `name` is the dotted name of `value`."""
    items: dict[str, Any] = {}
    if dataclasses.is_dataclass(value):
        prefix = f"{name}." if name else ""
        yield prefix, value
        items = {prefix + field: getattr(value, field) for field in defaults_of(type(value))}
    elif isinstance(value, Mapping):
        items = {f"{name}.{key}": item for key, item in value.items()}
    elif isinstance(value, (list, tuple)):
        items = {f"{name}[{number}]": item for number, item in enumerate(value)}
    for inner, item in items.items():
        yield from _groups(item, inner)
