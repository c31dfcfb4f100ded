"""Secrets out of what is written: manifests, configurations, messages.

Two kinds are known: passwords and tokens inside URLs, and the values of environment variables whose names say that
they are secret (`WANDB_API_KEY`, `HF_TOKEN`, `PGPASSWORD`). Each is replaced with `***`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "***"

# scheme://user:password@host, RFC 3986 section 3.2.1; a password may itself hold an @ that should have been escaped,
# and pathlib makes one slash of two
_PASSWORD = re.compile(r"(?<=\w)(:/{1,2}[^\s/?#:@]*):[^\s/?#]*(?=@)")
# ?password=..., which PostgreSQL's URLs may hold (libpq, section "Connection URIs"), and the tokens of web services
_PARAMETER = re.compile(r"([?&;][\w-]*(?:password|passwd|secret|token|api_?key)=)[^\s&;#'\"]+", re.IGNORECASE)
_SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
_SHORTEST = 8  # what is shorter is rather a setting than a secret, and may be part of any word


def redact(value: Any, environment: Mapping[str, str] | None = None) -> Any:
    """A plain value in which the secrets are `***`; mappings and lists are walked, keys too.

    Args:
        value: text, or plain values that hold text.
        environment: where secrets are looked up; None takes that of the process.
    """
    secrets = _secrets(os.environ if environment is None else environment)
    return _redacted(value, secrets)


def _redacted(value: Any, secrets: list[str]) -> Any:
    if isinstance(value, Mapping):
        return {_redacted(key, secrets): _redacted(item, secrets) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_redacted(item, secrets) for item in value]
    return _redacted_text(value, secrets) if isinstance(value, str) else value


def _redacted_text(text: str, secrets: list[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return _PARAMETER.sub(rf"\1{HIDDEN}", _PASSWORD.sub(rf"\1:{HIDDEN}", text))


def _secrets(environment: Mapping[str, str]) -> list[str]:
    """The values of variables with telling names, longest first; the path of a key file is no secret."""
    values = {value.strip() for name, value in environment.items() if _SECRET_NAME.search(name)}
    found = [value for value in values if len(value) >= _SHORTEST and not value.startswith(("/", ".", "~"))]
    return sorted(found, key=len, reverse=True)
