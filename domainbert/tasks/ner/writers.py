"""Writers of predicted entities in the import formats of annotation tools. Free of torch.

Sources: https://prodi.gy/docs/api-interfaces#ner_manual; https://labelstud.io/guide/predictions; brat's standoff,
https://brat.nlplab.org/standoff.html. All count Unicode characters.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.tasks.output import FileWriter, PredictionWriter, Row, json_line


class ProdigyWriter(FileWriter):
    """Writer of Prodigy's JSONL: text and spans; other keys of a row become `meta`."""

    name = "predictions.jsonl"

    @override
    def write(self, row: Row, result: Row) -> None:
        spans = [
            {"start": entity["start"], "end": entity["end"], "label": entity["type"]} for entity in result["entities"]
        ]
        meta = {key: value for key, value in row.items() if key != self.text_key}
        task = {"text": row[self.text_key], "spans": spans, **({"meta": meta} if meta else {})}
        self.stream.write(json_line(task))


class LabelStudioWriter(FileWriter):
    """Writer of Label Studio's JSON: tasks with predictions, for a labelling configuration with `<Labels name="label"
    toName="text">` and `<Text name="text" value="$text">`, where `$text` is the key of the text."""

    name = "predictions.json"

    def __init__(self, out: Path, text_key: str) -> None:
        super().__init__(out, text_key)
        self._separator = "[\n"  # before the next task

    @override
    def write(self, row: Row, result: Row) -> None:
        names = {"from_name": "label", "to_name": "text", "type": "labels"}
        results = []
        for number, entity in enumerate(result["entities"], 1):
            value = {key: entity[key] for key in ("start", "end", "text")} | {"labels": [entity["type"]]}
            results.append({"id": f"e{number}", **names, "value": value, "score": entity["score"]})
        task: dict[str, Any] = {"data": dict(row), "predictions": [{"model_version": "domainbert", "result": results}]}
        if results:
            task["predictions"][0]["score"] = min(entity["score"] for entity in results)
        self.stream.write(self._separator + json.dumps(task, ensure_ascii=False))
        self._separator = ",\n"

    @override
    def close(self) -> None:
        is_empty = self._separator == "[\n"
        self.stream.write("[]\n" if is_empty else "\n]\n")
        super().close()


class BratWriter(PredictionWriter):
    """Writer of brat's standoff format: a folder with a .txt and an .ann file for each text."""

    def __init__(self, out: Path, text_key: str) -> None:
        super().__init__(out, text_key)
        self.path, self._count = out / "predictions", 0
        self.path.mkdir()

    @override
    def write(self, row: Row, result: Row) -> None:
        """Write a text; raise `DomainbertError` if a type contains white space, the column separator of brat."""
        self._count += 1
        lines = []
        for number, entity in enumerate(result["entities"], 1):
            kind, text = entity["type"], entity["text"].replace("\n", " ").replace("\r", " ")
            if len(kind.split()) != 1:
                raise DomainbertError(
                    f"brat allows no space in the type {kind!r}", where="output_format", hint="use jsonl"
                )
            lines.append(f"T{number}\t{kind} {entity['start']} {entity['end']}\t{text}\n")
        for suffix, content in ((".txt", row[self.text_key]), (".ann", "".join(lines))):
            (self.path / f"{self._count:07}{suffix}").write_bytes(content.encode())


WRITERS: dict[str, type[PredictionWriter]] = {
    "prodigy": ProdigyWriter,
    "label_studio": LabelStudioWriter,
    "brat": BratWriter,
}
