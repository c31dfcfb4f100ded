"""The tool of `make mutants`: which changes it makes, and which it does not."""

from __future__ import annotations

import ast
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"mutants_{name}", HERE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def changes(source: str, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    return {one.change for one in load("mutations", monkeypatch).mutants("m.py", source)}


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("x = a < b", {"a < b  ->  a <= b"}),
        ("x = a + 2", {"a + 2  ->  a - 2", "2  ->  3"}),
        ("x = not a", {"not a  ->  a"}),
        ("x = a and b", {"a and b  ->  a or b", "a and b  ->  b"}),
        ("x = a if c else b", {"a if c else b  ->  a", "a if c else b  ->  b"}),
        ("x = True, 0.5", {"True  ->  False", "0.5  ->  1.0"}),
        ("x = v.sum(axis=1)", {"v.sum(axis=1)  ->  v.mean(axis=1)", "v.sum(axis=1)  ->  v.sum()", "1  ->  2"}),
        ("x = np.log(v)", {"np.log(v)  ->  v"}),
        ("x = v.exp()", {"v.exp()  ->  v"}),
        ("x = f(a, b)", {"f(a, b)  ->  f(b, a)"}),
        ("x = f(a, a)", set()),
        ("x = v[a:b]", {"a:b  ->  :b", "a:b  ->  a:"}),
        ("x = [a for a in b if a]", {" for a in b if a  ->   for a in b"}),
        ("v[a] = b", {"v[a] = b  ->  pass"}),
        ("f(a)", {"f(a)  ->  pass"}),
        ("x += y", {"x += y  ->  pass", "x += y  ->  x -= y"}),
        ("if a:\n    x = y", {"a  ->  not a"}),
    ],
)
def test_each_kind_of_change(source: str, wanted: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert {" ".join(one.split()) for one in changes(source, monkeypatch)} == {" ".join(one.split()) for one in wanted}


@pytest.mark.parametrize(
    "source",
    [
        '"""Says 1."""',
        "def f(a: Literal[1]) -> Literal[2]: return a",
        "@cache(size=1)\ndef f(): return a",
        "assert a < 1, 'b'",
        "raise ValueError(f'{a + 1}')",
        "problems.add('x', 1)",
        "x = f'{a + 1}'",
        "if TYPE_CHECKING:\n    x = 1",
        "x = f(a, strict=b, dtype=int)",
    ],
)
def test_what_is_left_alone(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert changes(source, monkeypatch) == set()


def test_names_stay_when_other_lines_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """So two releases have the same sample, and a verdict holds as long as the code is the same."""
    mutations = load("mutations", monkeypatch)
    source = "def f(a):\n    return a + 1\n"
    names = {one.name for one in mutations.mutants("m.py", source)}
    later = mutations.mutants("m.py", f"def g(b):\n    return b * 3\n\n\n{source}")
    assert len(names) == 2 and names < {one.name for one in later}
    assert [one.rank(0) for one in later] != [one.rank(1) for one in later]


def test_modules_and_tests_of_the_table_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """And so do the modules of equivalent mutants; a moved file is moved in the table, too."""
    table = load("table", monkeypatch).TESTS
    paths = {f"domainbert/{module}" for module in table}.union(*(tests for pair in table.values() for tests in pair))
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []
    assert {name.partition(":")[0] for name in json.loads((HERE / "equivalent.json").read_text("utf-8"))} <= set(table)


@pytest.mark.slow
def test_the_tool_lists_and_shows_mutants_of_a_module() -> None:
    def run(*options: str) -> list[str]:
        command = [sys.executable, str(HERE), "--only", "tuning/space.py", *options]
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines()

    listed = run("--list", "--sample", "3")
    names = [line.split(maxsplit=1)[1] for line in listed]
    assert len(names) == 3 and all(name.startswith("tuning/space.py:") for name in names)
    assert run("--list", "--sample", "3", "--seed", "1") != listed
    title, place, *lines = run("--sample", "3", "--show", names[0])
    assert title == names[0] and place.startswith("@@")
    assert {line[0] for line in lines} >= {"-", "+"}


@pytest.mark.slow  # a minute; `make mutants` runs before a release
def test_every_module_of_the_table_has_mutants(monkeypatch: pytest.MonkeyPatch) -> None:
    """At least 200 in all, each of them Python, and each another module than the original."""
    mutations, table = load("mutations", monkeypatch), load("table", monkeypatch).TESTS
    names: set[str] = set()
    for module in table:
        source = (ROOT / "domainbert" / module).read_text(encoding="utf-8")
        found = mutations.mutants(module, source)
        plain = ast.unparse(ast.parse(source))
        assert found and len({one.name for one in found}) == len({one.source for one in found}) == len(found)
        assert all(ast.unparse(ast.parse(one.source)) != plain for one in found[:3])
        names |= {one.name for one in found}
    assert len(names) > 2000
    equivalent = json.loads((HERE / "equivalent.json").read_text(encoding="utf-8"))
    assert equivalent.keys() <= names and all(equivalent.values())
