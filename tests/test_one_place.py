"""What is known in one place only: searched in the source, so that it stays so."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import domainbert
from domainbert.settings.choices import choices_of
from domainbert.tasks.config import TaskConfig, folder_name

ROOT = Path(domainbert.__file__).parent
KNOW_TASKS = ("tasks", "serving/by_name.py", "samples", "stages/sample.py")
"""The tasks themselves; the two that have a name in Python; the labelled files that `sample` writes."""

KNOW_HEADS = ("encoders", "models", "tasks", "serving/onnx/graph.py")
"""Where families map kinds of heads, and tasks choose theirs; the graph has a dimension called "sequence"."""

HEADS = {"tokens", "sequence", "crf"}


def sources(*but: str) -> dict[str, ast.Module]:
    """The modules by path, without those in some folders."""
    files = {str(file.relative_to(ROOT)): file for file in sorted(ROOT.rglob("*.py"))}
    chosen = {name: file for name, file in files.items() if not name.startswith(but)}
    assert len(files) - len(chosen) >= len(but) and len(chosen) > 100
    return {name: ast.parse(file.read_text(encoding="utf-8")) for name, file in chosen.items()}


def strings(tree: ast.Module) -> Iterator[ast.Constant]:
    """String constants, docstrings apart."""
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node


def compared(tree: ast.Module) -> Iterator[str]:
    """Strings that something is compared with, and those by which something is looked up or passed to a head."""
    for node in ast.walk(tree):
        parts: list[ast.expr | None] = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("load_model", "build_head", "save_model"):
            parts = list(node.args)
        for part in filter(None, parts):
            yield from (one.value for one in ast.walk(part) if isinstance(one, ast.Constant) and type(one.value) is str)


def test_only_tasks_know_tasks() -> None:
    kinds = choices_of(TaskConfig)
    folders = {folder_name(kind) for kind in kinds.values()}
    assert folders >= {"ner", "classification", "multi_label"}
    found = []
    for name, tree in sources(*KNOW_TASKS).items():
        modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        named = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
        found += [
            f"{name} imports {one}"
            for one in modules
            if set(one.removeprefix("domainbert.tasks.").split(".")[:1]) & folders
        ]
        found += [f"{name} names {one}" for one in named if one in kinds]
        found += [f"{name} says {one.value!r}" for one in strings(tree) if one.value in folders]
    assert found == []


def test_only_families_and_tasks_know_kinds_of_heads() -> None:
    found = []
    for name, tree in sources(*KNOW_HEADS).items():
        found += [f"{name} compares with {one!r}" for one in compared(tree) if one in HEADS]
        found += [f"{name} says {one.value!r}" for one in strings(tree) if one.value in HEADS - {"tokens"}]
    assert found == []
