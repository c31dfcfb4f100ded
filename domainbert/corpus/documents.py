"""The documents of a corpus: read, cleaned, without duplicates, weighted, each on its side of the split."""

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
from domainbert.base.hashes import quick_look
from domainbert.corpus.config import CorpusConfig, Select, Source
from domainbert.corpus.duplicates import ExactDuplicates, NearDuplicates
from domainbert.corpus.report import CorpusReport, SourceReport
from domainbert.corpus.sentences import cut_sentences
from domainbert.corpus.sources import CorpusFile, Excerpt, check_sources, list_files, read_source

if TYPE_CHECKING:
    from domainbert.corpus.known_texts import KnownTexts

Split = Literal["train", "validation"]

# everything that Unicode calls a line or page break, so that deleting control characters never joins two words
_LINE_BREAK = re.compile("\r\n?|[\x0b\x0c\x1c-\x1f\x85\u2028\u2029]")
# C0 and C1 without tab and line feed, halves of surrogate pairs (no character: JSON's "\ud800"), byte order marks.
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1b\x7f-\x9f\ud800-\udfff\ufeff]+")


@dataclass(frozen=True)
class Cleaned:
    """A cleaned text, and the changes made to it."""

    text: str
    line_breaks: bool  # whether others than line feeds were replaced by line feeds
    control_characters: int  # removed
    normalized: bool  # whether it was not in Unicode normal form C
    boundary: int | None = None  # of a pair: where the line break between its sides stands


def clean(text: str) -> Cleaned:
    r"""Make breaks `\n`, remove control characters, compose to NFC (Unicode Annex 15), strip.

    >>> clean("cafe\u0301\r\n\x00").text
    'café'
    """
    broken = _LINE_BREAK.sub("\n", text)
    controlled = _CONTROL.sub("", broken)
    normalized = controlled
    if not controlled.isascii() and not unicodedata.is_normalized("NFC", controlled):
        normalized = unicodedata.normalize("NFC", controlled)
    return Cleaned(
        text=normalized.strip(),
        line_breaks=broken != text,
        control_characters=len(broken) - len(controlled),
        normalized=normalized != controlled,
    )


def clean_sides(sides: Sequence[str]) -> Cleaned:
    """A text, or a pair of texts that a line break parts; a pair of which one side is empty is empty."""
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
    """A cleaned text that is kept."""

    id: str  # the file below its source and the line or row: `speeches.jsonl.gz:12`; a second copy ends in `#2`
    text: str
    split: Split
    language: str | None = None  # that of its source
    boundary: int | None = None  # of a text with its translation: where the line break between them stands

    @property
    def sides(self) -> tuple[str, ...]:
        """The text, or the text and its translation."""
        place = self.boundary
        return (self.text,) if place is None else (self.text[:place], self.text[place + 1 :])


@dataclass(frozen=True)
class _Cleaned:
    """A document that is long enough and no duplicate; not a copy yet."""

    id: str
    text: str
    digest: bytes  # one half decided the side, the other decides what a fraction of a copy comes to
    split: Split
    source: Source
    counts: SourceReport
    boundary: int | None


def read_documents(
    config: CorpusConfig,
    report: CorpusReport | None = None,
    most_characters: int | None = None,
    files: Sequence[CorpusFile] | None = None,
) -> Generator[Document, None, None]:
    """Stream the documents of a corpus, always in the same order, in bounded memory.

    The report counts what is read, kept, dropped and changed; it is complete when the iterator is exhausted. With
    `select` the sources are read three times, and 8 bytes are held for each training document.
    `most_characters` reads an excerpt (see `Excerpt`), each of the times. `files` are those to read; None reads all.

    >>> from domainbert import CorpusConfig, Source, read_documents
    >>> corpus = CorpusConfig([Source("corpus.txt", documents="line")])
    >>> next(read_documents(corpus)).text
    'The high court heard case number 0.'

    Raises:
        DomainbertError: a source is missing or broken (with file and line), or no document is left, but of `files`.
    """
    report = CorpusReport() if report is None else report
    check_sources(config.sources)
    selected = None if config.select is None else _selected(config, config.select, report, most_characters)
    for document in _read(config, report, most_characters, files):
        if selected is None or document.split == "validation" or next(selected):
            yield from _copies(document)
        else:
            document.counts.dropped["not selected"] += 1
    if files is None and not any(report.documents(split) for split in ("train", "validation")):
        dropped = ", ".join(f"{count:,} {reason}" for reason, count in report.dropped.items())
        why = f" ({dropped})" if dropped else ""
        raise DomainbertError(f"corpus: no document left of {report.read:,} read{why}; expected at least one")


def _read(
    config: CorpusConfig,
    report: CorpusReport,
    most_characters: int | None,
    files: Sequence[CorpusFile] | None = None,
) -> Iterator[_Cleaned]:
    excerpt = None if most_characters is None else Excerpt.of(config.sources, most_characters)
    excluded = None if config.exclude is None else _known(config.exclude, report)
    with ExitStack() as stack:
        exact = stack.enter_context(ExactDuplicates()) if config.deduplicate else None
        threshold = config.near_duplicate_threshold
        near = stack.enter_context(NearDuplicates(threshold)) if threshold is not None else None
        for source in config.sources:
            only = None if files is None else {file.path for file in files if file.source is source}
            if only is not None and not only:
                continue
            counts = report.add_source(source.path)
            for identity, *raw in read_source(source, counts, excerpt, only):
                cleaned = clean_sides(raw)
                _count_read(counts, sum(map(len, raw)), cleaned)
                text, digest = cleaned.text, _digest(cleaned.text)
                if excluded is not None and text:
                    text = _without(excluded, cleaned, counts)
                if not cleaned.text:
                    counts.dropped["empty"] += 1
                elif not text:
                    counts.dropped["excluded as a whole"] += 1
                elif len(text) < config.min_characters:
                    counts.dropped[f"shorter than {config.min_characters} characters"] += 1
                elif exact is not None and not exact.is_new(digest if text is cleaned.text else _digest(text)):
                    counts.dropped["exact duplicates"] += 1
                elif near is not None and not near.is_new(text):
                    counts.dropped["near duplicates"] += 1
                else:
                    split: Split = "validation" if _uniform(digest[:8]) < config.validation_fraction else "train"
                    yield _Cleaned(identity, text, digest, split, source, counts, cleaned.boundary)


