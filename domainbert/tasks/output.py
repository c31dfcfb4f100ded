"""Writers for the files of `predict`; a task adds formats in `writers.py`."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TextIO

from typing_extensions import override

Row = Mapping[str, Any]


def json_line(value: Row) -> str:
    """Return an object as a line of JSON, line break included, with non-ASCII characters unescaped."""
    return json.dumps(value, ensure_ascii=False) + "\n"


class PredictionWriter(AbstractContextManager["PredictionWriter"], ABC):
    """Writer of predictions into a folder; a context manager.

    Attributes:
        path: file or folder that is written.
        renamed: number of rows by (key, name): the input has this key, so the prediction is written under the name.
    """

    path: Path

    def __init__(self, out: Path, text_key: str) -> None:
        self.text_key = text_key
        self.renamed = Counter[tuple[str, str]]()

    @abstractmethod
    def write(self, row: Row, result: Row) -> None:
        """Write the prediction for an input row, both JSON objects; `row[text_key]` is the text."""

    def flush(self) -> None:
        """Flush written rows to the file; by default do nothing."""

    def close(self) -> None:
        """Complete and close the file, also after an error in the input; by default do nothing."""

    def __exit__(self, *exception: object) -> None:
        self.close()


class FileWriter(PredictionWriter):
    """Writer of a single file."""

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
    """Writer of JSONL: an input row with its prediction per line; if the row has a key already, the key of the
    prediction gets the prefix `predicted_`."""

    name = "predictions.jsonl"

    @override
    def write(self, row: Row, result: Row) -> None:
        """Write the row with its prediction; a key that the row has already is prefixed, and counted in `renamed`."""
        output = dict(row)
        for key, value in result.items():
            name = key
            while name in output:
                name = f"predicted_{name}"
            output[name] = value
            if name != key:
                self.renamed[key, name] += 1
        self.stream.write(json_line(output))
