"""Removes secrets from files, messages and printed text.

Passwords, tokens and signatures in URLs, `password=...` of database connections, HTTP headers (`Bearer ...`), and the
values of environment variables with secret names (`WANDB_API_KEY`, `HF_TOKEN`, `PGPASSWORD`) are replaced with `***`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

HIDDEN = "***"

# scheme://user:password@host, RFC 3986 section 3.2.1; a password may contain an @ that should have been escaped, and
# pathlib reduces two slashes to one
_USER = r"(?<=\w)(:/{1,2}[^\s/?#:@\[]*:)"
_PASSWORD = re.compile(rf"{_USER}[^\s/?#]*(?=@)")
# a password with an unescaped /, # or space; digits before one of these are probably a port
_UNESCAPED = re.compile(rf"{_USER}(?!\d{{1,5}}(?:[/?#\s]|$))(?:(?!://)[^\s@])(?:(?!://)[^@\n])*(?=@)")
_DATABASE = re.compile(r"(\b(?:postgres|mysql|mariadb|redis|mongodb|amqp)[\w+]*:/{1,2}[^\s/?#:@\[]*:)[^\s@]+(?=@)")
# https://token@host, as in Git and package indexes; with other schemes a name without a password is a user
_TOKEN = re.compile(r"(\bhttps?:/{1,2})[^\s/?#:@]+(?::(?:x-oauth-basic)?)?(?=@)", re.IGNORECASE)
# ?password=... in PostgreSQL URLs (libpq, section "Connection URIs"), tokens of web services, and signatures in URLs of
# S3, Google Cloud Storage, CloudFront and Azure
_NAMES = "password|passwd|pwd|secret|token|api_?key|signature|credential|access_?key(?:_?id)?"
_PARAMETER = re.compile(rf"([?&;#](?:[\w-]*(?:{_NAMES})|sig)=)[^\s&;#'\"]+", re.IGNORECASE)
# host=... password='a b' (libpq, section "Keyword/Value Connection Strings")
_KEYWORD = re.compile(r"\b(\w*(?:password|passwd)\s*=\s*)(?:'(?:[^'\\]|\\.)*'|[^\s'\"&;#]+)", re.IGNORECASE)
# HTTP headers; `bearer` is also a word, so the text after it must not look like a word
_HEADER = re.compile(
    r"\b(authorization['\"]?\s*[:=]\s*['\"]?(?:basic|bearer|token|digest|apikey)\s+)[\w.~+/=-]+", re.IGNORECASE
)
_BEARER = re.compile(r"\b(bearer\s+)(?:(?=[\w.~+/=-]*\d)[\w.~+/=-]{8,}|[\w.~+/=-]{24,})", re.IGNORECASE)
_PATTERNS = (_TOKEN, _PARAMETER, _KEYWORD, _HEADER, _BEARER, _PASSWORD, _DATABASE, _UNESCAPED)
_SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
_MIN_SECRET_LENGTH = 8  # a shorter value is probably a setting and may be part of any word


def redact(value: Any, environment: Mapping[str, str] | None = None) -> Any:
    """Replace secrets with `***` in a text, or in all keys and values of nested mappings and lists; return other values
    unchanged. `environment` has the variables whose values may be secrets; None is `os.environ`."""
    secrets = _secrets(os.environ if environment is None else environment)
    return map_texts(value, partial(_redacted_text, secrets), with_keys=True)


@contextmanager
def redacted_output() -> Iterator[None]:
    """Context manager that removes secrets from everything that this process prints, also with earlier log handlers."""

    def write_redacted(write: Callable[[str], int], text: str) -> int:
        return write(redact(text))

    with ExitStack() as stack:
        for stream in (sys.stdout, sys.stderr):
            stack.callback(setattr, stream, "write", stream.write)
            stream.write = partial(write_redacted, stream.write)  # type: ignore[method-assign]
        yield


def map_texts(value: Any, change: Callable[[str], str], with_keys: bool = False) -> Any:
    """Return nested mappings and lists with `change` applied to each text and, if `with_keys`, to each key."""
    if isinstance(value, Mapping):
        return {
            change(key) if with_keys and isinstance(key, str) else key: map_texts(item, change, with_keys)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [map_texts(item, change, with_keys) for item in value]
    return change(value) if isinstance(value, str) else value


def _redacted_text(secrets: list[str], text: str) -> str:
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    for pattern in _PATTERNS:
        text = pattern.sub(rf"\1{HIDDEN}", text)  # group 1 is the text before a secret
    return text


def _secrets(environment: Mapping[str, str]) -> list[str]:
    # the path of a key file is no secret
    values = {value.strip() for name, value in environment.items() if _SECRET_NAME.search(name)}
    secrets = [value for value in values if len(value) >= _MIN_SECRET_LENGTH and not value.startswith(("/", ".", "~"))]
    return sorted(secrets, key=len, reverse=True)
