"""Prepare a corpus: documents to token ids on disk, as a whole or with one part per file."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.base.progress import Progress
from domainbert.corpus.config import CorpusConfig, Source
from domainbert.corpus.documents import read_documents
from domainbert.corpus.languages import LanguageShares
from domainbert.corpus.report import CorpusReport
from domainbert.corpus.sources import set_ignored_counts
from domainbert.data.parallel_encoding import EncodedBatch, encode_documents
from domainbert.data.parts_writer import bind_parts, finished_part, plan_parts, write_part
from domainbert.data.prepared_facts import PARTS_FOLDER, PREPARED_FILE
from domainbert.data.prepared_writer import PreparedWriter
from domainbert.tokenization.load import DomainTokenizer, load_tokenizer

_COUNTS = ("documents", "tokens", "characters")
Sources = str | Path | Source | CorpusConfig | Sequence[str | Path | Source]


@dataclass(frozen=True)
class PreparedSummary:
    """Counts of a prepared corpus."""

    splits: dict[str, dict[str, int]]
    """Number of documents, tokens and characters by split."""

    unknown: int
    """Number of unknown tokens."""

    empty_documents: int
    """Number of documents without tokens; they are dropped."""

    corpus: CorpusReport
    """Documents read, dropped and changed, by source."""

    tokenizer_fingerprint: str
    parts: int | None = None
    """Number of parts; None if the corpus is not in parts."""

    languages: LanguageShares | None = None

    @property
    def unknown_share(self) -> float:
        """Share of unknown tokens."""
        return self.unknown / max(sum(facts["tokens"] for facts in self.splits.values()), 1)

    def lines(self) -> list[str]:
        """Return the counts as lines of text."""
        lines = self.corpus.lines()
        for split, facts in self.splits.items():
            share = f"{facts['characters'] / max(facts['tokens'], 1):.2f} characters per token"
            lines.append(f"{split}: {facts['documents']:,} documents, {facts['tokens']:,} tokens, {share}")
        lines.append(f"unknown tokens: {100 * self.unknown_share:.3f} %")
        if self.empty_documents:
            lines.append(f"dropped: {self.empty_documents:,} documents without tokens")
        return lines + ([] if self.languages is None else self.languages.lines("tokens"))

    def as_dict(self) -> dict[str, Any]:
        """Return the counts as JSON values, by name."""
        return {
            "splits": self.splits,
            "unknown_share": self.unknown_share,
            "documents_without_tokens": self.empty_documents,
            "corpus": self.corpus.as_dict(),
            **({} if self.languages is None else {"languages": self.languages.as_dict("tokens")}),
            **({} if self.parts is None else {"parts": self.parts}),
            "tokenizer_fingerprint": self.tokenizer_fingerprint,
        }


def prepare_corpus(
    source: Sources,
    tokenizer: DomainTokenizer | str | Path,
    out: str | Path,
    *,
    row_lengths: Sequence[int] | None = None,
    num_workers: int = 0,
) -> PreparedSummary:
    """Tokenize a corpus into a folder of memory-mapped files, and return its counts.

    Training and `datasets.load_from_disk` open the folder.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from domainbert import CorpusConfig, Source, prepare_corpus, train_tokenizer
    >>> folder = Path(tempfile.mkdtemp())
    >>> texts = [f"Judgment number {number} of the high court." for number in range(100)]
    >>> _ = (folder / "corpus.txt").write_text("\\n".join(texts))
    >>> tokenizer = train_tokenizer(texts, vocab_size=128)
    >>> corpus = CorpusConfig([Source(str(folder / "corpus.txt"), documents="line")], validation_fraction=0.1)
    >>> summary = prepare_corpus(corpus, tokenizer, folder / "prepared")
    >>> {split: facts["documents"] for split, facts in summary.splits.items()}
    {'train': 93, 'validation': 7}

    Args:
        source: a file, folder, glob or `hub:NAME`, or a list of them; a `CorpusConfig` has further settings. Documents
            are cleaned, deduplicated and split into training and validation.
        tokenizer: a tokenizer, or its folder.
        out: the folder to write; it must not contain a prepared corpus, except one in parts if `row_lengths` are given.
        row_lengths: different row lengths of later trainings, for a corpus too large to plan rows at each start: each
            file becomes a part. Parts that an interrupted call has finished are reused.
        num_workers: worker processes; 0 uses this process. The result is the same.

    Raises:
        DomainbertError: the corpus or the tokenizer cannot be read, a split has no document, `out` contains a prepared
            corpus, or `row_lengths` is empty or has a length twice.
    """
    corpus, out = corpus_config(source), Path(out)
    corpus.check_preparable(in_parts=row_lengths is not None)
    if row_lengths is not None and (not row_lengths or len(set(row_lengths)) < len(row_lengths)):
        raise DomainbertError(where="row_lengths", found=row_lengths, expected="one or more different lengths")
    if not isinstance(tokenizer, DomainTokenizer):
        tokenizer = load_tokenizer(Path(tokenizer))
    # a corpus in parts is continued; it has `dataset_dict.json` only in its parts
    if (out / (PREPARED_FILE if row_lengths is None else "dataset_dict.json")).exists():
        raise DomainbertError(f"{out} contains a prepared corpus", where="out", expected="a new folder")
    out.mkdir(parents=True, exist_ok=True)
    with Progress("prepare", unit="tokens") as progress:
        if row_lengths is None:
            return _prepare_whole(corpus, tokenizer, out, num_workers, progress)
        return _prepare_parts(corpus, tokenizer, out, row_lengths, num_workers, progress)


def corpus_config(source: Sources) -> CorpusConfig:
    """Return the configuration of a corpus with one or several sources."""
    if isinstance(source, CorpusConfig):
        return source
    sources = [source] if isinstance(source, (str, Path, Source)) else list(source)
    return CorpusConfig([item if isinstance(item, Source) else Source(str(item)) for item in sources])


def _prepare_whole(
    corpus: CorpusConfig, tokenizer: DomainTokenizer, out: Path, num_workers: int, progress: Progress
) -> PreparedSummary:
    report, writer = CorpusReport(), PreparedWriter(out, tokenizer, corpus.languages)
    for batch in encode_documents(read_documents(corpus, report), tokenizer, num_workers):
        writer.write(batch)
        progress.advance(len(batch.input_ids), lambda: f"{report.read:,} documents read")
    languages = corpus.language_shares(writer.language_tokens)
    facts = writer.close(report)
    return PreparedSummary(
        splits=_sum_splits([facts["splits"]]),  # only the counts of the splits
        unknown=writer.unknown,
        empty_documents=writer.empty_documents,
        corpus=report,
        tokenizer_fingerprint=tokenizer.fingerprint,
        languages=languages,
    )


def _prepare_parts(
    corpus: CorpusConfig,
    tokenizer: DomainTokenizer,
    out: Path,
    row_lengths: Sequence[int],
    num_workers: int,
    progress: Progress,
) -> PreparedSummary:
    planned = plan_parts(out, corpus, tokenizer, row_lengths)
    (out / PREPARED_FILE).unlink(missing_ok=True)  # of an earlier run, which may have had another tokenizer
    parts: dict[Path, dict[str, Any]] = {}  # facts by folder
    for folder in {*(out / PARTS_FOLDER).glob("[0-9]" * 5)} - {part.folder for part in planned}:
        shutil.rmtree(folder)  # left by an interrupted run over other files
    for number, part in enumerate(planned, start=1):
        facts = finished_part(part)
        if facts is None:
            report = CorpusReport()
            encoded = encode_documents(read_documents(corpus, report, files=[part.file]), tokenizer, num_workers)
            batches = _with_progress(encoded, progress, f"file {number:,} of {len(planned):,}")
            facts = write_part(part, batches, tokenizer, report, row_lengths)
        parts[part.folder] = facts
    return bind_corpus(out, corpus, tokenizer, parts)


def bind_corpus(
    out: Path, corpus: CorpusConfig, tokenizer: DomainTokenizer, parts: Mapping[Path, Mapping[str, Any]]
) -> PreparedSummary:
    """Combine `parts` (facts by folder) to a corpus, and return its counts."""
    bind_parts(out, tokenizer, parts)
    total = CorpusReport()
    for facts in parts.values():
        total.add_counts(facts["report"])
    set_ignored_counts(total, corpus.sources)  # files that no part reads are counted once
    splits = _sum_splits([facts["splits"] for facts in parts.values()])
    unknown, empty = (sum(facts[name] for facts in parts.values()) for name in ("unknown", "empty_documents"))
    return PreparedSummary(splits, unknown, empty, total, tokenizer.fingerprint, parts=len(parts))


def _with_progress(batches: Iterator[EncodedBatch], progress: Progress, note: str) -> Iterator[EncodedBatch]:
    for batch in batches:
        progress.advance(len(batch.input_ids), lambda: note)
        yield batch


def _sum_splits(parts: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    totals = {}
    for split in parts[0]:
        totals[split] = {name: sum(part[split][name] for part in parts) for name in _COUNTS}
    return totals
