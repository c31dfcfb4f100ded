"""Small wrong changes of a module's source: one operator, number, argument or statement at a time."""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type, type] = {
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq},
    **{ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In},
}
_ARITHMETIC: dict[type, type] = {
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult},
    **{ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.LShift: ast.RShift, ast.RShift: ast.LShift},
    **{ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr},
}
_FUNCTIONS = {
    **{"sum": "mean", "mean": "sum", "max": "min", "min": "max", "any": "all", "all": "any", "zeros": "ones"},
    **{"ones": "zeros", "floor": "ceil", "ceil": "floor", "minimum": "maximum", "maximum": "minimum"},
    **{"argmax": "argmin", "argmin": "argmax", "log_softmax": "softmax", "cumsum": "asarray", "eval": "train"},
}
_DROPPED_CALLS = {"abs", "clamp", "exp", "log", "log_softmax", "masked_fill", "normalize", "rint", "sqrt", "square"}
_DROPPED_CALLS |= {"detach", "clone", "float", "full", "round", "cumsum"}
_COMMUTATIVE = {"max", "maximum", "min", "minimum"}
_MODULES = {"np", "torch", "math", "functional"}
# Types and devices: a wrong one fails at once or changes nothing. `strict` only guards.
_KEPT_KEYWORDS = {"dtype", "device", "strict", "encoding", "persistent", "exist_ok", "ignore_errors"}
_MESSAGES = {"print", "add", "warn", "describe"}


@dataclass(frozen=True)
class Mutant:
    """A module with one change.

    Attributes:
        module: its path below the package.
        name: says which change it is, whatever lines stand above it.
        line: where.
        change: the old expression and the new one.
        source: of the whole module.
    """

    module: str
    name: str
    line: int
    change: str
    source: str

    def rank(self, seed: int) -> str:
        """Its place in the order from which a sample is taken: random, but it stays when others come and go."""
        return hashlib.sha256(f"{seed}:{self.name}".encode()).hexdigest()


@dataclass
class _Site:
    """A node, where its parent holds it, and what may stand there instead."""

    parent: ast.AST
    field: str
    index: int | None
    kind: str
    new: ast.AST
    scope: str

    def put(self, node: ast.AST) -> ast.AST:
        """Replace the node and return the old one."""
        if self.index is None:
            old = getattr(self.parent, self.field)
            setattr(self.parent, self.field, node)
        else:
            old = getattr(self.parent, self.field)[self.index]
            getattr(self.parent, self.field)[self.index] = node
        return old


def mutants(module: str, source: str) -> list[Mutant]:
    """Every mutant of a module, in the order of its lines; those that read the same are one."""
    tree = ast.parse(source)
    found: list[Mutant] = []
    sources, seen = {ast.unparse(tree) + "\n"}, Counter[str]()
    for site in list(_sites(tree, "")):
        old = site.put(site.new)
        text = ast.unparse(tree) + "\n"
        site.put(old)
        change = f"{_short(old)}  ->  {_short(site.new)}"
        name = f"{module}:{site.scope}:{site.kind}: {change}"
        seen[name] += 1
        if text not in sources:
            sources.add(text)
            found.append(Mutant(module, f"{name} #{seen[name]}", getattr(old, "lineno", 0), change, text))
    return sorted(found, key=lambda one: one.line)


def _short(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 160 else text[:157] + "..."


def _sites(node: ast.AST, scope: str) -> Iterator[_Site]:
    """All places below a node, but those in annotations, decorators, assertions and messages."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "type_params", "bases"):
            continue
        children = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
        for index, child in children:
            if not isinstance(child, ast.AST) or _is_left_alone(child):
                continue
            inner = scope
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                inner = f"{scope}.{child.name}" if scope else child.name
            if isinstance(node, ast.If) and field == "test":
                yield _Site(node, field, index, "condition", ast.UnaryOp(ast.Not(), child), inner)
            for kind, new in _changes(child):
                yield _Site(node, field, index, kind, new, inner)
            yield from _sites(child, inner)


def _is_left_alone(node: ast.AST) -> bool:
    if isinstance(node, (ast.Assert, ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom)):
        return True
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    call = node.value if isinstance(node, ast.Expr) else node
    return isinstance(call, ast.Call) and (
        (isinstance(call.func, ast.Attribute) and call.func.attr in _MESSAGES and "problems" in ast.unparse(call.func))
        or (isinstance(call.func, ast.Name) and (call.func.id in _MESSAGES or call.func.id.endswith("Error")))
    )


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node, ast.expr):
        yield from _of_expression(node)
    if isinstance(node, ast.Slice):
        if node.lower is not None:
            yield "slice", ast.Slice(None, node.upper, node.step)
        if node.upper is not None:
            yield "slice", ast.Slice(node.lower, None, node.step)
    if isinstance(node, ast.comprehension) and node.ifs:
        yield "filter", ast.comprehension(node.target, node.iter, node.ifs[1:], node.is_async)
    if isinstance(node, ast.AugAssign):
        yield "statement", ast.Pass()
        if type(node.op) in _ARITHMETIC:
            yield "arithmetic", ast.AugAssign(node.target, _ARITHMETIC[type(node.op)](), node.value)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield "statement", ast.Pass()
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], (ast.Attribute, ast.Subscript)):
        yield "statement", ast.Pass()


def _of_expression(node: ast.expr) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield "comparison", ast.Compare(node.left, [_COMPARISONS[type(node.ops[0])]()], node.comparators)
    elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        yield "arithmetic", ast.BinOp(node.left, _ARITHMETIC[type(node.op)](), node.right)
    elif isinstance(node, ast.UnaryOp) and not isinstance(node.operand, ast.Constant):
        yield "sign", node.operand
    elif isinstance(node, ast.BoolOp):
        yield "logic", ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        rest = node.values[1:]
        yield "logic", rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
    elif isinstance(node, ast.IfExp):
        yield "condition", node.body
        yield "condition", node.orelse
    elif isinstance(node, ast.Constant):
        yield from _of_constant(node.value)
    elif isinstance(node, ast.Call):
        yield from _of_call(node)


def _of_constant(value: object) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(value, bool):
        yield "constant", ast.Constant(not value)
    elif isinstance(value, int):
        yield "constant", ast.Constant(value + 1)
    elif isinstance(value, float):
        yield "constant", ast.Constant(value * 2 if value else 1.0)


def _of_call(node: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if len(node.args) > 1 and name not in _COMMUTATIVE and not isinstance(node.args[1], ast.Starred):
        yield "arguments", ast.Call(node.func, [node.args[1], node.args[0], *node.args[2:]], node.keywords)
    for index, keyword in enumerate(node.keywords):
        if keyword.arg and keyword.arg not in _KEPT_KEYWORDS:
            rest = node.keywords[:index] + node.keywords[index + 1 :]
            yield "keyword", ast.Call(node.func, node.args, rest)
    of_module = isinstance(node.func, ast.Name) or ast.unparse(node.func).partition(".")[0] in _MODULES
    if name in _DROPPED_CALLS and (node.args or not of_module):
        yield "call", node.args[0] if of_module else node.func.value  # type: ignore[attr-defined]
    if name in _FUNCTIONS:
        if isinstance(node.func, ast.Attribute):
            func: ast.expr = ast.Attribute(node.func.value, _FUNCTIONS[name], ast.Load())
        else:
            func = ast.Name({"sum": "max"}.get(name, _FUNCTIONS[name]), ast.Load())
        yield "function", ast.Call(func, node.args, node.keywords)
