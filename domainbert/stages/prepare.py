"""`prepare`: from a corpus and a tokenizer to token ids on disk."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from domainbert.base.marks import BY_INPUT, SPEED_ONLY, TOKENIZER
from domainbert.base.paths import ModelPath
from domainbert.base.ranges import Items, Length, Workers
from domainbert.base.validation import check_fields
from domainbert.corpus.config import CorpusConfig
from domainbert.stages.inputs import Inputs
from domainbert.stages.stage import stage


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
        self.corpus.check_prepared(in_parts=self.row_lengths is not None)


@stage
def prepare(out: Path, settings: Prepare, inputs: Inputs) -> dict[str, Any]:
    """Tokenize a corpus once, into a memory-mapped folder that `pretrain` and `datasets.load_from_disk` open.

    Raises:
        DomainbertError: see `prepare_corpus`.
    """
    from domainbert.data.preparing import prepare_corpus

    tokenizer = inputs.tokenizer(settings.tokenizer)
    summary = prepare_corpus(
        settings.corpus, tokenizer, out, row_lengths=settings.row_lengths, num_workers=settings.num_workers
    )
    print("\n".join(summary.lines()))
    return summary.as_dict()


def show_examples(settings: Prepare, count: int, inputs: Inputs) -> list[str]:
    """The first documents as pieces, for `--show`; nothing is written."""
    from contextlib import closing
    from itertools import islice

    from domainbert.corpus.documents import read_documents
    from domainbert.data.showing import shown_documents

    with closing(read_documents(settings.corpus)) as documents:
        return shown_documents(islice(documents, count), inputs.tokenizer(settings.tokenizer))
