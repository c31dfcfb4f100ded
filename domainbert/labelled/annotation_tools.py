"""Texts with entities as annotation tools export them: JSON arrays as spaCy's, Label Studio's JSON, brat's folders.

Each becomes rows as those of JSONL, `{"text": ..., "entities": [{"start": ..., "end": ..., "label": ...}]}`. What they
hold beside entities is left out and counted.

Formats: https://brat.nlplab.org/standoff.html; https://labelstud.io/guide/export (its offsets count Unicode characters
since label-studio-frontend#308, UTF-16 code units before).
"""

from __future__ import annotations

import re
import reprlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from domainbert.base.errors import DomainbertError, Problems, listed
from domainbert.corpus.file_kind import look
from domainbert.corpus.files import find_files, read_text
from domainbert.corpus.rows import array_rows
from domainbert.labelled.formats import NerFormat
from domainbert.labelled.row_values import Row, is_whole_number, problem_with_list, problem_with_text, refuse, shown

Tool = Literal["json", "label_studio", "brat"]

_ARRAY = re.compile(r"\s*\[\s*[\[{\]]")
_TEXT_BOUND = re.compile(r"T\S*\t(\S+) ([0-9]{1,9}) ([0-9]{1,9})((?:;\d+ \d+)*)\t(.*)")
_OTHERS = {
    "R": "relations",
    "E": "events",
    "A": "attributes",
    "M": "attributes",
    "N": "normalizations",
    "#": "notes",
    "*": "equivalences",
}


@dataclass(frozen=True)
class ToolRows:
    """The rows of an export."""

    layout: str
    rows: list[tuple[int, Row]]
    """With their lines; of brat the numbers of the documents, from 1."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Other things that it holds, in the plural."""
    place: Callable[[int, int], str] | None = None
    """Path and line of an entity, by the line of its row and its number; None where the row's line says enough."""


def tool_of(path: Path, format: NerFormat) -> Tool | None:
    """The export that a file or folder is, as the user says or its beginning; None if it is none."""
    if format.kind == "brat" or (format.kind == "auto" and path.is_dir()):
        return "brat"
    if format.kind == "json" or format.kind == "label_studio":
        return format.kind
    if format.kind != "auto" or not _ARRAY.match("\n".join(look(path))):
        return None
    _, first = next(array_rows(path, Problems(str(path))), (1, None))
    return "label_studio" if isinstance(first, dict) and "data" in first else "json"


def read_tool(path: Path, tool: Tool, format: NerFormat, problems: Problems) -> ToolRows:
    """The rows of an export; what is wrong with some is noted as a problem."""
    if tool == "brat":
        return _brat(path, format, problems)
    return _label_studio(path, format, problems) if tool == "label_studio" else _spacy(path, problems)


def _spacy(path: Path, problems: Problems) -> ToolRows:
    """An array of objects as in JSONL, or of spaCy's pairs of a text and an object with entities."""
    rows = []
    for line, value in array_rows(path, problems):
        if isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], dict):
            value = {**value[1], "text": value[0]}
        if isinstance(value, dict):
            rows.append((line, value))
        else:
            problems.add(f"{path}:{line}: {shown(value)}; expected an object, or a list of a text and an object")
    return ToolRows("JSON", rows)


def _label_studio(path: Path, format: NerFormat, problems: Problems) -> ToolRows:
    found = ToolRows("Label Studio's JSON", [])
    for line, task in array_rows(path, problems):
        try:
            entities = _labels_of_task(task, format, found.left_out)
        except DomainbertError as error:
            for problem in error.problems:
                problems.add(f"{path}:{line}: {problem}")
        else:
            if entities is not None:
                found.rows.append((line, {format.text_key: task["data"][format.text_key], "entities": entities}))
    return found


def _labels_of_task(task: Any, format: NerFormat, left_out: Counter[str]) -> list[Row] | None:
    """The entities of a task; None where nobody has annotated it. `DomainbertError` if two people disagree."""
    if not isinstance(task, dict) or not isinstance(task.get("data"), dict):
        raise DomainbertError("no object under 'data'; expected a task of Label Studio's JSON export")
    refuse(problem_with_text(task["data"], format.text_key, may_be_empty=True), problem_with_list(task, "annotations"))
    given = [one for one in task["annotations"] if isinstance(one, dict) and not one.get("was_cancelled")]
    if format.annotator is not None:
        given = [one for one in given if format.annotator in _names(one)]
    if not given:
        whose = "" if format.annotator is None else f" by {format.annotator}"
        left_out[f"texts without an annotation{whose}"] += 1
        return None
    text = task["data"][format.text_key]
    of_each = [_labels_of_annotation(one, text) for one in given]
    entities, others = of_each[0]
    if any(_as_set(one) != _as_set(entities) for one, _ in of_each):
        people = listed(_names(one)[-1] for one in given)
        raise DomainbertError(f"annotations by {people} differ; expected one, or `annotator` to say whose counts")
    left_out.update(others)
    return entities


