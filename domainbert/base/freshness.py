"""Decides whether a result is up to date: of stages, seeds, checkpoints, parts of a corpus, soft labels and studies.

A result is made from *facts*: plain values by name, such as `optim.lr` or `train`; the fact of an input file is its
name and the hash of its content. The *record* of a result, a JSON file in its folder, has the facts under `made_from`,
size and hash of each output, and a hash of the record. A result is up to date if its record has the same facts and its
outputs are unchanged.

A quick look at an output compares size, modification time, change time and inode. If these differ, as in a copied
folder, the content is hashed: only changed content and missing files are damage. Model cards, the runner's files about
the run, and logs other than `metrics.jsonl` (the curves of a report) may be edited.
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
from domainbert.base.files import (
    CURVES,
    HASHES,
    LOGS,
    RUN_FILES,
    RUN_FOLDERS,
    FileHashes,
    hash_file,
    hash_json,
    quick_look,
    read_json,
    write_json,
)
from domainbert.base.redact import redact

INPUT_FILES = "input files"
"""Name of the fact that lists the files of a folder or pattern, in order."""

NUM_FILES = "num_files"
"""Last part of the name of the fact that has the number of files of a source."""

_DIGEST = re.compile(r" [0-9a-f]{64}$")  # hash at the end of the fact of an input file
_RECORD_KEYS = ("made_from", "outputs", "sha256")  # the other keys are the result
_EDITABLE = RUN_FILES - {"training.json"}  # files about the run that are not recorded; a report reads training.json
_MAX_EXAMPLES = 3
_MAX_VALUE_CHARACTERS, _MAX_LIST_CHARACTERS = 60, 240  # in a message


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
    """Current names of facts by earlier name, for facts that have another name in records of an earlier version."""
    removed: Mapping[str, Any] = field(default_factory=dict)
    """Facts in records of an earlier version that are ignored if they have this value, the default of a setting that no
    longer exists."""

    def __post_init__(self) -> None:
        """Convert the facts to the form in which they are read from a record."""
        object.__setattr__(self, "facts", json.loads(json.dumps(redact(flatten(self.facts)), default=str)))

    @cached_property
    def key(self) -> str:
        """Hash of the facts: equal keys mean equal results."""
        return hash_json(self.facts)

    def without(self, *names: str) -> Freshness:
        """Return a copy without the facts called `names`, which have no effect on a part of the result."""
        return replace(self, facts={name: fact for name, fact in self.facts.items() if name not in names})

    def changes(self, before: Mapping[str, Any]) -> dict[str, str]:
        """Compare with `before`, the facts in a record; return a description of the change for the name of each fact
        with another value, {} if all facts are equal. An optional fact that `before` lacks is no change, unless the
        group of the fact was null."""
        old = self._flatten_record(before)
        nulls = [name for name, fact in old.items() if fact is None]
        new = {
            name: fact
            for name, fact in self.facts.items()
            if name in old or name not in self.optional or is_below(name, *nulls)
        }
        # `get` returns None for null and for a missing fact. A null that `before` lacks is a change: it is no default,
        # which is optional. A null that is missing now is none: it is now a mapping, whose facts count, or no setting.
        new_nulls = {name for name, fact in new.items() if fact is None and name not in old}
        changed = [name for name in sorted({*old, *new}) if name in new_nulls or old.get(name) != new.get(name)]
        # the keys of some mappings are a fact, too, such as the names of `models`: it reports new and dropped keys
        changed_lists = [
            name for name in changed if isinstance(old.get(name), list) and isinstance(new.get(name), list)
        ]
        changed = [name for name in changed if (name in old and name in new) or not is_below(name, *changed_lists)]
        return {name: _difference(name, old.get(name), new.get(name)) for name in changed}

    def stale_reason(self, before: Any) -> str:
        """Return why the result must be made again: in one line, the first changes of the facts since `before`.
        Empty if no fact has changed."""
        if not isinstance(before, Mapping):
            return "made by an older version"
        return format_examples([*self.changes(before).values()])

    def only_input_contents_changed(self, before: Mapping[str, Any]) -> bool:
        """Return whether the contents of input files have changed since `before`, and no other fact."""
        changed, old = self.changes(before), self._flatten_record(before)
        if INPUT_FILES in changed:  # a new file changes the number, too
            changed = {name: change for name, change in changed.items() if not name.endswith(f".{NUM_FILES}")}
        return bool(changed) and all(
            name == INPUT_FILES or _without_digest(old.get(name)) == _without_digest(self.facts.get(name))
            for name in changed
        )

    def _flatten_record(self, before: Mapping[str, Any]) -> dict[str, Any]:
        """Return the flattened facts of a record under the current names of settings, without removed settings."""
        facts = flatten(before)
        for earlier, current in self.renamed.items():
            renamed = {}
            for name, fact in facts.items():
                renamed[current + name.removeprefix(earlier) if is_below(name, earlier) else name] = fact
            facts = renamed
        return {name: fact for name, fact in facts.items() if name not in self.removed or fact != self.removed[name]}

    def read_if_current(self, path: Path) -> tuple[dict[str, Any] | None, str]:
        """Read the record at `path`: return its result and "" if the result is up to date and its outputs are
        undamaged, otherwise None and the reason. The reason is empty if there is no record."""
        if not path.is_file():
            return None, ""
        try:
            record = read_json(path, "the record of a result")
        except DomainbertError:
            record = {}
        if not {*_RECORD_KEYS} <= set(record):
            return None, f"{path.name} cannot be read, or was written by an earlier version"
        reason = self.stale_reason(record["made_from"]) if is_unchanged(record) else f"{path.name} has changed"
        if not reason:
            reason = format_examples(damaged_files(path.parent, record["outputs"], FileHashes()))
        if reason:
            return None, reason
        return {name: value for name, value in record.items() if name not in _RECORD_KEYS}, ""

    def record(self, path: Path, result: Mapping[str, Any], outputs: Mapping[str, Any] | None = None) -> None:
        """Write the record of a result and its facts; `outputs` are by default the files in the folder of `path`."""
        write_record(path, {**result, "made_from": self.facts}, outputs)


def flatten(value: Any, name: str = "") -> dict[str, Any]:
    """Flatten nested mappings and lists of mappings to one mapping with dotted names; an empty mapping becomes None.
    `name` is put before all names; `.init_args` is left out of names."""
    children: dict[str, Any] = {}
    if isinstance(value, Mapping):
        children = {f"{name}.{key}" if name else str(key): item for key, item in value.items()}
    elif isinstance(value, (list, tuple)) and any(isinstance(item, Mapping) for item in value):
        children = {f"{name}[{index}]": item for index, item in enumerate(value)}
    if children:
        return {key: fact for path, item in children.items() for key, fact in flatten(item, path).items()}
    if not name:
        return {}
    return {name.replace(".init_args", ""): None if isinstance(value, Mapping) else value}


def is_below(name: str, *settings: str) -> bool:
    """Whether a dotted name is one of the settings, or is inside it."""
    return any(name == setting or name.startswith((f"{setting}.", f"{setting}[")) for setting in settings)


def _difference(name: str, before: Any, after: Any) -> str:
    if isinstance(before, list) and isinstance(after, list):
        return _list_difference(name, before, after)
    values = ["not set" if value is None else str(value) for value in (before, after)]
    if values[0] == values[1] or max(map(len, values)) > _MAX_VALUE_CHARACTERS:
        return f"{name} changed"
    return f"{name} was {values[0]}, is now {values[1]}"


def _list_difference(name: str, before: list[Any], after: list[Any]) -> str:
    old, now = dict.fromkeys(map(str, before)), dict.fromkeys(map(str, after))  # each item once
    if old.keys() == now.keys():  # only the order or the repetitions differ
        return f"order of {name} changed" if len(before) == len(after) else f"{name} changed"
    new = [_without_digest(item) for item in now if item not in old]
    dropped = [_without_digest(item) for item in old if item not in now]
    changed = {*new} & {*dropped}  # items of which only the hash differs
    groups = {
        "changed": [item for item in new if item in changed],
        "new": [item for item in new if item not in changed],
        "dropped": [item for item in dropped if item not in changed],
        "kept": [_without_digest(item) for item in now if item in old],
    }
    text = "; ".join(f"{group} {format_examples(items)}" for group, items in groups.items() if items)
    return f"{name}: {text}" if len(text) <= _MAX_LIST_CHARACTERS else f"{name} changed"


def _without_digest(value: Any) -> Any:
    return _DIGEST.sub("", value) if isinstance(value, str) else value


def format_examples(problems: Sequence[str]) -> str:
    """Return the first three problems or changes and the number of the others as "A, B, C and 2 more"; empty without
    any."""
    more = f" and {len(problems) - _MAX_EXAMPLES:,} more" if len(problems) > _MAX_EXAMPLES else ""
    return ", ".join(problems[:_MAX_EXAMPLES]) + more


def write_record(path: Path, facts: Mapping[str, Any], outputs: Mapping[str, Any] | None = None) -> None:
    """Write `facts`, `outputs` (by default the files in the folder of the record) and a hash of both as JSON.

    Secrets are removed from the facts, but not from the names of the outputs, which must match the files.
    """
    plain = {**redact(facts), "outputs": record_outputs(path.parent) if outputs is None else outputs}
    plain = json.loads(json.dumps(plain))
    write_json(path, {**plain, "sha256": hash_json(plain)}, unredacted=True)


def record_outputs(folder: Path, with_quick_looks: bool = True) -> dict[str, dict[str, Any]]:
    """Hash every output file in a stage folder; return `bytes`, `sha256` and `quick_look` for each relative name.

    Without quick looks and logs, which contain times, equal trainings have equal records, but each comparison has to
    hash the files.
    """
    names = sorted(name for name in output_names(folder) if with_quick_looks or Path(name).parent.name != LOGS)

    def facts(name: str) -> dict[str, Any]:
        status = (folder / name).stat()
        content = {"bytes": status.st_size, "sha256": hash_file(folder / name)}
        return {**content, "quick_look": quick_look(status)} if with_quick_looks else content

    with ThreadPoolExecutor() as pool:  # hashing releases the GIL
        return dict(zip(names, pool.map(facts, names), strict=True))


def output_names(folder: Path) -> Iterator[str]:
    """Yield the names of the output files of a stage and of its curves (`logs/metrics.jsonl`), relative to its folder,
    without other logs, model cards and the files about the run. Raise `OSError` if a folder cannot be listed."""
    for parent, folders, files in os.walk(folder, onerror=_raise):
        below = Path(parent).relative_to(folder)
        in_logs = below.name == LOGS  # not the stage folder itself, which may have any name
        # in place: `os.walk` then skips the other folders
        folders[:] = [name for name in folders if name != "checkpoints" and not in_logs and not name.startswith(".")]
        for name in files:
            if name not in _EDITABLE and not name.startswith(".") and (name == CURVES or not in_logs):
                yield (below / name).as_posix()


def foreign_names(folder: Path, outputs: Collection[str]) -> list[str]:
    """Return the sorted names of the files in the folder of a finished stage that the stage did not write, relative to
    the folder; a folder without any of its outputs is one name.

    `outputs` are the recorded outputs. Hidden files, model cards, logs, checkpoints and the files about the run are not
    recorded and belong to the stage, also in a folder without other files, such as the cards of `evaluate`.
    """
    written = {path for name in outputs for path in (folder / name, *(folder / name).parents)}

    def foreign_paths(parent: Path) -> Iterator[Path]:
        for path in parent.iterdir():
            if path.name in RUN_FILES | RUN_FOLDERS or path.name.startswith("."):
                continue
            is_folder = path.is_dir() and not path.is_symlink()
            if path in written and is_folder:
                yield from foreign_paths(path)
            elif path not in written and (not is_folder or any(output_names(path))):
                yield path

    return sorted(path.relative_to(folder).as_posix() for path in foreign_paths(folder))


def _raise(error: OSError) -> None:
    raise error


def damaged_files(
    folder: Path,
    outputs: Mapping[str, Mapping[str, Any]],
    hashes: FileHashes | None = HASHES,
    thorough: bool = False,
) -> list[str]:
    """Return the problems of output files: "NAME is missing", "NAME has changed" or "NAME cannot be read"; [] if all
    are as recorded.

    Args:
        outputs: the result of `record_outputs` when the files were written.
        hashes: hashes the files whose quick look differs; None hashes no file and reports only missing files and
            other sizes.
        thorough: whether to hash all files.
    """

    def find_problem(name: str) -> str:
        """Return the problem of one output file; "" if it is as recorded."""
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
        return [text for text in pool.map(find_problem, outputs) if text]


def is_unchanged(record: Mapping[str, Any]) -> bool:
    """Return whether the hash of a record matches its content."""
    return bool(record.get("sha256") == hash_json({name: record[name] for name in record if name != "sha256"}))
