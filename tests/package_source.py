"""Syntax trees of the package's modules: each is parsed and walked once for all tests of a process."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import domainbert

ROOT = Path(domainbert.__file__).parent


@cache
def trees() -> dict[str, ast.Module]:
    """Paths below `domainbert`, such as "data/order.py", to syntax trees."""
    files = {file.relative_to(ROOT).as_posix(): file for file in sorted(ROOT.rglob("*.py"))}
    return {path: ast.parse(file.read_text(encoding="utf-8")) for path, file in files.items()}


@cache
def nodes(tree: ast.Module) -> list[ast.AST]:
    """All nodes of a tree."""
    return list(ast.walk(tree))


def dotted_name(path: str) -> str:
    """The name of a module below `domainbert`."""
    return path.removesuffix(".py").replace("/", ".")
