"""Splits a command line into files, dotted options and flags. The values stay text: their types come later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from domainbert.base.errors import DomainbertError


@dataclass
class ParsedArguments:
    """Parts of a command line after the program and the stage, before values are converted to their types."""

    words: list[str] = field(default_factory=list)
    """Arguments that begin with no dash and are no value of an option, in order."""
    files: list[str] = field(default_factory=list)
    """Values of `-c`, in order."""
    options: list[tuple[str, str]] = field(default_factory=list)
    """`--dotted.key value` as (key, value), in order."""
    help_of: tuple[str, str | None] | None = None
    """`--encoder.help BertConfig` as ("encoder", "BertConfig"), `--encoder.help` as ("encoder", None)."""
    flags: dict[str, str | None] = field(default_factory=dict)
    """Flags by name without dashes, with their values; None for a flag without a value."""


def parse_arguments(arguments: Sequence[str], flags: Mapping[str, str]) -> ParsedArguments:
    """Parse the arguments that follow the program and the stage.

    `flags` maps the name of each flag (an option that is not a setting) without dashes to the number of its values:
    `none`, `one` or `optional`. Every other option is a setting, which needs a value.

    Raises:
        DomainbertError: an option has no value, a flag has a value and takes none, or a flag with a value is repeated.
    """
    typed, remaining = ParsedArguments(), list(arguments)
    while remaining:
        word = remaining.pop(0)
        if word in ("-h", "--help"):
            typed.flags["help"] = None
        elif word in ("-c", "--config"):
            typed.files.append(_pop_value(word, remaining))
        elif not word.startswith("--"):
            typed.words.append(word)
        else:
            _take_option(word, remaining, flags, typed)
    return typed


def _take_option(word: str, remaining: list[str], flags: Mapping[str, str], typed: ParsedArguments) -> None:
    """Add the option `word` (`--name` or `--name=value`) to `typed`, and remove its value from `remaining`."""
    name, equals, inline_value = word.removeprefix("--").partition("=")
    flag = name.replace("-", "_")  # `--dry-run` is the flag `dry_run`
    name = flag if flag in flags else name
    num_values = "optional" if name.endswith(".help") else flags.get(name)  # None: a setting, which has one value
    if num_values == "none" and equals:
        raise DomainbertError(where=f"--{name}", found=f"'{inline_value}'", expected="no value")
    no_value_follows = not remaining or remaining[0].startswith("--")
    value: str | None
    if equals:
        value = inline_value
    elif num_values == "none" or (num_values == "optional" and no_value_follows):
        value = None
    else:
        value = _pop_value(word, remaining)
    if name.endswith(".help"):
        typed.help_of = (name.removesuffix(".help"), value)
    elif num_values is not None:
        if value is not None and typed.flags.get(name) is not None:
            raise DomainbertError(where=f"--{name}", found="given twice", expected="once")
        typed.flags[name] = value
    else:
        typed.options.append((name, value or ""))


def _pop_value(option: str, remaining: list[str]) -> str:
    if not remaining or remaining[0].startswith("--"):
        raise DomainbertError("expected a value after it", where=option)
    return remaining.pop(0)
