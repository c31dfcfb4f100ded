"""How many files and folders of the package a labelled batch goes through, from its data set to the loss."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import lightning
import pytest

import domainbert
from domainbert.data.batches import LabelledTrainBatches
from tests.library.trainer.tiny_library import trainer

pytestmark = pytest.mark.usefixtures("one_thread")
ROOT = Path(domainbert.__file__).parent
STEP = 2


class Calls(lightning.Callback):
    """Files of the package in the order of their calls, from the batch of a step to its backward pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files: list[str] = []
        build = LabelledTrainBatches.__getitem__

        def start(batches: LabelledTrainBatches, index: int) -> dict[str, Any]:
            if index == STEP:
                sys.setprofile(self.note)
            return build(batches, index)

        monkeypatch.setattr(LabelledTrainBatches, "__getitem__", start)

    def note(self, frame: FrameType, event: str, arg: object) -> None:
        """Note the file of a call."""
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(f"{ROOT}/"):
            self.files.append(path.removeprefix(f"{ROOT}/"))

    def on_before_backward(self, *arguments: object) -> None:
        """End at the loss."""
        sys.setprofile(None)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_files_and_folder_boundaries_of_a_labelled_batch(tiny, monkeypatch, dropout):
    """A boundary lies between two consecutive calls in different folders."""
    calls = Calls(monkeypatch)
    before = sys.getprofile()
    trainer(callbacks=[calls], max_steps=STEP + 1).fit(tiny.module(dropout=dropout), tiny.data())
    sys.setprofile(before)
    folders = [str(Path(file).parent) for file in calls.files]
    boundaries, files = sum(one != other for one, other in pairwise(folders)), sorted(set(calls.files))
    assert boundaries <= 6
    assert len(files) <= 10, files
    assert {"data/batches.py", "encoders/heads.py", "tasks/finetuning.py"} <= set(files)
