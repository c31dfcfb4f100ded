from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from domainbert.errors import DomainbertError
from domainbert.settings.yaml_files import dump_yaml, load_yaml, parse_option


def write(folder: Path, text: str) -> Path:
    path = folder / "a.yaml"
    path.write_text(text, encoding="utf-8")
    return path


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8"))
TREES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
)


@given(st.dictionaries(st.text(max_size=5), TREES, max_size=4))
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
    ("text", "expected"),
    [
        (BOMB, "very many values once its aliases are expanded; expected at most 100,000"),
        ("a: &a [*a]\n", "a.yaml:1: an alias that contains itself"),
        ("a: 1\nb: 2\na: 3\n", "a.yaml:3: key 'a' stands here twice"),
        ("x:\n  a: 1\n  a: 3\n", "a.yaml:3: key 'a' stands here twice"),
        ("1: x\n", "a.yaml:1: found a key that is not text"),
        ("? [a]\n: x\n", "a.yaml:1: found a key that is not text"),
        ("a: 1\nmodel: @vocab\n", "a.yaml:2: not valid YAML.*put quotes around"),
        ("a: !!python/object/apply:os.system [ls]\n", "a.yaml:1: not valid YAML"),
        ("a: !!int abc\n", "a.yaml:1: not valid YAML"),
        ("a: [1\n", "not valid YAML"),
        ("a: b: c\n", "a.yaml:1: not valid YAML"),
        ("a: 1\n---\nb: 2\n", "not valid YAML"),
        ("- a\n", "a.yaml:1: found a list; expected keys and values"),
        ("a: " + "[" * 5000 + "]" * 5000, "nested too deeply"),
        ("a: " + "[" * 120 + "]" * 120, "more than 100 levels"),
        ("a: \x00\n", "not valid YAML"),
    ],
)
def test_bad_files_are_refused_in_a_sentence(tmp_path: Path, text: str, expected: str) -> None:
    start = time.process_time()
    with pytest.raises(DomainbertError, match=expected):
        load_yaml(write(tmp_path, text))
    assert time.process_time() - start < 2


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DomainbertError, match=r"no\.yaml: cannot be read \(No such file"):
        load_yaml(tmp_path / "no.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"a: caf\xe9\n")
    with pytest.raises(DomainbertError, match=r"latin\.yaml: byte 6 is not UTF-8"):
        load_yaml(tmp_path / "latin.yaml")
    (tmp_path / "bom.yaml").write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert load_yaml(tmp_path / "bom.yaml").plain() == {"a": 1}
    assert load_yaml(write(tmp_path, "# nothing\n")).plain() == {}


def test_many_values_without_aliases_are_still_refused(tmp_path: Path) -> None:
    with pytest.raises(DomainbertError, match=r"100,00[0-9] values"):
        load_yaml(write(tmp_path, yaml.safe_dump({"a": [1] * 100_000}, default_flow_style=True)))
