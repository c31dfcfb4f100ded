"""Predicted entities as annotation tools import them, to be corrected there. Free of torch.

Sources: https://prodi.gy/docs/api-interfaces#ner_manual; https://labelstud.io/guide/predictions; brat's standoff,
https://brat.nlplab.org/standoff.html. All count Unicode characters.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.tasks.output import FileWriter, PredictionWriter, Row


class ProdigyWriter(FileWriter):
    """Prodigy's JSONL: spans beside the text; other keys of a row are its `meta`."""

    name = "predictions.jsonl"

    @override
    def write(self, row: Row, result: Row) -> None:
        spans = [{"start": one["start"], "end": one["end"], "label": one["type"]} for one in result["entities"]]
        meta = {key: value for key, value in row.items() if key != self.text_key}
        task = {"text": row[self.text_key], "spans": spans, **({"meta": meta} if meta else {})}
        self.stream.write(json.dumps(task, ensure_ascii=False) + "\n")


class LabelStudioWriter(FileWriter):
    """Label Studio's JSON: a list of tasks with predictions, for a labelling configuration with `<Labels name="label"
    toName="text">` and `<Text name="text" value="$text">`, where `$text` is the key of the text."""

    name = "predictions.json"

    def __init__(self, out: Path, text_key: str) -> None:
        super().__init__(out, text_key)
        self._before = "[\n"

    @override
    def write(self, row: Row, result: Row) -> None:
        results = [self._result(number, one) for number, one in enumerate(result["entities"])]
        task: dict[str, Any] = {"data": dict(row), "predictions": [{"model_version": "domainbert", "result": results}]}
        if results:
            task["predictions"][0]["score"] = min(one["score"] for one in results)
        self.stream.write(self._before + json.dumps(task, ensure_ascii=False))
        self._before = ",\n"

    def close(self) -> None:
        """End the list."""
        self.stream.write("[]\n" if self._before == "[\n" else "\n]\n")
        super().close()

    @staticmethod
    def _result(number: int, entity: Row) -> dict[str, Any]:
        value = {key: entity[key] for key in ("start", "end", "text")} | {"labels": [entity["type"]]}
        names = {"from_name": "label", "to_name": "text", "type": "labels"}
        return {"id": f"e{number + 1}", **names, "value": value, "score": entity["score"]}


class BratWriter(PredictionWriter):
    """brat's standoff: a folder with a .txt and an .ann for each text."""

    def __init__(self, out: Path, text_key: str) -> None:
        super().__init__(out, text_key)
        self.path, self._count = out / "predictions", 0
        self.path.mkdir()

    @override
    def write(self, row: Row, result: Row) -> None:
        """`DomainbertError` if a type holds white space, which parts columns in brat."""
        self._count += 1
        lines = []
        for number, one in enumerate(result["entities"], 1):
            if len(one["type"].split()) != 1:
                raise DomainbertError(f"{self.path}: the type {one['type']!r} holds a space; expected none for brat")
            text = one["text"].replace("\n", " ").replace("\r", " ")
            lines.append(f"T{number}\t{one['type']} {one['start']} {one['end']}\t{text}\n")
        for suffix, content in ((".txt", row[self.text_key]), (".ann", "".join(lines))):
            (self.path / f"{self._count:07}{suffix}").write_bytes(content.encode())


WRITERS: dict[str, type[PredictionWriter]] = {
    "prodigy": ProdigyWriter,
    "label_studio": LabelStudioWriter,
    "brat": BratWriter,
}
