"""`prepare`: from a corpus and a tokenizer to token ids on disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from domainbert.base.errors import Problems
from domainbert.base.hashes import hash_file, hash_json, quick_look
from domainbert.base.paths import ModelPath
from domainbert.base.ranges import Items, Length, Workers
from domainbert.base.validation import check_fields
from domainbert.corpus.config import CorpusConfig
from domainbert.settings.reader import as_plain
from domainbert.settings.schema import BY_INPUT, SPEED_ONLY, TOKENIZER
from domainbert.stages.inputs import Inputs
from domainbert.stages.stage import stage

if TYPE_CHECKING:
    from domainbert.base.progress import Progress
    from domainbert.corpus.report import CorpusReport
    from domainbert.data.parallel_encoding import EncodedBatch

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
    a part, in which rows of these lengths are planned now, and duplicates are looked for. Then `corpus.shard` lets
    several tasks share the work, and `merge` binds what they wrote together."""

    num_workers: Workers = field(default=2, metadata=SPEED_ONLY)
    """Processes that tokenize; 0 works without further processes. The result is the same."""

    def __post_init__(self) -> None:
        """Check that a corpus in parts is one of files that stand for themselves."""
        check_fields(self)
        corpus, problems = self.corpus, Problems("prepare")
        if corpus.validation_fraction == 0:
            problems.add("corpus.validation_fraction: found 0; expected more, as a model is measured on some documents")
        if self.row_lengths is None:
            if corpus.shard is not None:
                problems.add(f"corpus.shard: {corpus.shard} without row_lengths; expected the max_length of trainings")
        else:
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
    """Write a part for each file of the shard; those that an interrupted run has written stay as they are."""
    from domainbert.base.progress import Progress
    from domainbert.corpus.documents import read_documents
    from domainbert.corpus.report import CorpusReport
    from domainbert.corpus.sources import corpus_files, ignored_files, list_files
    from domainbert.data.parallel_encoding import encode_documents
    from domainbert.data.parts_writer import (
        bind_parts,
        finished_part,
        part_folder,
        remove_other_parts,
        write_part,
    )

    corpus, loaded = settings.corpus, inputs.tokenizer(settings.tokenizer)
    common = as_plain(replace(corpus, shard=None)) | {"row_lengths": row_lengths}
    if corpus.exclude is None:
        del common["exclude"]  # which parts of an earlier version do not say
    else:
        common["excluded"] = hash_json([hash_file(path) for path in list_files(corpus.exclude, "exclude")])
    listed = corpus_files(corpus.sources)  # once: files may come while this runs
    files, parts, total = corpus.files_of_shard(listed), dict[Path, dict[str, Any]](), CorpusReport()
    remove_other_parts(out, [file.number for file in files])
    with Progress("prepare", unit="tokens") as progress:
        for place, file in enumerate(files, start=1):
            folder, looked = part_folder(out, file.number), quick_look(file.path.stat())
            known = [common, loaded.fingerprint, file.number, str(file.path), looked]
            if file.source.translation is not None:
                known.append(quick_look(file.source.translation.stat()))
            made_from = hash_json(known)
            facts = finished_part(folder, made_from)
            if facts is None:
                report = CorpusReport()
                documents = read_documents(corpus, report, files=[file])
                encoded = encode_documents(documents, settings.tokenizer, settings.num_workers)
                batches = _counted(encoded, progress, f"file {place:,} of {len(files):,}")
                facts = write_part(folder, batches, loaded, report, row_lengths, made_from)
            parts[folder] = facts
            total.add(facts["report"])
    if corpus.shard is None:  # files that no part reads are told once
        total.ignore(ignored_files(corpus.sources))
    names = hash_json([str(file.path) for file in listed])
    bind_parts(out, loaded, parts, {"files": len(listed), "names": names, "corpus": common})
    unknown, empty = (sum(facts[name] for facts in parts.values()) for name in ("unknown", "empty_documents"))
    metrics = _told([facts["splits"] for facts in parts.values()], total, unknown, empty)
    return {**metrics, "parts": len(parts), "tokenizer_fingerprint": loaded.fingerprint}


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
