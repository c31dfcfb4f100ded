"""Files of predictions, as `predict` writes them; a task adds the formats of its tools in `writers.py`."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from typing_extensions import override

Row = Mapping[str, Any]


class PredictionWriter(ABC):
    """Writes predictions into a folder, used in a `with`.

    Attributes:
        path: the file or folder that it writes.
        renamed: number of rows by (key, name): the row has the key itself, so that the prediction is under the name.
    """

    path: Path

    def __init__(self, out: Path, text_key: str) -> None:
        self.text_key = text_key
        self.renamed = Counter[tuple[str, str]]()

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

    @override
    def flush(self) -> None:
        self.stream.flush()

    @override
    def close(self) -> None:
        self.stream.close()


class JsonlWriter(FileWriter):
    """A row of the input with its prediction a line; a key that the row has itself is kept, and that of the prediction
    gets `predicted_` before it."""

    name = "predictions.jsonl"

    @override
    def write(self, row: Row, result: Row) -> None:
        written = dict(row)
        for key, value in result.items():
            name = key
            while name in written:
                name = f"predicted_{name}"
            written[name] = value
            if name != key:
                self.renamed[key, name] += 1
        self.stream.write(json.dumps(written, ensure_ascii=False) + "\n")
