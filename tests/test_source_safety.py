"""What the package's source must not contain, whatever it is given to read: read from the syntax tree of every file."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.package_source import dotted_name, nodes, trees

NEVER_IMPORTED = {
    *("pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "jsonpickle"),
    *("transformers", "pytorch_lightning", "runpy", "imp", "code", "codeop"),
}
NEVER_CALLED = {"eval", "exec", "compile", "__import__", "extractall", "unpack_archive", "unsafe_load", "full_load"}
NEVER_TRUE = {"trust_remote_code", "allow_pickle", "shell"}
CHECKED_KEYWORDS = {*NEVER_TRUE, "weights_only"}
UNSAFE_LOADERS = {"yaml.load", "yaml.load_all", "yaml.Loader", "yaml.FullLoader", "yaml.UnsafeLoader"}
MAY_IMPORT = {"__init__", "cli", "encoders.families", "tasks.lookup", "runner.stage_table", "base.choices"}
MAY_LOOK = {*MAY_IMPORT, "settings.trainer_arguments", "base.paths"}  # for a top-level package, which is not imported


def calls(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    """Every call with the dotted name of the callee, if it has one."""
    for node in nodes(tree):
        if isinstance(node, ast.Call):
            yield name_of(node.func), node


def name_of(node: ast.AST) -> str:
    """`a.b.c` for names and attributes, `.b.c` for attributes of anything else; much faster than `ast.unparse`."""
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def problems(name: str, tree: ast.Module) -> list[str]:
    """Problems of one file."""
    found = []
    for node in nodes(tree):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        found += [f"imports {module}" for module in modules if module.partition(".")[0] in NEVER_IMPORTED]
        if isinstance(node, ast.Attribute) and name_of(node) in UNSAFE_LOADERS:
            found.append(f"uses {name_of(node)}")
    for called, call in calls(tree):
        last = called.rpartition(".")[2]
        checked = [keyword for keyword in call.keywords if keyword.arg in CHECKED_KEYWORDS]
        keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in checked}
        # self.compile(...), torch.compile(...) and re.compile(...) are other things than the builtin
        if last in NEVER_CALLED and not (last in ("eval", "compile") and "." in called):
            found.append(f"calls {called}")
        found += [
            f"{called}({key}={value})" for key, value in keywords.items() if key in NEVER_TRUE and value != "False"
        ]
        if called in ("torch.load", "load") and keywords.get("weights_only") != "True":
            found.append(f"{called} without weights_only=True")
        if (last == "import_module" and name not in MAY_IMPORT) or (last == "find_spec" and name not in MAY_LOOK):
            found.append(f"calls {called}")
        if last in ("system", "popen") and called.startswith("os."):
            found.append(f"calls {called}")
    return [f"{name}: {problem}" for problem in found]


def test_nothing_in_the_package_can_run_what_it_reads() -> None:
    found = {dotted_name(path): tree for path, tree in trees().items()}
    assert len(found) >= 100
    assert {"models.folder", "encoders.families", "training.trainer", "cli"} <= set(found)
    assert sum(len(list(calls(tree))) for tree in found.values()) > 2_000
    assert [problem for name, tree in found.items() for problem in problems(name, tree)] == []


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("import torch\ntorch.load(f)", "torch.load without weights_only=True"),
        ("import torch\ntorch.load(f, weights_only=flag)", "torch.load without weights_only=True"),
        ("from torch import load\nload(f, weights_only=False)", "load without weights_only=True"),
        ("def f():\n    import pickle", "imports pickle"),
        ("from marshal import loads", "imports marshal"),
        ("eval(x)", "calls eval"),
        ("compile(x, '', 'exec')", "calls compile"),
        ("yaml.load(f, Loader=yaml.UnsafeLoader)", "uses yaml.UnsafeLoader"),
        ("class L(yaml.FullLoader): pass", "uses yaml.FullLoader"),
        ("np.load(f, allow_pickle=True)", "np.load(allow_pickle=True)"),
        ("subprocess.run(x, shell=1)", "subprocess.run(shell=1)"),
        ("tar.extractall(p)", "calls tar.extractall"),
        ("AutoModel.from_pretrained(x, trust_remote_code=True)", "AutoModel.from_pretrained(trust_remote_code=True)"),
        ("importlib.import_module(x)", "calls importlib.import_module"),
        ("os.system(x)", "calls os.system"),
    ],
)
def test_each_is_found(source: str, problem: str) -> None:
    assert f"x: {problem}" in problems("x", ast.parse(source))


def test_harmless_lookalikes_are_not() -> None:
    source = "model.eval()\nre.compile(x)\ntorch.load(f, weights_only=True)\nsubprocess.run(x)\nyaml.SafeLoader"
    assert problems("x", ast.parse(source)) == []
