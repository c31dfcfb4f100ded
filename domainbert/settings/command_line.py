"""Splits a command line into files, dotted options and flags. The values stay text: their types come later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from domainbert.base.errors import DomainbertError


@dataclass
class ParsedArguments:
    """Parts of a command line."""

    words: list[str] = field(default_factory=list)
    """Arguments that are not options."""
    files: list[str] = field(default_factory=list)
    """Values of `-c`, in order."""
    options: list[tuple[str, str]] = field(default_factory=list)
    """`--dotted.key value` as (key, value), in order."""
    help_of: tuple[str, str | None] | None = None
    """`--encoder.help BertConfig` as ("encoder", "BertConfig")."""
    flags: dict[str, str | None] = field(default_factory=dict)
    """Flags by name without dashes, with their values; None for a flag without a value."""


def parse_arguments(arguments: Sequence[str], flags: Mapping[str, str]) -> ParsedArguments:
    """Split the arguments after the program and the stage.

    `flags` maps each flag to the number of its values: `none`, `one`, or `optional`.

    Raises:
        DomainbertError: an option has no value, or a flag has a value and takes none.
    """
    typed, remaining = ParsedArguments(), list(arguments)
    while remaining:
        word = remaining.pop(0)
        if word in ("-h", "--help"):
            typed.flags["help"] = None
        elif word in ("-c", "--config"):
            typed.files.append(_value(word, remaining))
        elif not word.startswith("--"):
            typed.words.append(word)
        else:
            _take_option(word, remaining, flags, typed)
    return typed


def _take_option(word: str, remaining: list[str], flags: Mapping[str, str], typed: ParsedArguments) -> None:
    name, equals, inline_value = word.removeprefix("--").partition("=")
    name = name.replace("-", "_") if name.replace("-", "_") in flags else name
    takes = "optional" if name.endswith(".help") else flags.get(name)
    without_value = not equals and (not remaining or remaining[0].startswith("--"))
    if takes == "none" and equals:
        raise DomainbertError(f"--{name}: found '{inline_value}'; expected no value")
    bare = takes == "none" or (takes == "optional" and without_value)
    value = None if bare else inline_value if equals else _value(word, remaining)
    if name.endswith(".help"):
        typed.help_of = (name.removesuffix(".help"), value)
    elif takes is not None:
        typed.flags[name] = value
    else:
        typed.options.append((name, value or ""))


def _value(option: str, remaining: list[str]) -> str:
    if not remaining or remaining[0].startswith("--"):
        raise DomainbertError(f"{option}: expected a value after it")
    return remaining.pop(0)
