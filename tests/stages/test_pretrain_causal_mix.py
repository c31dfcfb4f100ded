"""Masked LM mixed with causal LM through the stages: resuming, micro-batches, folders, and what is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from domainbert.models.folder import open_model
from domainbert.pretraining.module import Pretraining
from tests.resuming import ENCODER, Work, assert_same_outcome, metrics, pretraining

MIX = {"causal_share": 0.25, "z_loss": 0.01}


@pytest.fixture
def work(tmp_path: Path, one_thread: None, monkeypatch: pytest.MonkeyPatch) -> Work:
    monkeypatch.setattr("domainbert.training.throughput.measured_peak_flops", lambda *_: 1e12)  # it takes a second
    return Work(tmp_path)


def settings_of(runs: Any, **changes: Any) -> dict[str, Any]:
    objective = {"class_path": "CausalMix", "init_args": MIX}
    return pretraining(runs / "prepare", **{"objective": objective, **changes})


def trained(folder: Path) -> list[dict[str, float]]:
    """Of each step what was logged."""
    return [line for line in metrics(folder / "logs/metrics.jsonl") if "train/loss" in line]


def test_it_is_stopped_and_goes_on_and_opens_as_either_kind(runs: Any, work: Work, capsys: Any) -> None:
    """Stopped in the midst of a causal step; a line of the log has the last value of each term."""
    settings = settings_of(runs)
    assert work.run("pretrain", "whole", settings) == 0
    assert work.run("pretrain", "parts", settings, stop=(0, 4)) == 75
    assert work.run("pretrain", "parts", settings, "--resume", "auto") == 0
    assert_same_outcome(work / "whole", work / "parts")
    lines = trained(work / "whole")
    assert [line["step"] for line in lines] == list(range(1, 13)) and "train/masked_lm" not in lines[0]
    for before, line in zip([{}, *lines], lines, strict=False):
        new, old = "train/masked_lm", "train/causal_lm"
        if line["step"] in (1, 5, 9):
            new, old = old, new
        assert line["train/loss"] == pytest.approx(line[new] + 0.01 * line["train/z_loss"], rel=1e-5)
        assert line.get(old) == before.get(old) and line[new] != before.get(new)
    validated = [line for line in metrics(work / "whole/logs/metrics.jsonl") if "validation/loss" in line]
    names = {name for line in validated for name in line if name.startswith("validation/")}
    parts = ("loss", "bits_per_character", "perplexity", "unigram_entropy")
    assert names == {f"validation/{part}" for part in parts}, "masked LM alone"
    assert "of masked LM and, in 25 % of the steps, causal LM" in (work / "whole/README.md").read_text()

    folder = work / "whole"
    assert open_model(folder).fields["architectures"][0] == "BertForMaskedLM"
    ids = torch.tensor([[2, 30, 31, 32, 33, 3]])
    masked = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    causal_lm, said = transformers.BertLMHeadModel.from_pretrained(folder, is_decoder=True, output_loading_info=True)
    assert not said["missing_keys"] and not said["unexpected_keys"]
    with torch.inference_mode():
        one, other = masked(ids).logits, causal_lm.eval()(ids).logits
        assert torch.allclose(other[:, :4], causal_lm(ids[:, :4]).logits, atol=1e-5)
    assert float((one - other).detach()[:, :-1].abs().amax()) > 1e-4, "what comes later is seen by the one alone"


def test_how_it_is_computed_changes_nothing(runs: Any, work: Work) -> None:
    """Micro-batches, layers that are computed again, worker processes; with dropout."""
    usual = settings_of(runs, budget={"max_steps": 5}, batch_size=32)
    assert work.run("pretrain", "whole", usual) == 0
    assert work.run("pretrain", "spread", usual | {"micro_batch_size": 8, "num_workers": 2}) == 0
    spared = usual | {"micro_batch_size": "auto", "activation_checkpointing": True}
    assert work.run("pretrain", "spared", spared) == 0
    one, *others = (trained(work / name) for name in ("whole", "spread", "spared"))
    for other in others:
        for wanted, found in zip(one, other, strict=True):
            assert found == pytest.approx(wanted, rel=1e-3) and found.keys() == wanted.keys()


def test_sixteen_bits_learn_the_same(runs: Any, work: Work) -> None:
    for precision in ("32-true", "bf16-mixed"):
        assert work.run("pretrain", precision, settings_of(runs, dropout=0.0, precision=precision)) == 0
    one, other = (trained(work / precision)[-1] for precision in ("32-true", "bf16-mixed"))
    for name in ("train/causal_lm", "train/masked_lm", "train/z_loss"):
        assert other[name] == pytest.approx(one[name], rel=0.02)


def test_the_term_that_is_not_finite_is_named(
    runs: Any, work: Work, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """From the objective's own terms, in a causal step and in the two after it."""
    real = Pretraining.training_step

    def step(self: Any, batch: dict[str, Any], batch_idx: int) -> Tensor:
        bad = {4: "causal_lm", 5: "z_loss", 6: "masked_lm"}.get(batch["step"])
        losses = self.objective.losses

        def spoilt(*inputs: Any) -> dict[str, Tensor]:
            return {name: value * (float("nan") if name == bad else 1) for name, value in losses(*inputs).items()}

        self.summed_losses = spoilt
        return real(self, batch, batch_idx)

    monkeypatch.setattr(Pretraining, "training_step", step)
    assert work.run("pretrain", "out", settings_of(runs)) == 2
    said = capsys.readouterr()
    assert "step 5: not finite: causal_lm; the step changed no weight" in said.out
    assert "steps 5 to 7: loss or gradient was not finite 3 times in a row (causal_lm, z_loss, masked_lm)" in said.err
    told = json.loads((work / "out/non_finite.json").read_text())
    assert [one["not_finite"] for one in told] == [["causal_lm"], ["z_loss"], ["masked_lm"]]


