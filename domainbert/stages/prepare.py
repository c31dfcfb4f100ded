"""The stage `prepare`: tokenize a corpus and write its token ids to disk."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from domainbert.base.fields import BY_INPUT, SPEED_ONLY, TOKENIZER, Items, Length, Workers, check_fields
from domainbert.base.paths import ModelPath
from domainbert.corpus.config import CorpusConfig
from domainbert.stages.stage import Inputs, stage


@dataclass(frozen=True, kw_only=True)
class Prepare:
    """Settings of `prepare`."""

    corpus: CorpusConfig
    """Corpus to clean, deduplicate and split into training and validation documents."""

    tokenizer: ModelPath = field(metadata=TOKENIZER)
    """Tokenizer folder, such as the output of `vocab`."""

    row_lengths: Annotated[list[Length], Items(unique=True)] | None = field(default=None, metadata=BY_INPUT)
    """Row lengths of the later trainings, for a corpus too large to plan rows at each start. Each file becomes a part,
    which is deduplicated and gets a plan of its rows for each length."""

    num_workers: Workers = field(default=2, metadata=SPEED_ONLY)
    """Number of processes that tokenize; 0 tokenizes in the main process. The result does not depend on it."""

    def __post_init__(self) -> None:
        check_fields(self)
        self.corpus.check_preparable(in_parts=self.row_lengths is not None)


@stage
def prepare(out: Path, settings: Prepare, inputs: Inputs) -> dict[str, Any]:
    """Tokenize a corpus once, into a memory-mapped folder that `pretrain` and `datasets.load_from_disk` open."""
    from domainbert.data.preparing import prepare_corpus

    tokenizer = inputs.tokenizer(settings.tokenizer)
    summary = prepare_corpus(
        settings.corpus, tokenizer, out, row_lengths=settings.row_lengths, num_workers=settings.num_workers
    )
    print("\n".join(summary.lines()))
    return summary.as_dict()


def show_examples(settings: Prepare, count: int, inputs: Inputs) -> list[str]:
    """Return the pieces of the first `count` documents, for `--show`; write nothing."""
    from contextlib import closing
    from itertools import islice

    from domainbert.corpus.documents import read_documents
    from domainbert.data.formatting import format_documents

    with closing(read_documents(settings.corpus)) as documents:
        return format_documents(islice(documents, count), inputs.tokenizer(settings.tokenizer))
