"""Reads labelled files line by line, so that every error can name its line."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from domainbert.errors import DomainbertError

_BOM = b"\xef\xbb\xbf"


def read_text(path: Path) -> str:
    """The text of a UTF-8 file (`.gz` is unpacked), without byte order mark.

    Raises:
        DomainbertError: the file is missing, is not a file, cannot be unpacked, or is not UTF-8.
    """
    if not path.is_file():
        raise DomainbertError(f"{path}: {'not a file' if path.exists() else 'no such file'}; expected a labelled file")
    content = path.read_bytes()
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise DomainbertError(f"{path}: broken gzip file ({error})") from error
    content = content.removeprefix(_BOM)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - (content.rfind(b"\n", 0, error.start) + 1) + 1
        raise DomainbertError(
            f"{path}:{line}: byte {column} of the line (0x{content[error.start]:02x}) is not UTF-8; expected UTF-8 text"
        ) from error


def read_lines(path: Path) -> list[str]:
    """The lines of a file, `\\n` or `\\r\\n` removed.

    `str.splitlines` would also break at U+0085, U+2028 and other characters that occur inside words.

    Raises:
        DomainbertError: as `read_text`.
    """
    lines = [line.removesuffix("\r") for line in read_text(path).split("\n")]
    if lines[-1] == "":
        lines.pop()
    return lines


def inner_suffix(path: Path) -> str:
    """The suffix that tells the format, in lower case: `.jsonl` for `dev.jsonl.gz`."""
    return (Path(path.stem) if path.suffix == ".gz" else path).suffix.lower()
