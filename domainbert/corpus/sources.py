"""Reads the texts of the sources of a corpus, and checks that the sources exist."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from domainbert.base.errors import DomainbertError, Problems, format_names
from domainbert.base.paths import stream_kind
from domainbert.corpus.file_kind import evident_kind, read_first_lines
from domainbert.corpus.files import MAX_DOCUMENT_BYTES, find_files, format_suffix, read_lines, too_long
from domainbert.corpus.readers import READERS, Reader

if TYPE_CHECKING:
    from domainbert.corpus.config import Source
    from domainbert.corpus.report import SourceReport


Read = tuple[str, ...]  # id, text, and an optional translation


class CorpusFile(NamedTuple):
    """A file with documents of a corpus."""

    number: int  # from 0, in reading order
    source: Source
    path: Path


def list_files(sources: Sequence[Source], key: str = "sources") -> list[Path]:
    """Files of all sources in reading order; `DomainbertError` if a source has no files.

    `key` is the name of the setting with the sources, for messages.
    """
    files = [file.path for file in corpus_files(sources, key)]
    return files + [source.translation for source in sources if source.translation is not None]


def corpus_files(sources: Sequence[Source], key: str = "sources") -> list[CorpusFile]:
    """Files with documents; see `list_files`."""
    check_sources(sources, key)
    on_disk = [source for source in sources if source.hub_name is None]
    files = [(source, file) for source in on_disk for _, file in find_files(source.path) if _is_read(file, source)]
    return [CorpusFile(number, source, file) for number, (source, file) in enumerate(files)]


def check_sources(sources: Sequence[Source], key: str = "sources") -> None:
    """Raise `DomainbertError` for all sources without files; searches only for the first file of each source."""
    problems = Problems(key)
    for number, source in enumerate(sources):
        if source.hub_name is None and not any(_is_read(file, source) for _, file in find_files(source.path)):
            problems.add(f"{key}[{number}].path: {_why_nothing(source.path)}")
        for path in () if source.translation is None else (Path(source.path), source.translation):
            if not path.is_file():
                problems.add(f"{key}[{number}].translation: {path} is not a file; expected two parallel files")
    problems.raise_if_any()


def _is_read(file: Path, source: Source) -> bool:
    return source.format != "auto" or format_suffix(file) in READERS


def _why_nothing(path: str) -> str:
    suffixes = ", ".join(READERS)
    if stream := stream_kind(Path(path)):
        return f"{path} is {stream}; expected regular files"
    if files := [file for _, file in find_files(path)]:
        content = "this kind of file" if files == [Path(path)] else f"its {len(files):,} files, such as {files[0]}"
        return f"{path}: no reader for {content}; expected one of {suffixes} (.gz and .zst too), or `format`"
    if Path(path).is_dir():
        return f"{path}: no readable file in this folder; expected files with {suffixes} (.gz and .zst too)"
    return f"{path}: no such file or folder, and no match as a glob; expected a file, folder, glob or hub:NAME"


@dataclass
class Excerpt:
    """A bounded part of a corpus: the beginning of each file, in proportion to its size.

    The quota `due` grows with each file, and reading of a file stops when the quota is reached. So the excerpt exceeds
    the limit by at most one document, and some of many small files are skipped without being opened.
    """

    per_byte: float
    """Quota in characters for each byte of a file."""
    per_dataset: float
    """Quota in characters for a dataset of the hub, whose size is unknown."""
    due: float = 0
    read: int = 0

    @classmethod
    def of(cls, sources: Sequence[Source], max_characters: int) -> Excerpt:
        """Make an excerpt of about `max_characters`; the whole corpus if its files have fewer bytes."""
        size = sum(file.stat().st_size for file in list_files(sources))
        return cls(max_characters / max(size, 1), max_characters / len(sources))

    def first(self, texts: Callable[[], Iterator[Read]], due: float, counts: SourceReport) -> Iterator[Read]:
        """Yield the first documents of a file or dataset; the report counts files that are not read to the end."""
        self.due += due
        if self.read < self.due:
            for identity, *sides in texts():
                if self.read >= self.due:
                    break
                self.read += sum(map(len, sides))
                yield identity, *sides
            else:
                return
        counts.files_cut += 1


def read_source(
    source: Source, counts: SourceReport, excerpt: Excerpt | None = None, only: Collection[Path] | None = None
) -> Iterator[Read]:
    """Yield id, unchanged text and optional translation of each document of a source, or of an excerpt. An id is the
    file name below the source and the line or row: `speeches/1996.jsonl.gz:12`. `only` are the files to read; None
    reads all files."""
    if source.hub_name:
        rows: Callable[[], Iterator[Read]] = partial(_read_hub, source)
        if source.translation_key is not None:
            rows = partial(_paired, _read_hub, source)
        yield from rows() if excerpt is None else excerpt.first(rows, excerpt.per_dataset, counts)
        return
    for name, path in find_files(source.path):
        if not _is_read(path, source):
            counts.files_ignored += only is None
            continue
        if only is not None and path not in only:
            continue
        counts.files += 1
        texts = partial(_read_file, name, path, source, counts)
        yield from texts() if excerpt is None else excerpt.first(texts, excerpt.per_byte * path.stat().st_size, counts)


def ignored_files(sources: Sequence[Source]) -> dict[str, int]:
    """Number of files without a reader, by the path of the source; hub datasets are left out."""
    on_disk = [source for source in sources if not source.hub_name]
    return {source.path: sum(not _is_read(file, source) for _, file in find_files(source.path)) for source in on_disk}


def _read_file(name: str, path: Path, source: Source, counts: SourceReport) -> Iterator[Read]:
    reader = _reader(path, source, counts)
    if source.translation is not None:
        read: Iterator[Read] = read_aligned(path, source.translation)
    elif source.translation_key is None:
        read = reader(path, source)
    elif reader in (READERS[".txt"], READERS[".conll"]):
        raise DomainbertError(f"{path}: no keys or columns; expected JSONL, CSV or Parquet with translation_key")
    else:
        read = _paired(partial(reader, path), source)
    for position, *sides in read:
        yield name + position, *sides


def _paired(read: Callable[[Source], Iterator[tuple[str, str]]], source: Source) -> Iterator[Read]:
    """Yield the texts of a source with their translations, which the same reader reads with another key."""
    others = read(replace(source, text_key=str(source.translation_key)))
    for (position, text), (_, other) in zip(read(source), others, strict=True):
        yield position, text, other


def read_aligned(path: Path, other: Path) -> Iterator[Read]:
    """Yield position (":12") and text of each line with the same line of the other file; `DomainbertError` if the
    numbers of lines differ."""
    lines, other_lines = (sum(1 for _ in read_lines(file)) for file in (path, other))
    if lines != other_lines:
        found = f"found {lines:,} lines, and {other_lines:,} lines in {other}"
        raise DomainbertError(f"{path}: {found}; expected the same number of lines")
    for (number, text), (_, translation) in zip(read_lines(path), read_lines(other), strict=True):
        yield f":{number}", text, translation


def _reader(path: Path, source: Source, counts: SourceReport) -> Reader:
    """Select the reader for a file by the format of the source, the suffix, or the first lines of a .txt file."""
    if source.format != "auto":
        return READERS[".txt" if source.format == "text" else f".{source.format}"]
    suffix = format_suffix(path)
    kind = evident_kind(read_first_lines(path)) if suffix == ".txt" else None
    if kind is None:
        return READERS[suffix]
    counts.read_as["CoNLL" if kind == "conll" else "JSONL"] += 1
    return READERS[f".{kind}"]


def _read_hub(source: Source) -> Iterator[tuple[str, str]]:
    """Stream the texts of a hub dataset; every error message names the source."""
    for row, values in enumerate(_hub_rows(source), 1):
        if source.text_key not in values:
            found = f"no column {source.text_key!r} (columns found: {format_names(values)})"
            raise DomainbertError(f"{source.path}: {found}; expected a column with the text")
        text = values[source.text_key]
        if text is not None and not isinstance(text, str):
            where = f"{source.path}, row {row}"
            raise DomainbertError(f"{where}: {source.text_key!r} is of type {type(text).__name__}; expected a string")
        if text is not None and len(text) > MAX_DOCUMENT_BYTES:
            raise too_long(f"{source.path}, row {row}", "document")
        yield f"{source.hub_name}:{row}", text or ""


def _hub_rows(source: Source) -> Iterator[dict[str, Any]]:
    import datasets

    name, subset = str(source.hub_name), source.hub_config
    try:
        yield from datasets.load_dataset(name, subset, split=source.hub_split, streaming=True)
    except Exception as error:  # the hub client raises many unrelated types when opening and when reading
        reason = " ".join(str(error).split())
        raise DomainbertError(f"{source.path}: the dataset cannot be read: {reason}") from error
