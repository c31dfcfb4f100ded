"""Paths that users write: also `package:NAME/sub/folder` and `hub:NAME`, a model of the Hugging Face hub."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from domainbert.errors import DomainbertError

_PACKAGE = "package:"
_HUB = "hub:"
_SMALL_FILES = ["*.json", "*.txt", "*.md"]


def resolve_path(path: str | Path) -> Path:
    """The folder on disk that a path means; a path without `package:` or `hub:` as it is.

    `hub:NAME` or `hub:NAME@REVISION` is downloaded into the cache of `huggingface_hub`, where the folder is named after
    the commit, so what was used stays on record.

    Raises:
        DomainbertError: the package is not installed, the path leads out of it, or the hub does not give the model.
    """
    text = str(path)
    if text.startswith(_PACKAGE):
        return _in_package(text)
    return _from_hub(text) if text.startswith(_HUB) else Path(path)


def is_installed(package: str) -> bool:
    """Whether there is a Python package of this name; it is not imported."""
    return importlib.util.find_spec(package) is not None


def model_name(path: Path) -> str:
    """What to call a model folder elsewhere: `hub:NAME@COMMIT` if it came from the hub, else the folder's own name."""
    snapshots, cached = path.parent, path.parent.parent.name
    if snapshots.name == "snapshots" and cached.startswith("models--"):
        return f"{_HUB}{cached.removeprefix('models--').replace('--', '/')}@{path.name}"
    return path.name


def _in_package(text: str) -> Path:
    """The folder inside an installed package, which is found without importing it."""
    name, _, rest = text.removeprefix(_PACKAGE).partition("/")
    spec = importlib.util.find_spec(name) if name.isidentifier() else None
    if spec is None or spec.origin is None:
        raise DomainbertError(
            f"{text}: no installed Python package has the name '{name}'; expected package:NAME/folder"
        )
    root = Path(spec.origin).parent if spec.submodule_search_locations else None
    if root is None or ".." in Path(rest).parts:
        raise DomainbertError(f"{text}: expected a folder inside the Python package '{name}'")
    return root / rest


def _from_hub(text: str) -> Path:
    """The snapshot of a hub model: its safetensors, or where there are none its `pytorch_model.bin`."""
    name, _, revision = text.removeprefix(_HUB).partition("@")
    if not name:
        raise DomainbertError(f"{text}: names nothing; expected hub:NAME or hub:NAME@REVISION")
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise DomainbertError(f"{text}: needs huggingface_hub; pip install domainbert[hub]") from error
    folder = Path()
    for weights in ("model*.safetensors", "pytorch_model*.bin"):
        try:
            folder = Path(snapshot_download(name, revision=revision or None, allow_patterns=[*_SMALL_FILES, weights]))
        except Exception as error:  # the hub's client raises dozens of unrelated types
            reason = " ".join(str(error).split())
            raise DomainbertError(f"{text}: the model cannot be had from the hub: {reason}") from error
        if any(folder.glob(weights)):
            break
    return folder
