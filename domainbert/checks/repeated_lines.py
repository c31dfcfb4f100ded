"""Lines that occur in many documents of a corpus: notices, headers, menus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

MIN_CHARACTERS = 20
"""Minimum number of characters; shorter lines may be equal by chance."""

_STORED = 200  # characters of a line


@dataclass
class RepeatedLine:
    """A line and how often it occurs."""

    text: str  # at most 200 characters
    first_document: str  # name of the first document with the line
    documents: int = 0  # number of documents with the line


@dataclass
class RepeatedLines:
    """Counts the documents with each line, in bounded memory.

    With more than `max_lines` lines, the rarest half or more are dropped (lossy counting, Manku and Motwani 2002): the
    count of a dropped line starts again at 0.
    """

    max_lines: int = 100_000
    _lines: dict[int, RepeatedLine] = field(default_factory=dict)

    def add(self, document_name: str, text: str) -> None:
        """Count each distinct line of a document once; short lines are skipped."""
        for line in dict.fromkeys(map(str.strip, text.split("\n"))):
            if len(line) >= MIN_CHARACTERS:
                key = hash(line)
                if key not in self._lines:
                    self._lines[key] = RepeatedLine(line[:_STORED], document_name)
                self._lines[key].documents += 1
        if len(self._lines) > self.max_lines:
            self._drop_rare_lines()

    def lines_in_more_than(self, documents: float) -> Iterator[RepeatedLine]:
        """Yield the lines that occur in more than `documents` documents, the most frequent first."""
        frequent = [line for line in self._lines.values() if line.documents > documents]
        yield from sorted(frequent, key=lambda line: (-line.documents, line.text))

    def _drop_rare_lines(self) -> None:
        minimum = 1
        while len(self._lines) > self.max_lines // 2:
            minimum += 1
            self._lines = {key: line for key, line in self._lines.items() if line.documents >= minimum}
