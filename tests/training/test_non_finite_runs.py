"""What a user sees of a training whose numbers are not finite."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from domainbert.data.config import MaskingConfig
from domainbert.data.corpus_rows import rows_of_corpus
from domainbert.data.order import GlobalOrder
from domainbert.data.prepared import open_prepared
from domainbert.objectives.finetuning import FineTuning
from domainbert.objectives.masked_lm import MaskedLM
from domainbert.tokenization.load import load_tokenizer
from tests.resuming import TRAINING, Work, pretraining


@pytest.fixture
def work(tmp_path: Path, one_thread: None, monkeypatch: pytest.MonkeyPatch) -> Work:
    monkeypatch.setattr("domainbert.training.throughput.measured_peak_flops", lambda *_: 1e12)  # it takes a second
    return Work(tmp_path)


def spoil(module: type[MaskedLM] | type[FineTuning], steps: set[int], patch: pytest.MonkeyPatch) -> None:
    """The gradient is NaN in these steps (from 0)."""
    real = module.training_step

    def step(self: Any, batch: dict[str, Any], batch_idx: int) -> Tensor:
        loss = real(self, batch, batch_idx)
        return loss * float("nan") if batch["step"] in steps else loss

    patch.setattr(module, "training_step", step)


def failed(folder: Path) -> list[dict[str, Any]]:
    status = json.loads((folder / "status.json").read_text())
    assert status["state"] == "failed" and "not finite 3 times in a row" in status["reason"]
    (file,) = folder.rglob("non_finite.json")
    found: list[dict[str, Any]] = json.loads(file.read_text())
    return found


def test_pretraining_counts_skipped_steps(runs: Any, work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = pretraining(runs / "prepare", batch_size=8, budget={"max_steps": 8})
    spoil(MaskedLM, {1, 2, 5}, monkeypatch)
    assert work.run("pretrain", "out", settings) == 0
    metrics = json.loads((work / "out/manifest.json").read_text())["metrics"]
    assert (metrics["skipped_steps"], metrics["loss_spikes"]) == ([2, 3, 6], [])
    assert not (work / "out/non_finite.json").exists()


def test_pretraining_names_rows_and_documents(
    runs: Any, work: Work, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = pretraining(runs / "prepare", batch_size=8, budget={"max_steps": 8}, validate_every=2)
    spoil(MaskedLM, {3, 4, 5}, monkeypatch)
    assert work.run("pretrain", "out", settings) == 2
    said = f"steps 4 to 6: loss or gradient was not finite 3 times in a row; {work / 'out/non_finite.json'} names their"
    assert said in capsys.readouterr().err
    steps = failed(work / "out")
    order = GlobalOrder(569, 8, seed=0)
    assert [(one["step"], one["rows"]) for one in steps] == [(n, order.batch(n - 1)[1].tolist()) for n in (4, 5, 6)]
    for one in steps:
        assert one["documents"] == documents_of(runs / "prepare", one["rows"])
    assert sorted(path.name for path in (work / "out/checkpoints").iterdir()) == ["step-00000002", "step-00000004"]


def documents_of(prepared: Path, rows: list[int]) -> list[int]:
    """Those whose tokens stand in the rows, looked up one by one."""
    corpus = open_prepared([prepared])
    plan = rows_of_corpus(corpus, load_tokenizer(corpus.tokenizer_folder), MaskingConfig(), 64)[0].plan
    ends = corpus.train.document_offsets.tolist()[1:]
    pieces = [piece for row in rows for piece in range(plan.row_offsets[row], plan.row_offsets[row + 1])]
    found = {next(n for n, end in enumerate(ends) if plan.starts[piece] < end) for piece in pieces}
    assert len(found) > 1
    return sorted(found)


def test_finetuning_names_lines(runs: Any, work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {split: str(runs.labelled("ner", split)) for split in ("train", "validation")}
    settings = TRAINING | files | {"model": str(runs / "pretrain"), "task": "Ner", "batch_size": 24, "seeds": [3]}
    spoil(FineTuning, {0, 1, 2}, monkeypatch)
    assert work.run("finetune", "out", settings) == 2
    lines = Path(files["train"]).read_text().split("\n")
    steps = failed(work / "out")
    assert [(one["step"], len(one["lines"])) for one in steps] == [(1, 24), (2, 24), (3, 24)]
    for line in (line for one in steps for line in one["lines"]):
        assert lines[line - 1] and (line == 1 or not lines[line - 2] or lines[line - 2].startswith("-DOC"))
