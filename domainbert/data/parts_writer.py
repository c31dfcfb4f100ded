"""Write a corpus in parts (see `parts`): one part per file, then the files that bind the parts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from domainbert.base.choices import as_plain
from domainbert.base.errors import DomainbertError, Problems
from domainbert.base.files import hash_file, hash_json, quick_look
from domainbert.base.freshness import Freshness
from domainbert.corpus.config import CorpusConfig
from domainbert.corpus.report import CorpusReport
from domainbert.corpus.sources import CorpusFile, corpus_files, list_files
from domainbert.data.parallel_encoding import EncodedBatch
from domainbert.data.parts import COUNTS_FILE
from domainbert.data.prepared_facts import (
    PARTS_FOLDER,
    PREPARED_FILE,
    TOKENIZER_FOLDER,
    check_files,
    file_facts,
    read_facts,
)
from domainbert.data.prepared_writer import PreparedWriter, write_facts
from domainbert.tokenization.load import DomainTokenizer

WINDOW = 64
"""Default number of parts that training mixes."""


class PlannedPart(NamedTuple):
    """A part to write from one file of the corpus."""

    file: CorpusFile
    folder: Path
    made_from: Freshness


def plan_parts(
    out: Path, corpus: CorpusConfig, tokenizer: DomainTokenizer, row_lengths: Sequence[int], filters: Sequence[str] = ()
) -> list[PlannedPart]:
    """Return the parts of a corpus to write below a folder, in order, one per file.

    Args:
        out: the folder.
        corpus: sources and settings of the corpus.
        tokenizer: tokenizer of all parts.
        row_lengths: lengths of rows to plan, in any order.
        filters: names of further steps between the reader and the tokenizer; a part is written again if they change.
    """
    settings = as_plain(corpus, defaults=False)  # without defaults: later versions may add settings
    shared_facts = {"settings": hash_json([settings, sorted(row_lengths), filters]), "tokenizer": tokenizer.fingerprint}
    if corpus.exclude is not None:
        shared_facts["exclude"] = hash_json([hash_file(path) for path in list_files(corpus.exclude, "exclude")])
    parts = []
    for file in corpus_files(corpus.sources):
        paths = [path for path in (file.path, file.source.translation) if path is not None]
        # size and times of the files: hashing their content would take too long
        stats = {str(path): hash_json(quick_look(path.stat())) for path in paths}
        made_from = Freshness({**shared_facts, "number": file.number, **stats})
        parts.append(PlannedPart(file, out / PARTS_FOLDER / f"{file.number:05d}", made_from))
    return parts


def finished_part(part: PlannedPart) -> dict[str, Any] | None:
    """Return the facts of a part that an earlier run has finished. Return None if no run has finished it, and print a
    message and return None if it was made from other files or settings, or is damaged."""
    if not (part.folder / PREPARED_FILE).is_file():
        return None
    try:
        facts = read_parts([part.folder])[part.folder]
        reason = part.made_from.stale_reason(facts["made_from"])
    except DomainbertError as error:
        reason = str(error)
    if not reason:
        return facts
    print(f"preparing {part.folder} again ({reason})", flush=True)
    return None


def write_part(
    part: PlannedPart,
    batches: Iterable[EncodedBatch],
    tokenizer: DomainTokenizer,
    report: CorpusReport,
    row_lengths: Sequence[int],
) -> dict[str, Any]:
    """Write the documents of a part, in place of an existing folder, and return its facts. `report` has the counts of
    the documents that were read and dropped."""
    if part.folder.is_dir():
        shutil.rmtree(part.folder)
    part.folder.mkdir(parents=True)
    writer = PreparedWriter(part.folder, tokenizer)
    for batch in batches:
        writer.write(batch)
    counts = {"unknown": writer.unknown, "empty_documents": writer.empty_documents}
    return writer.close_part(row_lengths, {"made_from": part.made_from.facts, **counts, "report": report.as_dict()})


def read_parts(folders: Iterable[Path]) -> dict[Path, dict[str, Any]]:
    """Return the facts of parts, by folder. Raise a `DomainbertError` that lists all missing parts and changed files,
    if there are any."""
    parts, problems = dict[Path, dict[str, Any]](), Problems("parts")
    for folder in folders:
        with problems.collecting():
            parts[folder] = read_facts(folder)
            check_files(folder, parts[folder], problems)
    problems.raise_if_any()
    return parts


def bind_parts(
    out: Path,
    tokenizer: DomainTokenizer,
    parts: Mapping[Path, Mapping[str, Any]],
    window: int = WINDOW,
    url: str | None = None,
) -> dict[str, Any]:
    """Write the files that combine parts to a corpus, and return the content of `prepared.json`.

    Args:
        out: the folder; it must exist.
        tokenizer: tokenizer of the parts.
        parts: facts of the parts by folder, in order.
        window: see `WindowedOrder`.
        url: URL of a copy of the corpus folder, or of the folder of several corpora; None if the parts stay here.

    Raises:
        DomainbertError: a split has no document in any part.
    """
    for split, other, advice in (("train", "validation", "lower"), ("validation", "train", "raise")):
        if not any(facts["splits"][split]["documents"] for facts in parts.values()):
            count = sum(facts["splits"][other]["documents"] for facts in parts.values())
            found = f"no document for {split} ({count:,} for {other})"
            expected = f"some in each split: {advice} corpus.validation_fraction"
            raise DomainbertError(where="corpus", found=found, expected=expected)

    tokenizer.save(out / TOKENIZER_FOLDER)
    token_counts = sum(np.load(folder / COUNTS_FILE, allow_pickle=False) for folder in parts)
    np.save(out / COUNTS_FILE, token_counts, allow_pickle=False)
    others = [*sorted((out / TOKENIZER_FOLDER).iterdir()), out / COUNTS_FILE]

    # names of the part folders, relative to `out` or to the folder that is copied to `url`
    if url is None:
        names = [os.path.relpath(folder.resolve(), out.resolve()) for folder in parts]
    else:  # do not resolve links, because a copy has none; a path ends with CORPUS/parts/NUMBER
        paths = [Path(os.path.abspath(folder)) for folder in parts]
        root = os.path.commonpath([path.parents[1] for path in paths])
        names = [os.path.relpath(path, root) for path in paths]
    descriptions = [
        {"folder": Path(name).as_posix(), "splits": facts["splits"]}
        for name, facts in zip(names, parts.values(), strict=True)
    ]
    facts = {"window": window, "url": url, "parts": descriptions}
    return write_facts(out, tokenizer, {**facts, "other_files": [file_facts(path, out) for path in others]})
