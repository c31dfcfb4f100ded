"""Pairs of segments through the stages: folders, resuming, going on, fine-tuning, distilling, refused settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from domainbert.cli import main
from domainbert.models.folder import open_model
from domainbert.models.loading import read_weights
from tests.interface.snapshot import check_folder
from tests.refusals import assert_printed
from tests.resuming import ENCODER, Work, assert_same_outcome, metrics, pretraining

SMALL = {**ENCODER, "hidden_size": 32, "intermediate_size": 64}
ALBERT = {"class_path": "AlbertConfig", "init_args": {**SMALL, "embedding_size": 32, "hidden_dropout_prob": 0.1}}
KINDS = {
    "Bert": ({"class_path": "BertConfig", "init_args": SMALL}, "next"),
    "Albert": (ALBERT, "order"),
}


def settings_of(runs: Any, kind: str, **changes: Any) -> dict[str, Any]:
    encoder, relation = KINDS[kind]
    objective = {"class_path": "SentencePairs", "init_args": {"relation": relation}}
    return pretraining(runs / "prepare", **{"encoder": encoder, "objective": objective, **changes})


def validated(folder: Path) -> dict[str, float]:
    found: dict[str, float] = json.loads((folder / "run.json").read_text())["metrics"]["validation"]
    return found


def opened(kind: str, folder: Path) -> Any:
    model, said = getattr(transformers, kind).from_pretrained(folder, output_loading_info=True)
    assert not any(said[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys")), (kind, said)
    return model.eval()


@pytest.mark.parametrize("kind", ["Bert", pytest.param("Albert", marks=pytest.mark.slow)])
def test_it_is_stopped_and_goes_on_and_the_folder_opens(runs: Any, work: Work, kind: str, capsys: Any) -> None:
    settings = settings_of(runs, kind, held_out={"again": str(runs / "prepare")})
    assert work.run("pretrain", "whole", settings) == 0
    check_folder("pretrain with SentencePairs", work / "whole")
    printed = capsys.readouterr().out
    assert " pairs, " in printed and " texts are too short for a pair" in printed
    assert work.run("pretrain", "parts", settings, stop=(0, 5)) == 75
    assert work.run("pretrain", "parts", settings, "--resume", "auto") == 0
    assert_same_outcome(work / "whole", work / "parts")
    lines = [line for line in metrics(work / "whole/logs/metrics.jsonl") if "train/loss" in line]
    for line in lines:
        assert line["train/loss"] == pytest.approx(line["train/masked_lm"] + line["train/pairs"], rel=1e-5)
    assert lines[-1]["train/masked_lm"] < lines[0]["train/masked_lm"] - 0.3
    found = validated(work / "whole")
    assert found["loss"] == pytest.approx(found["masked_lm_loss"] + found["pair_loss"])
    assert found["base_rate_entropy"] == pytest.approx(0.6931, abs=0.02) and 0.3 < found["pair_accuracy"] <= 1
    assert all(found[f"again_{name}"] == found[name] for name in ("loss", "pair_loss", "bits_per_character"))
    card = (work / "whole/README.md").read_text()
    said = "next sentence" if kind == "Bert" else "sentence order"
    assert f"tokens of masked LM and {said} prediction" in card and f"accuracy {found['pair_accuracy']:.4f}" in card

    model = opened(f"{kind}ForPreTraining", work / "whole")
    assert type(transformers.AutoModelForPreTraining.from_pretrained(work / "whole")) is type(model)
    said_entries = model(torch.tensor([[2, 30, 31, 3, 32, 3]]), token_type_ids=torch.tensor([[0, 0, 0, 0, 1, 1]]))
    assert said_entries.prediction_logits.shape == (1, 6, open_model(work / "whole").vocab_size)
    assert said_entries[1].shape == (1, 2)
    masked = transformers.AutoModelForMaskedLM.from_pretrained(work / "whole").eval()
    torch.testing.assert_close(masked(torch.tensor([[2, 30, 3]])).logits, model(torch.tensor([[2, 30, 3]]))[0])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Bert", "Albert"])
def test_what_goes_on_from_its_folder(runs: Any, work: Work, kind: str, capsys: Any) -> None:
    """Itself, masked LM, a task, another vocabulary, a student."""
    assert work.run("pretrain", "first", settings_of(runs, kind, budget={"max_steps": 6})) == 0
    first, capsys_out = str(work / "first"), capsys.readouterr
    weights, prefix = read_weights(work / "first"), kind.lower()
    pooler = f"{prefix}.pooler.dense.weight" if kind == "Bert" else f"{prefix}.pooler.weight"
    capsys_out()

    further = settings_of(runs, kind, encoder=None, init_from=first, seed=1, budget={"max_steps": 1})
    assert work.run("pretrain", "further", further) == 0
    assert "no weights for the head" not in capsys_out().out
    rows = json.loads((work / "further/run.json").read_text())["metrics"]["history"]
    assert rows[0] == pytest.approx({**validated(work / "first"), "step": 0}, rel=1e-4)

    masked = pretraining(runs / "prepare", encoder=None, init_from=first, budget={"max_steps": 2})
    assert work.run("pretrain", "masked", masked) == 0
    assert f"unused weights: {pooler.rpartition('.')[0]}.bias" in capsys_out().out
    opened(f"{kind}ForMaskedLM", work / "masked")
    assert work.run("pretrain", "again", further | {"init_from": str(work / "masked")}) == 0
    assert f"no weights for the head; initialised at random: {pooler}" in capsys_out().out

    labelled = {split: str(runs.labelled("classification", split)) for split in ("train", "validation")}
    still = {name: settings_of(runs, kind)[name] for name in ("precision", "loggers", "trainer")}
    task = {"model": first, "task": "Classification", **labelled, "max_epochs": 1, "seeds": [1], **still}
    task |= {"optim": {"lr": 1e-9, "head_lr": 1e-9, "weight_decay": 0.0}}
    assert work.run("finetune", "classes", task) == 0
    tuned = read_weights(work / "classes/seed-1")
    torch.testing.assert_close(tuned[pooler], weights[pooler], atol=1e-6, rtol=0)  # of pretraining, and not a new one

    corpus = {"sources": [{"path": str(runs / "sample/corpus.jsonl")}]}
    assert work.run("transfer", "wider", {"model": first, "corpus": corpus, "extend": 5}) == 0
    assert opened(f"{kind}ForPreTraining", work / "wider").config.vocab_size > open_model(Path(first)).vocab_size

    student = {"teachers": [first], "prepared": [str(runs / "prepare")], "losses": ["SoftTargets"], "max_length": 64}
    student |= {"student": {"family": "distilbert", "layers": [0]} if kind == "Bert" else {}, "batch_size": 16}
    assert work.run("distill", "student", {**student, **still, "budget": {"max_steps": 2}}) == 0
    opened("AutoModelForMaskedLM", work / "student")


def test_a_family_without_such_a_head_is_told_before_anything_runs(runs: Any, work: Work, capsys: Any) -> None:
    roberta = {"class_path": "RobertaConfig", "init_args": SMALL}
    assert work.run("pretrain", "out", settings_of(runs, "Bert", encoder=roberta), "--json") == 2
    found = "SentencePairs with RobertaConfig, which has no head for pairs"
    assert_printed(capsys.readouterr().err, where="objective", found=found, expected="BertConfig or AlbertConfig...")
    assert not (work / "out").exists() or not (work / "out/logs").exists()


def test_pairs_are_shown_with_their_labels(runs: Any, work: Work, capsys: Any) -> None:
    file = work / "settings.yaml"
    file.write_text(json.dumps(settings_of(runs, "Bert")))
    assert main(["pretrain", "-c", str(file), "--out", str(work / "out"), "--show", "4"]) == 0
    said = capsys.readouterr().out
    assert "the second segment follows (0)" in said
    assert "the second segment is of another document (1)" in said and "the target is" in said
