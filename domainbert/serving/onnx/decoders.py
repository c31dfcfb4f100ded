"""Store the weights that decode the logits of an exported model, in a file next to the ONNX file.

The transitions of a tagger's CRF and the biaffine scores of a parser are weights that are not part of the ONNX graph.
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
from domainbert.base.run_record import check_outputs_unchanged
from domainbert.encoders.biaffine import Biaffine
from domainbert.encoders.crf import Crf, crf_of


class Decoder(ABC):
    """The decoding part of a head, stored in a separate file."""

    name: ClassVar[str]
    """Name of the file."""
    logits: ClassVar[str]
    """Meaning of the logits of the ONNX file, for the model card."""

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Write the file, with instructions for decoding. `Task.attach_head` must have told the head which label
        transitions are forbidden."""

    @abstractmethod
    def read(self, folder: Path) -> None:
        """Load the exact weights into the head; raise `DomainbertError` if the file is missing or does not fit."""


class CrfDecoder(Decoder):
    """The CRF of a tagger, in `crf.json`: labels, `start` (C,), `transitions` (C, C) from row to column, `end` (C,)."""

    name = "crf.json"
    logits = "emissions of a CRF; crf.json has its transitions and describes decoding"
    _HOW = (
        "The logits of the model are the emissions of a conditional random field: the model does not predict the best "
        "label of each word separately. The emission of a word is the logits at its first piece. The score of labels "
        "y1 ... yn is start[y1] + the emissions + transitions[y1][y2] + ... + end[yn]; the model predicts the labels "
        "with the highest score (Viterbi). Forbidden labels have the score -10000. If config.json has "
        "domainbert_min_score, an entity becomes O if its probability is lower: the share of all label sequences, each "
        "weighted by exp(score), that have exactly this entity (forward-backward)."
    )

    def __init__(self, head: nn.Module, labels: Sequence[str]) -> None:
        self.head, self.labels = head, list(labels)

    @override
    def write(self, folder: Path) -> None:
        """Write the transitions; forbidden transitions are -10000."""
        crf = crf_of(self.head)
        assert crf is not None
        start, transitions, end = crf.scores(crf.transitions.detach())
        numbers = {"start": start.tolist(), "transitions": transitions.tolist(), "end": end.tolist()}
        write_json(folder / self.name, {"how": self._HOW, "labels": self.labels, **numbers})

    @override
    def read(self, folder: Path) -> None:
        """Set a CRF with the scores of the file in the head; raise `DomainbertError` if the file does not fit."""
        path, crf = folder / self.name, Crf(len(self.labels))
        check_outputs_unchanged(folder, self.name)
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            if fields["labels"] != self.labels:
                raise DomainbertError("labels differ from config.json", file=path, expected=", ".join(self.labels))
            for name in ("start", "transitions", "end"):
                values = torch.tensor(fields[name], dtype=torch.float32)
                if values.shape != (expected := getattr(crf, name).shape):
                    raise ValueError(f"{name} has shape {tuple(values.shape)}; expected {tuple(expected)}")
                setattr(crf, name, nn.Parameter(values))
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise DomainbertError(
                f"not the CRF of an exported tagger ({error!r})", file=path, hint="export again"
            ) from error
        self.head.crf = crf


class BiaffineDecoder(Decoder):
    """The scoring of a parser, in `biaffine.safetensors`: the tensors that score arcs; metadata describes decoding."""

    name = "biaffine.safetensors"
    logits = "projections of words; biaffine.safetensors has the scoring tensors and describes decoding"
    _PARTS = ("root", "arc", "label")
    _HOW = (
        "The logits at the first piece of a word are four projections of the word: as dependent of an arc, as "
        "dependent of a label, as head of an arc, as head of a label, with widths A, L, A, L. arc is (A + 1, A), label "
        "(labels, L + 1, L + 1), root (A + L) has the projections of the root as head of an arc and of a label. The "
        "score of head h for word d is [arc projection of d, 1] arc [arc projection of h]; the score of label c for "
        "this arc is [label projection of d, 1] label[c] [label projection of h, 1]. The model predicts the tree with "
        "the highest product of head probabilities (softmax of the scores), and the best label of each arc."
    )

    def __init__(self, head: Biaffine) -> None:
        self.head = head

    @override
    def write(self, folder: Path) -> None:
        """Write the tensors of `_PARTS`, with instructions for decoding in the metadata."""
        tensors = {name: getattr(self.head, name).detach().contiguous() for name in self._PARTS}
        save_file(tensors, folder / self.name, metadata={"how": self._HOW})
        (folder / self.name).chmod(0o644)  # readable by everyone, like the other files of a model

    @override
    def read(self, folder: Path) -> None:
        """Load the weights, whose shapes follow from `config.json`."""
        path = folder / self.name
        check_outputs_unchanged(folder, self.name)
        try:
            tensors = load_file(path)
        except (SafetensorError, OSError) as error:
            expected = "the tensors of an exported parser"
            raise DomainbertError(f"cannot be read ({error})", file=path, expected=expected) from error
        for name in self._PARTS:
            expected = getattr(self.head, name).shape
            shape = tensors[name].shape if name in tensors else None
            if shape != expected:
                problem = "is missing" if shape is None else f"has shape {tuple(shape)}"
                raise DomainbertError(
                    f"{name!r} {problem}", file=path, expected=f"shape {tuple(expected)} as in config.json"
                )
            setattr(self.head, name, nn.Parameter(tensors[name]))


DECODER_FILES = (CrfDecoder.name, BiaffineDecoder.name)


def find_decoder(head: nn.Module, labels: Sequence[str]) -> Decoder | None:
    """Return the part of a head that is stored in a separate file: a CRF or biaffine scores; None for other heads."""
    if crf_of(head) is not None:
        return CrfDecoder(head, labels)
    return BiaffineDecoder(head) if isinstance(head, Biaffine) else None
