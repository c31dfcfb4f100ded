"""The documents of a corpus: read, cleaned, without duplicates, weighted, each on its side of the split."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal

from domainbert.base.errors import DomainbertError
from domainbert.corpus.cleaning import Cleaned, clean
from domainbert.corpus.config import CorpusConfig
from domainbert.corpus.duplicates import ExactDuplicates, NearDuplicates
from domainbert.corpus.report import CorpusReport, SourceReport
from domainbert.corpus.source import Source
from domainbert.corpus.sources import check_sources, read_source

Split = Literal["train", "validation"]


@dataclass(frozen=True)
class Document:
    """A cleaned text that is kept."""

    id: str
    """The file below its source and the line or row: `speeches.jsonl.gz:12`; a second copy ends in `#2`."""
    text: str
    split: Split


def read_documents(config: CorpusConfig, report: CorpusReport | None = None) -> Iterator[Document]:
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
                digest = hashlib.blake2b(cleaned.text.encode(), digest_size=16).digest()
                reason = _reason_to_drop(cleaned.text, digest, config.min_characters, exact, near)
                if reason:
                    counts.dropped[reason] += 1
                else:
                    yield from _copies(identity, cleaned.text, digest, source, config.validation_fraction, counts)
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


def _reason_to_drop(
    text: str, digest: bytes, min_characters: int, exact: ExactDuplicates | None, near: NearDuplicates | None
) -> str | None:
    if not text:
        return "empty"
    if len(text) < min_characters:
        return f"shorter than {min_characters} characters"
    if exact is not None and not exact.is_new(digest):
        return "exact duplicates"
    if near is not None and not near.is_new(text):
        return "near duplicates"
    return None


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
    """Eight bytes as a number from 0 to below 1."""
    return (int.from_bytes(digest, "big") >> 11) / 2**53
