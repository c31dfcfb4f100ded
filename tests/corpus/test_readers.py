import csv
import gzip
import io
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from domainbert.base.errors import DomainbertError
from domainbert.corpus import files
from domainbert.corpus.config import Source
from domainbert.corpus.readers import READERS, read_conll, read_csv, read_jsonl, read_parquet, read_text
from domainbert.corpus.sources import check_sources
from tests.refusals import refused

TEXTS = ["Inflation rose.", 'He said "no",\nand left.', "Zinsen fielen später.", "tab\there"]


def as_bytes(suffix: str, texts: list[str]) -> bytes:
    if suffix == ".txt":
        return "\n\n".join(text.replace("\n", " ") for text in texts).encode()
    if suffix == ".conll":
        return "\n\n".join("\n".join(f"{word} O" for word in text.split()) for text in texts).encode()
    if suffix == ".jsonl":
        return "".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(texts)).encode()
    if suffix == ".csv":
        rows = io.StringIO()
        csv.writer(rows).writerows([["id", "text"], *enumerate(texts)])
        return rows.getvalue().encode()
    buffer = io.BytesIO()
    pq.write_table(pa.table({"id": range(len(texts)), "text": texts}), buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("compression", ["", ".gz", ".zst"])
@pytest.mark.parametrize("suffix", sorted(READERS))
def test_every_format_gives_back_its_texts_plain_and_compressed(tmp_path: Path, suffix: str, compression: str) -> None:
    pack = {"": bytes, ".gz": gzip.compress, ".zst": partial(pa.Codec("zstd").compress, asbytes=True)}[compression]
    path = tmp_path / f"corpus{suffix}{compression}"
    path.write_bytes(pack(as_bytes(suffix, TEXTS)))
    found = [text for _, text in READERS[suffix](path, Source(str(path), documents="blank_line"))]
    kept = {".txt": lambda text: text.replace("\n", " "), ".conll": lambda text: " ".join(text.split())}
    assert found == [kept.get(suffix, str)(text) for text in TEXTS]


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        ("file", [("", "one\ntwo\n\n \n\nthree")]),
        ("blank_line", [(":1", "one\ntwo"), (":6", "three")]),
        ("line", [(":1", "one"), (":2", "two"), (":6", "three")]),
    ],
)
def test_what_a_document_is_in_plain_text(tmp_path: Path, documents: str, expected: list[tuple[str, str]]) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n\r\n \r\n\r\nthree\r\n")
    assert list(read_text(path, Source(str(path), documents=documents))) == expected


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_jsonl_keeps_any_text(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    path = tmp_path_factory.mktemp("jsonl") / "a.jsonl"
    path.write_text("".join(json.dumps({"t": text}, ensure_ascii=False) + "\n" for text in texts), "utf-8", newline="")
    assert list(read_jsonl(path, Source(str(path), text_key="t"))) == [(f":{i}", t) for i, t in enumerate(texts, 1)]


def test_nulls_are_empty_texts(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": null}\n\n{"text": "x"}\n')
    pq.write_table(pa.table({"text": pa.array([None, "x"], pa.large_string())}), tmp_path / "a.parquet")
    source = Source("a")
    assert list(read_jsonl(tmp_path / "a.jsonl", source)) == [(":1", ""), (":3", "x")]
    assert list(read_parquet(tmp_path / "a.parquet", source)) == [(":1", ""), (":2", "x")]


@pytest.mark.parametrize(
    ("name", "content", "line", "problem", "expected"),
    [
        ("a.txt", b"one\ntw\xe9\n", 2, "byte 3 of the line, 0xe9, is not UTF-8", "UTF-8 text"),
        ("a.jsonl", b'{"text": "x"}\n{"text": \n', 2, "not JSON...", "an object per line"),
        ("a.jsonl", b'{"txt": "x"}\n', 1, "no key 'text' (keys found: 'txt')", "..."),
        ("a.jsonl", b'["text"]\n', 1, "a JSON list", "an object..."),
        ("a.jsonl", b'{"text": 3}\n', 1, "the value of 'text' is of type int", "a string"),
        ("a.csv", b"id,txt\n1,x\n", "", "no column 'text' (columns found: 'id', 'txt')", "..."),
        ("a.csv", b"id,text\n1,x\n2,x,y\n", 3, "3 columns", "2 as in the header"),
        ("a.csv", b'id,text\n1,"x\n', 2, "broken CSV (unexpected end of data)", "..."),
        ("a.jsonl", b'{"text": "x", "text": "y"}\n', 1, "JSON that cannot be read (the key...", "..."),
        ("a.jsonl", b'{"text": "x", "n": ' + b"1" * 5000 + b"}", 1, "JSON that cannot be read (Exceeds...", "..."),
        ("a.csv", b"text,text\n1,x\n", "", "found 2 columns named 'text'", "a single one"),
        ("a.jsonl.gz", b"", "", "cannot be read (it is empty)", "a whole .gz file"),
        ("a.txt.zst", b"", "", "cannot be read (it is empty)", "a whole .zst file"),
        ("a.csv", b"", "", "no column 'text' (columns found: none)", "..."),
        ("a.parquet", b"PAR1", "", "cannot be read...", "..."),
        (
            "a.jsonl.gz",
            gzip.compress(b'{"text": "x"}\n' * 9, mtime=0)[:-9],
            "",
            "cannot be read...",
            "...whole .gz file",
        ),
        ("a.jsonl.gz", b'{"text": "x"}\n', "", "cannot be read (Not a gzipped file...", "..."),
        ("a.txt.zst", b"no zstandard", "", "cannot be read...", "...whole .zst file"),
        ("a.parquet.zst", b"no zstandard", "", "cannot be read...", "...whole .zst file"),
    ],
)
def test_broken_input_is_told_with_its_place(
    tmp_path: Path, name: str, content: bytes, line: int | str, problem: str, expected: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with refused(file=name, line=line, problem=problem, expected=expected):
        list(READERS[files.format_suffix(path)](path, Source(str(path))))


def test_broken_lines_are_told_together(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "x"}\n' + "{}\n" * 30)
    with pytest.raises(DomainbertError) as caught:
        list(read_jsonl(path, Source(str(path))))
    assert [(error.line, error.problem[:6]) for error in caught.value.errors] == [(n, "no key") for n in range(2, 22)]
    lines = str(caught.value).splitlines()
    assert lines[0].endswith("a.jsonl, stopped reading: 20 problems") and lines[-1] == "  ... and 17 more like this"


def test_a_flipped_bit_in_parquet_never_loses_rows(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"text": [f"text {number}" for number in range(40)]}), buffer, write_page_checksum=True)
    whole, path, refused = buffer.getvalue(), tmp_path / "a.parquet", 0
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        try:
            assert len(list(read_parquet(path, Source("a")))) == 40
        except DomainbertError as error:
            assert str(error).startswith(f"{path}: ")
            refused += 1
    assert refused > len(whole) / 4


def test_parquet_column_that_is_no_text_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": [1, 2]}), tmp_path / "a.parquet")
    with refused(file="a.parquet", problem="the column 'text' is of type int64"):
        list(read_parquet(tmp_path / "a.parquet", Source("a")))


@pytest.mark.parametrize("documents", ["file", "blank_line", "line"])
def test_a_document_too_long_for_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, documents: str
) -> None:
    for module in (files, sys.modules[read_text.__module__]):
        monkeypatch.setattr(module, "MAX_DOCUMENT_BYTES", 1024**2)
    path = tmp_path / "a.txt"
    path.write_text("short\n" + ("x" * (2**21) if documents == "line" else "word word\n" * 2**18))
    with refused(file="a.txt", problem="a ... of more than 1 MiB"):
        list(read_text(path, Source(str(path), documents=documents)))


