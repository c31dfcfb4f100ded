from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domainbert.settings.yaml_files import dump_yaml, load_yaml, parse_option
from tests.refusals import refused


def write(folder: Path, text: str) -> Path:
    path = folder / "a.yaml"
    path.write_text(text, encoding="utf-8")
    return path


CHARACTERS = st.characters(codec="utf-8", exclude_characters="\0")
TEXT = st.text(CHARACTERS)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(CHARACTERS, max_size=5), inner, max_size=4),
)


@given(st.dictionaries(st.text(CHARACTERS, max_size=5), TREES, max_size=4))
def test_what_is_dumped_reads_back_equal(tmp_path_factory: pytest.TempPathFactory, tree: dict) -> None:
    path = write(tmp_path_factory.mktemp("yaml"), dump_yaml(tree))
    assert load_yaml(path).plain() == tree


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("1e5", 1e5),
        ("-.5", -0.5),
        ("1_000", 1000),
        ("010", 10),
        ("no", "no"),
        ("on", "on"),
        ("true", True),
        ("12:30", "12:30"),
        ("2024-01-02", "2024-01-02"),
        ("null", None),
        (".inf", float("inf")),
        ("", ""),
        ("@vocab", "@vocab"),
        ("data/*.txt", "data/*.txt"),
        ("*.txt", "*.txt"),
        ("[1, a]", [1, "a"]),
        ("e5", "e5"),
        ("[unclosed", "[unclosed"),
        ("notes #2", "notes #2"),
        ("a\nb", "a\nb"),
        ("'notes' #2", "notes"),
        (" padded ", "padded"),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text: str, value: object) -> None:
    assert parse_option(text, "--x").plain() == value


def test_values_know_their_line(tmp_path: Path) -> None:
    node = load_yaml(write(tmp_path, "a: 1\nb:\n  c:\n  - x\n  - y\n"))
    assert node.value["b"].where == f"{tmp_path}/a.yaml:2"
    assert node.value["b"].value["c"].value[1].where == f"{tmp_path}/a.yaml:5"


def test_anchors_and_merge_keys(tmp_path: Path) -> None:
    text = "base: &base {x: 1, y: 2}\nother: &other {x: 5, z: 3}\nuse:\n  <<: [*base, *other]\n  y: 7\n"
    assert load_yaml(write(tmp_path, text)).plain()["use"] == {"x": 1, "y": 7, "z": 3}


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n"
    for old, new in zip("abcdefghijklmno", "bcdefghijklmnop", strict=True)
)


