"""Find files, and read them decompressed and decoded; errors have the line number."""

from __future__ import annotations

import glob
import gzip
import io
import os
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from itertools import takewhile
from pathlib import Path
from typing import BinaryIO, cast

from domainbert.base.errors import DomainbertError
from domainbert.base.paths import STDIN, check_regular, check_utf8

MAX_DOCUMENT_BYTES = 32 * 1024**2  # as UTF-8; also of a line, because it must fit into memory

Line = tuple[int, str]
"""Number of a line, from 1, and the line."""

_COMPRESSED = (".gz", ".zst")
_BOM = b"\xef\xbb\xbf"


def format_suffix(path: Path) -> str:
    """Return the suffix of the format in lower case: `.jsonl` for `a.jsonl.gz`, "" without a suffix."""
    return (Path(path.stem) if path.suffix.lower() in _COMPRESSED else path).suffix.lower()


def is_compressed(path: Path) -> bool:
    """Whether the name ends in .gz or .zst."""
    return path.suffix.lower() in _COMPRESSED


def find_files(path: str) -> Iterator[tuple[str, Path]]:
    """Yield `(name relative to the folder, path)` of a file, of each file in a folder, or of each match of a glob.

    The order is fixed. Hidden files and folders are skipped. A glob that matches a folder includes its files. Raise
    `OSError` if a folder cannot be listed.
    """
    root = Path(path)
    if root.is_file():
        yield root.name, root
    elif root.is_dir():
        yield from _walk(root, root)
    else:
        # the deepest folder that contains all matches: `texts` for `texts/*/a.txt`
        base = Path(*takewhile(lambda part: not glob.has_magic(part), Path(path).parts[:-1]))
        seen: set[Path] = set()
        for match in _matches(path):
            for name, file in _walk(Path(match), base):
                if file not in seen:
                    seen.add(file)
                    yield name, file


def reads_below(path: str, folder: Path) -> bool:
    """Return whether `find_files(path)` would find files that are written into a folder, or below it."""
    if not path or Path(path).is_file():
        return False
    folder, pattern = Path(os.path.abspath(folder)), Path(os.path.abspath(path))
    base = Path(*takewhile(lambda part: not glob.has_magic(part), pattern.parts))
    if not folder.is_relative_to(base) or any(part.startswith(".") for part in folder.relative_to(base).parts):
        return False
    if base == pattern or "**" in pattern.parts:
        return True
    # a match is deeper than the folder, or is the folder or one above it, whose files are all read
    return all(map(fnmatchcase, folder.parts, pattern.parts))


def _walk(path: Path, base: Path) -> Iterator[tuple[str, Path]]:
    """Yield `(name relative to base, path)` of the files in and below a folder, sorted by name at each level; or of the
    file itself. A broken link is yielded, too, so that its reader raises the error."""
    check_utf8(str(path))
    if path.is_dir():
        for name in sorted(os.listdir(path)):
            if not name.startswith(".") and not _is_loop(path / name):
                check_regular(path / name)
                yield from _walk(path / name, base)
    elif path.is_file() or (path.is_symlink() and not path.exists()):
        yield path.relative_to(base).as_posix(), path


def _matches(pattern: str) -> list[str]:
    """Return the sorted paths that match a glob. Raise `OSError` if a folder cannot be listed; `glob` would skip the
    folder."""
    parts = Path(pattern).parts
    for index, part in enumerate(parts):
        if glob.has_magic(part) or (index > 0 and parts[index - 1] == "**"):  # `glob` lists the folders before `part`
            folders = glob.iglob(str(Path(*parts[:index])), recursive=True)
            for folder in filter(os.path.isdir, folders):
                os.scandir(folder).close()  # only for its error
    num_fixed = len([*takewhile(lambda part: not glob.has_magic(part), parts)])  # parts before the first wildcard
    matches = []
    for path in map(Path, glob.iglob(pattern, recursive=True)):
        below_fixed = [path, *path.parents][: len(path.parts) - num_fixed]  # the fixed part may lead through any link
        if not any(map(_is_loop, below_fixed)):
            matches.append(str(path))
    return sorted(matches)


