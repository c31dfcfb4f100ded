"""Small labelled files of every layout, and the many ways in which they may be damaged, drawn by a seed."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from domainbert.labelled.formats import NerFormat

ODD = "\x00\x0b\x0c\x1c\x1d\x1e\x85\xa0\u2003\u2028\u2029\u200b\u3000\ufeff\r"
TAGS = ["O", "B-org", "I-org", "E-org", "S-org", "L-x", "U-x"]
TAGS += ["B-", "-org", "N", "o", "B_org", "B-org ", "I-\u00e9\xa0", "0"]
JSON_VALUES = ["NaN", "-Infinity", "1e999", "9" * 5000, "[" * 5000, "[" * 900 + "]" * 900, '"\\ud800"', "null", "{}"]
JSON_VALUES += ["[]", '""', '" "', "true", "3", '["O"]', '["a", "b", "c"]', '[""]', '["\\ud800"]', "[null]"]
JSON_VALUES += ['"up\\u00a0"']


@dataclass(frozen=True)
class Base:
    """A whole file, and how it is read."""

    name: str
    text: str
    format: NerFormat = NerFormat()
    header: bool = False


def table(rows: str, separator: str, columns: Sequence[int] = (0, 1, 2, 3)) -> str:
    """Rows of `word pos chunk tag` as lines with some of the columns; `_` is a space where tabs separate."""
    lines = []
    for row in rows.split("|"):
        cells = [cell.replace("_", " ") if separator == "\t" else cell for cell in row.split(" ")]
        lines.append(separator.join(cells[column] for column in columns) if row else "")
    return "\n".join(lines) + "\n"


IOB2 = (
    "The DT B O|New_York NNP I B-org|Fed NNP I I-org|raised VBD B O|rates NNS B B-x"
    "||Caf\u00e9s NNS B B-org|1\u202f000 CD I B-org|. . O O"
)
IOB1 = (
    "-DOCSTART- -X- -X- O"
    "||The DT B O|Fed NNP I I-org|ECB NNP I B-org|rose VBD B O"
    "||-DOCSTART- -X- O O"
    "||EU NNP B I-org|law NN B I-x"
)
BIOES = (
    "The DT B O|New_York NNP I B-org|Fed NNP I I-org|Bank NNP I E-org|and CC B O"
    "||ECB NNP B S-org|Cafes NNS I B-x|now RB I E-x"
)
BILOU = BIOES.replace("E-", "L-").replace("S-", "U-")

NER_BASES = [
    Base("a.conll", table(IOB2, " ", (0, 3))),
    Base("b.txt", table(IOB1, " ")),
    Base("c.tsv", table(BIOES, "\t", (0, 3))),
    Base("d.bio", "word\tpos\tner\n" + table(BILOU, "\t", (0, 1, 3)), NerFormat("word", "ner"), header=True),
    Base(
        "e.iob", table(IOB1, "\t", (3, 0)).replace("\n", "\r\n").replace("O\t-DOCSTART-", "-DOCSTART-"), NerFormat(1, 0)
    ),
]
SENTENCES = [
    {"id": 1, "tokens": ["The", "New York", "Fed", "rose"], "tags": ["O", "B-org", "I-org", "O"]},
    {"tags": ["B-x", "B-x"], "tokens": ["Caf\u00e9s", "a\u2028b"], "more": {"k": [1.5, None]}},
    {"tokens": ["EU"], "tags": ["B-org"]},
]
NER_JSONL = Base(
    "f.jsonl", "".join(json.dumps(row, ensure_ascii=number == 1) + "\n" for number, row in enumerate(SENTENCES))
)
TEXTS = [
    ("Rates, they said, rose.", "up"),
    ('A "quoted" caf\u00e9', "down"),
    ("Two\nlines", "up"),
    ("plain", "time span"),
]


def csv_text(delimiter: str) -> str:
    """`TEXTS` below a header, with every field that needs it quoted."""
    rows = [("text", "n", "label"), *((text, "1", label) for text, label in TEXTS)]
    quoted = [
        ['"' + cell.replace('"', '""') + '"' if re.search('[",\n]', cell) else cell for cell in row] for row in rows
    ]
    return "".join(delimiter.join(row) + "\n" for row in quoted)


CLASS_BASES = [
    Base("g.jsonl", "".join(json.dumps({"text": text, "label": label, "n": 1}) + "\n" for text, label in TEXTS)),
    Base("h.csv", csv_text(",")),
    Base("i.tsv", csv_text("\t")),
]

Mutation = Callable[[bytes, random.Random], bytes]


def at(raw: bytes, place: int, new: bytes, removed: int = 0) -> bytes:
    return raw[:place] + new + raw[place + removed :]


def one_of(raw: bytes, old: bytes, new: bytes, generator: random.Random) -> bytes:
    """Replace `old` by `new` at one occurrence, or at all of them."""
    places = [found.start() for found in re.finditer(re.escape(old), raw)]
    if not places or generator.random() < 0.3:
        return raw.replace(old, new)
    return at(raw, generator.choice(places), new, len(old))


def on_a_line(change: Callable[[list[bytes], int, random.Random], None]) -> Mutation:
    def mutate(raw: bytes, generator: random.Random) -> bytes:
        lines = raw.split(b"\n")
        change(lines, generator.randrange(len(lines)), generator)
        return b"\n".join(lines)

    return mutate


def odd(generator: random.Random) -> bytes:
    return generator.choice(ODD).encode()


def insert_odd(raw: bytes, generator: random.Random) -> bytes:
    text = raw.decode("utf-8", "replace")
    place = generator.randrange(len(text) + 1)
    return (text[:place] + odd(generator).decode() + text[place:]).encode()


def change_cells(lines: list[bytes], line: int, generator: random.Random) -> None:
    separator = b"\t" if b"\t" in lines[line] else b" "
    cells = lines[line].split(separator)
    cell = generator.randrange(len(cells))
    cells[cell : cell + generator.randrange(2)] = generator.choice([[], [b""], [b"x"], [b"x", b"O"]])
    lines[line] = separator.join(cells)


def change_tag(lines: list[bytes], line: int, generator: random.Random) -> None:
    lines[line] = re.sub(rb"(O|[BIESLU]-\w+)(?=\W*$|\t)", generator.choice(TAGS).encode(), lines[line], count=1)


def change_json(lines: list[bytes], line: int, generator: random.Random) -> None:
    value = generator.choice(JSON_VALUES).encode()
    key = generator.choice([b'"tags"', b'"tokens"', b'"text"', b'"label"', b'"n"', b'"id"'])
    kind = generator.randrange(4)
    if kind == 0:  # another value
        lines[line] = re.sub(re.escape(key) + rb": *(\[[^]]*\]|[^,}]*)", lambda _: key + b": " + value, lines[line])
    elif kind == 1:  # a key twice, in front or behind
        lines[line] = lines[line].replace(b"{", b"{" + key + b": " + value + b", ", 1)
    elif kind == 2:
        lines[line] = lines[line][:-1] + b", " + key + b": " + value + b"}"
    else:
        lines[line] = lines[line].replace(key, b'"other"')


def duplicate(lines: list[bytes], line: int, generator: random.Random) -> None:
    lines[line:line] = [generator.choice(lines)] * generator.choice([1, 1, 3])


def swap(lines: list[bytes], line: int, generator: random.Random) -> None:
    other = generator.randrange(len(lines))
    lines[line], lines[other] = lines[other], lines[line]


def pad(lines: list[bytes], line: int, generator: random.Random) -> None:
    blank = generator.choice([b" ", b"\t", b"  ", b"\xc2\xa0", b"\xe2\x80\xa9"])
    lines[line] = generator.choice([lines[line] + blank, blank + lines[line]])


def new_line(lines: list[bytes], line: int, generator: random.Random) -> None:
    lines.insert(
        line, generator.choice([b"", b" ", b"\t", b"\xc2\xa0", b"\x00", b"-DOCSTART-", b"# x", b"\xef\xbb\xbf"])
    )


def flip(raw: bytes, generator: random.Random) -> bytes:
    place = generator.randrange(len(raw) + 1)
    return at(raw, place, bytes(byte ^ 1 << generator.randrange(8) for byte in raw[place : place + 1]), 1)


HARMLESS: dict[str, Mutation] = {  # files accepted after these have all entities and rows
    "mark": lambda raw, _: b"\xef\xbb\xbf" + raw,
    "mark inside": lambda raw, generator: one_of(raw, b"\n", b"\n\xef\xbb\xbf", generator),
    "crlf": lambda raw, generator: one_of(raw, b"\n", b"\r\n", generator),
    "two returns": lambda raw, generator: one_of(raw, b"\n", b"\r\r\n", generator),
    "blank lines at the end": lambda raw, _: raw + b"\n \n\n",
    "no-break spaces": lambda raw, generator: one_of(raw, b" ", b"\xc2\xa0", generator),
    "other line ends": lambda raw, generator: raw.replace(b"\n", odd(generator)),
    "utf-16": lambda raw, generator: raw.decode("utf-8", "replace").encode(generator.choice(["utf-16", "utf-16-le"])),
}
HARMFUL: dict[str, Mutation] = {
    "odd character": insert_odd,
    "one other line end": lambda raw, generator: one_of(raw, b"\n", odd(generator), generator),
    "tabs for spaces": lambda raw, generator: one_of(raw, b" ", b"\t", generator),
    "spaces for tabs": lambda raw, generator: one_of(raw, b"\t", generator.choice([b" ", b"\xc2\xa0"]), generator),
    "latin-1": lambda raw, generator: one_of(raw, "\u00e9".encode(), b"\xe9", generator),
    "no utf-8": lambda raw, generator: at(
        raw, generator.randrange(len(raw) + 1), generator.choice([b"\xed\xa0\x80", b"\xc0\x80", b"\xff"])
    ),
    "long": lambda raw, generator: at(raw, generator.randrange(len(raw) + 1), b"x" * 100_000),
    "wide": lambda raw, generator: at(
        raw, generator.randrange(len(raw) + 1), generator.choice([b" O", b"\tO", b","]) * 999
    ),
    "empty": lambda raw, generator: generator.choice([b"", b"\n", b"\xef\xbb\xbf", b"\r", b"\x00"]),
    "cut": lambda raw, generator: raw[: generator.randrange(len(raw) + 1)],
    "hole": lambda raw, generator: at(raw, generator.randrange(len(raw) + 1), b"", generator.randrange(40)),
    "quote": lambda raw, generator: at(
        raw, generator.randrange(len(raw) + 1), generator.choice([b'"', b"'", b"\\", b","])
    ),
    "flip": flip,
    "line twice": on_a_line(duplicate),
    "line gone": on_a_line(lambda lines, line, _: lines.pop(line) and None),
    "swap": on_a_line(swap),
    "pad": on_a_line(pad),
    "new line": on_a_line(new_line),
    "cells": on_a_line(change_cells),
    "tag": on_a_line(change_tag),
    "json": on_a_line(change_json),
}


def mutated(base: Base, generator: random.Random) -> tuple[bytes, list[str]]:
    """The base after one to three mutations, and their names."""
    raw = base.text.encode()
    names = generator.choices([*HARMLESS, *HARMFUL], k=generator.choice([1, 1, 2, 3]))
    for name in names:
        raw = (HARMLESS | HARMFUL)[name](raw, generator)
    return raw, names


def damaged_gzip(raw: bytes, generator: random.Random) -> bytes:
    """Packed, and then whole, cut, with a bit flipped, or with something behind it."""
    packed = gzip.compress(raw, mtime=0)
    kind = generator.randrange(4)
    cut = packed[: generator.randrange(len(packed))]
    return [packed, cut, flip(packed, generator), packed + generator.choice([b"x", b"\0", packed[:9]])][kind]
