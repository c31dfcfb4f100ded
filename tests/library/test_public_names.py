"""The public names: one list, typed, imported when used, each with an example that runs offline."""

from __future__ import annotations

import ast
import doctest
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import domainbert

NAMES = [name for name in dir(domainbert) if name != "__version__"]
STUB = Path(domainbert.__file__).with_suffix(".pyi")


def test_the_names_of_type_checkers_are_those_of_the_module() -> None:
    imports = [node for node in ast.parse(STUB.read_text(encoding="utf-8")).body if isinstance(node, ast.ImportFrom)]
    stub = {alias.asname: (node.module, alias.name) for node in imports for alias in node.names}
    assert len(NAMES) >= 55 and {*NAMES, "__version__"} == {*domainbert.__all__}
    assert sorted(map(str, stub)) == NAMES
    for name, (module, own) in stub.items():
        assert name == own
        assert getattr(domainbert, own) is getattr(import_module(str(module)), own)


def test_importing_the_package_needs_neither_torch_nor_its_modules() -> None:
    code = "import domainbert, json, sys; dir(domainbert); print(json.dumps(list(sys.modules)))"
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    assert [name for name in loaded if name.startswith(("domainbert.", "torch", "numpy", "lightning"))] == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'domainbert' has no attribute 'nothing'"):
        _ = domainbert.nothing  # type: ignore[attr-defined]
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        from domainbert import nothing  # type: ignore[attr-defined]  # noqa: F401


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("one_thread")
def test_each_name_has_an_example_that_runs(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    text = getattr(domainbert, name).__doc__
    example = doctest.DocTestParser().get_doctest(text, {}, name, None, None)
    assert name in example.examples[-1].source or any(f" {name}" in one.source for one in example.examples)
    said: list[str] = []
    doctest.DocTestRunner(verbose=False).run(example, out=said.append)
    assert said == []
