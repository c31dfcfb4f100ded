"""Readers for exports of annotation tools: spaCy's JSON arrays, Label Studio's JSON, folders of brat.

Each text becomes a row as in JSONL: `{"text": ..., "entities": [{"start": ..., "end": ..., "label": ...}]}`.
Annotations other than entities are left out and counted.

Formats: https://brat.nlplab.org/standoff.html; https://labelstud.io/guide/export (its offsets count Unicode characters
since label-studio-frontend#308, UTF-16 code units before).
"""

from __future__ import annotations

import re
import reprlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError, Problems, format_names
from domainbert.corpus.files import find_files, read_text
from domainbert.corpus.rows import Row, array_rows
from domainbert.labelled.char_spans import text_mismatch
from domainbert.labelled.formats import NerFormat
from domainbert.labelled.row_values import is_whole_number, problem_with_list, problem_with_text, raise_problems, shown

_TEXT_BOUND = re.compile(r"T\S*\t(\S+) ([0-9]{1,9}) ([0-9]{1,9})((?:;\d+ \d+)*)\t(.*)")
_COMPARED = ("start", "end", "label")  # keys of entities on which annotators must agree
_OTHERS = {  # brat's annotations other than entities, by the first character of the line
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
    """The rows of an export of an annotation tool; `layout` is the name of the format for messages."""

    layout: str
    rows: list[tuple[int, Row]]
    """`(line, row)` pairs; for brat the document number, from 1, replaces the line."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Counts of the annotations left out, by plural name."""
    locate_entity: Callable[[int, int], str] | None = None
    """Maps a row's line and an entity index to `path:line`; None if the row's line locates all its entities."""
    files: Sequence[Path] = ()
    """Annotation file of each document of brat; () for other formats."""


def read_json_export(path: Path, format: NerFormat, problems: Problems) -> ToolRows:
    """Return the rows of an array of objects as in JSONL, of spaCy's `[text, {"entities": ...}]` pairs, or of Label
    Studio's tasks, of which each annotated task becomes a row. Invalid rows are added to `problems`."""
    values = array_rows(path, problems)
    first = next(values, None)
    is_task = first is not None and isinstance(first[1], dict) and "data" in first[1]
    is_label_studio = format.kind == "label_studio" or (format.kind == "auto" and is_task)
    export = ToolRows("Label Studio's JSON" if is_label_studio else "JSON", [])
    for line, value in chain([] if first is None else [first], values):
        if is_label_studio:
            with problems.collecting(file=path, line=line):
                entities = _entities_of_task(value, format, export.left_out)
                if entities is not None:
                    export.rows.append((line, {format.text_key: value["data"][format.text_key], "entities": entities}))
            continue
        if isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], dict):
            value = {**value[1], "text": value[0]}
        if isinstance(value, dict):
            export.rows.append((line, value))
        else:
            problems.add(file=path, line=line, found=shown(value), expected="an object, or spaCy's pair [text, object]")
    return export


def _entities_of_task(task: Any, format: NerFormat, left_out: Counter[str]) -> list[Row] | None:
    # None if the annotator has not annotated the text; without `format.annotator`, all annotators count, and must agree
    if not isinstance(task, dict) or not isinstance(task.get("data"), dict):
        raise DomainbertError(
            "no object under 'data'", expected="Label Studio's export in the format JSON, not JSON-MIN"
        )
    raise_problems(
        problem_with_text(task["data"], format.text_key, may_be_empty=True), problem_with_list(task, "annotations")
    )
    annotations = [entry for entry in task["annotations"] if isinstance(entry, dict) and not entry.get("was_cancelled")]
    if format.annotator is not None:
        annotations = [annotation for annotation in annotations if format.annotator in _annotator_names(annotation)]
    if not annotations:
        by_annotator = "" if format.annotator is None else f" by {format.annotator!r}"
        left_out[f"texts without an annotation{by_annotator}"] += 1
        return None
    text = task["data"][format.text_key]
    results = [_entities_of_annotation(annotation, text) for annotation in annotations]
    entities, left_out_results = results[0]  # the other annotations must have the same entities
    distinct = {frozenset(tuple(shown(entity[key]) for key in _COMPARED) for entity in found) for found, _ in results}
    if len(distinct) > 1:
        people = format_names(_annotator_names(annotation)[-1] for annotation in annotations)  # e-mail address, or id
        raise DomainbertError(
            f"annotations by {people} differ", hint="correct them, or set format.annotator to one name"
        )
    left_out.update(left_out_results)
    return entities


def _annotator_names(annotation: Row) -> list[str]:
    annotator = annotation.get("completed_by")
    names = [annotator.get("id"), annotator.get("email")] if isinstance(annotator, dict) else [annotator]
    return [str(name) for name in names if name is not None] or ["somebody"]


