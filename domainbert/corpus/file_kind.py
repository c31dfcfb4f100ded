"""Detects the kind of a text file from its first lines, then from its suffix; the same rules for all stages."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from domainbert.base.errors import DomainbertError
from domainbert.corpus.files import Line, format_suffix, read_lines

Kind = Literal["lines", "json", "jsonl", "conll", "csv", "tsv", "rows"]
TextFormat = Literal["auto", "lines", "jsonl", "conll", "csv", "tsv"]

KIND_NAMES: dict[Kind, str] = {
    "lines": "lines of text",
    "json": "JSON",
    "jsonl": "JSONL",
    "conll": "CoNLL",
    "csv": "CSV with a header",
    "tsv": "TSV with a header",
    "rows": "rows",
}
"""Names of the kinds for messages."""

# possible kinds of a suffix; if the lines do not decide, the first kind that the stage can read is used
_SUFFIXES: dict[str, tuple[Kind, ...]] = {
    "": ("lines", "conll"),
    ".txt": ("lines", "conll"),
    ".jsonl": ("jsonl",),
    ".conll": ("conll",),
    ".conllu": ("conll",),
    ".bio": ("conll",),
    ".iob": ("conll",),
    ".tsv": ("conll", "tsv"),
    ".csv": ("csv",),
}
# limits of the first lines that are read to detect the kind
_MAX_CONTENT = 50  # non-blank lines
_MAX_LINES = 500
_MAX_CHARACTERS = 1 << 20
_MIN_TAGGED = 0.8  # share of tagged lines in a CoNLL file; the strict reader reports the other lines
_BEGINS_CONLL = re.compile(r" *-DOCSTART-(?=[ \t]|$)|#\s*global\.columns\s*=")
_BEGINS_ARRAY = re.compile(r"\[\s*\{\s*(\"|$)")  # an array of objects is read as JSONL
_TAG = re.compile(r"O|[BIESLU](-\S.*)?")

CONLLU_COLUMNS = 10  # columns; the first numbers the words
_MULTIWORD_OR_EMPTY = re.compile(r"\d+[-.]\d+\t")  # multiword token (3-4) or empty node (3.1)


@dataclass(frozen=True)
class FileKind:
    """Detected kind of a file."""

    kind: Kind
    columns: int | None = None  # number of columns in the first row of a CoNLL file

    def __str__(self) -> str:
        """Return the name for messages, such as `CoNLL (4 columns)`."""
        if self.columns is None:
            return KIND_NAMES[self.kind]
        return f"{KIND_NAMES[self.kind]} ({self.columns} column{'' if self.columns == 1 else 's'})"


def read_first_lines(path: Path) -> list[str]:
    """Return the first lines of a file, as many as are needed to detect its kind."""
    with closing(read_lines(path)) as lines:
        return [line for _, line in first_lines(lines)]


def first_lines(lines: Iterable[Line]) -> list[Line]:
    """Return the first numbered lines, as many as are needed to detect the kind: two of plain text, one of JSONL, 50 of
    CoNLL. A stream is not read further than that."""
    first: list[Line] = []
    content: list[str] = []  # lines that are not blank
    characters = 0
    for number, line in lines:
        first.append((number, line))
        characters += len(line) + 1
        if line.strip(" \t"):
            content.append(line)
            is_evident = _is_object(line) if len(content) == 1 else len(content) == 2 and _is_evident(content)
            if is_evident or len(content) >= _MAX_CONTENT:
                break
        if len(first) >= _MAX_LINES or characters >= _MAX_CHARACTERS:
            break
    return first


def detect_kind(path: Path, first: Sequence[str], expected: Sequence[Kind], setting: str) -> FileKind:
    """Return which of the expected kinds a file has, from its path and its first lines.

    JSONL is detected by its objects, also in a JSON array; CoNLL by `-DOCSTART-` or `# global.columns` in the first
    line, by a column with tags in most lines, or by lines with the same number of tabs and blank lines between them.
    Otherwise the suffix decides. `setting` is the key that overrides the detection; "" if there is none.

    Raises:
        DomainbertError: neither lines nor suffix decide; or plain text is expected, too, and every line has columns, so
            the file may be words without tags or a table.
    """
    names = ", ".join(KIND_NAMES[kind] for kind in expected)
    advice = f"set `{setting}` to {' or '.join(expected)}" if setting else ""
    evident = evident_kind(first)
    if evident is not None and evident in expected:
        return FileKind(evident, _num_columns(first) if evident == "conll" else None)
    suffix = format_suffix(path)
    possible = [kind for kind in _SUFFIXES.get(suffix, ()) if kind in expected]
    if possible and "lines" in expected and suffix in ("", ".txt", ".tsv") and (width := _num_tab_columns(first)):
        found = f"the format is not evident from {width} columns separated by tabs, without tags"
        raise DomainbertError(found, file=path, expected="" if advice else names, hint=advice)
    if possible:
        return FileKind(possible[0], _num_columns(first) if possible[0] == "conll" else None)
    may_be_two_files = setting == "format.kind" and "csv" in expected and not evident
    two_files = ", or {text: FILE, label: FILE}, a file of texts and a file of labels" if may_be_two_files else ""
    found = f"looks like {KIND_NAMES[evident]}" if evident else f"unknown suffix {suffix!r} and unknown content"
    raise DomainbertError(found, file=path, expected=f"{names}{f' (or {advice})' if advice else ''}{two_files}")


def _is_evident(first_two: Sequence[str]) -> bool:
    """Whether the first two lines show that a file is CoNLL (by its head), or plain text."""
    may_be_columns = any(map(_tagged_columns, first_two)) or _num_tab_columns(first_two) > 0
    may_be_broken_jsonl = any(line.startswith("{") for line in first_two)
    return bool(_BEGINS_CONLL.match(first_two[0])) or not (may_be_columns or may_be_broken_jsonl)


def evident_kind(first: Sequence[str]) -> Literal["jsonl", "conll"] | None:
    """Return the kind by the first lines alone, with the rules of `detect_kind`; None if they do not decide."""
    content_indices = [index for index, line in enumerate(first) if line.strip(" \t")]  # of lines that are not blank
    content = [first[index] for index in content_indices]
    if not content:
        return None
    most_are_objects = content[0].startswith("{") and 2 * sum(map(_is_object, content)) >= len(content)
    if _is_object(content[0]) or most_are_objects or _BEGINS_ARRAY.match("\n".join(content)):
        return "jsonl"
    has_blank_between = content_indices[-1] - content_indices[0] + 1 > len(content)
    is_conll = _BEGINS_CONLL.match(content[0]) or (has_blank_between and _num_tab_columns(content))
    return "conll" if is_conll or _has_tag_column(content) else None


def _has_tag_column(content: Sequence[str]) -> bool:
    """Whether nearly all lines have a tag in the same column, if the first line is not counted when it has no tag, as a
    header. Lines of another width than most lines count as lines without a tag."""
    widths = [len(_split_columns(line)) for line in content]
    width = Counter(widths).most_common(1)[0][0]
    lines = [line for line, columns in zip(content, widths, strict=True) if columns == width]
    tags_by_column: dict[int, list[str]] = defaultdict(list)
    for line in lines:
        for column in _tagged_columns(line):
            tags_by_column[column].append(_split_columns(line)[column])
    # number of tags in the column with the most tags; a column of only "I" is the English word
    most_tags = max((len(tags) for tags in tags_by_column.values() if set(tags) != {"I"}), default=0)
    num_words = len(content) if _tagged_columns(content[0]) else len(content) - 1
    return most_tags >= 2 and most_tags >= _MIN_TAGGED * num_words


def _is_object(line: str) -> bool:
    if not line.lstrip().startswith("{"):
        return False
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _split_columns(line: str) -> list[str]:
    return line.split("\t") if "\t" in line else re.split(" +", line.strip(" "))


def _tagged_columns(line: str) -> list[int]:
    # the first word of a text is not a tag: sentences begin with "I" in English and "O" in Portuguese
    columns = _split_columns(line)
    first = 0 if "\t" in line else 1
    return [index for index in range(first, len(columns)) if _TAG.fullmatch(columns[index])]


def _num_tab_columns(lines: Sequence[str]) -> int:
    widths = [line.count("\t") + 1 for line in lines if line.strip(" \t")]
    is_table = len(widths) > 1 and len(set(widths)) == 1 and widths[0] > 1
    return widths[0] if is_table else 0


def _num_columns(first: Sequence[str]) -> int | None:
    content = [line for line in first if line.strip(" \t") and not _BEGINS_CONLL.match(line)]
    content = [line for line in content if not line.startswith("#") or "\t" in line]  # no comments of CoNLL-U
    return len(_split_columns(content[0])) if content else None


def strip_conllu_extras(sentence: list[Line]) -> list[Line]:
    """Return the numbered lines of a CoNLL-U sentence without comments, multiword tokens and empty nodes; the lines of
    other files unchanged."""
    rows = [(number, line) for number, line in sentence if not line.startswith("#") or "\t" in line]
    if not rows or any(line.count("\t") + 1 != CONLLU_COLUMNS for _, line in rows):
        return sentence
    words = [(number, line) for number, line in rows if not _MULTIWORD_OR_EMPTY.match(line)]
    return words if words and is_word_numbering([line.partition("\t")[0] for _, line in words]) else sentence


def is_word_numbering(column: Sequence[str]) -> bool:
    """Whether the values of a column are the numbers of the words of a sentence: 1, 2, 3, ..."""
    return list(column) == [str(number) for number in range(1, len(column) + 1)]
