"""The scorer of the arcs of an exported parser: a file beside the ONNX model, which gives projections of words."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from domainbert.base.errors import DomainbertError
from domainbert.base.sealed import check_sealed
from domainbert.encoders.biaffine import Biaffine

BIAFFINE_FILE = "biaffine.safetensors"
_PARTS = ("root", "arc", "label")
_HOW = (
    "The logits of the model are projections of words, at the first piece of each: as dependent of an arc, "
    "dependent of a label, head of an arc, head of a label, in widths A, L, A, L. arc is (A + 1, A), label (labels, "
    "L + 1, L + 1), root (A + L) has the projections of the root as head of an arc and of a label. The score of "
    "head h for word d is [arc projection of d, 1] arc [arc projection of h]; that of label c for this arc is "
    "[label projection of d, 1] label[c] [label projection of h, 1]. The model predicts the tree with the highest "
    "product of the softmax of the scores of each word's heads, and the best label of each arc."
)


def write_biaffine(folder: Path, head: Biaffine) -> None:
    """Write `biaffine.safetensors`, which says in its metadata how it is used."""
    tensors = {name: getattr(head, name).detach().contiguous() for name in _PARTS}
    save_file(tensors, folder / BIAFFINE_FILE, metadata={"how": _HOW})
    (folder / BIAFFINE_FILE).chmod(0o644)


def read_biaffine(folder: Path, head: Biaffine) -> None:
    """Put into a head what `write_biaffine` wrote; `DomainbertError` if there is none, or of other sizes."""
    path = folder / BIAFFINE_FILE
    check_sealed(folder, BIAFFINE_FILE)
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise DomainbertError(f"{path}: cannot be read ({error}); expected the scores of an exported parser") from error
    for name in _PARTS:
        wanted, found = getattr(head, name).shape, tensors[name].shape if name in tensors else None
        if found != wanted:
            shape = "is missing" if found is None else f"has shape {tuple(found)}"
            raise DomainbertError(f"{path}: {name} {shape}; config.json implies {tuple(wanted)}")
        setattr(head, name, nn.Parameter(tensors[name]))
