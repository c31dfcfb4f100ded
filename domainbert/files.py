"""Small files that are there as a whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from domainbert.redact import redact


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file so that it is either there as a whole or not at all; secrets are left out (see `redact`)."""
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(redact(value), file, indent=2, ensure_ascii=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
