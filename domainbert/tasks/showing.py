"""Labelled items as a task lets the model read them, in lines for a terminal."""

from __future__ import annotations

from typing import Any

from domainbert.base.layout import printable, table
from domainbert.data.examples import Example
from domainbert.data.order import GlobalOrder
from domainbert.data.showing import INDENT, framed, shown_pieces, shown_window
from domainbert.labelled.contents import told_where
from domainbert.labelled.items import Labelled
from domainbert.tasks.task import Task
from domainbert.tokenization.load import DomainTokenizer


def shown_items(
    task: Task[Any, Any], train: Labelled[Any], tokenizer: DomainTokenizer, window: int, order: GlobalOrder, count: int
) -> list[str]:
    """The first items of a training, in its order: their windows as they are read, and what is learnt at each place.

    `DomainbertError` as `encode_file`, of these items.
    """
    size = order.batch_size
    numbers = [int(order.batch(place // size)[1][place % size]) for place in range(count)]
    with told_where(lambda place: train.place(numbers[place])):
        examples = task.encode([train.items[number] for number in numbers], tokenizer, window)
    lines = []
    for number, (item, example) in enumerate(zip(numbers, examples, strict=True), 1):
        lines.append(f"example {number}, {printable(train.place(item))}: {example.num_tokens:,} tokens")
        lines += _shown(task, train.items[item], example, tokenizer)
    return lines


def _shown(task: Task[Any, Any], item: Any, example: Example, tokenizer: DomainTokenizer) -> list[str]:
    lines = []
    for number, window in enumerate(example.windows, 1):
        if len(example.windows) > 1:
            lines.append(f"{INDENT}window {number} of {len(example.windows)}, {window.num_tokens} tokens")
        lines += shown_window(window, tokenizer)
        pieces = shown_pieces(tokenizer, framed(window, tokenizer).tolist())
        rows = [("token", "piece", "target", "of")]
        for position, (what, target) in zip(
            window.positions.tolist(), task.showing.notes(task, item, window), strict=True
        ):
            if target:
                rows.append((str(position + 1), pieces[position + 1], printable(target), printable(what)))
        lines += [f"{INDENT}{line}" for line in table(rows)]
    return lines
