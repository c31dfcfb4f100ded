"""Metadata of the fields of settings, by which a stage treats them differently; no effect in Python."""

from __future__ import annotations

SPEED_ONLY = {"speed_only": True}
"""Metadata of a setting that does not change the result: a new value does not run the stage again."""

STREAM = {"stream": True}
"""Metadata of a path that may be standard input (`-`), a pipe or a device."""

PARTS = {"parts": True}
"""Metadata of the setting that lists the parts of the output, such as seeds. Each part depends only on itself and the
other settings, and a finished part is kept when the list changes."""

BY_INPUT = {"by_input": True}
"""Metadata of the setting with which a stage makes its output input file by input file, and knows itself what is left
of each: where nothing but input files has changed, it goes on in its folder."""

ORDERED = {"ordered": True}
"""Metadata of a mapping whose order changes the result."""

TOKENIZER, MODEL, TRAINED_MODEL = ({"opens": kind} for kind in ("tokenizer", "model", "trained model"))
"""Metadata of a path, or a list of paths, that a stage opens: a folder with a tokenizer, with a model, which may be
exported, or with a model and its weights. It is opened before the first stage runs, if it is there by then."""
