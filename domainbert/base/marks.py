"""Metadata of settings, which the runner evaluates; without effect in calls from Python."""

from __future__ import annotations

SPEED_ONLY = {"speed_only": True}
"""Metadata of a setting that does not change the result: a new value does not run the stage again."""

STREAM = {"stream": True}
"""Metadata of a path that may be standard input (`-`), a pipe or a device."""

PARTS = {"parts": True}
"""Metadata of the setting that lists the parts of the output, such as seeds. Each part depends only on itself and the
other settings, and a finished part is kept when the list changes."""

BY_INPUT = {"by_input": True}
"""Metadata of a setting whose input files a stage processes one by one: if only input files have changed, the stage
continues in its folder."""

ORDERED = {"ordered": True}
"""Metadata of a mapping whose order changes the result."""

TOKENIZER, MODEL, TRAINED_MODEL = ({"opens": kind} for kind in ("tokenizer", "model", "trained model"))
"""Metadata of a path, or a list of paths, that a stage opens: a folder with a tokenizer, with a model, which may be
exported, or with a model and its weights. If it already exists, it is opened before the first stage runs."""
