"""The kind of a text file, by its first lines and then its suffix: one rule for all stages."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from domainbert.base.errors import DomainbertError
from domainbert.corpus.files import format_suffix, read_lines

Kind = Literal["lines", "json", "jsonl", "conll", "csv", "tsv", "rows"]
TextFormat = Literal["auto", "lines", "jsonl", "conll"]

_NAMES: dict[Kind, str] = {
    "lines": "lines of text",
    "json": "JSON",
    "jsonl": "JSONL",
    "conll": "CoNLL",
    "csv": "CSV with a header",
    "tsv": "TSV with a header",
    "rows": "rows",
}
# the kinds that a suffix may stand for; where the lines do not decide, the first that a stage reads is taken
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
_MAX_CONTENT = 50  # lines that are not blank
_MAX_LINES = 500
_MAX_CHARACTERS = 1 << 20
_MOST = 0.8  # of the lines are rows of a CoNLL file; the strict reader names those that are not
_BEGINS_CONLL = re.compile(r" *-DOCSTART-(?=[ \t]|$)|#\s*global\.columns\s*=")
_BEGINS_ARRAY = re.compile(r"\[\s*\{\s*(\"|$)")  # of objects, which are the rows of JSONL
_TAG = re.compile(r"O|[BIESLU](-\S.*)?")


CONLLU_COLUMNS = 10  # columns; the first numbers the words
_NO_WORD = re.compile(r"\d+[-.]\d+\t")


@dataclass(frozen=True)
class FileKind:
    """The kind that a file is read as."""

    kind: Kind
    columns: int | None = None  # in the first line of a CoNLL file

    def __str__(self) -> str:
        """`CoNLL (4 columns)`."""
        if self.columns is None:
            return _NAMES[self.kind]
        return f"{_NAMES[self.kind]} ({self.columns} column{'' if self.columns == 1 else 's'})"


def look(path: Path) -> list[str]:
    """The first lines of a file, as many as decide its kind."""
    with closing(read_lines(path)) as lines:
        return [line for _, line in first_lines(lines)]


def first_lines(lines: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
    """The first numbered lines, no more than needed: two of plain text, one of JSONL, 50 of CoNLL."""
    first: list[tuple[int, str]] = []
    content: list[str] = []
    characters = 0
    for number, line in lines:
        first.append((number, line))
        characters += len(line) + 1
        content += [line] if line.strip(" \t") else []
        if len(first) >= _MAX_LINES or characters >= _MAX_CHARACTERS or _is_enough(content):
            break
    return first


def tell_kind(path: Path, first: Sequence[str], expected: Sequence[Kind], setting: str = "") -> FileKind:
    """Decide the kind, of those expected, that a file is read as.

    JSONL is recognised by its objects, which may also stand in a JSON array; CoNLL by `-DOCSTART-` or
    `# global.columns` in the first line, by a column with tags in most lines, or by lines with the same number of tabs
    and blank lines between them. Otherwise the suffix decides. `setting` is the key that overrides this, if there is
    one.

    Raises:
        DomainbertError: neither lines nor suffix decide; or plain text can be read too, and every line has columns,
            which may be words without tags or a table.
    """
    listed = ", ".join(_NAMES[kind] for kind in expected)
    found, suffix = evident_kind(first), format_suffix(path)
    if found is not None and found in expected:
        return FileKind(found, _columns(first) if found == "conll" else None)
    possible = [kind for kind in _SUFFIXES.get(suffix, ()) if kind in expected]
    if possible and "lines" in expected and suffix in ("", ".txt", ".tsv") and (width := _tab_columns(first)):
        raise DomainbertError(
            f"{path}: {width} columns separated by tabs in every line, and no tags; expected `{setting}` to say what "
            f"it is ({listed})"
        )
    if possible:
        return FileKind(possible[0], _columns(first) if possible[0] == "conll" else None)
    told = f"looks like {_NAMES[found]}" if found else f"unknown suffix {suffix!r}, and its first lines do not tell"
    advice = f", or `{setting}` to say which of them it is" if setting else ""
    raise DomainbertError(f"{path}: {told}; expected {listed}{advice}")


def _is_enough(content: Sequence[str]) -> bool:
    if len(content) >= _MAX_CONTENT:
        return True
    if len(content) < 2:
        return bool(content) and _is_object(content[0])
    two = content[:2]
    open_still = any(_tag_places(line) or line.startswith("{") for line in two) or _tab_columns(two)
    return not open_still or bool(_BEGINS_CONLL.match(content[0]))


def evident_kind(first: Sequence[str]) -> Literal["jsonl", "conll"] | None:
    """The kind that follows from the first lines of a file alone, by the rules of `tell_kind`."""
    filled = [number for number, line in enumerate(first) if line.strip(" \t")]
    content = [first[number] for number in filled]
    if not content:
        return None
    if _is_object(content[0]) or (content[0].startswith("{") and 2 * sum(map(_is_object, content)) >= len(content)):
        return "jsonl"
    if _BEGINS_ARRAY.match("\n".join(content)):
        return "jsonl"
    if _BEGINS_CONLL.match(content[0]):
        return "conll"
    if _tab_columns(content) and filled[-1] - filled[0] >= len(filled):  # blank lines between them
        return "conll"
    widths = Counter(len(_split(line)) for line in content)
    width = widths.most_common(1)[0][0]
    places = Counter(place for line in content if len(_split(line)) == width for place in _tag_places(line))
    rows = max(places.values(), default=0)
    headed = len(content) - (not _tag_places(content[0]))  # the first line may name the columns
    return "conll" if rows >= 2 and rows >= _MOST * headed else None


def _is_object(line: str) -> bool:
    if not line.lstrip().startswith("{"):
        return False
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _split(line: str) -> list[str]:
    return line.split("\t") if "\t" in line else re.split(" +", line.strip(" "))


def _tag_places(line: str) -> list[int]:
    """The columns that hold a tag, in a line of several columns."""
    columns = _split(line)
    return [place for place, column in enumerate(columns) if len(columns) > 1 and _TAG.fullmatch(column)]


def _tab_columns(lines: Sequence[str]) -> int:
    """The number of columns where two lines or more have the same, separated by tabs; 0 otherwise."""
    content = [line for line in lines if line.strip(" \t")]
    widths = {line.count("\t") + 1 for line in content}
    return widths.pop() if len(content) > 1 and len(widths) == 1 and widths != {1} else 0


def _columns(first: Sequence[str]) -> int | None:
    """The number of columns of the first line that holds a word."""
    content = [line for line in first if line.strip(" \t") and not _BEGINS_CONLL.match(line)]
    content = [line for line in content if not line.startswith("#") or "\t" in line]  # no comments of CoNLL-U
    return len(_split(content[0])) if content else None


def without_asides(sentence: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """The lines of a sentence of CoNLL-U without what it has beside words: comments, multiword tokens, empty nodes; of
    another file as they are."""
    rows = [(number, line) for number, line in sentence if not line.startswith("#") or "\t" in line]
    if not rows or any(line.count("\t") + 1 != CONLLU_COLUMNS for _, line in rows):
        return sentence
    words = [(number, line) for number, line in rows if not _NO_WORD.match(line)]
    return words if words and count_up([line.partition("\t")[0] for _, line in words]) else sentence


def count_up(column: Sequence[str]) -> bool:
    """Whether a column numbers the words of a sentence: 1, 2, 3, ..."""
    return list(column) == [str(place) for place in range(1, len(column) + 1)]