def test_an_encoder_that_sees_ahead_is_refused_before_anything_runs(runs: Any, work: Work, capsys: Any) -> None:
    relative = {"relative_attention": True, "pos_att_type": "c2p|p2c", "conv_kernel_size": 3}
    encoder = {"class_path": "DebertaV2Config", "init_args": {**ENCODER, **relative}}
    assert work.run("pretrain", "out", settings_of(runs, encoder=encoder)) == 2
    assert "objective: class_path: CausalMix, but a convolution of the encoder reads" in capsys.readouterr().err
    assert not (work / "out/logs").exists()


def test_a_task_and_masked_lm_start_from_its_folder(runs: Any, work: Work, capsys: Any) -> None:
    assert work.run("pretrain", "first", settings_of(runs, budget={"max_steps": 4})) == 0
    labelled = {split: str(runs.labelled("ner", split)) for split in ("train", "validation")}
    tagger = {"model": str(work / "first"), "task": "Ner", **labelled, "max_epochs": 1, "seeds": [1]}
    tagger |= {name: settings_of(runs)[name] for name in ("precision", "loggers", "trainer")}
    assert work.run("finetune", "tagger", tagger) == 0
    further = settings_of(runs, encoder=None, init_from=str(work / "first"), seed=1, objective=None)
    assert work.run("pretrain", "further", further | {"budget": {"max_steps": 2}}) == 0
    assert "no weights for the head; made cls" not in capsys.readouterr().out


def test_rows_are_shown_with_the_next_token(runs: Any, work: Work, capsys: Any) -> None:
    """The first step is causal, the second is not."""
    settings = settings_of(runs, batch_size=1, micro_batch_size=None)
    assert work.run("pretrain", "out", settings, "--show", "2") == 0
    first, second = capsys.readouterr().out.split("row 2 (step 2")
    lines = [line.split() for line in first.splitlines() if line.split()[3:6] == ["the", "next", "is"]]
    assert len(lines) > 20 and "hidden" not in first and "the next is" not in second
    follows = {int(line[0]): line[2] for line in lines}
    pairs = [(follows[place + 1], line[6]) for place, line in zip(follows, lines, strict=True) if place + 1 in follows]
    assert len(pairs) > 10 and all(piece == told for piece, told in pairs)
    assert "hidden; the target is" in second
