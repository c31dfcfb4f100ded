"""Small files that are there as a whole or not at all."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

from domainbert.redact import redact


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file so that it is either there as a whole or not at all; secrets are left out (see `redact`)."""
    write_text(path, json.dumps(redact(value), indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text, its line ends as they are, so that it is either there as a whole or not at all.

    Processes of several machines may write the same file: the name that it has before holds host and process.
    """
    temporary = path.with_name(f"{path.name}.{socket.gethostname()}.{os.getpid()}.tmp")
    try:
        with open(temporary, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:  # its name would be used again by chance only
        temporary.unlink(missing_ok=True)
        raise
