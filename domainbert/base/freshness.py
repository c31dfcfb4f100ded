"""Decides whether a result is up to date: of stages, seeds, checkpoints, parts of a corpus, soft labels and studies.

A result is made from *facts*: plain values by name, such as `optim.lr` or `train`; the fact of an input file is its
name and the hash of its content. The *record* of a result, a JSON file in its folder, has the facts under `made_from`,
size and hash of each output, and a hash of the record. A result is up to date if its record has the same facts and its
outputs are unchanged.

A quick look at an output compares size, modification time, change time and inode. If these differ, as in a copied
folder, the content is hashed: only changed content and missing files are damage. Model cards, logs and the runner's
notes about the run may be edited.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.base.files import read_json, write_json
from domainbert.base.hashes import HASHES, RUN_FILES, RUN_FOLDERS, FileHashes, hash_file, hash_json, quick_look
from domainbert.base.redact import redact

INPUT_FILES = "input files"
"""Name of the fact that lists the files of a folder or pattern, in order."""

_DIGEST = re.compile(r" [0-9a-f]{64}$")
_RECORD_KEYS = ("made_from", "outputs", "sha256")  # the other keys are the result
_EXAMPLES = 3
_VALUE_CHARACTERS, _LIST_CHARACTERS = 60, 240  # largest length in a message


@dataclass(frozen=True)
class Freshness:
    """Current facts of a result, to be compared with the facts in an earlier record.

    Nested mappings become facts with dotted names, lists of mappings facts such as `losses[0].weight`. Secrets are
    removed, as in a record.
    """

    facts: Mapping[str, Any]
    optional: Collection[str] = frozenset()
    """Facts that may be missing in a record of an earlier version: settings with their defaults."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Current names of facts that a record of an earlier version has under another name, by that name."""

    def __post_init__(self) -> None:
        """Convert the facts to the form in which they are read from a record."""
        object.__setattr__(self, "facts", json.loads(json.dumps(redact(flatten(self.facts)), default=str)))

    @cached_property
    def key(self) -> str:
        """Hash of the facts: equal keys mean equal results."""
        return hash_json(self.facts)

    def without(self, *names: str) -> Freshness:
        """Copy without facts that have no effect on a part of the result."""
        return replace(self, facts={name: fact for name, fact in self.facts.items() if name not in names})

    def changes(self, before: Mapping[str, Any]) -> dict[str, str]:
        """Return the differences from the facts in a record: name of the fact to a description of the change."""
        old = self._flatten_record(before)
        new = {name: fact for name, fact in self.facts.items() if name in old or name not in self.optional}
        nulls = {name for name, fact in new.items() if fact is None and name not in old}
        names = [name for name in sorted({*old, *new}) if name in nulls or old.get(name) != new.get(name)]
        return {name: _difference(name, old.get(name), new.get(name)) for name in names}

    def reason(self, before: Any) -> str:
        """Return the first changes in one line; empty if there are none."""
        return (
            format_examples([*self.changes(before).values()])
            if isinstance(before, Mapping)
            else "made by an older version"
        )

    def only_input_contents(self, before: Mapping[str, Any]) -> bool:
        """Whether the contents of input files have changed, and nothing else."""
        changed, old = self.changes(before), self._flatten_record(before)
        return bool(changed) and all(
            name == INPUT_FILES or _without_digest(old.get(name)) == _without_digest(self.facts.get(name))
            for name in changed
        )

    def _flatten_record(self, before: Mapping[str, Any]) -> dict[str, Any]:
        """Flatten the facts of a record, with current names."""
        old = flatten(before)
        for earlier, now in self.renamed.items():
            old = {now + name.removeprefix(earlier) if is_below(name, earlier) else name: old[name] for name in old}
        return old

    def look(self, path: Path) -> tuple[dict[str, Any] | None, str]:
        """Return the result of a record and "" if it is up to date and undamaged, else None and the reason.
        The reason is empty if there is no record."""
        if not path.is_file():
            return None, ""
        try:
            record = read_json(path, "the record of a result")
        except DomainbertError:
            record = {}
        if not {*_RECORD_KEYS} <= set(record):
            return None, f"{path.name} cannot be read, or was written by an earlier version"
        reason = self.reason(record["made_from"]) if is_unchanged(record) else f"{path.name} has changed"
        if reason := reason or format_examples(damaged_files(path.parent, record["outputs"], FileHashes())):
            return None, reason
        return {name: value for name, value in record.items() if name not in _RECORD_KEYS}, ""

    def record(self, path: Path, result: Mapping[str, Any], outputs: Mapping[str, Any] | None = None) -> None:
        """Write the record of a result; see `write_record`."""
        write_record(path, {**result, "made_from": self.facts}, outputs)


