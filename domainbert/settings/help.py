"""`--help` of settings, from their dataclasses: key, docstring, type with its range, default."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
import textwrap
from argparse import ArgumentParser, _ArgumentGroup
from itertools import pairwise
from typing import Any

from domainbert.base.choices import as_plain, is_choice
from domainbert.base.fields import field_types
from domainbert.settings.schema import defaults_of, describe, groups_in, is_group

_MISSING = dataclasses.MISSING


def add_fields(parser: ArgumentParser | _ArgumentGroup, cls: type, key: str = "", default: Any = _MISSING) -> None:
    """Add an option for each field of a dataclass to a parser, with the prefix `key`, such as `optim.`, in its name. If
    `default` is an instance of the dataclass, its values are shown as defaults."""
    docs, hints = _field_docs(cls), field_types(cls)
    for name, class_default in defaults_of(cls).items():
        value = getattr(default, name) if isinstance(default, cls) else class_default
        _add_field(parser, key + name, hints[name], value, docs.get(name, ""))


def format_help(parser: ArgumentParser) -> str:
    """Return the help text of a parser, with YAML's null in place of Python's None."""
    return re.sub(r"\bNone\b", "null", parser.format_help())


def _add_field(parser: ArgumentParser | _ArgumentGroup, key: str, hint: Any, default: Any, doc: str) -> None:
    if is_group(hint) and not is_choice(hint):
        group = parser.add_argument_group(f"{key}: {' '.join(doc.split())}".rstrip(".:").replace("%", "%%"))
        shorthand = f"; or only the value of {hint.shorthand}" if hasattr(hint, "shorthand") else ""
        group.add_argument(f"--{key}", metavar="FILE", help=f"YAML file with the settings below{shorthand}")
        add_fields(group, hint, f"{key}.", default)
        return
    nested_help = f"--{key}.help lists its settings; " if groups_in(hint) else ""
    value = "required" if default is _MISSING else f"default: {_format_default(default)}"
    text = f"{' '.join(doc.split())} ({describe(hint)}; {nested_help}{value})"
    parser.add_argument(f"--{key}", metavar=key.rpartition(".")[2].upper(), help=text.replace("%", "%%"))


def _format_default(default: Any) -> str:
    plain = as_plain(default)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _field_docs(cls: type) -> dict[str, str]:
    """Return the docstrings under the fields of a dataclass and its bases, by field name."""
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if "__dataclass_fields__" in vars(base):
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
            for statement, next_statement in pairwise(getattr(tree, "body", ())):
                match statement, next_statement:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                        docs[name] = text
    return docs
