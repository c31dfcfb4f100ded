"""Tagged sentences in CoNLL or JSONL. Free of torch."""

from __future__ import annotations

from pathlib import Path

from domainbert.tasks.ner.config import Ner, NerFormat
from domainbert.tasks.ner.conll import NerFile, read_conll
from domainbert.tasks.ner.jsonl import read_ner_jsonl
from domainbert.tasks.text_files import file_kind


def read(config: Ner, path: Path) -> NerFile:
    """See `TaskConfig.read`."""
    return read_ner(path, config.format)


def read_ner(path: Path, format: NerFormat | None = None) -> NerFile:
    """Read tagged sentences from CoNLL or JSONL; `format.kind` says which, or the first lines do.

    Raises:
        DomainbertError: a file whose kind cannot be told, or what `read_conll` or `read_ner_jsonl` refuses.
    """
    format = format or NerFormat()
    if file_kind(path, format.kind, ("conll", "jsonl"), "format.kind").kind == "jsonl":
        return read_ner_jsonl(path, format)
    return read_conll(path, format.token_column, format.tag_column, format.scheme, format.repair)
