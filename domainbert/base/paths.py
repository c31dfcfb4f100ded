"""Paths in settings, including `package:NAME/sub/folder` and `hub:NAME` for a model on the Hugging Face hub."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from domainbert.base.errors import DomainbertError
from domainbert.base.redact import redact

_PACKAGE = "package:"
_HUB = "hub:"
_PART = r"(?!\S*\.\.)[A-Za-z0-9_][A-Za-z0-9._-]*"  # of a name or revision on the hub, between slashes; no `..`
_HUB_NAME = re.compile(rf"{_PART}(/{_PART})?")
_REVISION = re.compile(rf"{_PART}(/{_PART})*")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
STDIN = Path("-")  # for stages that read streams


@dataclass(frozen=True)
class OnHub:
    """Annotation of a path that may also be `hub:NAME`: a model or data set on the Hugging Face hub."""

    repo_type: Literal["model", "data set"] = "model"

    def __str__(self) -> str:
        """Return the end of the type in `--help`, which then reads "path or hub:NAME"."""
        return "or hub:NAME"


ModelPath = Annotated[Path, OnHub()]  # a model or tokenizer folder
DataPath = Annotated[Path, OnHub("data set")]  # a labelled file, or a folder that `save_to_disk` has written


def is_url(text: str) -> bool:
    """Return whether a text is a URL such as `s3://bucket/corpus`, not a path."""
    return _URL.match(text) is not None


def check_url(key: str, text: str) -> None:
    """Raise `DomainbertError` if the setting `key` is no URL, or a URL with a secret: settings are written to files."""
    if not is_url(text):
        raise DomainbertError(where=key, found=repr(text), expected="a URL such as s3://bucket/law")
    if redact(text) != text:
        raise DomainbertError(
            where=key,
            found=f"a secret in {redact(text)}",
            expected="a URL without it, because others read files with this URL",
            hint="pass the secret to fsspec by environment variables or ~/.config/fsspec",
        )


def check_hub_name(text: str) -> tuple[str, str | None]:
    """Return NAME and REVISION (or None) of `hub:NAME@REVISION`; raise `DomainbertError` if they are not valid on the
    hub."""
    name, at, revision = text.removeprefix(_HUB).partition("@")
    if not _HUB_NAME.fullmatch(name) or (at and not _REVISION.fullmatch(revision)):
        form = "hub:NAME or hub:OWNER/NAME, optionally with @REVISION, of letters, digits and . _ -"
        raise DomainbertError("not a valid name on the Hugging Face hub", where=text, expected=form)
    return name, revision or None


def is_on_hub(path: str | Path) -> bool:
    """Return whether a path is `hub:NAME`, with or without a revision."""
    return str(path).startswith(_HUB)


def suggest_hub_name(path: Path, repo_type: str = "model") -> str:
    """Return a hint, for an error message on a missing path, to write it as `hub:NAME`; empty if it cannot be a name on
    the hub."""
    name = str(path)
    is_local = path.is_absolute() or (len(path.parts) > 1 and Path(path.parts[0]).exists())
    if is_local or not _HUB_NAME.fullmatch(name):
        return ""
    return f", or {_HUB}{name} for a {repo_type} on the Hugging Face hub"


WHOLE_PATH = "the whole path, because only a shell expands ~"
"""The expected value in messages on a path that begins with `~`."""


def starts_at_home(path: str | Path) -> bool:
    """Return whether a path begins with `~`, which a shell has not expanded: a folder called `~` would be created."""
    return str(path).startswith("~")


def check_utf8(text: str) -> None:
    """Raise `DomainbertError` for a path or argument that is not UTF-8: settings and records cannot store it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DomainbertError("this name is not UTF-8", where=f"{text!a}", hint="rename the file or folder") from error


def check_home_expanded(key: str, path: str | Path) -> None:
    """Raise `DomainbertError` for an output path that begins with `~`."""
    if starts_at_home(path):
        raise DomainbertError(where=key, found=f"'{path}'", expected=WHOLE_PATH)


def resolve_path(path: str | Path) -> Path:
    """Resolve `package:` and `hub:` to a folder on disk; return other paths unchanged.

    `hub:NAME@REVISION` is downloaded into the cache of `huggingface_hub`, where the folder is named after the commit.

    Raises:
        DomainbertError: the package is not installed, the path leads out of it, the model cannot be downloaded, or the
            path begins with `~`.
    """
    text = str(path)
    if starts_at_home(text):
        raise DomainbertError(found=f"'{text}'", expected=WHOLE_PATH)
    if text.startswith(_PACKAGE):
        return _resolve_in_package(text)
    return _download_from_hub(text) if text.startswith(_HUB) else Path(path)


def stream_kind(path: Path) -> str | None:
    """Return the kind of a path that can be read only once: "standard input", "a pipe", "a socket" or "a device"; None
    for other paths."""
    if path == STDIN:
        return "standard input"
    if path.is_fifo() or path.is_socket():
        return "a pipe" if path.is_fifo() else "a socket"
    return "a device" if path.is_char_device() or path.is_block_device() else None


def check_regular(*paths: Path) -> None:
    """Raise `DomainbertError` if a path can be read only once (a pipe or device), for code that reads it again, or
    would wait for a pipe without end."""
    for path in paths:
        if stream := stream_kind(path):
            raise DomainbertError(f"is {stream}", file=path, expected="a regular file")


def is_installed(package: str) -> bool:
    """Return whether a Python package is installed, without importing it."""
    return importlib.util.find_spec(package) is not None


def model_name(path: Path) -> str:
    """Return the name of a model folder for reports: `hub:NAME@COMMIT` in the hub's cache, otherwise its last part."""
    snapshots, cached = path.parent, path.parent.parent.name
    if snapshots.name == "snapshots" and cached.startswith("models--"):
        return f"{_HUB}{cached.removeprefix('models--').replace('--', '/')}@{path.name}"
    return path.name


def _resolve_in_package(text: str) -> Path:
    name, _, rest = text.removeprefix(_PACKAGE).partition("/")
    spec = importlib.util.find_spec(name) if name.isidentifier() else None  # without importing it
    if spec is None or spec.origin is None:
        raise DomainbertError(
            f"no installed Python package has the name '{name}'", where=text, expected="package:NAME/path"
        )
    if not spec.submodule_search_locations or ".." in Path(rest).parts:
        raise DomainbertError(
            f"not a folder inside the Python package '{name}'", where=text, expected=f"package:{name}/path"
        )
    return Path(spec.origin).parent / rest


def _download_from_hub(text: str) -> Path:
    """Return the folder, without weights if the hub has no safetensors, `pytorch_model.bin` or ONNX of the model."""
    from huggingface_hub import snapshot_download  # here: slow to import

    name, revision = check_hub_name(text)
    for weights in ("model*.safetensors", "pytorch_model*.bin", "model*.onnx"):
        patterns = ["*.json", "*.txt", "*.md", "biaffine.safetensors", weights]
        try:
            folder = Path(snapshot_download(name, revision=revision, allow_patterns=patterns))
        except Exception as error:  # the hub's client raises dozens of unrelated types
            reason = " ".join(str(error).split())
            raise DomainbertError(f"the model cannot be downloaded from the hub: {reason}", where=text) from error
        if any(folder.glob(weights)):
            break
    return folder
