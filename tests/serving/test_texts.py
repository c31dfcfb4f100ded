from pathlib import Path

import pytest

from domainbert.corpus.file_kind import TextFormat
from domainbert.serving.texts import read_texts
from tests.refusals import refused


@pytest.mark.parametrize(
    ("content", "problem", "expected"),
    [
        (b'{"text": "\\ud800"}', "contains half a surrogate pair", "valid Unicode"),
        (b'{"text": "a", "more": {"k": ["\\ud800"]}}', "contains half a surrogate pair", "valid Unicode"),
        (b'{"text": "a", "\\ud800": 1}', "contains half a surrogate pair", "valid Unicode"),
        (b'{"text": "a", "text": "b"}', "JSON that cannot be read (the key 'text' more than once)", "..."),
        (b'{"text": ["a"]}', "no string under 'text'", "the text there, or text_key set to..."),
        (b'{"text": "\xff"}', "byte 11 of the line, 0xff, is not UTF-8", "..."),
        (b'{"text": "a", "n": ' + b"[" * 5000 + b"}", "JSON that cannot be read (maximum recursion...", "..."),
    ],
)
def test_rows_that_could_not_be_written_again_are_refused_when_they_are_reached(
    tmp_path: Path, content: bytes, problem: str, expected: str
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "first", "n": NaN}\n' + content + b"\n")
    _, rows = read_texts(path, "auto", "text", 0)
    assert next(rows)[0]["text"] == "first"
    with refused(file=path, line=2, problem=problem, expected=expected):
        next(rows)


def test_any_line_is_a_text(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffa\u2028b\r\n\nc\x01\x0b\ufeff\r\r\n \x85".encode())
    assert [row["text"] for row, _ in read_texts(path, "auto", "text", 0)[1]] == [
        "a\u2028b",
        "",
        "c\x01\x0b\ufeff\r",
        " \x85",
    ]


@pytest.mark.parametrize(
    ("name", "format", "comma"), [("a.csv", "auto", ","), ("a.csv", "auto", ";"), ("a", "tsv", "\t")]
)
def test_the_header_and_the_labels_of_a_table_are_no_texts(
    tmp_path: Path, name: str, format: TextFormat, comma: str
) -> None:
    """Read as lines, the header was a text, and each text ended with its label."""
    path = tmp_path / name
    path.write_text(f'\ufefftext{comma}label\n"a\nb"{comma}up\n\n{comma}down\n', encoding="utf-8")
    texts = [(row, content) for row, content in read_texts(path, format, "text", 0)[1]]
    assert texts == [({"text": "a\nb", "label": "up"}, "a\nb"), ({"text": "", "label": "down"}, "")]


def test_a_table_without_the_column_of_the_texts(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,body\n1,a\n")
    with refused(file="a.csv", line=1, problem="no column 'text'", hint="... names 'id', 'body' (set text_key)"):
        read_texts(path, "auto", "text", 0)
