"""What labelled files say, read in a few lines that share nothing with the readers: the oracle of the damaged files."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from tests.labelled.hostile_files import Base

Words = list[list[str]]


def lines_of(raw: bytes) -> list[str]:
    *lines, last = raw.split(b"\n")
    lines += [last] if last else []
    return [
        line.decode().removesuffix("\r")
        for line in [b"".join(lines[:1]).removeprefix(b"\xef\xbb\xbf"), *lines[1:]][: len(lines)]
    ]


def count_starts(tags: Sequence[str]) -> int:
    """Entities as conlleval counts them: the tags at which a chunk starts."""
    before = "O"
    count = 0
    for tag in tags:
        open_before = before[0] in "BI" and before[2:] == tag[2:]
        count += tag != "O" and (tag[0] in "BSU" or not open_before)
        before = tag
    return count


def honest_conll(raw: bytes, token: int, tag: int, header: bool) -> tuple[Words, int]:
    words: Words = [[]]
    tags: Words = [[]]
    for line in lines_of(raw):
        cells = line.split("\t") if "\t" in line.strip() else [cell for cell in line.split(" ") if cell.strip("\t")]
        if not line.strip(" \t") or re.match(" *-DOCSTART-([ \t]|$)", line):
            words, tags = [*words, []], [*tags, []]
        elif header:
            header = False
        else:
            words[-1].append(cells[token])
            tags[-1].append(cells[tag])
    return [sentence for sentence in words if sentence], sum(map(count_starts, tags))


def honest_json(raw: bytes) -> list[list[tuple[str, Any]]]:
    """Return the keys and values of each line; a repeated key is returned each time."""
    return [json.JSONDecoder(object_pairs_hook=list).decode(line) for line in lines_of(raw) if line.strip()]


def values(row: list[tuple[str, Any]], key: str) -> list[Any]:
    return [value for name, value in row if name == key]


def honest_csv(raw: bytes, delimiter: str) -> list[dict[str, str]]:
    """RFC 4180, a field at a time; the rows by column name."""
    text = "\n".join(lines_of(raw)) + "\n"
    field = re.compile(f'"((?:[^"]|"")*)"|([^{delimiter}\n]*)')
    rows: list[list[str]] = [[]]
    place = 0
    while place < len(text):
        found = field.match(text, place)
        assert found is not None and text[found.end()] in delimiter + "\n"
        rows[-1].append(found[2].rstrip("\r") if found[1] is None else found[1].replace('""', '"'))
        rows += [[]] if text[found.end()] == "\n" else []
        place = found.end() + 1
    header, *filled = [row for row in rows if row not in ([], [""])]
    return [dict(zip(header, row, strict=True)) for row in filled]


def honest_classes(raw: bytes, suffix: str) -> list[tuple[Any, Any]]:
    if suffix != ".jsonl":
        return [(row["text"], row["label"]) for row in honest_csv(raw, {".csv": ",", ".tsv": "\t"}[suffix])]
    pairs = [(values(row, "text"), values(row, "label")) for row in honest_json(raw)]
    return [(text, label) for texts, labels in pairs for text, label in zip(texts, labels, strict=True)]


def honest_ner(raw: bytes, base: Base) -> tuple[Words, int]:
    if base.name != "f.jsonl":
        columns = (0, -1) if base.header else (base.format.token_column, base.format.tag_column)
        return honest_conll(raw, int(columns[0]), int(columns[1]), base.header)
    rows = honest_json(raw)
    words = [words for row in rows for words in values(row, "tokens")]
    return words, sum(count_starts(tags) for row in rows for tags in values(row, "tags"))
