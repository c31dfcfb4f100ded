"""`prepare`: from a corpus and a tokenizer to token ids on disk."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from domainbert.base.paths import ModelPath
from domainbert.base.ranges import Workers
from domainbert.corpus.config import CorpusConfig
from domainbert.settings.schema import SPEED_ONLY
from domainbert.settings.stage import stage
from domainbert.stages.early_checks import Given

_COUNTED = ("documents", "tokens", "characters")


@dataclass(frozen=True, kw_only=True)
class Prepare:
    """Settings of `prepare`."""

    corpus: CorpusConfig
    """The documents; they are cleaned, deduplicated and split into training and validation."""

    tokenizer: ModelPath
    """A tokenizer folder, as `vocab` writes it."""

    num_workers: Workers = field(default=2, metadata=SPEED_ONLY)
    """Processes that tokenize; 0 works without further processes. The result is the same."""


@stage
def prepare(out: Path, settings: Prepare) -> dict[str, Any]:
    """Tokenize a corpus once, into a memory-mapped folder that `pretrain` and `datasets.load_from_disk` open.

    Raises:
        DomainbertError: the corpus or the tokenizer cannot be read, or nothing is left for one of the two splits.
    """
    from domainbert.base.progress import Progress
    from domainbert.corpus.documents import read_documents
    from domainbert.corpus.report import CorpusReport
    from domainbert.data.parallel_encoding import encode_documents
    from domainbert.data.prepared_writer import PreparedWriter
    from domainbert.tokenization.load import load_tokenizer

    loaded = load_tokenizer(settings.tokenizer)
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
    splits = writer.close(report)["splits"]
    counts = {split: {name: facts[name] for name in _COUNTED} for split, facts in splits.items()}
    unknown_share = unknown / sum(facts["tokens"] for facts in counts.values())
    print("\n".join(report.lines()))
    for split, facts in counts.items():
        share = f"{facts['characters'] / facts['tokens']:.2f} characters per token"
        print(f"{split}: {facts['documents']:,} documents, {facts['tokens']:,} tokens, {share}")
    print(f"unknown tokens: {100 * unknown_share:.3f} %")
    if writer.empty_documents:
        print(f"dropped: {writer.empty_documents:,} documents without a single token")
    if languages is not None:
        print("\n".join(languages.lines("tokens")))
    return {
        "splits": counts,
        **({} if languages is None else {"languages": languages.as_dict("tokens")}),
        "unknown_share": unknown_share,
        "documents_without_tokens": writer.empty_documents,
        "tokenizer_fingerprint": loaded.fingerprint,
        "corpus": report.as_dict(),
    }


def show_examples(settings: Prepare, count: int) -> list[str]:
    """The first documents as pieces, for `--show`; nothing is written."""
    from contextlib import closing
    from itertools import islice

    from domainbert.corpus.documents import read_documents
    from domainbert.data.showing import shown_documents
    from domainbert.tokenization.load import load_tokenizer

    with closing(read_documents(settings.corpus)) as documents:
        return shown_documents(islice(documents, count), load_tokenizer(settings.tokenizer))


def check_arguments(given: Given) -> None:
    """Check the tokenizer, and for packages that the corpus needs."""
    given.check_tokenizer("tokenizer")
    given.check_corpus("corpus")
