"""Removes secrets from what is written: manifests, configurations, messages.

Recognised are passwords, tokens and signatures inside URLs, `password=...` of database connections, headers of HTTP
(`Bearer ...`), and the values of environment variables whose names say that they are secret (`WANDB_API_KEY`,
`HF_TOKEN`, `PGPASSWORD`). Each is replaced with `***`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "***"

# scheme://user:password@host, RFC 3986 section 3.2.1; a password may itself hold an @ that should have been escaped,
# and pathlib makes one slash of two
_USER = r"(?<=\w)(:/{1,2}[^\s/?#:@\[]*:)"
_PASSWORD = re.compile(rf"{_USER}[^\s/?#]*(?=@)")
# one with /, # or a space in it that should have been escaped; digits before those are rather a port
_UNESCAPED = re.compile(rf"{_USER}(?!\d{{1,5}}(?:[/?#\s]|$))(?:(?!://)[^\s@])(?:(?!://)[^@\n])*(?=@)")
_OF_DATABASE = re.compile(r"(\b(?:postgres|mysql|mariadb|redis|mongodb|amqp)[\w+]*:/{1,2}[^\s/?#:@\[]*:)[^\s@]+(?=@)")
# https://token@host, as Git and package indexes take it; elsewhere a name alone is a user
_TOKEN = re.compile(r"(\bhttps?:/{1,2})[^\s/?#:@]+(?::(?:x-oauth-basic)?)?(?=@)", re.IGNORECASE)
# ?password=..., which PostgreSQL's URLs may hold (libpq, section "Connection URIs"), the tokens of web services, and
# what signs the URLs of S3, Google Cloud Storage, CloudFront and Azure
_NAMES = "password|passwd|pwd|secret|token|api_?key|signature|credential|access_?key(?:_?id)?"
_PARAMETER = re.compile(rf"([?&;#](?:[\w-]*(?:{_NAMES})|sig)=)[^\s&;#'\"]+", re.IGNORECASE)
# host=... password='a b' (libpq, section "Keyword/Value Connection Strings")
_KEYWORD = re.compile(r"\b(\w*(?:password|passwd)\s*=\s*)(?:'(?:[^'\\]|\\.)*'|[^\s'\"&;#]+)", re.IGNORECASE)
# headers of HTTP; `bearer` is also a word, so what follows must not look like one
_HEADER = re.compile(
    r"\b(authorization['\"]?\s*[:=]\s*['\"]?(?:basic|bearer|token|digest|apikey)\s+)[\w.~+/=-]+", re.IGNORECASE
)
_BEARER = re.compile(r"\b(bearer\s+)(?:(?=[\w.~+/=-]*\d)[\w.~+/=-]{8,}|[\w.~+/=-]{24,})", re.IGNORECASE)
_PATTERNS = (_TOKEN, _PARAMETER, _KEYWORD, _HEADER, _BEARER, _PASSWORD, _OF_DATABASE, _UNESCAPED)
_SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
_SHORTEST = 8  # a shorter value is probably a setting, and may be part of any word


def redact(value: Any, environment: Mapping[str, str] | None = None) -> Any:
    """A plain value in which the secrets are `***`; mappings and lists are walked, keys too. The environment, whose
    variables may hold secrets, is that of the process unless another is given."""
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
    for pattern in _PATTERNS:
        text = pattern.sub(rf"\1{HIDDEN}", text)
    return text


def _secrets(environment: Mapping[str, str]) -> list[str]:
    """The values of variables with telling names, longest first; the path of a key file is no secret."""
    values = {value.strip() for name, value in environment.items() if _SECRET_NAME.search(name)}
    found = [value for value in values if len(value) >= _SHORTEST and not value.startswith(("/", ".", "~"))]
    return sorted(found, key=len, reverse=True)
