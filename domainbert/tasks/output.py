"""Files of predictions, as `predict` writes them; a task adds the formats of its tools (`TaskConfig.writes`)."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

Row = Mapping[str, Any]


class PredictionWriter(ABC):
    """Writes predictions into a folder, used in a `with`.

    Attributes:
        path: the file or folder that it writes.
        replaced: how many rows had a key of their own in whose place the prediction stands.
    """

    path: Path

    def __init__(self, out: Path, text_key: str) -> None:
        self.text_key = text_key
        self.replaced = Counter[str]()

    @abstractmethod
    def write(self, row: Row, result: Row) -> None:
        """Add the prediction for a row of the input, both as for JSON; the row has its text under `text_key`."""

    def flush(self) -> None:
        """Let what has been written be read."""
        return None

    def close(self) -> None:
        """End the file, which is then whole, also where the input broke off."""
        return None

    def __enter__(self) -> PredictionWriter:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()


class FileWriter(PredictionWriter):
    """Writes one file."""

    name: str

    def __init__(self, out: Path, text_key: str) -> None:
        super().__init__(out, text_key)
        self.path = out / self.name
        self.stream: TextIO = self.path.open("w", encoding="utf-8", newline="\n")

    def flush(self) -> None:
        """See `PredictionWriter.flush`."""
        self.stream.flush()

    def close(self) -> None:
        """See `PredictionWriter.close`."""
        self.stream.close()


class JsonlWriter(FileWriter):
    """A row of the input with its prediction a line."""

    name = "predictions.jsonl"

    def write(self, row: Row, result: Row) -> None:
        """See `PredictionWriter.write`."""
        self.replaced.update(row.keys() & result.keys())
        self.stream.write(json.dumps({**row, **result}, ensure_ascii=False) + "\n")
