"""Reads the texts of the sources of a corpus, and checks what can be checked without reading."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from domainbert.base.errors import DomainbertError, Problems
from domainbert.base.paths import stream_kind
from domainbert.corpus.file_kind import evident_kind, look
from domainbert.corpus.files import MAX_DOCUMENT_BYTES, find_files, format_suffix, too_long
from domainbert.corpus.readers import READERS, Reader

if TYPE_CHECKING:
    from domainbert.corpus.config import Source
    from domainbert.corpus.report import SourceReport


def list_files(sources: Sequence[Source], key: str = "sources") -> list[Path]:
    """The files of all sources, in the order in which they are read; an error if a source holds nothing.

    Messages call them by the key of the setting that lists them.
    """
    check_sources(sources, key)
    on_disk = [source for source in sources if source.hub_name is None]
    return [file for source in on_disk for _, file in find_files(source.path) if _is_read(file, source)]


def check_sources(sources: Sequence[Source], key: str = "sources") -> None:
    """Raise an error that names all sources that hold nothing; only the first file of each is looked for."""
    problems = Problems(key)
    for number, source in enumerate(sources):
        if source.hub_name is None and not any(_is_read(file, source) for _, file in find_files(source.path)):
            problems.add(f"{key}[{number}].path: {_why_nothing(source.path)}")
    problems.raise_if_any()


def _is_read(file: Path, source: Source) -> bool:
    return source.format != "auto" or format_suffix(file) in READERS


def _why_nothing(path: str) -> str:
    known = ", ".join(READERS)
    if found := stream_kind(Path(path)):
        return f"{path} is {found}; expected regular files"
    if Path(path).is_file():
        return f"{path}: no reader for this kind of file; expected one of {known} (.gz and .zst too), or `format`"
    if Path(path).is_dir():
        return f"{path}: no file to read in this folder; expected some of {known} (.gz and .zst too)"
    return f"{path}: no such file or folder, and no match as a glob; expected a file, folder, glob or hub:NAME"


def read_source(source: Source, counts: SourceReport) -> Iterator[tuple[str, str]]:
    """The id and the unchanged text of each document of one source. An id is the file's name below the source, and the
    line or row: `speeches/1996.jsonl.gz:12`."""
    if source.hub_name:
        yield from _read_hub(source)
        return
    for name, path in find_files(source.path):
        if not _is_read(path, source):
            counts.files_ignored += 1
            continue
        counts.files += 1
        reader = _reader(path, source, counts)
        for position, text in reader(path, source):
            yield name + position, text


def _reader(path: Path, source: Source, counts: SourceReport) -> Reader:
    """The reader for a file, by the source's format, the suffix, or the first lines of a .txt file."""
    if source.format != "auto":
        return READERS[".txt" if source.format == "text" else f".{source.format}"]
    suffix = format_suffix(path)
    kind = evident_kind(look(path)) if suffix == ".txt" else None
    if kind is None:
        return READERS[suffix]
    counts.read_as["CoNLL" if kind == "conll" else "JSONL"] += 1
    return READERS[f".{kind}"]


def _read_hub(source: Source) -> Iterator[tuple[str, str]]:
    """Stream a dataset of the hub; every error message names the source."""
    for row, values in enumerate(_hub_rows(source), 1):
        if source.text_key not in values:
            found = ", ".join(values)
            raise DomainbertError(f"{source.path}: no column {source.text_key!r} (columns found: {found})")
        text = values[source.text_key]
        if text is not None and not isinstance(text, str):
            where = f"{source.path}, row {row}"
            raise DomainbertError(f"{where}: {source.text_key!r} holds a {type(text).__name__}; expected a string")
        if text is not None and len(text) > MAX_DOCUMENT_BYTES:
            raise too_long(f"{source.path}, row {row}", "document")
        yield f"{source.hub_name}:{row}", text or ""


def _hub_rows(source: Source) -> Iterator[dict[str, Any]]:
    import datasets

    name, subset = str(source.hub_name), source.hub_config
    try:
        yield from datasets.load_dataset(name, subset, split=source.hub_split, streaming=True)
    except Exception as error:  # the hub's client raises dozens of unrelated types, when opening and when reading
        reason = " ".join(str(error).split())
        raise DomainbertError(f"{source.path}: the dataset cannot be read: {reason}") from error
