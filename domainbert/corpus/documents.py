"""Reads the documents of a corpus: cleaning, deduplication, exclusion, split, selection, weights."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from domainbert.base.errors import DomainbertError
from domainbert.base.files import quick_look
from domainbert.corpus.config import CorpusConfig, Select, Source
from domainbert.corpus.duplicates import ExactDuplicates, NearDuplicates
from domainbert.corpus.report import CorpusReport, SourceReport
from domainbert.corpus.sentences import cut_sentences
from domainbert.corpus.sources import CorpusFile, Excerpt, check_sources, list_files, read_source

if TYPE_CHECKING:
    from domainbert.corpus.known_texts import KnownTexts

Split = Literal["train", "validation"]

# all Unicode line and page breaks except \n, so that removing control characters never joins two words
_LINE_BREAK = re.compile("\r\n?|[\x0b\x0c\x1c-\x1f\x85\u2028\u2029]")
# C0 without tab and line feed, unpaired surrogates (JSON's "\ud800"), byte order marks
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1b\x7f\ud800-\udfff\ufeff]+")
# C1: in texts of Windows, a dash or a quotation mark between two words
_C1 = re.compile(r"[\x80-\x9f]")


@dataclass(frozen=True)
class Cleaned:
    """A cleaned text, and what was changed in it."""

    text: str
    line_breaks: bool  # whether line breaks were replaced by line feeds
    control_characters: int  # number of removed characters
    normalized: bool  # whether the text was not in Unicode normal form C
    boundary: int | None = None  # of a pair: position of the line break between the two texts


def clean(text: str) -> Cleaned:
    r"""Return the text with `\n` as line breaks, in NFC (Unicode Annex 15), stripped, and without control characters:
    C1 become spaces, so that no words are joined.

    >>> clean("cafe\u0301\r\n\x00").text
    'café'
    """
    with_line_feeds = _LINE_BREAK.sub("\n", text)
    without_c0 = _CONTROL.sub("", with_line_feeds)
    printable, num_spaces = (without_c0, 0) if without_c0.isascii() else _C1.subn(" ", without_c0)
    normalized = printable
    if not printable.isascii() and not unicodedata.is_normalized("NFC", printable):
        normalized = unicodedata.normalize("NFC", printable)
    return Cleaned(
        text=normalized.strip(),
        line_breaks=with_line_feeds != text,
        control_characters=len(with_line_feeds) - len(without_c0) + num_spaces,
        normalized=normalized != printable,
    )


def clean_sides(sides: Sequence[str]) -> Cleaned:
    """Return a cleaned text, or a cleaned text and its translation, joined with a line break; "" if either is empty."""
    parts = [clean(side) for side in sides]
    if len(parts) == 1:
        return parts[0]
    return Cleaned(
        text="\n".join(part.text for part in parts) if all(part.text for part in parts) else "",
        line_breaks=any(part.line_breaks for part in parts),
        control_characters=sum(part.control_characters for part in parts),
        normalized=any(part.normalized for part in parts),
        boundary=len(parts[0].text),
    )


@dataclass(frozen=True)
class Document:
    """A cleaned and kept document."""

    id: str  # file below its source, and line or row: `speeches.jsonl.gz:12`; a second copy ends in `#2`
    text: str
    split: Split
    language: str | None = None  # language of its source
    boundary: int | None = None  # position of the line break between a text and its translation

    @property
    def sides(self) -> tuple[str, ...]:
        """The text, or the text and its translation, as a tuple of 1 or 2 strings."""
        end = self.boundary
        return (self.text,) if end is None else (self.text[:end], self.text[end + 1 :])


@dataclass(frozen=True)
class _FilteredDocument:
    """A document that passed the filters, before `select`."""

    id: str
    text: str
    split: Split
    source: Source
    counts: SourceReport  # of its source
    copies: int  # by the weight of its source
    boundary: int | None


def read_documents(
    config: CorpusConfig,
    report: CorpusReport | None = None,
    max_characters: int | None = None,
    files: Sequence[CorpusFile] | None = None,
) -> Generator[Document, None, None]:
    """Yield the documents of a corpus in deterministic order and bounded memory.

    The report counts the documents that are read, kept, dropped and changed; it is complete when the iterator is
    exhausted. With `select` the sources are read three times, and 8 bytes per training document stay in memory.
    `max_characters` reads an excerpt (see `Excerpt`). `files` are the files to read; None reads all files.

    >>> from domainbert import CorpusConfig, Source, read_documents
    >>> corpus = CorpusConfig([Source("corpus.txt", documents="line")])
    >>> next(read_documents(corpus)).text
    'The high court heard case number 0.'

    Raises:
        DomainbertError: a source is missing or broken (with file and line), or, without `files`, no document is left.
    """
    report = CorpusReport() if report is None else report
    check_sources(config.sources)
    flags = None if config.select is None else _selection_flags(config, config.select, report, max_characters)
    for document in _filtered_documents(config, report, max_characters, files):
        if flags is None or document.split == "validation" or next(flags):  # one flag for each training document
            yield from _copies(document)
        else:
            document.counts.dropped["not selected"] += 1
    if files is None and not any(report.documents(split) for split in ("train", "validation")):
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in report.dropped.items())
        dropped = f" (dropped: {reasons})" if reasons else ""
        raise DomainbertError(f"kept 0 of {report.read:,} documents{dropped}", where="corpus", expected="at least one")


def _filtered_documents(
    config: CorpusConfig,
    report: CorpusReport,
    max_characters: int | None,
    files: Sequence[CorpusFile] | None = None,
) -> Iterator[_FilteredDocument]:
    excerpt = None if max_characters is None else Excerpt.of_sources(config.sources, max_characters)
    excluded = None if config.exclude is None else _load_excluded(config.exclude, report)
    with ExitStack() as stack:
        exact = stack.enter_context(ExactDuplicates()) if config.deduplicate else None
        threshold = config.near_duplicate_threshold
        near = stack.enter_context(NearDuplicates(threshold)) if threshold is not None else None
        for source in config.sources:
            paths = None if files is None else {file.path for file in files if file.source is source}
            if paths is not None and not paths:
                continue
            counts = report.add_source(source.path)
            for document_id, *sides in read_source(source, counts, excerpt, paths):
                # clean and exclude; the digest is of the text before exclusion, so that `exclude` changes no split
                cleaned = clean_sides(sides)
                _count_read_document(counts, sum(map(len, sides)), cleaned)
                text, digest = cleaned.text, _digest(cleaned.text)
                if excluded is not None and text:
                    text = _remove_excluded(excluded, cleaned, counts)
                text_digest = digest if text is cleaned.text else _digest(text)

                # drop, or yield
                if not cleaned.text:
                    counts.dropped["empty"] += 1
                elif not text:
                    counts.dropped["excluded as a whole"] += 1
                elif len(text) < config.min_characters:
                    counts.dropped[f"shorter than {config.min_characters} characters"] += 1
                elif not (copies := _num_copies(digest, source.weight)):
                    # before the search for duplicates: a later source may keep the same text
                    counts.dropped["left out by weight"] += 1
                elif exact is not None and not exact.add_if_new(text_digest):
                    counts.dropped["exact duplicates"] += 1
                elif near is not None and not near.add_if_new(text):
                    counts.dropped["near duplicates"] += 1
                else:
                    split: Split = "validation" if _uniform(digest[:8]) < config.validation_fraction else "train"
                    yield _FilteredDocument(document_id, text, split, source, counts, copies, cleaned.boundary)


def _selection_flags(
    config: CorpusConfig, settings: Select, report: CorpusReport, max_characters: int | None
) -> Iterator[bool]:
    """Yield for each training document, before weights, whether `select` keeps it."""
    from domainbert.corpus.selection import select

    def texts() -> Iterator[str]:
        """Read the training texts; called for each of the two passes of `select`."""
        documents = _filtered_documents(config, CorpusReport(), max_characters)
        return (document.text for document in documents if document.split == "train")

    selection = select(_read_texts(settings.like, "select.like", CorpusReport()), texts, settings.keep)
    report.selection = {
        "like": [source.path for source in settings.like],
        "documents": len(selection.kept),
        "kept": int(selection.kept.sum()),
        "mean_log_weight": {"kept": selection.mean(kept=True), "dropped": selection.mean(kept=False)},
    }
    yield from selection.kept
    # the caller asks for a further flag: it reads more documents than `select` has read
    raise DomainbertError(
        "files have changed while `select` read them", where="corpus", hint="leave them unchanged and start again"
    )


def _read_texts(sources: Sequence[Source], key: str, report: CorpusReport) -> Iterator[str]:
    check_sources(sources, key)
    for source in sources:
        for _, *sides in read_source(source, report.add_source(source.path)):
            yield clean_sides(sides).text


def excluded_texts(sources: Sequence[Source], report: CorpusReport | None = None) -> Iterator[str]:
    """Yield the cleaned texts of `exclude`; each line of plain text is a text, unless `documents` is "blank_line"."""
    by_line = [replace(source, documents="line") if source.documents == "file" else source for source in sources]
    return _read_texts(by_line, "exclude", report or CorpusReport())


def _load_excluded(sources: Sequence[Source], report: CorpusReport) -> KnownTexts:
    # an argument of the cached function, so that changed files are read again
    file_states = tuple(tuple(quick_look(path.stat())) for path in list_files(sources, "exclude"))
    excluded, files_ignored = _index_excluded(tuple(sources), file_states)
    paths = [source.path for source in sources]
    if not excluded.num_indexed:
        found = f"no text of 8 words or more in {', '.join(paths)} (shorter texts: {excluded.num_skipped:,})"
        raise DomainbertError(where="corpus.exclude", found=found, expected="at least one longer text, or no exclude")
    report.exclusion = {"texts": paths, "num_texts": excluded.num_indexed, "too_short": excluded.num_skipped}
    if files_ignored:
        report.exclusion["files_ignored"] = files_ignored
    return excluded


@lru_cache(1)  # a corpus in parts, or with `select`, is read several times
def _index_excluded(sources: tuple[Source, ...], file_states: tuple[Any, ...]) -> tuple[KnownTexts, int]:
    # `file_states` is only part of the cache key
    from domainbert.corpus.known_texts import KnownTexts

    report = CorpusReport()
    excluded = KnownTexts(excluded_texts(sources, report))
    return excluded, sum(source.files_ignored for source in report.sources)


def _remove_excluded(excluded: KnownTexts, cleaned: Cleaned, counts: SourceReport) -> str:
    """Return the text without the sentences that overlap with excluded texts; "" for a pair with such a sentence."""
    text = cleaned.text
    sentences = cut_sentences(text)
    while indices := excluded.overlapping_parts(sentences):
        counts.excluded_sentences += len(indices)
        if cleaned.boundary is not None:
            return ""
        text = ""
        for index, sentence in enumerate(sentences):
            if index not in indices:
                text += sentence
            elif sentence.endswith("\n") and text and not text.endswith("\n"):
                text += "\n"  # keep the sentences before and after the excluded sentence on separate lines
        text = text.strip()
        sentences = cut_sentences(text)  # searched again, because a removal can join parts of an excluded text
    if text and text is not cleaned.text:
        counts.changed["without excluded sentences"] += 1
    return text


def _digest(text: str) -> bytes:
    """Return 16 bytes that depend only on the text: they find duplicates, and serve as random numbers of a document."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _count_read_document(counts: SourceReport, characters: int, cleaned: Cleaned) -> None:
    counts.read += 1
    counts.read_characters += characters
    counts.control_characters += cleaned.control_characters
    changes = {
        "with other line breaks": cleaned.line_breaks,
        "with control characters": cleaned.control_characters > 0,
        "not in NFC": cleaned.normalized,
    }
    counts.changed.update(change for change, is_changed in changes.items() if is_changed)


def _copies(document: _FilteredDocument) -> Iterator[Document]:
    """Yield the copies of a document, and count them. A validation document is yielded once."""
    split, counts = document.split, document.counts
    copies = 1 if split == "validation" else document.copies
    counts.copies += copies - 1
    counts.documents[split] += copies
    counts.characters[split] += copies * len(document.text)
    for copy in range(1, copies + 1):
        document_id = document.id if copy == 1 else f"{document.id}#{copy}"
        yield Document(document_id, document.text, split, document.source.language, document.boundary)


def _num_copies(digest: bytes, weight: float) -> int:
    """Return how often a document is read; the fraction of a weight is the probability of a further copy. The first
    half of the digest decides the split, the second half this fraction."""
    whole_copies, fraction = divmod(weight, 1)
    return int(whole_copies) + (_uniform(digest[8:]) < fraction)


def _uniform(digest: bytes) -> float:
    """Return a number in [0, 1) from the first 53 bits of 8 bytes."""
    return (int.from_bytes(digest, "big") >> 11) / 2**53
