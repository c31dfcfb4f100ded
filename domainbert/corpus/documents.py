"""The documents of a corpus: read, cleaned, without duplicates, weighted, each on its side of the split."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal

from domainbert.base.errors import DomainbertError
from domainbert.corpus.config import CorpusConfig, Source
from domainbert.corpus.duplicates import ExactDuplicates, NearDuplicates
from domainbert.corpus.report import CorpusReport, SourceReport
from domainbert.corpus.sources import check_sources, read_source

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


@dataclass(frozen=True)
class Document:
    """A cleaned text that is kept."""

    id: str  # the file below its source and the line or row: `speeches.jsonl.gz:12`; a second copy ends in `#2`
    text: str
    split: Split


def read_documents(config: CorpusConfig, report: CorpusReport | None = None) -> Generator[Document, None, None]:
    """Stream the documents of a corpus, always in the same order, in bounded memory.

    The report counts what is read, kept, dropped and changed; it is complete when the iterator is exhausted.

    Raises:
        DomainbertError: a source is missing or broken (with file and line), or no document is left.
    """
    report = CorpusReport() if report is None else report
    check_sources(config.sources)
    with ExitStack() as stack:
        exact = stack.enter_context(ExactDuplicates()) if config.deduplicate else None
        threshold = config.near_duplicate_threshold
        near = stack.enter_context(NearDuplicates(threshold)) if threshold is not None else None
        for source in config.sources:
            counts = report.add_source(source.path)
            for identity, raw in read_source(source, counts):
                cleaned = clean(raw)
                _count_read(counts, raw, cleaned)
                text, digest = cleaned.text, hashlib.blake2b(cleaned.text.encode(), digest_size=16).digest()
                if not text:
                    counts.dropped["empty"] += 1
                elif len(text) < config.min_characters:
                    counts.dropped[f"shorter than {config.min_characters} characters"] += 1
                elif exact is not None and not exact.is_new(digest):
                    counts.dropped["exact duplicates"] += 1
                elif near is not None and not near.is_new(text):
                    counts.dropped["near duplicates"] += 1
                else:
                    yield from _copies(identity, text, digest, source, config.validation_fraction, counts)
    if not any(report.documents(split) for split in ("train", "validation")):
        dropped = ", ".join(f"{count:,} {reason}" for reason, count in report.dropped.items())
        why = f" ({dropped})" if dropped else ""
        raise DomainbertError(f"corpus: no document left of {report.read:,} read{why}; expected at least one")


def _count_read(counts: SourceReport, raw: str, cleaned: Cleaned) -> None:
    counts.read += 1
    counts.read_characters += len(raw)
    counts.control_characters += cleaned.control_characters
    changes = {
        "with other line breaks": cleaned.line_breaks,
        "with control characters": cleaned.control_characters > 0,
        "not in NFC": cleaned.normalized,
    }
    counts.changed.update(change for change, happened in changes.items() if happened)


def _copies(
    identity: str, text: str, digest: bytes, source: Source, validation_fraction: float, counts: SourceReport
) -> Iterator[Document]:
    """Yield as many copies as the weight says; one half of the digest decides the side, the other the fraction."""
    split: Split = "validation" if _uniform(digest[:8]) < validation_fraction else "train"
    whole, fraction = divmod(source.weight, 1)
    copies = int(whole) + (_uniform(digest[8:]) < fraction)
    if copies == 0:
        counts.dropped["left out by weight"] += 1
        return
    copies = 1 if split == "validation" else copies
    counts.copies += copies - 1
    counts.documents[split] += copies
    counts.characters[split] += copies * len(text)
    for copy in range(1, copies + 1):
        yield Document(identity if copy == 1 else f"{identity}#{copy}", text, split)


def _uniform(digest: bytes) -> float:
    return (int.from_bytes(digest, "big") >> 11) / 2**53
