"""Lines that many documents of a corpus share: notices, headers, menus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

LEAST = 20
"""Characters of a line that is not the same by chance."""

_SHOWN = 200  # characters of a line that are remembered


@dataclass
class RepeatedLine:
    """A line, the documents that have it, and the first of them."""

    text: str
    first: str
    documents: int = 0


@dataclass
class RepeatedLines:
    """Counts the documents of each line in bounded memory.

    When there are more than `most` lines, the rarest are forgotten, half or more (a lossy count, as that of Manku and
    Motwani 2002): a line is then counted too low by the times that it was forgotten.
    """

    most: int = 100_000
    _lines: dict[int, RepeatedLine] = field(default_factory=dict)

    def add(self, name: str, text: str) -> None:
        """Count the lines of a document, each once."""
        for line in dict.fromkeys(map(str.strip, text.split("\n"))):
            if len(line) >= LEAST:
                key = hash(line)
                if key not in self._lines:
                    self._lines[key] = RepeatedLine(line[:_SHOWN], name)
                self._lines[key].documents += 1
        if len(self._lines) > self.most:
            self._forget()

    def over(self, documents: float) -> Iterator[RepeatedLine]:
        """The lines that more documents have, the most frequent first."""
        found = [line for line in self._lines.values() if line.documents > documents]
        yield from sorted(found, key=lambda line: (-line.documents, line.text))

    def _forget(self) -> None:
        least = 1
        while len(self._lines) > self.most // 2:
            least += 1
            self._lines = {key: line for key, line in self._lines.items() if line.documents >= least}
