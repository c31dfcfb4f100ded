"""The tool of `make mutants`: which changes it makes, and which it does not."""

from __future__ import annotations

import ast
import importlib.util
import json
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
    """So the sample of one release is that of the next, and a verdict holds as long as the code is the same."""
    mutations = load("mutations", monkeypatch)
    source = "def f(a):\n    return a + 1\n"
    names = {one.name for one in mutations.mutants("m.py", source)}
    later = mutations.mutants("m.py", f"def g(b):\n    return b * 3\n\n\n{source}")
    assert len(names) == 2 and names < {one.name for one in later}
    assert [one.rank(0) for one in later] != [one.rank(1) for one in later]


@pytest.mark.slow
@pytest.mark.slow  # a minute; `make mutants` runs before a release
def test_every_module_of_the_table_has_mutants_and_its_tests_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """At least 200 in all, each of them Python, and each another module than the original."""
    mutations, table = load("mutations", monkeypatch), load("table", monkeypatch).TESTS
    total = 0
    for module, tests in table.items():
        source = (ROOT / "domainbert" / module).read_text(encoding="utf-8")
        found = mutations.mutants(module, source)
        plain = ast.unparse(ast.parse(source))
        assert found and len({one.name for one in found}) == len({one.source for one in found}) == len(found)
        assert all(ast.unparse(ast.parse(one.source)) != plain for one in found[:3])
        assert all((ROOT / path).exists() for paths in tests for path in paths), module
        total += len(found)
    assert total > 2000
    assert all(reason for reason in json.loads((HERE / "equivalent.json").read_text(encoding="utf-8")).values())
