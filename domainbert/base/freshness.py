"""Decides whether a result is up to date: of stages, seeds, checkpoints, parts of a corpus, soft labels and studies.

A result is made from *facts*: plain values by name, such as `optim.lr` or `train`; an input file counts by its name and
the hash of its content. The *record* of a result, a JSON file in its folder, holds the facts under `made_from`, size
and hash of each output, and a hash of the record itself. A result is up to date if its record holds the same facts, and
its outputs are as they were written.

A quick look at an output compares size, modification time, change time and inode. Where these differ, as in a copied
folder, the content is hashed: only changed content, or a missing file, is damage. Model cards, logs and the runner's
notes about the run may be edited.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.base.files import read_json, write_json
from domainbert.base.hashes import FOLDERS_OF_THE_RUN, HASHES, OF_THE_RUN, FileHashes, hash_file, hash_json, quick_look
from domainbert.base.redact import redact

INPUT_FILES = "input files"
"""The fact that lists the files of a folder or pattern, in their order."""

_DIGEST = re.compile(r" [0-9a-f]{64}$")
_OWN = ("made_from", "outputs", "sha256")  # keys of a record beside the result
_SHOWN = 3
_SHOWN_CHARACTERS, _MOST_CHARACTERS = 60, 240  # of a value, of all items of a list


@dataclass(frozen=True)
class Freshness:
    """The facts that a result is made from now, to be compared with the facts in an earlier record.

    Nested mappings become facts with dotted names, lists of mappings facts such as `losses[0].weight`. Secrets are left
    out, as they are in a record.
    """

    facts: Mapping[str, Any]
    optional: Collection[str] = frozenset()
    """Facts that a record of an earlier version may lack: settings with their defaults."""

    def __post_init__(self) -> None:
        """Bring the facts into the form in which a record gives them back."""
        object.__setattr__(self, "facts", json.loads(json.dumps(redact(flatten(self.facts)), default=str)))

    @cached_property
    def key(self) -> str:
        """Hash of the facts: equal keys, equal results."""
        return hash_json(self.facts)

    def without(self, *names: str) -> Freshness:
        """Leave out facts that do not decide one part of the result."""
        return replace(self, facts={name: fact for name, fact in self.facts.items() if name not in names})

    def changes(self, before: Mapping[str, Any]) -> dict[str, str]:
        """Return the facts that differ from the ones in a record, by name, each with the difference in words."""
        old = flatten(before)
        new = {name: fact for name, fact in self.facts.items() if name in old or name not in self.optional}
        nulls = {name for name, fact in new.items() if fact is None and name not in old}
        names = [name for name in sorted({*old, *new}) if name in nulls or old.get(name) != new.get(name)]
        return {name: _difference(name, old.get(name), new.get(name)) for name in names}

    def reason(self, before: Any) -> str:
        """Return the first changes in one line; empty if there are none."""
        return in_short([*self.changes(before).values()]) if isinstance(before, Mapping) else "made by an older version"

    def only_input_contents(self, before: Mapping[str, Any]) -> bool:
        """Return whether there are changes, and all of them are of the input files of the same settings."""
        changed, old = self.changes(before), flatten(before)
        return bool(changed) and all(
            name == INPUT_FILES or _without_digest(old.get(name)) == _without_digest(self.facts.get(name))
            for name in changed
        )

    def look(self, path: Path) -> tuple[dict[str, Any] | None, str]:
        """Return the result in a record if it is up to date and undamaged; else None, and the reason if there is a
        record."""
        if not path.is_file():
            return None, ""
        try:
            record = read_json(path, "the record of a result")
        except DomainbertError:
            record = {}
        if not {*_OWN} <= set(record):
            return None, f"{path.name} cannot be read, or is of an earlier version"
        reason = self.reason(record["made_from"]) if is_unchanged(record) else f"{path.name} has changed"
        if reason := reason or in_short(damaged_files(path.parent, record["outputs"], FileHashes())):
            return None, reason
        return {name: value for name, value in record.items() if name not in _OWN}, ""

    def record(self, path: Path, result: Mapping[str, Any], outputs: Mapping[str, Any] | None = None) -> None:
        """Write the record of a result; see `write_record`."""
        write_record(path, {**result, "made_from": self.facts}, outputs)


def flatten(value: Any, name: str = "") -> dict[str, Any]:
    """Return nested mappings, and lists that hold mappings, as one mapping of dotted names; an empty one is None."""
    inner: dict[str, Any] = {}
    if isinstance(value, Mapping):
        inner = {f"{name}.{key}" if name else str(key): item for key, item in value.items()}
    elif isinstance(value, (list, tuple)) and any(isinstance(item, Mapping) for item in value):
        inner = {f"{name}[{number}]": item for number, item in enumerate(value)}
    if inner:
        return {key: fact for path, item in inner.items() for key, fact in flatten(item, path).items()}
    return {name.replace(".init_args", ""): None if isinstance(value, Mapping) else value} if name else {}


def _difference(name: str, before: Any, after: Any) -> str:
    """Return one difference in words, with the values if they are short; an input file is known by its hash only."""
    if isinstance(before, list) and isinstance(after, list):
        return _difference_of_lists(name, before, after)
    values = ["not set" if value is None else str(value) for value in (before, after)]
    if values[0] == values[1] or max(map(len, values)) > _SHOWN_CHARACTERS:
        return f"{name} changed"
    return f"{name} was {values[0]}, is now {values[1]}"


def _difference_of_lists(name: str, before: list[Any], after: list[Any]) -> str:
    old, now = (dict.fromkeys(map(str, items)) for items in (before, after))
    if old.keys() == now.keys():
        return f"order of {name} changed" if len(before) == len(after) else f"{name} changed"
    new, dropped = (
        [_without_digest(item) for item in one if item not in other] for one, other in ((now, old), (old, now))
    )
    kinds = {
        "changed": [item for item in new if item in dropped],
        "new": [item for item in new if item not in dropped],
        "dropped": [item for item in dropped if item not in new],
        "kept": [_without_digest(item) for item in now if item in old],
    }
    words = "; ".join(f"{kind} {in_short(items)}" for kind, items in kinds.items() if items)
    return f"{name}: {words}" if len(words) <= _MOST_CHARACTERS else f"{name} changed"


def _without_digest(value: Any) -> Any:
    return _DIGEST.sub("", value) if isinstance(value, str) else value


def in_short(found: Sequence[str]) -> str:
    """Return the first three damages or changes, and how many more there are."""
    more = f" and {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else ""
    return ", ".join(found[:_SHOWN]) + more


def write_record(path: Path, facts: Mapping[str, Any], outputs: Mapping[str, Any] | None = None) -> None:
    """Write a record as JSON, with the hash of all that it holds, and by default with the files in its folder.

    Secrets are left out of the facts, but not out of the names of outputs: these files have to be found again.
    """
    plain = {**redact(facts), "outputs": record_outputs(path.parent) if outputs is None else outputs}
    plain = json.loads(json.dumps(plain))
    write_json(path, {**plain, "sha256": hash_json(plain)}, as_is=True)


def record_outputs(folder: Path, looks: bool = True) -> dict[str, dict[str, Any]]:
    """Hash every file that a stage wrote for others: relative name to `bytes`, `sha256` and `quick_look`.

    Without `looks`, which hold times, equal files have equal facts; they are hashed whenever they are compared.
    """
    names = sorted(output_names(folder))

    def facts(name: str) -> dict[str, Any]:
        status = (folder / name).stat()
        found = {"bytes": status.st_size, "sha256": hash_file(folder / name)}
        return {**found, "quick_look": quick_look(status)} if looks else found

    with ThreadPoolExecutor() as pool:  # hashing leaves Python's lock
        return dict(zip(names, pool.map(facts, names), strict=True))


def output_names(folder: Path) -> Iterator[str]:
    """Yield the files that a stage wrote for others to read, relative to its folder: no logs, model cards or runner's
    notes. `OSError` if a folder cannot be listed."""
    for place, folders, files in os.walk(folder, onerror=_raise):
        folders[:] = [name for name in folders if name not in FOLDERS_OF_THE_RUN and not name.startswith(".")]
        kept = (name for name in files if name not in OF_THE_RUN and not name.startswith("."))
        yield from (Path(place, name).relative_to(folder).as_posix() for name in kept)


def _raise(error: OSError) -> None:
    raise error


def damaged_files(
    folder: Path,
    outputs: Mapping[str, Mapping[str, Any]],
    hashes: FileHashes | None = HASHES,
    thorough: bool = False,
) -> list[str]:
    """Return the recorded outputs that are missing or have changed, as "NAME is missing" or "NAME has changed".

    Files whose quick look differs are hashed; if `thorough`, all; without `hashes` none, so that only what is missing
    or has another size is found.
    """

    def problem(name: str) -> str:
        path, recorded = folder / name, outputs[name]
        try:
            status = path.stat()
            if status.st_size != recorded["bytes"]:
                return f"{name} has changed ({status.st_size:,} bytes; it had {recorded['bytes']:,})"
            if hashes is None or (not thorough and quick_look(status) == recorded.get("quick_look")):
                return ""
            return "" if hashes.of_file(path) == recorded["sha256"] else f"{name} has changed"
        except (FileNotFoundError, NotADirectoryError):
            return f"{name} is missing"
        except OSError as error:
            return f"{name} cannot be read ({error.strerror})"

    with ThreadPoolExecutor() as pool:
        return [found for found in pool.map(problem, outputs) if found]


def is_unchanged(record: Mapping[str, Any]) -> bool:
    """Return whether a record is as it was written; a manifest of an older version, without outputs and hash, is."""
    if "sha256" not in record:
        return "outputs" not in record
    return bool(record["sha256"] == hash_json({name: record[name] for name in record if name != "sha256"}))
