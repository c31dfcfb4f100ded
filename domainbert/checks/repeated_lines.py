"""Lines that occur in many documents of a corpus: notices, headers, menus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

LEAST = 20
"""Minimum number of characters; shorter lines may be equal by chance."""

_STORED = 200  # characters of a line


@dataclass
class RepeatedLine:
    """A line, the first document with it, and the number of documents."""

    text: str
    first: str
    documents: int = 0


@dataclass
class RepeatedLines:
    """Counts the documents with each line, in bounded memory.

    With more than `most` lines, the rarest half or more are dropped (lossy counting, Manku and Motwani 2002): the count
    of a dropped line starts again at 0.
    """

    most: int = 100_000
    _lines: dict[int, RepeatedLine] = field(default_factory=dict)

    def add(self, name: str, text: str) -> None:
        """Count each distinct line of a document once."""
        for line in dict.fromkeys(map(str.strip, text.split("\n"))):
            if len(line) >= LEAST:
                key = hash(line)
                if key not in self._lines:
                    self._lines[key] = RepeatedLine(line[:_STORED], name)
                self._lines[key].documents += 1
        if len(self._lines) > self.most:
            self._forget()

    def over(self, documents: float) -> Iterator[RepeatedLine]:
        """Yield the lines that occur in more than `documents` documents, the most frequent first."""
        frequent = [line for line in self._lines.values() if line.documents > documents]
        yield from sorted(frequent, key=lambda line: (-line.documents, line.text))

    def _forget(self) -> None:
        least = 1
        while len(self._lines) > self.most // 2:
            least += 1
            self._lines = {key: line for key, line in self._lines.items() if line.documents >= least}
