"""A corpus prepared once: documents to token ids on disk, whole or a part for each file."""

from __future__ import annotations

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
from domainbert.corpus.sources import ignored_files
from domainbert.data.parallel_encoding import EncodedBatch, encode_documents
from domainbert.data.parts_writer import bind_parts, finished_part, plan_parts, remove_other_parts, write_part
from domainbert.data.prepared_facts import PREPARED_FILE
from domainbert.data.prepared_writer import PreparedWriter
from domainbert.tokenization.load import DomainTokenizer, load_tokenizer

_COUNTED = ("documents", "tokens", "characters")
Sources = str | Path | Source | CorpusConfig | Sequence[str | Path | Source]


@dataclass(frozen=True)
class PreparedSummary:
    """Counts of a prepared corpus."""

    splits: dict[str, dict[str, int]]
    """By split: documents, tokens and characters."""

    unknown: int
    """Tokens that are unknown to the vocabulary."""

    empty_documents: int
    """Documents without a single token, which are left out."""

    corpus: CorpusReport
    """Documents read, dropped and changed, by source."""

    tokenizer_fingerprint: str
    parts: int | None = None
    """Number of parts; None where the corpus is whole."""

    languages: LanguageShares | None = None

    @property
    def unknown_share(self) -> float:
        """Share of the tokens that are unknown to the vocabulary."""
        return self.unknown / max(sum(facts["tokens"] for facts in self.splits.values()), 1)

    def lines(self) -> list[str]:
        """The counts as lines to print."""
        lines = self.corpus.lines()
        for split, facts in self.splits.items():
            share = f"{facts['characters'] / max(facts['tokens'], 1):.2f} characters per token"
            lines.append(f"{split}: {facts['documents']:,} documents, {facts['tokens']:,} tokens, {share}")
        lines.append(f"unknown tokens: {100 * self.unknown_share:.3f} %")
        if self.empty_documents:
            lines.append(f"dropped: {self.empty_documents:,} documents without a single token")
        return lines + ([] if self.languages is None else self.languages.lines("tokens"))

    def as_dict(self) -> dict[str, Any]:
        """The counts as values that JSON can hold."""
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
    """Tokenize a corpus once, into a memory-mapped folder that trainings and `datasets.load_from_disk` open.

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
        tokenizer: a tokenizer, or the folder of one.
        out: the folder to write; it must not hold a prepared corpus, unless `row_lengths` are given.
        row_lengths: lengths of the rows of trainings to come, for a corpus too large to plan them at each start: each
            file becomes a part. A part that an interrupted call has finished stays as it is.
        num_workers: processes that tokenize; 0 works in this process. The result is the same.

    Raises:
        DomainbertError: the corpus or the tokenizer cannot be read, or nothing is left for one of the two splits.
    """
    corpus, out = corpus_config(source), Path(out)
    corpus.check_prepared(in_parts=row_lengths is not None)
    if not isinstance(tokenizer, DomainTokenizer):
        tokenizer = load_tokenizer(Path(tokenizer))
    if row_lengths is None and (out / PREPARED_FILE).exists():
        raise DomainbertError(f"out: {out} holds a prepared corpus; expected a new folder")
    out.mkdir(parents=True, exist_ok=True)
    with Progress("prepare", unit="tokens") as progress:
        if row_lengths is None:
            return _prepare_whole(corpus, tokenizer, out, num_workers, progress)
        return _prepare_parts(corpus, tokenizer, out, row_lengths, num_workers, progress)


def corpus_config(source: Sources) -> CorpusConfig:
    """The configuration of a corpus for one source or several."""
    if isinstance(source, CorpusConfig):
        return source
    several = [source] if isinstance(source, (str, Path, Source)) else list(source)
    return CorpusConfig([one if isinstance(one, Source) else Source(str(one)) for one in several])


def _prepare_whole(
    corpus: CorpusConfig, tokenizer: DomainTokenizer, out: Path, num_workers: int, progress: Progress
) -> PreparedSummary:
    report, unknown = CorpusReport(), 0
    writer = PreparedWriter(out, tokenizer, corpus.languages)
    for batch in encode_documents(read_documents(corpus, report), tokenizer, num_workers):
        writer.write(batch)
        unknown += int((batch.input_ids == tokenizer.unk_id).sum())
        progress.advance(len(batch.input_ids), lambda: f"{report.read:,} documents read")
    languages = corpus.language_shares(writer.language_tokens)
    splits = _summed([writer.close(report)["splits"]])
    return PreparedSummary(splits, unknown, writer.empty_documents, report, tokenizer.fingerprint, languages=languages)


def _prepare_parts(
    corpus: CorpusConfig,
    tokenizer: DomainTokenizer,
    out: Path,
    row_lengths: Sequence[int],
    num_workers: int,
    progress: Progress,
) -> PreparedSummary:
    """Write a part for each file; parts that an interrupted run has written stay as they are."""
    planned, parts = plan_parts(out, corpus, tokenizer, row_lengths), dict[Path, dict[str, Any]]()
    remove_other_parts(out, planned)
    for place, part in enumerate(planned, start=1):
        facts = finished_part(part)
        if facts is None:
            report = CorpusReport()
            encoded = encode_documents(read_documents(corpus, report, files=[part.file]), tokenizer, num_workers)
            batches = _counted(encoded, progress, f"file {place:,} of {len(planned):,}")
            facts = write_part(part, batches, tokenizer, report, row_lengths)
        parts[part.folder] = facts
    return bind_corpus(out, corpus, tokenizer, parts)


def bind_corpus(
    out: Path, corpus: CorpusConfig, tokenizer: DomainTokenizer, parts: Mapping[Path, Mapping[str, Any]]
) -> PreparedSummary:
    """Bind all parts of a corpus, given by their folders; `DomainbertError` if a split has no document."""
    bind_parts(out, tokenizer, parts)
    total = CorpusReport()
    for facts in parts.values():
        total.add(facts["report"])
    total.ignore(ignored_files(corpus.sources))  # files that no part reads are counted once
    splits = _summed([facts["splits"] for facts in parts.values()])
    unknown, empty = (sum(facts[name] for facts in parts.values()) for name in ("unknown", "empty_documents"))
    return PreparedSummary(splits, unknown, empty, total, tokenizer.fingerprint, parts=len(parts))


def _counted(batches: Iterator[EncodedBatch], progress: Progress, note: str) -> Iterator[EncodedBatch]:
    for batch in batches:
        progress.advance(len(batch.input_ids), lambda: note)
        yield batch


def _summed(splits: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    return {split: {name: sum(one[split][name] for one in splits) for name in _COUNTED} for split in splits[0]}
