"""Arguments as typed: files, dotted options, flags. Their meaning is decided later, when the types are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from domainbert.base.errors import DomainbertError


@dataclass
class Typed:
    """A command line in its parts."""

    words: list[str] = field(default_factory=list)
    """Arguments that are not options."""
    files: list[str] = field(default_factory=list)
    """Of `-c`, in order."""
    options: list[tuple[str, str]] = field(default_factory=list)
    """`--dotted.key value` as (key, value), in order."""
    help_of: tuple[str, str | None] | None = None
    """`--encoder.help BertConfig` as ("encoder", "BertConfig")."""
    flags: dict[str, str | None] = field(default_factory=dict)
    """Flags by name without dashes; the value where the flag takes one and has one."""


def take_apart(arguments: Sequence[str], flags: Mapping[str, str]) -> Typed:
    """Split a command line, without the program and the stage.

    Each flag has the value that it takes: `none`, `one` value, or an `optional` one.

    Raises:
        DomainbertError: an option without its value.
    """
    typed, rest = Typed(), list(arguments)
    while rest:
        word = rest.pop(0)
        if word in ("-h", "--help"):
            typed.flags["help"] = None
        elif word in ("-c", "--config"):
            typed.files.append(_value(word, rest))
        elif not word.startswith("--"):
            typed.words.append(word)
        else:
            _take_option(word, rest, flags, typed)
    return typed


def _take_option(word: str, rest: list[str], flags: Mapping[str, str], typed: Typed) -> None:
    name, equals, given = word.removeprefix("--").partition("=")
    name = name.replace("-", "_") if name.replace("-", "_") in flags else name
    takes = "optional" if name.endswith(".help") else flags.get(name)
    alone = not equals and (not rest or rest[0].startswith("--"))
    if takes == "none" and equals:
        raise DomainbertError(f"--{name}: found '{given}'; expected no value")
    bare = takes == "none" or (takes == "optional" and alone)
    value = None if bare else given if equals else _value(word, rest)
    if name.endswith(".help"):
        typed.help_of = (name.removesuffix(".help"), value)
    elif takes is not None:
        typed.flags[name] = value
    else:
        typed.options.append((name, value or ""))


def _value(option: str, rest: list[str]) -> str:
    if not rest or rest[0].startswith("--"):
        raise DomainbertError(f"{option}: expected a value after it")
    return rest.pop(0)