def _as_set(entities: list[Row]) -> set[tuple[str, str, str]]:
    return {(shown(one["start"]), shown(one["end"]), shown(one["label"])) for one in entities}


def _names(annotation: Row) -> list[str]:
    """The number of the person who annotated, and the address where it is there."""
    by = annotation.get("completed_by")
    known = [by.get("id"), by.get("email")] if isinstance(by, dict) else [by]
    return [str(one) for one in known if one is not None] or ["somebody"]


def _labels_of_annotation(annotation: Row, text: str) -> tuple[list[Row], Counter[str]]:
    """The entities of one annotation, and how many results of other types it has."""
    refuse(problem_with_list(annotation, "result"))
    entities, others = [], Counter[str]()
    for number, result in enumerate(annotation["result"]):
        value = result.get("value") if isinstance(result, dict) else None
        if not isinstance(value, dict) or result.get("type") != "labels":
            kind = result.get("type") if isinstance(result, dict) else result
            others[f"results of the type {shown(kind)}"] += 1
            continue
        labels = value.get("labels")
        if not isinstance(labels, list) or len(labels) != 1:
            expected = "expected a list of one, for a word has one tag"
            raise DomainbertError(f"result[{number}]: labels {shown(labels)}; {expected}")
        if problem := _counts_units(text, value):
            raise DomainbertError(f"result[{number}]: {problem}")
        entities.append({key: value.get(key) for key in ("start", "end", "text")} | {"label": labels[0]})
    return entities, others


def _counts_units(text: str, value: Row) -> str:
    """A hint where offsets are those of UTF-16, as JavaScript counts; empty where they are not."""
    start: Any = value.get("start")
    end: Any = value.get("end")
    own = value.get("text")
    if not (is_whole_number(start) and is_whole_number(end) and isinstance(own, str)) or own == text[start:end]:
        return ""
    units = text.encode("utf-16-le", "surrogatepass")[2 * start : 2 * end].decode("utf-16-le", "replace")
    if units != own:
        return ""
    found = f"{reprlib.repr(own)} ({start}-{end}) is there by UTF-16 code units"
    return f"{found}; expected offsets in Unicode characters, as a newer Label Studio exports them"


def _brat(path: Path, format: NerFormat, problems: Problems) -> ToolRows:
    """The documents of a folder: `DOC.txt` with `DOC.ann` each, in the folders below too."""
    if not path.is_dir():
        raise DomainbertError(f"{path}: is a file; expected a folder of brat with .txt and .ann files")
    files = [file for _, file in find_files(str(path))]
    known = set(files)
    texts, notes = ([file for file in files if file.suffix == suffix] for suffix in (".txt", ".ann"))
    if not notes:
        raise DomainbertError(f"{path}: is a folder without .ann files; expected a file, or a folder of brat")
    pairs = [(one, one.with_suffix(".ann")) for one in texts] + [(one, one.with_suffix(".txt")) for one in notes]
    for file, other in pairs:
        if other not in known:
            problems.add(f"{file}: no {other.name} beside it; expected a .txt and an .ann of each document")
    problems.raise_if_any()
    lines: list[list[int]] = []
    found = ToolRows("brat", [], place=lambda row, number: f"{notes[row - 1]}:{lines[row - 1][number]}")
    for document, file in enumerate(notes, 1):
        text, entities, places = read_text(file.with_suffix(".txt")), [], []
        for line, content in enumerate(read_text(file).split("\n"), 1):
            try:
                entity = _text_bound(content.removesuffix("\r"), text, format, found.left_out)
            except DomainbertError as error:
                problems.add(f"{file}:{line}: {error}")
                continue
            if entity is not None:
                entities.append(entity)
                places.append(line)
        lines.append(places)
        found.rows.append((document, {"text": text, "entities": entities}))
    return found


def _text_bound(line: str, text: str, format: NerFormat, left_out: Counter[str]) -> Row | None:
    """The entity of a line of an .ann file; None of a line that holds something else."""
    if not line.strip():
        return None
    if line[0] in _OTHERS:
        left_out[_OTHERS[line[0]]] += 1
        return None
    match = _TEXT_BOUND.fullmatch(line)
    if not match:
        raise DomainbertError(f"{reprlib.repr(line)}; expected a line of brat, such as T1, tab, TYPE 0 5, tab, text")
    kind, start, end, more, own = match[1], int(match[2]), int(match[3]), match[4], match[5]
    if more and format.keeps(kind):
        raise DomainbertError(
            f"{kind} {start}-{end}{more.replace(' ', '-')} is discontinuous; expected one stretch, as tags have no "
            "other (format.types can leave its type out)"
        )
    there = text[start:end].replace("\n", " ").replace("\r", " ")
    if not more and own != there:
        raise DomainbertError(f"characters {start}-{end} are {reprlib.repr(there)}, its text is {reprlib.repr(own)}")
    return {"start": start, "end": end, "label": kind}
