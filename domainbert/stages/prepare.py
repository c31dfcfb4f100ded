"""`prepare`: from a corpus and a tokenizer to token ids on disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from domainbert.base.errors import Problems
from domainbert.base.marks import BY_INPUT, SPEED_ONLY, TOKENIZER
from domainbert.base.paths import ModelPath
from domainbert.base.ranges import Items, Length, Workers
from domainbert.base.validation import check_fields
from domainbert.corpus.config import CorpusConfig
from domainbert.stages.inputs import Inputs
from domainbert.stages.stage import stage

if TYPE_CHECKING:
    from domainbert.base.progress import Progress
    from domainbert.corpus.report import CorpusReport
    from domainbert.data.parallel_encoding import EncodedBatch
    from domainbert.tokenization.load import DomainTokenizer

_COUNTED = ("documents", "tokens", "characters")


@dataclass(frozen=True, kw_only=True)
class Prepare:
    """Settings of `prepare`."""

    corpus: CorpusConfig
    """The documents; they are cleaned, deduplicated and split into training and validation."""

    tokenizer: ModelPath = field(metadata=TOKENIZER)
    """A tokenizer folder, as `vocab` writes it."""

    row_lengths: Annotated[list[Length], Items(different=True)] | None = field(default=None, metadata=BY_INPUT)
    """Lengths of the rows of trainings to come, for a corpus too large to plan them at each start: each file becomes
    a part, in which rows of these lengths are planned now, and duplicates are looked for."""

    num_workers: Workers = field(default=2, metadata=SPEED_ONLY)
    """Processes that tokenize; 0 works without further processes. The result is the same."""

    def __post_init__(self) -> None:
        """Check that a corpus in parts is one of files that stand for themselves."""
        check_fields(self)
        corpus, problems = self.corpus, Problems("prepare")
        if corpus.validation_fraction == 0:
            problems.add("corpus.validation_fraction: found 0; expected more, as a model is measured on some documents")
        if self.row_lengths is not None:
            for number, source in enumerate(corpus.sources):
                if source.hub_name is not None:
                    problems.add(f"row_lengths: found beside corpus.sources[{number}], {source.path}; expected files")
            for name in ("languages", "select"):
                if getattr(corpus, name) is not None:
                    problems.add(f"row_lengths: found beside corpus.{name}; expected one of the two")
        problems.raise_if_any()


@stage
def prepare(out: Path, settings: Prepare, inputs: Inputs) -> dict[str, Any]:
    """Tokenize a corpus once, into a memory-mapped folder that `pretrain` and `datasets.load_from_disk` open.

    Raises:
        DomainbertError: the corpus or the tokenizer cannot be read, or nothing is left for one of the two splits.
    """
    from domainbert.base.progress import Progress
    from domainbert.corpus.documents import read_documents
    from domainbert.corpus.report import CorpusReport
    from domainbert.data.parallel_encoding import encode_documents
    from domainbert.data.prepared_writer import PreparedWriter

    if settings.row_lengths is not None:
        return _prepare_parts(out, settings, settings.row_lengths, inputs)
    loaded = inputs.tokenizer(settings.tokenizer)
    report = CorpusReport()
    writer = PreparedWriter(out, loaded, settings.corpus.languages)
    unknown = 0
    with Progress("prepare", unit="tokens") as progress:
        documents = read_documents(settings.corpus, report)
        for batch in encode_documents(documents, settings.tokenizer, settings.num_workers):
            writer.write(batch)
            unknown += int((batch.input_ids == loaded.unk_id).sum())
            progress.advance(len(batch.input_ids), lambda: f"{report.read:,} documents read")
    languages = settings.corpus.language_shares(writer.language_tokens)
    metrics = _told([writer.close(report)["splits"]], report, unknown, writer.empty_documents)
    if languages is not None:
        print("\n".join(languages.lines("tokens")))
        metrics["languages"] = languages.as_dict("tokens")
    return {**metrics, "tokenizer_fingerprint": loaded.fingerprint}


def _prepare_parts(out: Path, settings: Prepare, row_lengths: list[int], inputs: Inputs) -> dict[str, Any]:
    """Write a part for each file; parts that an interrupted run has written stay as they are."""
    from domainbert.base.progress import Progress
    from domainbert.corpus.documents import read_documents
    from domainbert.corpus.report import CorpusReport
    from domainbert.data.parallel_encoding import encode_documents
    from domainbert.data.parts_writer import finished_part, plan_parts, remove_other_parts, write_part

    corpus, loaded = settings.corpus, inputs.tokenizer(settings.tokenizer)
    planned, parts = plan_parts(out, corpus, loaded, row_lengths), dict[Path, dict[str, Any]]()
    remove_other_parts(out, planned)
    with Progress("prepare", unit="tokens") as progress:
        for place, part in enumerate(planned, start=1):
            facts = finished_part(part)
            if facts is None:
                report = CorpusReport()
                documents = read_documents(corpus, report, files=[part.file])
                encoded = encode_documents(documents, settings.tokenizer, settings.num_workers)
                batches = _counted(encoded, progress, f"file {place:,} of {len(planned):,}")
                facts = write_part(part, batches, loaded, report, row_lengths)
            parts[part.folder] = facts
    return bind_corpus(out, corpus, loaded, parts)


def bind_corpus(
    out: Path, corpus: CorpusConfig, tokenizer: DomainTokenizer, parts: Mapping[Path, Mapping[str, Any]]
) -> dict[str, Any]:
    """Bind all parts of a corpus, given by their folders; print and return what was prepared.

    Raises:
        DomainbertError: a split has no document.
    """
    from domainbert.corpus.report import CorpusReport
    from domainbert.corpus.sources import ignored_files
    from domainbert.data.parts_writer import bind_parts

    bind_parts(out, tokenizer, parts)
    total = CorpusReport()
    for facts in parts.values():
        total.add(facts["report"])
    total.ignore(ignored_files(corpus.sources))  # files that no part reads are told once
    unknown, empty = (sum(facts[name] for facts in parts.values()) for name in ("unknown", "empty_documents"))
    metrics = _told([facts["splits"] for facts in parts.values()], total, unknown, empty)
    return {**metrics, "parts": len(parts), "tokenizer_fingerprint": tokenizer.fingerprint}


def _counted(batches: Iterator[EncodedBatch], progress: Progress, note: str) -> Iterator[EncodedBatch]:
    for batch in batches:
        progress.advance(len(batch.input_ids), lambda: note)
        yield batch


def _told(splits: list[dict[str, Any]], report: CorpusReport, unknown: int, empty: int) -> dict[str, Any]:
    """Print and return what was prepared, in one part or several."""
    counts = {split: {name: sum(one[split][name] for one in splits) for name in _COUNTED} for split in splits[0]}
    unknown_share = unknown / max(sum(facts["tokens"] for facts in counts.values()), 1)
    print("\n".join(report.lines()))
    for split, facts in counts.items():
        share = f"{facts['characters'] / max(facts['tokens'], 1):.2f} characters per token"
        print(f"{split}: {facts['documents']:,} documents, {facts['tokens']:,} tokens, {share}")
    print(f"unknown tokens: {100 * unknown_share:.3f} %")
    if empty:
        print(f"dropped: {empty:,} documents without a single token")
    return {
        "splits": counts,
        "unknown_share": unknown_share,
        "documents_without_tokens": empty,
        "corpus": report.as_dict(),
    }


def show_examples(settings: Prepare, count: int, inputs: Inputs) -> list[str]:
    """The first documents as pieces, for `--show`; nothing is written."""
    from contextlib import closing
    from itertools import islice

    from domainbert.corpus.documents import read_documents
    from domainbert.data.showing import shown_documents

    with closing(read_documents(settings.corpus)) as documents:
        return shown_documents(islice(documents, count), inputs.tokenizer(settings.tokenizer))
