"""Format documents and windows, as the model reads them, for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from domainbert.base.layout import paragraph, printable
from domainbert.corpus.documents import Document
from domainbert.data.packing import Ints, Window
from domainbert.tokenization.load import DomainTokenizer

INDENT = "  "
_MAX_PIECES, _MAX_UNKNOWN = 400, 20  # per document


def format_pieces(tokenizer: DomainTokenizer, ids: Iterable[int]) -> list[str]:
    """Return the entry of the vocabulary of each token id, printable in a terminal."""
    return [printable(tokenizer.pieces.readable(tokenizer.tokens[number])) for number in ids]


def format_documents(documents: Iterable[Document], tokenizer: DomainTokenizer) -> list[str]:
    """Return lines with the pieces of documents, and the text of unknown pieces."""
    lines = []
    for number, document in enumerate(documents, 1):
        (encoding,) = tokenizer.encode_with_offsets([document.text])
        unknown = [index for index, token in enumerate(encoding.ids) if token == tokenizer.unk_id]
        sizes = f"{len(document.text):,} characters, {len(encoding.ids):,} pieces, {len(unknown):,} unknown"
        pair = "" if document.boundary is None else ", a text and its translation"
        lines.append(f"document {number}, {printable(document.id)}, {document.split}{pair}: {sizes}")
        lines += paragraph(format_pieces(tokenizer, encoding.ids[:_MAX_PIECES]), INDENT)
        if len(encoding.ids) > _MAX_PIECES:
            lines.append(f"{INDENT}... and {len(encoding.ids) - _MAX_PIECES:,} more pieces")
        for index in unknown[:_MAX_UNKNOWN]:
            start, end = encoding.offsets[index]
            text = printable(document.text[start:end])
            lines.append(f"{INDENT}{tokenizer.tokens[tokenizer.unk_id]} is {text}, characters {start:,}-{end:,}")
        if len(unknown) > _MAX_UNKNOWN:
            lines.append(f"{INDENT}... and {len(unknown) - _MAX_UNKNOWN:,} more unknown pieces")
    return lines


def format_window(window: Window, tokenizer: DomainTokenizer) -> list[str]:
    """Return lines with the pieces of a window and its special tokens; the second text of a pair begins a new line."""
    pieces = format_pieces(tokenizer, with_special_tokens(window, tokenizer).tolist())
    if window.first is None:
        return paragraph(pieces, INDENT)
    begin = 1 + len(window.first) + len(tokenizer.template.separators)  # 1: [CLS]
    return [*paragraph(pieces[:begin], INDENT), *paragraph(pieces[begin:], INDENT)]


def with_special_tokens(window: Window, tokenizer: DomainTokenizer) -> Ints:
    """Return the ids of a window with its special tokens: (n + extra,)."""
    texts: Sequence[Ints] = [window.input_ids] if window.first is None else [window.first, window.input_ids]
    ids, _ = tokenizer.template.frame(*texts)
    return np.asarray(ids, dtype=np.int64)
