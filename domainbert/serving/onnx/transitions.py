"""The CRF of an exported tagger: a JSON file beside the model, which gives emissions only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from domainbert.base.errors import DomainbertError
from domainbert.base.files import write_json
from domainbert.base.sealed import check_sealed
from domainbert.encoders.crf import Crf

CRF_FILE = "crf.json"
_HOW = (
    "The logits of the model are the emissions of a conditional random field: the best label of each word by itself is "
    "not what the model predicts. A word's emission is the logits at its first piece. The score of labels y1 ... yn is "
    "start[y1] + the emissions + transitions[y1][y2] + ... + end[yn]; the model predicts the labels with the highest "
    "(Viterbi). -10000 stands where IOB2 forbids."
)
_NEVER = -1e4


def write_crf(folder: Path, crf: Crf, labels: Sequence[str]) -> None:
    """Write `crf.json`: labels, `start` (C,), `transitions` (C, C) from row to column, `end` (C,), and how to use them.

    What IOB2 forbids of these labels is written as -10000.
    """
    crf.constrain(labels)
    start = crf.start.detach().masked_fill(~crf.allowed_first, _NEVER)
    transitions = crf.transitions.detach().masked_fill(~crf.allowed, _NEVER)
    numbers = {"start": start.tolist(), "transitions": transitions.tolist(), "end": crf.end.detach().tolist()}
    write_json(folder / CRF_FILE, {"how": _HOW, "labels": list(labels), **numbers})


def read_crf(folder: Path, labels: Sequence[str]) -> Crf:
    """The CRF that `write_crf` wrote, to the bit; `DomainbertError` if there is none, or not one of these labels."""
    path, crf = folder / CRF_FILE, Crf(len(labels))
    check_sealed(folder, CRF_FILE)
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        if fields["labels"] != list(labels):
            raise DomainbertError(f"{path}: labels are not those of config.json; expected {', '.join(labels)}")
        for name in ("start", "transitions", "end"):
            values = torch.tensor(fields[name], dtype=torch.float32)
            if values.shape != getattr(crf, name).shape:
                raise ValueError(f"{name} has shape {tuple(values.shape)}")
            setattr(crf, name, nn.Parameter(values))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DomainbertError(f"{path}: not the CRF of an exported tagger: {error!r}") from error
    return crf
