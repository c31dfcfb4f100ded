"""Reads the texts of the sources of a corpus, and checks what can be checked without reading."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from domainbert.base.errors import DomainbertError, Problems
from domainbert.base.paths import stream_kind
from domainbert.corpus.file_kind import evident_kind, look
from domainbert.corpus.files import MAX_DOCUMENT_BYTES, find_files, format_suffix, read_lines, too_long
from domainbert.corpus.readers import READERS, Reader

if TYPE_CHECKING:
    from domainbert.corpus.config import Source
    from domainbert.corpus.report import SourceReport


Read = tuple[str, ...]  # an id, a text, and perhaps its translation


class CorpusFile(NamedTuple):
    """A file of a corpus, which holds documents."""

    number: int  # from 0, in the order in which they are read
    source: Source
    path: Path


def list_files(sources: Sequence[Source], key: str = "sources") -> list[Path]:
    """The files of all sources, in the order in which they are read; an error if a source holds nothing.

    Messages call them by the key of the setting that lists them.
    """
    files = [file.path for file in corpus_files(sources, key)]
    return files + [source.translation for source in sources if source.translation is not None]


def corpus_files(sources: Sequence[Source], key: str = "sources") -> list[CorpusFile]:
    """The files with documents; see `list_files`."""
    check_sources(sources, key)
    on_disk = [source for source in sources if source.hub_name is None]
    found = [(source, file) for source in on_disk for _, file in find_files(source.path) if _is_read(file, source)]
    return [CorpusFile(number, *one) for number, one in enumerate(found)]


def check_sources(sources: Sequence[Source], key: str = "sources") -> None:
    """Raise an error that names all sources that hold nothing; only the first file of each is looked for."""
    problems = Problems(key)
    for number, source in enumerate(sources):
        if source.hub_name is None and not any(_is_read(file, source) for _, file in find_files(source.path)):
            problems.add(f"{key}[{number}].path: {_why_nothing(source.path)}")
        for path in () if source.translation is None else (Path(source.path), source.translation):
            if not path.is_file():
                problems.add(f"{key}[{number}].translation: {path} is no file; expected two files, line beside line")
    problems.raise_if_any()


def _is_read(file: Path, source: Source) -> bool:
    return source.format != "auto" or format_suffix(file) in READERS


def _why_nothing(path: str) -> str:
    known = ", ".join(READERS)
    if found := stream_kind(Path(path)):
        return f"{path} is {found}; expected regular files"
    if files := [file for _, file in find_files(path)]:
        what = "this kind of file" if files == [Path(path)] else f"{len(files):,} files that it has, such as {files[0]}"
        return f"{path}: no reader for {what}; expected one of {known} (.gz and .zst too), or `format`"
    if Path(path).is_dir():
        return f"{path}: no file to read in this folder; expected some of {known} (.gz and .zst too)"
    return f"{path}: no such file or folder, and no match as a glob; expected a file, folder, glob or hub:NAME"


@dataclass
class Excerpt:
    """A bounded part of a corpus: the beginning of each file, in proportion to its size.

    What is due grows from file to file, and a file is left when as much was read. So the whole is bounded by one
    document more, and where files are many and small, some of them are left out unopened.
    """

    per_byte: float
    """Characters that are due for each byte of a file."""
    per_dataset: float
    """Characters that are due for a dataset of the hub, whose size is not known."""
    due: float = 0
    read: int = 0

    @classmethod
    def of(cls, sources: Sequence[Source], most_characters: int) -> Excerpt:
        """An excerpt of so many characters; all of a corpus whose files have no more bytes."""
        size = sum(file.stat().st_size for file in list_files(sources))
        return cls(most_characters / max(size, 1), most_characters / len(sources))

    def first(self, texts: Callable[[], Iterator[Read]], due: float, counts: SourceReport) -> Iterator[Read]:
        """The first documents of a file or dataset; the report counts those that are not read to the end."""
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
    """The id and the unchanged text of each document of one source, or of an excerpt of it, and its translation if the
    source has some. An id is the file's name below the source, and the line or row: `speeches/1996.jsonl.gz:12`. `only`
    are the files to read; None reads all."""
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
    """By path of each source on disk the number of its files that are of no kind that is read."""
    on_disk = [source for source in sources if not source.hub_name]
    return {one.path: sum(not _is_read(path, one) for _, path in find_files(one.path)) for one in on_disk}


def _read_file(name: str, path: Path, source: Source, counts: SourceReport) -> Iterator[Read]:
    reader = _reader(path, source, counts)
    if source.translation is not None:
        read: Iterator[Read] = read_aligned(path, source.translation)
    elif source.translation_key is None:
        read = reader(path, source)
    elif reader in (READERS[".txt"], READERS[".conll"]):
        raise DomainbertError(f"{path}: no file with keys or columns; expected one beside translation_key")
    else:
        read = _paired(partial(reader, path), source)
    for position, *sides in read:
        yield name + position, *sides


def _paired(read: Callable[[Source], Iterator[tuple[str, str]]], source: Source) -> Iterator[Read]:
    """The texts of a source beside their translations, which are read as the texts are."""
    others = read(replace(source, text_key=str(source.translation_key)))
    for (position, text), (_, other) in zip(read(source), others, strict=True):
        yield position, text, other


def read_aligned(path: Path, other: Path) -> Iterator[Read]:
    """The place of each line (":12"), the line, and that of the other file; `DomainbertError` with both counts where
    one has more lines."""
    ours, theirs = (sum(1 for _ in read_lines(file)) for file in (path, other))
    if ours != theirs:
        found = f"{ours:,} lines, and {theirs:,} in {other}"
        raise DomainbertError(f"{path}: {found}; expected the translation of each line in its place")
    for (number, text), (_, translation) in zip(read_lines(path), read_lines(other), strict=True):
        yield f":{number}", text, translation


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