def _entities_of_annotation(annotation: Row, text: str) -> tuple[list[Row], Counter[str]]:
    # and the numbers of results that are not entities, by plural name
    raise_problems(problem_with_list(annotation, "result"))
    entities = []
    left_out = Counter[str]()
    for index, result in enumerate(annotation["result"]):
        fields = result if isinstance(result, dict) else {"type": result}  # an invalid result is counted, too
        result_type, value = fields.get("type"), fields.get("value")
        if not isinstance(value, dict) or result_type != "labels":
            left_out[f"results of the type {shown(result_type)}"] += 1
            continue
        labels = value.get("labels")
        if not isinstance(labels, list) or len(labels) != 1:
            found = f"{len(labels)} labels" if isinstance(labels, list) else f"the labels {shown(labels)}"
            raise DomainbertError(
                where=f"result[{index}]", found=found, expected="one label, because a word has one tag"
            )
        if error := _utf16_error(text, value):
            raise error.at(f"result[{index}]")
        entities.append({key: value.get(key) for key in ("start", "end", "text")} | {"label": labels[0]})
    return entities, left_out


def _utf16_error(text: str, value: Row) -> DomainbertError | None:
    # offsets that count UTF-16 code units, as JavaScript does
    start: Any = value.get("start")
    end: Any = value.get("end")
    quote = value.get("text")
    if not (is_whole_number(start) and is_whole_number(end) and isinstance(quote, str)) or quote == text[start:end]:
        return None
    utf16 = text.encode("utf-16-le", "surrogatepass")  # 2 bytes per code unit
    if utf16[2 * start : 2 * end].decode("utf-16-le", "replace") != quote:
        return None
    counted = f"the offsets {start}-{end} of {reprlib.repr(quote)} count UTF-16 code units"
    return DomainbertError(counted, expected="offsets in Unicode characters, as a newer Label Studio exports them")


def read_brat(path: Path, format: NerFormat, problems: Problems) -> ToolRows:
    """Return a row for each pair of `DOC.txt` and `DOC.ann` in a folder and its subfolders; invalid lines are added to
    `problems`."""
    if not path.is_dir():
        raise DomainbertError(
            "is a file", file=path, expected="a folder with .txt and .ann files for format.kind: brat"
        )
    files = [file for _, file in find_files(str(path)) if file.suffix in (".txt", ".ann")]
    annotation_files = [file for file in files if file.suffix == ".ann"]
    if not annotation_files:
        raise DomainbertError(
            "a folder without .ann files", file=path, expected="a file, or brat's .txt and .ann files"
        )
    for file in files:
        partner = file.with_suffix(".ann" if file.suffix == ".txt" else ".txt")
        if not partner.exists():
            problems.add(
                f"no {partner.name} next to it", file=file, expected="a .txt and an .ann file for each document"
            )
    problems.raise_if_any()

    lines: list[list[int]] = []  # line of each entity, by document

    def locate(document: int, index: int) -> str:
        return f"{annotation_files[document - 1]}:{lines[document - 1][index]}"

    export = ToolRows("brat", [], locate_entity=locate, files=annotation_files)
    for document, file in enumerate(annotation_files, 1):
        text = read_text(file.with_suffix(".txt"), skip_mark=False)  # brat's offsets count a byte order mark
        entities, entity_lines = [], []
        for line, content in enumerate(read_text(file).split("\n"), 1):
            with problems.collecting(file=file, line=line):
                if (entity := _parse_brat_line(content.removesuffix("\r"), text, format, export.left_out)) is not None:
                    entities.append(entity)
                    entity_lines.append(line)
        lines.append(entity_lines)
        export.rows.append((document, {"text": text, "entities": entities}))
    return export


def _parse_brat_line(line: str, text: str, format: NerFormat, left_out: Counter[str]) -> Row | None:
    if not line.strip():
        return None
    if line[0] in _OTHERS:
        left_out[_OTHERS[line[0]]] += 1
        return None
    match = _TEXT_BOUND.fullmatch(line)
    if not match:
        raise DomainbertError(found=reprlib.repr(line), expected="a line of brat such as T1<tab>TYPE 0 5<tab>text")
    label, start, end, more_ranges, quote = match[1], int(match[2]), int(match[3]), match[4], match[5]
    if more_ranges and format.keeps(label):  # an entity of another type is removed later
        raise DomainbertError(
            f"{label!r} {start}-{end}{more_ranges.replace(' ', '-')} is discontinuous",
            expected="one range of characters: join the ranges, or list only other types in format.types",
        )
    actual = text[start:end].replace("\n", " ").replace("\r", " ")  # an .ann file quotes line breaks as spaces
    if not more_ranges and quote != actual:
        raise text_mismatch(start, end, actual, quote)
    return {"start": start, "end": end, "label": label}