def _is_loop(path: Path) -> bool:
    # a link to a folder that contains it
    return path.is_symlink() and Path(os.path.realpath(path.parent)).is_relative_to(os.path.realpath(path))


@contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading bytes, decompressed if its name ends in .gz or .zst; `-` is standard input."""
    suffix = path.suffix.lower()
    if suffix in _COMPRESSED and path.is_file() and path.stat().st_size == 0:
        raise EOFError("it is empty")  # not a valid compressed file, but the decompressors accept it
    if suffix == ".zst":
        import pyarrow  # it has zstd; the standard library only from Python 3.14

        with pyarrow.OSFile(str(path)) as raw, pyarrow.CompressedInputStream(raw, "zstd") as stream:
            yield cast(BinaryIO, io.BufferedReader(stream, 1024**2))
    elif suffix == ".gz":
        with gzip.open(path, "rb") as unpacked:
            yield cast(BinaryIO, unpacked)
    else:
        with open(0, "rb", closefd=False) if path == STDIN else path.open("rb") as plain:
            yield plain


def read_lines(path: Path) -> Generator[Line, None, None]:
    r"""Yield each line with its number from 1, without `\n` or `\r\n` and without byte order mark.

    Raises:
        DomainbertError: the file cannot be read or decompressed; a line is not UTF-8, has a NUL character, or is longer
            than `MAX_DOCUMENT_BYTES`.
    """
    number = 0
    try:
        with open_bytes(path) as handle:
            while line := handle.readline(MAX_DOCUMENT_BYTES + 1):
                number += 1
                if len(line) > MAX_DOCUMENT_BYTES:
                    raise too_long(f"{path}:{number}", "line")
                line = line.removeprefix(_BOM) if number == 1 else line
                yield number, _decode(line.removesuffix(b"\n").removesuffix(b"\r"), path, number)
    except (OSError, EOFError, zlib.error) as error:
        raise unreadable(path, error, f" after line {number}" if number else "") from error


def read_text(path: Path, skip_mark: bool = True) -> str:
    """Return a text with unchanged line breaks, by default without byte order mark; errors as in `read_lines`."""
    try:
        with open_bytes(path) as handle:
            return _decode(handle.read().removeprefix(_BOM if skip_mark else b""), path)
    except (OSError, EOFError, zlib.error) as error:
        raise unreadable(path, error) from error


def _decode(data: bytes, path: Path, line: int = 1) -> str:
    """Return the text of UTF-8 bytes; an error names the line, counted from `line`, the first of `data`."""
    try:
        text = data.decode("utf-8")
        position = data.find(b"\0")
        if position < 0:
            return text
        found = "a NUL character (is the file UTF-16?)"
    except UnicodeDecodeError as error:
        position = error.start
        found = "not UTF-8"
    line += data.count(b"\n", 0, position)
    column = position - data.rfind(b"\n", 0, position)
    byte = f"byte {column} of the line, 0x{data[position]:02x}"
    raise DomainbertError(f"{byte}, is {found}", file=path, line=line, expected="UTF-8 text")


def too_long(where: str, what: str, advice: str = "") -> DomainbertError:
    """Return the error for a text of more than `MAX_DOCUMENT_BYTES`; `what` is "line" or "document"."""
    limit = f"{MAX_DOCUMENT_BYTES // 1024**2} MiB"
    return DomainbertError(
        f"a {what} of more than {limit}", where=where, expected=f"documents of at most {limit}{advice}"
    )


def unreadable(path: Path, error: Exception, where: str = "") -> DomainbertError:
    """Return the error for a file that cannot be opened or decompressed; `where` is " after line 3" or the like."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    expected = f"a whole {path.suffix} file" if is_compressed(path) else ""
    if isinstance(error, IsADirectoryError):
        expected = "a file"
    return DomainbertError(f"cannot be read{where} ({reason})", file=path, expected=expected)
