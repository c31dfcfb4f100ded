"""Thousands of damaged files: each is refused with its name and line, or read as an independent reading reads it."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from domainbert.base.errors import DomainbertError
from domainbert.corpus.config import Source
from domainbert.corpus.documents import clean
from domainbert.corpus.readers import READERS
from domainbert.labelled.formats import NerFormat
from domainbert.serving.texts import read_texts
from domainbert.tasks.classification.config import Classification
from domainbert.tasks.classification.files import read as read_classification
from domainbert.tasks.ner.files import read_ner
from tests.labelled.honest_reading import (
    honest_classes,
    honest_conll,
    honest_csv,
    honest_json,
    honest_ner,
    lines_of,
    values,
)
from tests.labelled.hostile_files import CLASS_BASES, HARMLESS, NER_BASES, NER_JSONL, TEXTS, Base, damaged_gzip, mutated

WHOLE_FILE = (
    r": (no words|no sentences|no texts|nothing|no column|cannot be read|"
    r"format\.t\w+_column: (no column|column \d+ of|\d columns '))"
)


def check_message(error: DomainbertError, path: Path) -> None:
    """Each problem names the file, the line unless it has none, and can be printed anywhere."""
    assert len(str(error)) < 10_000 and all(line.isprintable() for line in str(error).split("\n"))
    for problem in error.problems:
        problem.encode()
        assert re.match(re.escape(str(path)) + rf"(:\d+: |{WHOLE_FILE})", problem), problem[:300]
        assert re.search("; (expected|found|set text_key|the header names|the file has)", problem), problem[:300]


def check_ner(path: Path, raw: bytes, base: Base, harmless: bool) -> str:
    format = NerFormat(base.format.token_column, base.format.tag_column, repair=True)
    try:
        file = read_ner(path, format)
    except DomainbertError as error:
        check_message(error, path)
        return "refused"
    words, entities = honest_ner(raw, base)
    assert [sentence.words for sentence in file.sentences] == words
    assert file.num_spans == entities
    if harmless:
        assert entities == honest_ner(base.text.encode(), base)[1]
    file.describe().encode()
    assert all(re.match(re.escape(str(path)) + r":\d+: .*; read as ", repair) for repair in file.repairs)
    return "repaired" if file.repairs else "read"


def check_classes(path: Path, raw: bytes, base: Base, harmless: bool) -> str:
    try:
        file = read_classification(Classification(), path)
    except DomainbertError as error:
        check_message(error, path)
        return "refused"
    suffix = Path(base.name).suffix
    assert [(text.text, text.label) for text in file.items] == honest_classes(raw, suffix)
    if harmless:
        assert [text.label for text in file.items] == [label for _, label in TEXTS]
    file.describe().encode()
    return "read"


def check_predict(path: Path, raw: bytes, base: Base) -> None:
    kind = {".conll": "conll", ".jsonl": "jsonl"}.get(Path(base.name).suffix, "lines")
    try:
        rows = [row for row, _ in read_texts(path, kind, "text", 0)[1]]
    except DomainbertError as error:
        return check_message(error, path)
    expected = {
        "conll": lambda: len(honest_conll(raw, 0, 0, False)[0]),
        "jsonl": lambda: len([line for line in lines_of(raw) if line.strip()]),
        "lines": lambda: len(lines_of(raw)),
    }
    assert len(rows) == expected[kind]()
    for row in rows:
        json.dumps(row | {"entities": []}, ensure_ascii=False).encode()
    return None


def check_corpus(path: Path, raw: bytes, base: Base, documents: Any) -> None:
    suffix = Path(base.name).suffix if Path(base.name).suffix in READERS else ".txt"
    try:
        texts = [text for _, text in READERS[suffix](path, Source("x", documents=documents))]
    except DomainbertError as error:
        return check_message(error, path)
    for text in texts:
        clean(text).text.encode()
    lines = lines_of(raw)
    if suffix == ".jsonl":
        assert texts == [values(row, "text")[0] or "" for row in honest_json(raw)]
    elif suffix == ".csv":
        assert texts == [row["text"] for row in honest_csv(raw, ",")]
    elif suffix == ".conll":
        first = [line.strip(" ").split("\t" if "\t" in line else " ")[0] for line in lines]
        words = [word.strip() for word in first if word.strip() != "-DOCSTART-"]
        assert "".join("".join(texts).split()) == "".join("".join(words).split())
    else:
        assert "".join("".join(texts).split()) == "".join("".join(lines).split())
    return None


def run(numbers: range, folder: Path) -> dict[str, int]:
    """Check a mutated file for each number; how many were refused, repaired and read."""
    bases = [*NER_BASES, NER_JSONL, *CLASS_BASES]
    counts = {"refused": 0, "repaired": 0, "read": 0}
    for number in numbers:
        generator = random.Random(number)
        base = bases[number % len(bases)]
        raw, names = mutated(base, generator)
        packed = generator.random() < 0.15
        path = folder / (base.name + ".gz" if packed else base.name)
        path.write_bytes(damaged_gzip(raw, generator) if packed else raw)
        check = check_classes if base in CLASS_BASES else check_ner
        try:
            counts[check(path, raw, base, all(name in HARMLESS for name in names))] += 1
            check_predict(path, raw, base)
            check_corpus(path, raw, base, generator.choice(["file", "line", "blank_line"]))
        except Exception as error:
            raise AssertionError(f"mutation {number} of {path.name}: {names}: {raw[:2000]!r}") from error
    return counts


def test_hundreds_of_damaged_files(tmp_path: Path) -> None:
    counts = run(range(900), tmp_path)
    assert sum(counts.values()) == 900 and min(counts.values()) > 15


@pytest.mark.slow
def test_ten_thousand_damaged_files(tmp_path: Path) -> None:
    counts = run(range(900, 10_900), tmp_path)
    assert sum(counts.values()) == 10_000 and min(counts.values()) > 150


@pytest.mark.parametrize("base", [*NER_BASES, NER_JSONL, *CLASS_BASES], ids=lambda base: base.name)
def test_the_independent_reading_agrees_on_the_whole_files(tmp_path: Path, base: Base) -> None:
    raw = base.text.encode()
    (tmp_path / base.name).write_bytes(raw)
    check = check_classes if base in CLASS_BASES else check_ner
    assert check(tmp_path / base.name, raw, base, True) == "read"
    if base not in CLASS_BASES:
        assert honest_ner(raw, base)[1] == 4 - (base.name in ("c.tsv", "d.bio"))
