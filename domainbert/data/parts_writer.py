"""Writes a corpus in parts, see `parts`: each part as its file is read, then what binds them together."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from domainbert.base.choices import as_plain
from domainbert.base.errors import DomainbertError, Problems
from domainbert.base.freshness import Freshness
from domainbert.base.hashes import hash_file, hash_json, quick_look
from domainbert.corpus.config import CorpusConfig
from domainbert.corpus.report import CorpusReport
from domainbert.corpus.sources import CorpusFile, corpus_files, list_files
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


class PlannedPart(NamedTuple):
    """A part that a file of the corpus becomes."""

    file: CorpusFile
    folder: Path
    made_from: Freshness


def plan_parts(
    out: Path, corpus: CorpusConfig, tokenizer: DomainTokenizer, row_lengths: Sequence[int], filters: Sequence[str] = ()
) -> list[PlannedPart]:
    """The parts of a corpus below a folder, in order: one for each file that the sources have now.

    Args:
        out: the folder.
        corpus: sources and settings of the corpus.
        tokenizer: the tokenizer of all parts.
        row_lengths: lengths of the rows that are planned.
        filters: further steps between the reader and the tokenizer, by name.
    """
    chosen = as_plain(corpus, defaults=False)  # a later version has more settings
    common = {"settings": hash_json([chosen, row_lengths, filters]), "tokenizer": tokenizer.fingerprint}
    if corpus.exclude is not None:
        common["exclude"] = hash_json([hash_file(path) for path in list_files(corpus.exclude, "exclude")])
    parts = []
    for file in corpus_files(corpus.sources):
        paths = [path for path in (file.path, file.source.translation) if path is not None]
        looks = {str(path): hash_json(quick_look(path.stat())) for path in paths}
        made_from = Freshness({**common, "number": file.number, **looks})
        parts.append(PlannedPart(file, out / PARTS_FOLDER / f"{file.number:05d}", made_from))
    return parts


def finished_part(part: PlannedPart) -> dict[str, Any] | None:
    """The facts of a part that an interrupted run has written, or None; a damaged part is printed."""
    if (part.folder / PREPARED_FILE).is_file():
        try:
            facts = read_parts([part.folder])[part.folder]
            reason = part.made_from.reason(facts["made_from"])
        except DomainbertError as error:
            reason = str(error)
        if not reason:
            return facts
        print(f"{part.folder}: {reason}: it is prepared again", flush=True)
    return None


def remove_other_parts(out: Path, parts: Iterable[PlannedPart]) -> None:
    """Delete folders of parts that are not planned, which an interrupted run over other files has left."""
    for folder in {*(out / PARTS_FOLDER).glob("*")} - {part.folder for part in parts}:
        shutil.rmtree(folder)


def write_part(
    part: PlannedPart,
    batches: Iterable[EncodedBatch],
    tokenizer: DomainTokenizer,
    report: CorpusReport,
    row_lengths: Sequence[int],
) -> dict[str, Any]:
    """Write a part from its encoded documents, in place of what its folder holds; the report is complete when the
    documents are read."""
    if part.folder.is_dir():
        shutil.rmtree(part.folder)
    part.folder.mkdir(parents=True)
    writer, unknown = PreparedWriter(part.folder, tokenizer), 0
    for batch in batches:
        writer.write(batch)
        unknown += int((batch.input_ids == tokenizer.unk_id).sum())
    kept = {"made_from": part.made_from.facts, "unknown": unknown, "empty_documents": writer.empty_documents}
    return writer.close_part(row_lengths, {**kept, "report": report.as_dict()})


def read_parts(folders: Iterable[Path]) -> dict[Path, dict[str, Any]]:
    """The facts of parts by their folders; `DomainbertError` names each part that is missing, and each file that is not
    as it was written."""
    parts, problems = dict[Path, dict[str, Any]](), Problems("parts")
    for folder in folders:
        try:
            parts[folder] = read_facts(folder)
            check_files(folder, parts[folder], problems)
        except DomainbertError as error:
            problems.add(str(error))
    problems.raise_if_any()
    return parts


def bind_parts(
    out: Path,
    tokenizer: DomainTokenizer,
    parts: Mapping[Path, Mapping[str, Any]],
    window: int = WINDOW,
    url: str | None = None,
) -> dict[str, Any]:
    """Write what makes parts a corpus, `prepared.json` last, whose content is returned.

    Args:
        out: the folder, which exists.
        tokenizer: that of the parts.
        parts: the facts of each by its folder, in the order of the corpus.
        window: see `WindowedOrder`.
        url: URL of a copy of the corpus folder, or of the folder that holds all corpora if there are several; None
            if the parts stay here.

    Raises:
        DomainbertError: a split has no document in any part.
    """
    for split, other in (SPLITS, SPLITS[::-1]):
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
    else:  # a copy has no links, and each folder where it seems to be: that of the corpus, "parts" and the part's own
        places = [Path(os.path.abspath(folder)) for folder in parts]
        root = os.path.commonpath([place.parents[1] for place in places])
        names = [os.path.relpath(place, root) for place in places]
    described = [
        {"folder": Path(name).as_posix(), "splits": facts["splits"]}
        for name, facts in zip(names, parts.values(), strict=True)
    ]
    facts = {"window": window, "url": url, "parts": described}
    return write_facts(out, tokenizer, {**facts, "other_files": [file_facts(path, out) for path in others]})
