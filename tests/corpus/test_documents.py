import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domainbert.base.errors import DomainbertError
from domainbert.corpus.config import CorpusConfig, Source
from domainbert.corpus.documents import Document, read_documents
from domainbert.corpus.report import CorpusReport
from tests.refusals import refused


def write(folder: Path, name: str, texts: list[str]) -> str:
    path = folder / name
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return str(path)


def numbered(count: int, start: int = 0) -> list[str]:
    return [f"This is document number {number} of a corpus." for number in range(start, start + count)]


def read(*sources: Source, **settings: object) -> tuple[list[Document], CorpusReport]:
    report = CorpusReport()
    return list(read_documents(CorpusConfig(list(sources), **settings), report)), report  # type: ignore[arg-type]


def test_cleaning_and_dropping_are_counted_by_reason(tmp_path: Path) -> None:
    texts = [
        "A whole document, the first.",
        "",
        "short",
        "A whole document, the first.\r\n",
        "Cafe\u0301 au lait \x00at noon.",
    ]
    documents, report = read(Source(write(tmp_path, "a.jsonl", texts)), min_characters=10)
    assert [(d.id, d.text) for d in documents] == [("a.jsonl:1", texts[0]), ("a.jsonl:5", "Café au lait at noon.")]
    counts = report.sources[0]
    assert counts.dropped == {"empty": 1, "shorter than 10 characters": 1, "exact duplicates": 1}
    assert counts.changed == {"with other line breaks": 1, "with control characters": 1, "not in NFC": 1}
    assert (counts.read, counts.files, counts.control_characters) == (5, 1, 1)
    assert report.lines()[1:] == [
        f"  kept: {counts.documents['train']} train and {counts.documents['validation']} validation",
        "  dropped: 1 empty, 1 exact duplicates, 1 shorter than 10 characters",
        "  changed: 1 not in NFC, 1 with control characters, 1 with other line breaks (1 control characters)",
    ]


@given(
    st.lists(
        st.tuples(st.lists(st.sampled_from(["", "x", *numbered(30)])), st.floats(0.1, 3.5)), min_size=1, max_size=3
    ),
    st.booleans(),
)
def test_every_document_read_is_accounted_for(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[list[str], float]], deduplicate: bool
) -> None:
    folder = tmp_path_factory.mktemp("corpus")
    sources = [Source(write(folder, f"{i}.jsonl", texts), weight=weight) for i, (texts, weight) in enumerate(parts)]
    report, documents = CorpusReport(), []
    try:
        documents = list(
            read_documents(CorpusConfig(sources, deduplicate=deduplicate, validation_fraction=0.4), report)
        )
    except DomainbertError as error:
        assert "corpus: kept 0 of" in str(error)
    assert len(documents) == report.documents("train") + report.documents("validation")
    for counts, (texts, _) in zip(report.sources, parts, strict=True):
        assert counts.read == len(texts)
        assert counts.read + counts.copies == counts.documents.total() + counts.dropped.total()
    assert sum(len(d.text) for d in documents) == sum(counts.characters.total() for counts in report.sources)
    json.dumps(report.as_dict())


def test_a_document_never_changes_side(tmp_path: Path) -> None:
    small, _ = read(Source(write(tmp_path, "a.jsonl", numbered(400))), validation_fraction=0.2)
    more = Source(write(tmp_path, "b.jsonl", numbered(500, start=-100)))
    large, _ = read(more, Source(str(tmp_path / "a.jsonl")), validation_fraction=0.2, deduplicate=False)
    sides = {document.text: document.split for document in large}
    assert all(sides[document.text] == document.split for document in small)
    assert len({(document.text, document.split) for document in large}) == 500  # also copies are on one side
    assert 0.12 < Counter(document.split for document in large)["validation"] / len(large) < 0.28
    wider, _ = read(Source(str(tmp_path / "a.jsonl")), validation_fraction=0.4)
    held_out = {document.text for document in wider if document.split == "validation"}
    assert held_out > {document.text for document in small if document.split == "validation"}


def test_weights_repeat_training_documents_and_thin_out_by_hash(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", numbered(1_000))
    once = Counter(document.text for document in read(Source(path), validation_fraction=0.2)[0])
    half = Counter(document.text for document in read(Source(path, weight=0.5), validation_fraction=0.2)[0])
    documents, report = read(Source(path, weight=2.5), validation_fraction=0.2)
    train = Counter(document.text for document in documents if document.split == "train")
    validation = Counter(document.text for document in documents if document.split == "validation")
    assert set(half.values()) == {1} and 430 < len(half) < 570
    assert set(validation.values()) == {1} and train.keys() | validation.keys() == once.keys()
    assert train == {text: 3 if text in half else 2 for text in train}
    assert len({document.id for document in documents}) == len(documents)
    assert report.sources[0].copies == len(documents) - 1_000


def test_a_duplicate_in_a_later_source_is_dropped_there(tmp_path: Path) -> None:
    sources = [Source(write(tmp_path, "a.jsonl", numbered(5))), Source(write(tmp_path, "b.jsonl", numbered(8)))]
    documents, report = read(*sources)
    assert [document.id for document in documents][5:] == ["b.jsonl:6", "b.jsonl:7", "b.jsonl:8"]
    assert [source.dropped["exact duplicates"] for source in report.sources] == [0, 5]


def test_a_text_that_a_weight_leaves_out_is_read_from_a_later_source(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", numbered(200))
    documents, report = read(Source(path, weight=0.5), Source(write(tmp_path, "b.jsonl", numbered(200))))
    left_out = report.sources[0].dropped["left out by weight"]
    assert sorted(document.text for document in documents) == sorted(numbered(200)) and 70 < left_out < 130
    assert report.sources[1].dropped == {"exact duplicates": 200 - left_out}


def test_near_duplicates_are_dropped_if_asked(tmp_path: Path) -> None:
    pytest.importorskip("datasketch", reason="the extra near-duplicates is not installed")
    text = " ".join(f"word{number}" for number in range(200))
    source = Source(write(tmp_path, "a.jsonl", [text, text + " end"]))
    assert len(read(source)[0]) == 2
    documents, report = read(source, near_duplicate_threshold=0.9)
    assert len(documents) == 1 and report.sources[0].dropped == {"near duplicates": 1}


@pytest.mark.parametrize("texts", [[], ["", "tiny"]])
def test_an_empty_corpus_is_refused(tmp_path: Path, texts: list[str]) -> None:
    with refused(where="corpus", problem=f"kept 0 of {len(texts)} documents..."):
        read(Source(write(tmp_path, "a.jsonl", texts)))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read from Linux' /proc")
def test_reading_needs_no_heavy_library_and_little_memory(tmp_path: Path) -> None:
    """70 MB of text, and a process that stays far below that: documents and what was seen are not held."""
    body = " word" * 1_400
    with (tmp_path / "a.jsonl").open("w") as file:
        file.writelines(json.dumps({"text": f"{number}{body}"}) + "\n" for number in range(10_000))
    code = f"""
import re, sys
from pathlib import Path
from domainbert.corpus.config import CorpusConfig
from domainbert.corpus.config import Source
from domainbert.corpus.documents import read_documents
print(sum(1 for _ in read_documents(CorpusConfig([Source({str(tmp_path / "a.jsonl")!r})]))))
print(re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1])
print(sorted({{"torch", "lightning", "datasets", "pyarrow", "numpy"}} & sys.modules.keys()))
"""
    lines = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.splitlines()
    assert lines[0] == "10000" and int(lines[1]) < 60 * 1024 and lines[2] == "[]"
