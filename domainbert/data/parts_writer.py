"""Writes a corpus in parts, see `parts`: each part as its file is read, then what binds them together."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from domainbert.base.errors import DomainbertError, Problems
from domainbert.corpus.report import CorpusReport
from domainbert.data.parallel_encoding import EncodedBatch
from domainbert.data.parts import COUNTS_FILE
from domainbert.data.prepared_facts import (
    PARTS_FOLDER,
    PREPARED_FILE,
    SPLITS,
    TOKENIZER_FOLDER,
    check_files,
    file_facts,
    read_facts,
)
from domainbert.data.prepared_writer import PreparedWriter, write_facts
from domainbert.tokenization.load import DomainTokenizer

WINDOW = 64
"""Parts that a training mixes, unless told."""

_IN_COMMON = {
    "tokenizer_fingerprint": "tokenizer",
    "files": "number of files",
    "names": "list of files",
    "corpus": "corpus",
}  # keys of `prepared.json` in which shards agree, in words


def part_folder(out: Path, number: int) -> Path:
    """The folder of a part, whose number is that of its file in the corpus."""
    return out / PARTS_FOLDER / f"{number:05d}"


def finished_part(folder: Path, made_from: str) -> dict[str, Any] | None:
    """The facts of a part that was written before from the same; None, and no folder, where there is none.

    One that is damaged, perhaps by the crash of a machine, is told and removed, too.
    """
    if (folder / PREPARED_FILE).is_file():
        problems = Problems(str(folder))
        try:
            facts = read_facts(folder)
            if facts["made_from"] == made_from:
                check_files(folder, facts, problems)
                problems.raise_if_any()
                return facts
        except DomainbertError as error:
            print(f"{error}: it is prepared again", flush=True)
    if folder.is_dir():
        shutil.rmtree(folder)
    return None


def remove_other_parts(out: Path, numbers: Collection[int]) -> None:
    """Remove parts of an interrupted run that are none of these by now: the files of the corpus have changed."""
    for folder in (out / PARTS_FOLDER).glob("*"):
        if folder not in {part_folder(out, number) for number in numbers}:
            shutil.rmtree(folder)


def write_part(
    folder: Path,
    batches: Iterable[EncodedBatch],
    tokenizer: DomainTokenizer,
    report: CorpusReport,
    row_lengths: Sequence[int],
    made_from: str,
) -> dict[str, Any]:
    """Write a part from its encoded documents; the report is complete when these are read."""
    folder.mkdir(parents=True)
    writer, unknown = PreparedWriter(folder, tokenizer), 0
    for batch in batches:
        writer.write(batch)
        unknown += int((batch.input_ids == tokenizer.unk_id).sum())
    kept = {"made_from": made_from, "unknown": unknown, "empty_documents": writer.empty_documents}
    return writer.close_part(row_lengths, {**kept, "report": report.as_dict()})


class Shards(NamedTuple):
    """Shards of one corpus, as several calls of `prepare` wrote them."""

    tokenizer_folder: Path
    parts: Mapping[Path, Mapping[str, Any]]  # the facts of each by its folder, in the order of the corpus
    corpus: Mapping[str, Any]  # what they have in common, see `bind_parts`


def read_shards(folders: Sequence[Path]) -> Shards:
    """The shards of a corpus, every file of which is compared with its hash; see `merge` for the errors."""
    facts, problems = {folder: read_facts(folder) for folder in folders}, Problems("prepared")
    first = facts[folders[0]]
    for folder, shard in facts.items():
        if "parts" not in shard:
            problems.add(f"{folder}: prepared as a whole; expected a folder that `prepare` wrote with row_lengths")
        else:
            for key, called in _IN_COMMON.items():
                if (found := shard.get(key)) != first.get(key):
                    named = _difference(found, first.get(key)) if key == "corpus" else called
                    problems.add(f"{folder}: another {named} than {folders[0]}; expected shards of one corpus")
    problems.raise_if_any()
    parts: dict[int, Path] = {}
    for folder, shard in facts.items():
        for part in shard["parts"]:
            path = folder / part["folder"]
            if (twice := parts.setdefault(int(path.name), path)) != path:
                problems.add(f"{path}: the same file of the corpus as {twice}; expected each shard once")
    if missing := [number for number in range(first["files"]) if number not in parts]:
        shown = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
        problems.add(f"prepared: {len(missing):,} of {first['files']:,} files are in no shard ({shown}, from 0)")
    problems.raise_if_any()
    contents = {parts[number]: read_facts(parts[number]) for number in sorted(parts)}
    for path, content in contents.items():
        check_files(path, content, problems)
    problems.raise_if_any()
    return Shards(folders[0] / TOKENIZER_FOLDER, contents, {key: first[key] for key in ("files", "names", "corpus")})


def _difference(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> str:
    """The settings of a corpus in which two differ, perhaps of different versions."""
    one, other = one or {}, other or {}
    return ", ".join(f"corpus.{key}" for key in sorted({*one, *other}) if one.get(key) != other.get(key))


def bind_parts(
    out: Path,
    tokenizer: DomainTokenizer,
    parts: Mapping[Path, Mapping[str, Any]],
    corpus: Mapping[str, Any],
    window: int = WINDOW,
    url: str | None = None,
) -> dict[str, Any]:
    """Write what makes parts a corpus, `prepared.json` last, whose content is returned.

    Args:
        out: the folder, which exists.
        tokenizer: that of the parts.
        parts: the facts of each by its folder, in the order of the corpus.
        corpus: what all shards have in common: `files`, how many there are in all shards, the hash of their `names`,
            and settings.
        window: see `WindowedOrder`.
        url: that of a copy of the folder which holds those of all shards; None where the parts stay here.

    Raises:
        DomainbertError: these are all parts, and a split has no document in any of them.
    """
    for split, other in (SPLITS, SPLITS[::-1]) if len(parts) == corpus["files"] else ():
        if not any(facts["splits"][split]["documents"] for facts in parts.values()):
            count = sum(facts["splits"][other]["documents"] for facts in parts.values())
            found = f"{count:,} documents for {other} and none for {split}"
            raise DomainbertError(f"corpus: {found}; expected some for both: change corpus.validation_fraction")
    tokenizer.save(out / TOKENIZER_FOLDER)
    counts = sum(np.load(folder / COUNTS_FILE, allow_pickle=False) for folder in parts)
    np.save(out / COUNTS_FILE, counts, allow_pickle=False)
    others = [*sorted((out / TOKENIZER_FOLDER).iterdir()), out / COUNTS_FILE]
    if url is None:
        names = [os.path.relpath(folder.resolve(), out.resolve()) for folder in parts]
    else:  # a copy has no links, and each folder where it seems to be: that of the shard, "parts" and the part's own
        places = [Path(os.path.abspath(folder)) for folder in parts]
        root = os.path.commonpath([place.parents[2] for place in places])
        names = [os.path.relpath(place, root) for place in places]
    described = [
        {"folder": Path(name).as_posix(), "splits": facts["splits"]}
        for name, facts in zip(names, parts.values(), strict=True)
    ]
    facts = {**corpus, "window": window, "url": url, "parts": described}
    return write_facts(out, tokenizer, {**facts, "other_files": [file_facts(path, out) for path in others]})
