"""What makes predictions of the logits of an exported model, where that is more than their softmax: a file beside it.

A tagger's CRF and the scores of a parser's arcs are numbers of the model, but no layer that gives its logits.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn
from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.base.files import write_json
from domainbert.base.sealed import check_sealed
from domainbert.encoders.biaffine import Biaffine
from domainbert.encoders.crf import Crf, crf_of


class Decoder(ABC):
    """The part of a head that stands in a file of its own."""

    name: ClassVar[str]
    """Name of the file."""
    logits: ClassVar[str]
    """What the logits of the ONNX file are, for its card."""

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Write the file, which says how it is used. What the task forbids is known to the head, see `Task.bind`."""

    @abstractmethod
    def read(self, folder: Path) -> None:
        """Put into the head what `write` wrote, to the bit; `DomainbertError` if there is none, or another model's."""


class CrfDecoder(Decoder):
    """`crf.json`: labels, `start` (C,), `transitions` (C, C) from row to column, `end` (C,)."""

    name = "crf.json"
    logits = "emissions of a CRF; crf.json has its transitions, and says how to decode"
    _HOW = (
        "The logits of the model are the emissions of a conditional random field: the best label of each word by "
        "itself is not what the model predicts. A word's emission is the logits at its first piece. The score of "
        "labels y1 ... yn is start[y1] + the emissions + transitions[y1][y2] + ... + end[yn]; the model predicts the "
        "labels with the highest (Viterbi). -10000 stands where a label is forbidden."
    )

    def __init__(self, head: nn.Module, labels: Sequence[str]) -> None:
        self.head, self.labels = head, list(labels)

    @override
    def write(self, folder: Path) -> None:
        """Write the transitions; forbidden ones as -10000."""
        crf = crf_of(self.head)
        assert crf is not None
        start, transitions, end = crf.scores(crf.transitions.detach())
        numbers = {"start": start.tolist(), "transitions": transitions.tolist(), "end": end.tolist()}
        write_json(folder / self.name, {"how": self._HOW, "labels": self.labels, **numbers})

    @override
    def read(self, folder: Path) -> None:
        path, crf = folder / self.name, Crf(len(self.labels))
        check_sealed(folder, self.name)
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            if fields["labels"] != self.labels:
                raise DomainbertError(f"{path}: labels are not those of config.json; expected {', '.join(self.labels)}")
            for name in ("start", "transitions", "end"):
                values = torch.tensor(fields[name], dtype=torch.float32)
                if values.shape != getattr(crf, name).shape:
                    raise ValueError(f"{name} has shape {tuple(values.shape)}")
                setattr(crf, name, nn.Parameter(values))
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise DomainbertError(f"{path}: not the CRF of an exported tagger: {error!r}") from error
        self.head.crf = crf


class BiaffineDecoder(Decoder):
    """`biaffine.safetensors`: the tensors that score arcs, and in its metadata how."""

    name = "biaffine.safetensors"
    logits = "projections of words; biaffine.safetensors has what scores them, and says how to decode"
    _PARTS = ("root", "arc", "label")
    _HOW = (
        "The logits of the model are projections of words, at the first piece of each: as dependent of an arc, "
        "dependent of a label, head of an arc, head of a label, in widths A, L, A, L. arc is (A + 1, A), label "
        "(labels, L + 1, L + 1), root (A + L) has the projections of the root as head of an arc and of a label. The "
        "score of head h for word d is [arc projection of d, 1] arc [arc projection of h]; that of label c for this "
        "arc is [label projection of d, 1] label[c] [label projection of h, 1]. The model predicts the tree with the "
        "highest product of the softmax of the scores of each word's heads, and the best label of each arc."
    )

    def __init__(self, head: Biaffine) -> None:
        self.head = head

    @override
    def write(self, folder: Path) -> None:
        tensors = {name: getattr(self.head, name).detach().contiguous() for name in self._PARTS}
        save_file(tensors, folder / self.name, metadata={"how": self._HOW})
        (folder / self.name).chmod(0o644)

    @override
    def read(self, folder: Path) -> None:
        """Read the weights; their sizes are those that `config.json` implies."""
        path = folder / self.name
        check_sealed(folder, self.name)
        try:
            tensors = load_file(path)
        except (SafetensorError, OSError) as error:
            expected = "expected the scores of an exported parser"
            raise DomainbertError(f"{path}: cannot be read ({error}); {expected}") from error
        for name in self._PARTS:
            wanted, found = getattr(self.head, name).shape, tensors[name].shape if name in tensors else None
            if found != wanted:
                shape = "is missing" if found is None else f"has shape {tuple(found)}"
                raise DomainbertError(f"{path}: {name} {shape}; config.json implies {tuple(wanted)}")
            setattr(self.head, name, nn.Parameter(tensors[name]))


def decoder_of(head: nn.Module, labels: Sequence[str]) -> Decoder | None:
    """The part of a model's head that needs a file of its own, if it has one."""
    if crf_of(head) is not None:
        return CrfDecoder(head, labels)
    return BiaffineDecoder(head) if isinstance(head, Biaffine) else None
