"""Text rendering of labelled items as the model reads them, for `--show`."""

from __future__ import annotations

from typing import Any

from domainbert.base.layout import printable, table
from domainbert.data.batches import GlobalOrder
from domainbert.data.formatting import INDENT, format_pieces, format_window, with_special_tokens
from domainbert.data.packing import Example
from domainbert.labelled.contents import located_errors
from domainbert.labelled.items import Labelled
from domainbert.tasks.task import Task
from domainbert.tokenization.load import DomainTokenizer


def format_items(
    task: Task[Any, Any], train: Labelled[Any], tokenizer: DomainTokenizer, window: int, order: GlobalOrder, count: int
) -> list[str]:
    """Return lines that show the first `count` training items in training order: windows, and targets by position.

    `window` is the window length in tokens. Raise `DomainbertError` as `encode_file`, for these items.
    """
    size = order.batch_size
    items = [int(order.batch(position // size)[1][position % size]) for position in range(count)]  # indices
    with located_errors(lambda position: train.location(items[position])):
        examples = task.encode([train.items[item] for item in items], tokenizer, window)
    lines = []
    for number, (item, example) in enumerate(zip(items, examples, strict=True), 1):
        lines.append(f"example {number}, {printable(train.location(item))}: {example.num_tokens:,} tokens")
        lines += _format_item(task, train.items[item], example, tokenizer)
    return lines


def _format_item(task: Task[Any, Any], item: Any, example: Example, tokenizer: DomainTokenizer) -> list[str]:
    lines = []
    for number, window in enumerate(example.windows, 1):
        if len(example.windows) > 1:
            lines.append(f"{INDENT}window {number} of {len(example.windows)}, {window.num_tokens} tokens")
        lines += format_window(window, tokenizer)
        pieces = format_pieces(tokenizer, with_special_tokens(window, tokenizer).tolist())
        rows = [("token", "piece", "target", "of")]
        notes = task.example_formatter.notes(task, item, window)
        for position, (description, target) in zip(window.positions.tolist(), notes, strict=True):
            if target:
                token = position + 1  # after the first special token
                rows.append((str(token), pieces[token], printable(target), printable(description)))
        lines += [f"{INDENT}{line}" for line in table(rows)]
    return lines