@pytest.mark.parametrize(
    ("text", "file", "line", "problem", "expected"),
    [
        (BOMB, "...", "", "more than 20,000 values once its aliases are expanded", "..."),
        ("a: &a [*a]\n", "a.yaml", 1, "more than 100 levels...", "..."),
        ("a: 1\nb: 2\na: 3\n", "a.yaml", 3, "duplicate key 'a'", "..."),
        ("x:\n  a: 1\n  a: 3\n", "a.yaml", 3, "duplicate key 'a'", "..."),
        ("1: x\n", "a.yaml", 1, "found a key that is not text", "..."),
        ("? [a]\n: x\n", "a.yaml", 1, "found a key that is not text", "..."),
        ("a: 1\nmodel: @vocab\n", "a.yaml", 2, "not valid YAML...put quotes around...", "..."),
        ("a: !!python/object/apply:os.system [ls]\n", "a.yaml", 1, "not valid YAML...", "..."),
        ("a: !!int abc\n", "a.yaml", 1, "not valid YAML...", "..."),
        ("a: [1\n", "...", "...", "not valid YAML...", "..."),
        ("a: b: c\n", "a.yaml", 1, "not valid YAML: mapping values...check the...", "..."),
        ("a:\n\tb: 1\n", "a.yaml", 2, "not valid YAML: ...(indent with spaces, not tabs)", "..."),
        ("a: 1\n---\nb: 2\n", "...", "...", "not valid YAML...", "..."),
        ("- a\n", "a.yaml", 1, "found a list", "keys and values"),
        ("a: " + "[" * 5000 + "]" * 5000, "a.yaml", 1, "more than 100 levels...", "..."),
        ("a: " + "[" * 120 + "]" * 120, "...", "...", "more than 100 levels...", "..."),
        ("a: \x00\n", "...", "", "not valid YAML...", "..."),
        ("b: 1\na: '\\0'\n".replace("'", '"'), "a.yaml", 2, "contains the character '\\x00'", "text without it"),
        ('a: "\\ud800"\n', "a.yaml", 1, "contains the character '\\ud800'", "text without it"),
        ("a: !!bool maybe\n", "a.yaml", 1, "not valid YAML: 'maybe'", "..."),
        ("a: !!float ''\n", "a.yaml", 1, "not valid YAML...", "..."),
        ("a: !!binary aGk=\n", "a.yaml", 1, "not valid YAML here: the tag...", "..."),
        ("a: !!timestamp 2024-01-01\n", "a.yaml", 1, "not valid YAML here: the tag...", "..."),
        ("a: <<\n", "a.yaml", 1, "not valid YAML here: the tag tag:yaml.org,2002:merge", "..."),
        ("!!python/name:os.system '': 1\n", "a.yaml", 1, "found a key that is not text", "..."),
    ],
)
def test_bad_files_are_refused_in_a_sentence(
    tmp_path: Path, text: str, file: str, line: int | str, problem: str, expected: str
) -> None:
    with refused(file=file, line=line, problem=problem, expected=expected):
        load_yaml(write(tmp_path, text))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with refused(file="no.yaml", problem="cannot be read (No such file..."):
        load_yaml(tmp_path / "no.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"a: caf\xe9\n")
    with refused(file="latin.yaml", problem="byte 6 is not UTF-8"):
        load_yaml(tmp_path / "latin.yaml")
    (tmp_path / "bom.yaml").write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert load_yaml(tmp_path / "bom.yaml").plain() == {"a": 1}
    assert load_yaml(write(tmp_path, "# nothing\n")).plain() == {}


def chain(line: str, length: int) -> str:
    """`a1` made of `a0`, `a2` of `a1`, and so on."""
    return "a0: &a0 {x: 1}\n" + "".join(line.format(new=i + 1, old=i) for i in range(length))


CLASSIC = "a: &a [lol,lol]\n" + "".join(  # the billion laughs
    f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
BOMBS = {
    "396 bytes of aliases": (CLASSIC, "more than 20,000 values once its aliases are expanded"),
    "merge keys that double": (
        chain("a{new}: &a{new} {{<<: [*a{old}, *a{old}]}}\n", 20),
        "more than 20,000 values once its aliases are expanded",
    ),
    "a long chain of merge keys": (chain("a{new}: &a{new} {{<<: *a{old}}}\n", 3000), "more than 100 levels"),
    "a long chain of aliases": (chain("a{new}: &a{new} [*a{old}]\n", 5000), "more than 100 levels"),
    "deep [": ("a: " + "[" * 100_000, "more than 100 levels"),
    "deep {": ("a: " + "{a: " * 100_000, "more than 100 levels"),
    "deep -": ("- " * 100_000, "more than 100 levels"),
    "deep ?": ("? " * 100_000, "more than 100 levels"),
    "wide and deep": ("a: " + ("[" + "a, " * 100) * 300, "more than 100 levels"),
    "many values": ("a: [" + "1," * 100_000 + "]", "more than 20,000 values"),
    "many empty lists": ("a: [" + "[]," * 100_000 + "]", "more than 20,000 values"),
    "50 MB": ("a: " + "x" * 50_000_000, "more than 500,000 bytes"),
    "a long key": ("k" * 400_000 + ": 1", "mapping values are not allowed here"),
    "a long number": ("a: " + "9" * 400_000, "not valid YAML: Exceeds the limit"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused_before_they_expand(tmp_path: Path, name: str) -> None:
    text, problem = BOMBS[name]
    with refused(problem=f"...{problem}..."):
        load_yaml(write(tmp_path, text))


def test_a_bomb_in_an_option_is_text() -> None:
    for text in ("[" * 100_000, "{a: " * 30_000, "&a [*a]"):
        assert parse_option(text, "--x").plain() == text


def test_aliases_may_be_used_as_often_as_is_sensible(tmp_path: Path) -> None:
    assert len(CLASSIC) < 400
    text = chain("a{new}: &a{new} {{<<: *a{old}, y{new}: 1}}\n", 40)
    assert len(load_yaml(write(tmp_path, text)).plain()["a40"]) == 41
    assert load_yaml(write(tmp_path, "a: " + "[" * 98 + "]" * 98)).value["a"].value != []