def test_the_length_of_a_document_is_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (files, sys.modules[read_text.__module__]):
        monkeypatch.setattr(module, "MAX_DOCUMENT_BYTES", 1000)
    text = "\u0e01" * 400  # 1200 bytes
    (tmp_path / "a.txt").write_text(f"{text[:200]}\n{text[200:]}", encoding="utf-8")
    with refused(file="a.txt", line=1, problem="a document of more than..."):
        list(read_text(tmp_path / "a.txt", Source("a")))
    pq.write_table(pa.table({"text": ["", text]}), tmp_path / "a.parquet")
    with refused(where="...a.parquet, row 2", problem="a document of more than..."):
        list(read_parquet(tmp_path / "a.parquet", Source("a")))


def test_csv_field_may_be_longer_than_pythons_own_limit(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text\n" + "x" * 300_000 + "\n\n")
    assert [len(text) for _, text in read_csv(path, Source(str(path)))] == [300_000]


def test_conll_gives_sentences_without_labels(tmp_path):
    path = tmp_path / "a.conll"
    path.write_text(" -DOCSTART- O\n\nCash B-x\n  transfers   I-x\n\n\nhelp\tO\n.\tO\n", encoding="utf-8")
    assert list(read_conll(path, Source(str(path)))) == [(":3", "Cash transfers"), (":7", "help .")]


def test_comments_before_a_sentence_are_no_words(tmp_path):
    """As in MultiCoNER; UniversalNER numbers its words. A first word may begin with #."""
    path = tmp_path / "a.conll"
    path.write_text("# id 5239d808\tdomain=en\nthe _ _ O\nThames _ _ B-LOC\n\n# O\n1 O\n", encoding="utf-8")
    assert list(read_conll(path, Source(str(path)))) == [(":1", "the Thames"), (":5", "# 1")]
    path.write_text("# sent_id = 1\n# text = Rates rose\n1\tRates\tO\t-\tx\n2\trose\tO\t-\tx\n", encoding="utf-8")
    with refused(file=path, line=3, problem="column 0 holds word numbers"):
        list(read_conll(path, Source(str(path))))


def test_documents_divide_only_plain_text(tmp_path):
    for name in ("a.jsonl", "b.txt"):
        (tmp_path / name).write_text('{"text": "Rates rose.\\n\\nLoans fell."}\n')
    found = f"line for {tmp_path / 'a.jsonl'}, in which each row is a document"
    with refused(where="sources[0].documents", found=found, expected="plain text, or no documents"):
        check_sources([Source(tmp_path / "a.jsonl", documents="line")])
    check_sources([Source(tmp_path, documents="line")])  # of which some is plain text
    assert Source(tmp_path).path == str(tmp_path)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le"])
@pytest.mark.parametrize("read", [lambda path: list(files.read_lines(path)), files.read_text])
def test_text_in_another_encoding_and_nul_characters_are_refused_with_their_line(
    tmp_path: Path, encoding: str, read: Callable[[Path], object]
) -> None:
    """UTF-16 without a byte order mark is valid UTF-8 with NUL characters."""
    path = tmp_path / "a.txt"
    for content, line, problem in [
        ("Loans\nrose".encode(encoding), 1, "byte ..."),
        (b"Cr\xc3\xa9dit\nA\x00B\n", 2, "byte 2 of the line, 0x00, is a NUL character (is the file UTF-16?)"),
        (b"\xef\xbb\xbfA\n\nB\xff\n", 3, "byte 2 of the line, 0xff, is not UTF-8"),
    ]:
        path.write_bytes(content)
        with refused(file=path, line=line, problem=problem, expected="UTF-8 text..."):
            read(path)
    path.write_bytes("\ufeffCrédit \x01\r\n".encode())
    assert read(path) == ([(1, "Crédit \x01")] if read is not files.read_text else "Crédit \x01\r\n")