def _selected(
    config: CorpusConfig, wanted: Select, report: CorpusReport, most_characters: int | None
) -> Iterator[bool]:
    """Whether each training document is kept, in order, before weights make copies of it; the report counts them."""
    from domainbert.corpus.selection import select

    def texts() -> Iterator[str]:
        documents = _read(config, CorpusReport(), most_characters)
        return (document.text for document in documents if document.split == "train")

    selection = select(_texts_of(wanted.like, "select.like", CorpusReport()), texts, wanted.keep)
    kept = int(selection.kept.sum())
    means = [selection.mean(kept=True), selection.mean(kept=False)]
    report.add_selection([source.path for source in wanted.like], len(selection.kept), kept, means)
    yield from selection.kept
    raise DomainbertError("corpus: more documents than when they were weighed; expected files that stay as they are")


def _texts_of(sources: Sequence[Source], key: str, report: CorpusReport) -> Iterator[str]:
    """The cleaned texts of sources that are not of the corpus, which the report counts."""
    check_sources(sources, key)
    for source in sources:
        for _, *sides in read_source(source, report.add_source(source.path)):
            yield clean_sides(sides).text


def excluded_texts(sources: Sequence[Source], report: CorpusReport | None = None) -> Iterator[str]:
    """The cleaned texts that `exclude` looks for; of plain text each line is one, unless `documents` says otherwise."""
    by_line = [replace(one, documents="line") if one.documents == "file" else one for one in sources]
    return _texts_of(by_line, "exclude", report or CorpusReport())


def _known(sources: Sequence[Source], report: CorpusReport) -> KnownTexts:
    """The texts to exclude, which the report counts; `DomainbertError` if none is long enough to be looked for."""
    known, files_ignored = _known_texts(
        tuple(sources), tuple(tuple(quick_look(path.stat())) for path in list_files(sources, "exclude"))
    )
    paths = [source.path for source in sources]
    if not known.looked_for:
        found = f"{', '.join(paths)} with {known.too_short:,} texts, all too short to be looked for"
        raise DomainbertError(f"exclude: found {found}; expected some of 8 words or more")
    report.exclusion = {"texts": paths, "looked_for": known.looked_for, "too_short": known.too_short}
    if files_ignored:
        report.exclusion["files_ignored"] = files_ignored
    return known


@lru_cache(1)  # a corpus in parts, or of which documents are selected, is read several times
def _known_texts(sources: tuple[Source, ...], looked: tuple[Any, ...]) -> tuple[KnownTexts, int]:
    """The texts, and the number of files of kinds that are not read."""
    from domainbert.corpus.known_texts import KnownTexts

    report = CorpusReport()
    known = KnownTexts(excluded_texts(sources, report))
    return known, sum(source.files_ignored for source in report.sources)


def _without(excluded: KnownTexts, cleaned: Cleaned, counts: SourceReport) -> str:
    """A text without the sentences that hold excluded ones; of a pair, all of it or nothing."""
    text = cleaned.text
    while found := excluded.touched(parts := cut_sentences(text)):  # what is left may stand together anew
        counts.excluded_sentences += len(found)
        if cleaned.boundary is not None:
            return ""
        text = ""
        for number, part in enumerate(parts):
            if number not in found:
                text += part
            elif part.endswith("\n") and text and not text.endswith("\n"):
                text += "\n"  # the sentences before it and behind it stay on two lines
        text = text.strip()
    if text and text is not cleaned.text:
        counts.changed["without excluded sentences"] += 1
    return text


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _count_read(counts: SourceReport, characters: int, cleaned: Cleaned) -> None:
    counts.read += 1
    counts.read_characters += characters
    counts.control_characters += cleaned.control_characters
    changes = {
        "with other line breaks": cleaned.line_breaks,
        "with control characters": cleaned.control_characters > 0,
        "not in NFC": cleaned.normalized,
    }
    counts.changed.update(change for change, happened in changes.items() if happened)


def _copies(document: _Cleaned) -> Iterator[Document]:
    """Yield as many copies as the weight says."""
    split, counts = document.split, document.counts
    whole, fraction = divmod(document.source.weight, 1)
    copies = int(whole) + (_uniform(document.digest[8:]) < fraction)
    if copies == 0:
        counts.dropped["left out by weight"] += 1
        return
    copies = 1 if split == "validation" else copies
    counts.copies += copies - 1
    counts.documents[split] += copies
    counts.characters[split] += copies * len(document.text)
    for copy in range(1, copies + 1):
        identity = document.id if copy == 1 else f"{document.id}#{copy}"
        yield Document(identity, document.text, split, document.source.language, document.boundary)


def _uniform(digest: bytes) -> float:
    return (int.from_bytes(digest, "big") >> 11) / 2**53
