"""Text rendering of labelled items as the model reads them, for `--show`."""

from __future__ import annotations

from typing import Any

from domainbert.base.layout import printable, table
from domainbert.data.examples import Example
from domainbert.data.formatting import INDENT, format_pieces, format_window, with_special_tokens
from domainbert.data.order import GlobalOrder
from domainbert.labelled.contents import located_errors
from domainbert.labelled.items import Labelled
from domainbert.tasks.task import Task
from domainbert.tokenization.load import DomainTokenizer


def format_items(
    task: Task[Any, Any], train: Labelled[Any], tokenizer: DomainTokenizer, window: int, order: GlobalOrder, count: int
) -> list[str]:
    """Return lines that show the first training items in training order: windows, and the target of each position.

    `DomainbertError` as in `encode_file`, for these items.
    """
    size = order.batch_size
    numbers = [int(order.batch(index // size)[1][index % size]) for index in range(count)]
    with located_errors(lambda index: train.location(numbers[index])):
        examples = task.encode([train.items[number] for number in numbers], tokenizer, window)
    lines = []
    for number, (item, example) in enumerate(zip(numbers, examples, strict=True), 1):
        lines.append(f"example {number}, {printable(train.location(item))}: {example.num_tokens:,} tokens")
        lines += _shown(task, train.items[item], example, tokenizer)
    return lines


def _shown(task: Task[Any, Any], item: Any, example: Example, tokenizer: DomainTokenizer) -> list[str]:
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
                rows.append((str(position + 1), pieces[position + 1], printable(target), printable(description)))
        lines += [f"{INDENT}{line}" for line in table(rows)]
    return lines
