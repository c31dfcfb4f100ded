"""Nodes of settings: a single value as its type, and problems with the file, line and key of a value."""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from domainbert.base.errors import DomainbertError, Facts, Problems
from domainbert.base.fields import parse_plain
from domainbert.settings.schema import describe
from domainbert.settings.yaml_files import Node, parse_option

if TYPE_CHECKING:  # in `typing` from Python 3.11 on
    from typing_extensions import Unpack

WRONG: Any = object()  # marks a value that does not match its type
_FIELD_MESSAGE = re.compile(r"(?P<field>\w+(?:\.\w+|\[\d+\])*): (?P<problem>.*)", re.DOTALL)


def parse_scalar(node: Node, hint: Any) -> Any:
    """Convert the value of a node to a type, or return `WRONG`."""
    readings = [node.plain()]
    if node.text is not None:
        readings.append(node.text)  # an option that looks like a number may be text
    if isinstance(node.value, str):
        readings.append(parse_option(node.value, "").plain())  # a number from `${lr}` is text after substitution
    for reading in readings:
        with suppress(ValueError, TypeError):
            return parse_plain(reading, hint)
        if isinstance(reading, float) and reading.is_integer():  # 1e5 for an integer
            with suppress(ValueError, TypeError):
                return parse_plain(int(reading), hint)
    return WRONG


class NodeProblems:
    """Adds problems at nodes to `problems`; `prefix` is the prefix of every key, such as `stages.pretrain.`."""

    def __init__(self, problems: Problems, prefix: str) -> None:
        self.problems, self.prefix = problems, prefix

    def add_problem(self, node: Node, key: str, problem: object = "", **facts: Unpack[Facts]) -> Any:
        """Add a problem at a key, an error or its facts, and return `WRONG`."""
        error = problem if isinstance(problem, DomainbertError) else DomainbertError(problem, **facts)
        self.problems.add(error.within(node.location((self.prefix + key).rstrip("."))))
        return WRONG

    def wrong_type(self, node: Node, hint: Any, key: str) -> Any:
        """Add the problem that a value does not match its type, and return `WRONG`."""
        return self.add_problem(node, key, found=node.short_text(), expected=describe(hint))

    def add_field_problems(self, node: Node, key: str, error: Exception, fields: Collection[str]) -> Any:
        """Add the problems of an error about a dataclass with `fields`, and return `WRONG`. Each problem is added at
        the field with which it begins, or at the dataclass if it begins with no field."""
        for part in error.errors if isinstance(error, DomainbertError) else [DomainbertError(error)]:
            match = _FIELD_MESSAGE.fullmatch(str(part))
            parts = [] if match is None else re.findall(r"\w+", match["field"])
            if match is None or parts[0] not in fields:
                self.add_problem(node, key, part)
            else:
                inner = part.at("") if part.where == match["field"] else match["problem"]
                self.add_problem(node.at(parts), f"{key}.{match['field']}".removeprefix("."), inner)
        return WRONG
