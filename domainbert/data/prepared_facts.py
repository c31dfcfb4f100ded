"""Read and check `prepared.json`, the description of a prepared corpus."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError, Problems
from domainbert.base.files import FileHashes, hash_file, hash_json
from domainbert.base.freshness import damaged_files

PREPARED_FILE = "prepared.json"
TOKENIZER_FOLDER = "tokenizer"
PARTS_FOLDER = "parts"
FORMAT_VERSION = 3
SPLITS = ("train", "validation")


def read_facts(folder: Path) -> dict[str, Any]:
    """Return the content of the `prepared.json` of a folder. Raise `DomainbertError` if the file is missing, broken or
    changed, or of another version of the format."""
    path = folder / PREPARED_FILE
    if not path.is_file():
        raise DomainbertError(f"no {PREPARED_FILE}", file=folder, expected="a folder written by `domainbert prepare`")
    try:
        facts: dict[str, Any] = dict(json.loads(path.read_bytes()))
        version = facts["format_version"]
        digest = facts.pop("sha256", None)  # of the other facts
        unchanged = hash_json(facts) == digest
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DomainbertError(f"cannot be read ({error!r})", file=path, hint="run `prepare` again") from error
    if version != FORMAT_VERSION:
        raise DomainbertError(
            f"format version {version!r}", file=path, expected=f"{FORMAT_VERSION}: run `prepare` again"
        )
    if not unchanged:  # an unchanged file needs no further validation
        raise DomainbertError("changed since `prepare` wrote it", file=path, expected="no change: run `prepare` again")
    return facts


def check_files(folder: Path, facts: dict[str, Any], problems: Problems) -> None:
    """Add a problem for each file of a prepared folder that is missing, or whose size or SHA-256 differs from `facts`,
    the content of `prepared.json`."""
    splits = facts.get("splits", {})  # a corpus in parts has its files in the parts
    outputs: dict[str, Any] = {}
    for split, content in splits.items():
        outputs |= {f"{split}/{file['name']}": file for file in content["files"]}
    plans = [plan["file"] for content in splits.values() for plan in content.get("plans", {}).values()]
    outputs |= {file["name"]: file for file in [*plans, *facts["other_files"]]}
    for damage in damaged_files(folder, outputs, FileHashes()):
        problems.add(f"{folder}/{damage}", expected="the file that `prepare` wrote: run `prepare` again")


def file_facts(path: Path, folder: Path) -> dict[str, Any]:
    """Return the name below `folder`, the size and the SHA-256 of a file."""
    name = path.relative_to(folder).as_posix()
    return {"name": name, "bytes": path.stat().st_size, "sha256": hash_file(path)}
