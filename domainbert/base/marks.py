"""Metadata of settings fields that changes how stages treat them; it has no effect in Python."""

from __future__ import annotations

from dataclasses import fields

SPEED_ONLY = {"speed_only": True}
"""Metadata of a setting that does not change the result: the stage does not run again for a new value."""

STREAM = {"stream": True}
"""Metadata of a path that may be standard input (`-`), a pipe or a device."""

PARTS = {"parts": True}
"""Metadata of the setting that lists the parts of the output, such as seeds. A part depends only on its own value in
the list and the other settings; finished parts are kept when the list changes."""

BY_INPUT = {"by_input": True}
"""Metadata of the setting that makes a stage process its input file by file and track the state of each file: if only
input files have changed, the stage continues in its folder."""

ORDERED = {"ordered": True}
"""Metadata of a mapping whose order changes the result."""

TOKENIZER, MODEL, TRAINED_MODEL = ({"opens": content} for content in ("tokenizer", "model", "trained model"))
"""Metadata of a path, or a list of paths, that a stage opens: a folder with a tokenizer, a model (perhaps exported), or
a model with its weights. An existing folder is opened before the first stage runs, to find errors early."""


def renamed_from(old_name: str) -> dict[str, str]:
    """Return metadata of a renamed setting: for one version YAML and options also accept its old name, with a warning.

    Python constructors accept only the current name.
    """
    return {"renamed_from": old_name}


def renamed_fields(cls: type) -> dict[str, str]:
    """Return the current names of the renamed fields of a dataclass, by old name."""
    return {item.metadata["renamed_from"]: item.name for item in fields(cls) if "renamed_from" in item.metadata}
