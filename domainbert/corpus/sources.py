"""Read the texts of the sources of a corpus, and check that the sources exist."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from domainbert.base.errors import DomainbertError, Problems, format_names
from domainbert.base.paths import stream_kind
from domainbert.base.redact import redact
from domainbert.corpus.file_kind import evident_kind, read_first_lines
from domainbert.corpus.files import MAX_DOCUMENT_BYTES, find_files, format_suffix, read_lines, too_long
from domainbert.corpus.readers import READERS, Reader

if TYPE_CHECKING:
    from domainbert.corpus.config import Source
    from domainbert.corpus.report import CorpusReport, SourceReport


RawDocument = tuple[str, ...]  # id, unchanged text, and an optional translation


class CorpusFile(NamedTuple):
    """A file with documents of a corpus."""

    number: int  # index in reading order, from 0
    source: Source
    path: Path


def list_files(sources: Sequence[Source], key: str = "sources") -> list[Path]:
    """Return the files of all sources in reading order, then the files of translations; hub datasets have no files.
    `key` is the name of the setting with the sources, for messages."""
    files = [file.path for file in corpus_files(sources, key)]
    return files + [source.translation for source in sources if source.translation is not None]


def corpus_files(sources: Sequence[Source], key: str = "sources") -> list[CorpusFile]:
    """Return the files with documents, numbered in reading order, without files of translations."""
    check_sources(sources, key)
    on_disk = [source for source in sources if source.hub_name is None]
    files = [(source, file) for source in on_disk for file in files_of_source(source)]
    return [CorpusFile(index, source, file) for index, (source, file) in enumerate(files)]


def files_of_source(source: Source) -> list[Path]:
    """Return the files with documents of a source on disk, in reading order."""
    return [file for _, file in find_files(source.path) if _has_reader(file, source)]


def check_sources(sources: Sequence[Source], key: str = "sources") -> None:
    """Raise `DomainbertError` that names all sources without files; searches only for the first file of each source."""
    problems = Problems(key)
    for index, source in enumerate(sources):
        if source.hub_name is None and not any(_has_reader(file, source) for _, file in find_files(source.path)):
            problems.add(_no_files_error(source.path).at(f"{key}[{index}].path"))
        is_split = source.documents != "file" and source.translation is None and key != "exclude"
        if is_split and not _may_have_plain_text(source):
            problems.add(
                where=f"{key}[{index}].documents",
                found=f"{source.documents} for {source.path}, in which each row is a document",
                expected="plain text, or no documents",
            )
        parallel_files = [] if source.translation is None else [Path(source.path), source.translation]
        for path in parallel_files:
            if not path.is_file():
                problems.add(
                    f"{path} is not a file",
                    where=f"{key}[{index}].translation",
                    hint="path and translation must be files",
                )
    problems.raise_if_any()


def _has_reader(file: Path, source: Source) -> bool:
    return source.format != "auto" or format_suffix(file) in READERS


def _may_have_plain_text(source: Source) -> bool:
    if source.format != "auto" or source.hub_name is not None:
        return source.format == "text" and source.hub_name is None
    files = [file for _, file in find_files(source.path)]
    return not files or any(format_suffix(file) == ".txt" for file in files)


def _no_files_error(path: str) -> DomainbertError:
    suffixes = ", ".join(READERS)
    if stream := stream_kind(Path(path)):
        fault, expected = f"which is {stream}", "a regular file or a folder"
    elif files := [file for _, file in find_files(path)]:
        content = "this kind of file" if files == [Path(path)] else f"its files, such as {files[0]}"
        fault, expected = f"but no reader for {content}", f"{suffixes} (.gz, .zst too), or `format: text`"
    elif Path(path).is_dir():
        fault, expected = "a folder without a readable file", f"files with {suffixes} (.gz and .zst too)"
    else:
        fault, expected = "which neither exists nor matches as a glob", "a file, folder, glob or hub:NAME"
    return DomainbertError(found=f"{path!r}, {fault}", expected=expected)


@dataclass
class Excerpt:
    """A bounded part of a corpus: the beginning of each file, in proportion to its size.

    The quota grows with each file, and reading of a file stops when the quota is reached. So the excerpt exceeds the
    limit by at most one document, and some of many small files are skipped without being opened.
    """

    per_byte: float
    """Quota in characters for each byte of a file."""
    per_dataset: float
    """Quota in characters for a dataset of the hub, whose size is unknown."""
    quota: float = 0  # characters to read from the files so far
    read: int = 0  # characters read from the files so far

    @classmethod
    def of_sources(cls, sources: Sequence[Source], max_characters: int) -> Excerpt:
        """Return an excerpt of about `max_characters` characters; all of the corpus if its files have fewer bytes."""
        size = sum(file.stat().st_size for file in list_files(sources))
        return cls(max_characters / max(size, 1), max_characters / len(sources))

    def first_documents(
        self, documents: Callable[[], Iterator[RawDocument]], quota: float, counts: SourceReport
    ) -> Iterator[RawDocument]:
        """Yield documents of a file or dataset until its quota is reached. A file or dataset that is not read to the
        end is counted in `counts.files_cut`."""
        self.quota += quota
        if self.read >= self.quota:  # earlier files have used its quota: it is not opened
            counts.files_cut += 1
            return
        for document_id, *sides in documents():
            if self.read >= self.quota:
                counts.files_cut += 1
                return
            self.read += sum(map(len, sides))
            yield document_id, *sides


def read_source(
    source: Source, counts: SourceReport, excerpt: Excerpt | None = None, only: Collection[Path] | None = None
) -> Iterator[RawDocument]:
    """Yield `(id, unchanged text)` or `(id, text, translation)` of each document of a source, or of an excerpt.

    An id is the file name below the source and the line or row: `speeches/1996.jsonl.gz:12`. `only` are the files to
    read; None reads all files.
    """
    if source.hub_name:
        rows: Callable[[], Iterator[RawDocument]] = partial(_read_hub, source)
        if source.translation_key is not None:
            rows = partial(_read_pairs, _read_hub, source)
        yield from rows() if excerpt is None else excerpt.first_documents(rows, excerpt.per_dataset, counts)
        return
    for name, path in find_files(source.path):
        if not _has_reader(path, source):
            if only is None:  # a part of the corpus does not count files of other parts
                counts.files_ignored += 1
            continue
        if only is not None and path not in only:
            continue
        counts.files += 1
        documents = partial(_read_file, name, path, source, counts)
        if excerpt is None or not (size := path.stat().st_size):
            yield from documents()
        else:
            yield from excerpt.first_documents(documents, excerpt.per_byte * size, counts)


def set_ignored_counts(report: CorpusReport, sources: Sequence[Source]) -> None:
    """Set `files_ignored` of each source in a report to the number of its files without a reader."""
    ignored = {
        source.path: sum(not _has_reader(file, source) for _, file in find_files(source.path))
        for source in sources
        if not source.hub_name
    }
    for counts in report.sources:
        counts.files_ignored = ignored.get(counts.path, 0)


def _read_file(name: str, path: Path, source: Source, counts: SourceReport) -> Iterator[RawDocument]:
    """Yield the documents of a file with their ids, which begin with `name`, the path below the source."""
    reader = _choose_reader(path, source, counts)
    if source.translation is not None:
        if reader is not READERS[".txt"]:
            expected = "a text per line in both files (set format: text if it has them), or translation_key"
            raise DomainbertError(file=path, found="no plain text, but translation is set", expected=expected)
        documents: Iterator[RawDocument] = read_aligned(path, source.translation)
    elif source.translation_key is None:
        documents = reader(path, source)
    elif reader in (READERS[".txt"], READERS[".conll"]):
        raise DomainbertError("has no keys, but translation_key is set", file=path, expected="JSONL, CSV or Parquet")
    else:
        documents = _read_pairs(partial(reader, path), source)
    name = redact(name)  # the ids of documents are stored
    for position, *sides in documents:
        yield name + position, *sides


def _read_pairs(read: Callable[[Source], Iterator[tuple[str, str]]], source: Source) -> Iterator[RawDocument]:
    """Yield `(position, text, translation)`; `read` yields the texts under the `text_key` of a source."""
    translations = read(replace(source, text_key=str(source.translation_key)))
    for (position, text), (_, translation) in zip(read(source), translations, strict=True):
        yield position, text, translation


def read_aligned(path: Path, other: Path) -> Iterator[RawDocument]:
    """Yield `(position, line, same line of the other file)`, with positions such as ":12". Raise `DomainbertError` if
    the files do not have the same number of lines."""
    num_lines, num_other_lines = (sum(1 for _ in read_lines(file)) for file in (path, other))
    if num_lines != num_other_lines:
        found = f"{num_lines:,}, but {num_other_lines:,} in {other}"
        raise DomainbertError(file=path, where="number of lines", found=found, expected="the same number in both files")
    for (number, text), (_, translation) in zip(read_lines(path), read_lines(other), strict=True):
        yield f":{number}", text, translation


def _choose_reader(path: Path, source: Source, counts: SourceReport) -> Reader:
    if source.format != "auto":
        return READERS[".txt" if source.format == "text" else f".{source.format}"]
    suffix = format_suffix(path)
    kind = evident_kind(read_first_lines(path)) if suffix == ".txt" else None
    if kind is None:
        return READERS[suffix]
    counts.read_as["CoNLL" if kind == "conll" else "JSONL"] += 1
    return READERS[f".{kind}"]


def _read_hub(source: Source) -> Iterator[tuple[str, str]]:
    for row, values in enumerate(_hub_rows(source), 1):
        if source.text_key not in values:
            found = f"no column {source.text_key!r} (columns found: {format_names(values)})"
            raise DomainbertError(found, file=source.path, hint="set text_key (or translation_key) to its text column")
        text = values[source.text_key]
        if text is not None and not isinstance(text, str):
            where = f"{source.path}, row {row}: the value of {source.text_key!r}"
            raise DomainbertError(f"{where} is of type {type(text).__name__}", expected="a string")
        if text is not None and len(text.encode(errors="surrogatepass")) > MAX_DOCUMENT_BYTES:
            raise too_long(f"{source.path}, row {row}", "document")
        yield f"{source.hub_name}:{row}", text or ""


def _hub_rows(source: Source) -> Iterator[dict[str, Any]]:
    import datasets

    name, subset = str(source.hub_name), source.hub_config
    try:
        yield from datasets.load_dataset(name, subset, split=source.hub_split, streaming=True)
    except Exception as error:  # the hub client raises many unrelated types when opening and when reading
        reason = " ".join(str(error).split())
        raise DomainbertError(f"the dataset cannot be read: {reason}", file=source.path) from error