def flatten(value: Any, name: str = "") -> dict[str, Any]:
    """Flatten nested mappings and lists of mappings to one mapping with dotted names; an empty mapping becomes None."""
    inner: dict[str, Any] = {}
    if isinstance(value, Mapping):
        inner = {f"{name}.{key}" if name else str(key): item for key, item in value.items()}
    elif isinstance(value, (list, tuple)) and any(isinstance(item, Mapping) for item in value):
        inner = {f"{name}[{number}]": item for number, item in enumerate(value)}
    if inner:
        return {key: fact for path, item in inner.items() for key, fact in flatten(item, path).items()}
    return {name.replace(".init_args", ""): None if isinstance(value, Mapping) else value} if name else {}


def is_below(name: str, *settings: str) -> bool:
    """Whether a dotted name is one of the settings, or is inside it."""
    return any(name == setting or name.startswith((f"{setting}.", f"{setting}[")) for setting in settings)


def _difference(name: str, before: Any, after: Any) -> str:
    """Describe a change, with the values if they are short; of an input file only the hash is known."""
    if isinstance(before, list) and isinstance(after, list):
        return _difference_of_lists(name, before, after)
    values = ["not set" if value is None else str(value) for value in (before, after)]
    if values[0] == values[1] or max(map(len, values)) > _VALUE_CHARACTERS:
        return f"{name} changed"
    return f"{name} was {values[0]}, is now {values[1]}"


def _difference_of_lists(name: str, before: list[Any], after: list[Any]) -> str:
    old, now = (dict.fromkeys(map(str, items)) for items in (before, after))
    if old.keys() == now.keys():
        return f"order of {name} changed" if len(before) == len(after) else f"{name} changed"
    new, dropped = (
        [_without_digest(item) for item in items if item not in other] for items, other in ((now, old), (old, now))
    )
    groups = {
        "changed": [item for item in new if item in dropped],
        "new": [item for item in new if item not in dropped],
        "dropped": [item for item in dropped if item not in new],
        "kept": [_without_digest(item) for item in now if item in old],
    }
    words = "; ".join(f"{group} {format_examples(items)}" for group, items in groups.items() if items)
    return f"{name}: {words}" if len(words) <= _LIST_CHARACTERS else f"{name} changed"


def _without_digest(value: Any) -> Any:
    return _DIGEST.sub("", value) if isinstance(value, str) else value


def format_examples(problems: Sequence[str]) -> str:
    """Format the first three problems or changes, and the number of the others."""
    more = f" and {len(problems) - _EXAMPLES:,} more" if len(problems) > _EXAMPLES else ""
    return ", ".join(problems[:_EXAMPLES]) + more


def write_record(path: Path, facts: Mapping[str, Any], outputs: Mapping[str, Any] | None = None) -> None:
    """Write `facts`, `outputs` (by default the files in the folder of the record) and a hash of both as JSON.

    Secrets are removed from the facts, but not from the names of the outputs, which must match the files.
    """
    plain = {**redact(facts), "outputs": record_outputs(path.parent) if outputs is None else outputs}
    plain = json.loads(json.dumps(plain))
    write_json(path, {**plain, "sha256": hash_json(plain)}, unredacted=True)


def record_outputs(folder: Path, looks: bool = True) -> dict[str, dict[str, Any]]:
    """Hash every output file of a stage: relative name to `bytes`, `sha256` and `quick_look`.

    Without `looks`, which contain times, equal files have equal facts, but each comparison has to hash the files.
    """
    names = sorted(output_names(folder))

    def facts(name: str) -> dict[str, Any]:
        status = (folder / name).stat()
        content = {"bytes": status.st_size, "sha256": hash_file(folder / name)}
        return {**content, "quick_look": quick_look(status)} if looks else content

    with ThreadPoolExecutor() as pool:  # hashing releases the GIL
        return dict(zip(names, pool.map(facts, names), strict=True))


def output_names(folder: Path) -> Iterator[str]:
    """Yield the output files of a stage, relative to its folder, without logs, model cards and the runner's notes.
    Raises `OSError` if a folder cannot be listed."""
    for parent, folders, files in os.walk(folder, onerror=_raise):
        folders[:] = [name for name in folders if name not in RUN_FOLDERS and not name.startswith(".")]
        outputs = (name for name in files if name not in RUN_FILES and not name.startswith("."))
        yield from (Path(parent, name).relative_to(folder).as_posix() for name in outputs)


def _raise(error: OSError) -> None:
    raise error


def damaged_files(
    folder: Path,
    outputs: Mapping[str, Mapping[str, Any]],
    hashes: FileHashes | None = HASHES,
    thorough: bool = False,
) -> list[str]:
    """Missing and changed outputs, each as "NAME is missing" or "NAME has changed".

    Files whose quick look differs are hashed, or all files if `thorough`. Without `hashes` no file is hashed, and only
    missing files and other sizes are reported.
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
        return [text for text in pool.map(problem, outputs) if text]


def is_unchanged(record: Mapping[str, Any]) -> bool:
    """Whether the hash of a record matches; a manifest of an older version has no hash and counts as unchanged."""
    if "sha256" not in record:
        return "outputs" not in record
    return bool(record["sha256"] == hash_json({name: record[name] for name in record if name != "sha256"}))
