"""Texts with their translations: two aligned files, or two keys of a row; a pair is one document with a boundary."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from domainbert.corpus.config import CorpusConfig, Source
from domainbert.corpus.documents import Document, read_documents
from domainbert.corpus.report import CorpusReport
from tests.refusals import refused

Pairs = list[tuple[str, str]]
PAIRS = [
    ("The rates have risen.", "Les taux ont mont\u00e9."),
    ("A text without its translation.", ""),
    ("Prices\tfell in \u0001May.  ", " Les prix ont baisse\u0301 en mai."),
    ("The rates have risen.", "Les taux ont mont\u00e9."),
    ("The rates have risen.", "Les taux ont augment\u00e9."),
]
SIDES = [PAIRS[0], ("Prices\tfell in May.", "Les prix ont baiss\u00e9 en mai."), PAIRS[4]]


def documents(source: Source, report: CorpusReport | None = None) -> list[Document]:
    return list(read_documents(CorpusConfig([source], min_characters=10), report))


def aligned(folder: Path, pairs: Pairs) -> Source:
    for name, side in zip(("en", "fr"), zip(*pairs, strict=True), strict=True):
        (folder / f"{name}.txt").write_text("\n".join(side) + "\n", encoding="utf-8")
    return Source(str(folder / "en.txt"), documents="line", translation=folder / "fr.txt")


def rows(folder: Path, pairs: Pairs) -> Source:
    lines = (json.dumps({"text": text, "translation": other or None}) for text, other in pairs)
    (folder / "pairs.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return Source(str(folder / "pairs.jsonl"), translation_key="translation")


@pytest.mark.parametrize("write", [aligned, rows])
def test_a_pair_is_one_document(tmp_path: Path, write: Callable[[Path, Pairs], Source]) -> None:
    """Cleaned side by side; one with an empty side is dropped, and so is one that was read before."""
    report = CorpusReport()
    found = documents(write(tmp_path, PAIRS), report)
    assert [document.sides for document in found] == SIDES
    assert [document.text for document in found] == ["\n".join(sides) for sides in SIDES]
    assert [document.id.split(":")[1] for document in found] == ["1", "3", "5"]
    assert report.dropped == {"empty": 1, "exact duplicates": 1} and report.read == 5
    assert report.sources[0].changed == {"with control characters": 1, "not in NFC": 1}
    assert report.sources[0].read_characters == sum(len(text) + len(other) for text, other in PAIRS)


def test_files_with_unequal_lines_are_refused_with_both_counts(tmp_path: Path) -> None:
    source = aligned(tmp_path, PAIRS)
    with open(tmp_path / "fr.txt", "a") as file:
        file.write("Une ligne de trop.\nEt une autre.\n")
    with refused(file="en.txt", where="number of lines", found="5, but 7 in ...fr.txt", expected="the same..."):
        documents(source)
    (tmp_path / "fr.txt").write_text("Une seule ligne.\n")
    with refused(file="en.txt", where="number of lines", found="5, but 1 in ...fr.txt"):
        documents(source)


def test_both_files_are_inputs_and_have_to_be_there(tmp_path: Path) -> None:
    source = aligned(tmp_path, PAIRS)
    assert CorpusConfig([source]).input_files() == [tmp_path / "en.txt", tmp_path / "fr.txt"]
    (tmp_path / "fr.txt").unlink()
    with refused(where="sources[0].translation", problem="...fr.txt is not a file", hint="path and translation..."):
        CorpusConfig([source]).input_files()


def test_settings_that_say_it_twice_are_refused(tmp_path: Path) -> None:
    with refused(where="translation", found="next to translation_key", expected="only one of..."):
        Source("a.txt", documents="line", translation=Path("b.txt"), translation_key="translation")
    with refused(where="translation", found="next to documents: file", expected="documents: line"):
        Source("a.txt", translation=Path("b.txt"))
    (tmp_path / "a.txt").write_text("A text of one line, without keys.\n")
    with refused(file="a.txt", problem="has no keys, but translation_key is set", expected="JSONL, CSV or..."):
        documents(Source(str(tmp_path / "a.txt"), translation_key="translation"))
    (tmp_path / "b.jsonl").write_text('{"text": "A text that lacks the other key."}\n')
    with refused(file="b.jsonl", line=1, problem="no key 'translation' (keys...", hint="set translation_key to..."):
        documents(Source(str(tmp_path / "b.jsonl"), translation_key="translation"))
    with refused(file="b.jsonl", found="no plain text,...", expected="... (set format: text if it has them)..."):
        documents(Source(str(tmp_path / "b.jsonl"), documents="line", translation=tmp_path / "b.jsonl"))
