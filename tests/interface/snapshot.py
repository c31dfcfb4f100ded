"""The interface that 1.x keeps (docs/reference/stability.md), as text: `*.txt` in this folder, one name per line.

A test that has a result anyway compares the names in it with the lines of its part, such as a stage or a task. With
WRITE_INTERFACE=1 in the environment, the same test writes the lines instead.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.interface.current import files_of, keys_of

HERE = Path(__file__).parent


def check_interface(file: str, names: Iterable[str], part: str = "") -> None:
    """Fail with each name that was removed, added or changed since `file` was written.

    Args:
        file: name of the text file, without `.txt`.
        names: all current names of the part; a name ends at `(` or ` = `, before its parameters or default.
        part: the part of the file, whose lines begin with `part: `; without it, the whole file.
    """
    prefix, path = f"{part}: " if part else "", HERE / f"{file}.txt"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    old = [line for line in lines if line.startswith(prefix)]
    new = sorted({prefix + name for name in names})
    if os.environ.get("WRITE_INTERFACE"):
        others = [line for line in lines if not line.startswith(prefix)]
        path.write_text("".join(f"{line}\n" for line in sorted([*others, *new])), encoding="utf-8")
    elif changes := differences(old, new):
        test = os.environ["PYTEST_CURRENT_TEST"].removesuffix(" (call)")
        pytest.fail(
            f"the interface has changed, see tests/interface/{file}.txt\n  "
            + "\n  ".join(changes)
            + "\nA removal or change needs a deprecation first: docs/reference/stability.md. To accept the change:"
            + f"\n  WRITE_INTERFACE=1 python -m pytest '{test}'",
            pytrace=False,
        )


def check_folder(part: str, *folders: Path, pattern: str = "**/*") -> None:
    """Compare files, and the keys of JSON files, in the folders of a stage."""
    check_interface("files", (name for folder in folders for name in files_of(folder, pattern)), part)
    check_interface("keys", (name for folder in folders for name in keys_of(folder, pattern)), part)


def differences(old: Iterable[str], new: Iterable[str]) -> list[str]:
    """Return a line for each name that was removed, changed or added."""
    before, after = ({re.split(r"\(| = ", line)[0]: line for line in lines} for lines in (old, new))
    changed = [name for name in before if name in after and before[name] != after[name]]
    return [
        *(f"removed: {before[name]}" for name in before if name not in after),
        *(f"changed: {before[name]}\n       to: {after[name]}" for name in changed),
        *(f"added: {after[name]}" for name in after if name not in before),
    ]
