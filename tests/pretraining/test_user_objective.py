"""An objective in a package of the user, with two models and losses over different tokens, trains like masked LM."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from domainbert.data.packing import IGNORE_INDEX
from domainbert.pretraining.objective import Key
from mine.random_tokens.config import RandomTokens
from mine.replaced_tokens.config import ReplacedTokens
from tests.refusals import assert_printed
from tests.resuming import Work, assert_same_outcome, metrics, pretraining
from tests.toy_corpus import corpus_readers

CLASS = f"{ReplacedTokens.__module__}.{ReplacedTokens.__name__}"
ALLOWED = ("--allow-import", ReplacedTokens.__module__)


def settings_of(runs: Any, **changes: Any) -> dict[str, Any]:
    objective = {"class_path": CLASS, "init_args": {"weight": 20.0}}
    held_out = {"again": str(runs / "prepare")}
    return pretraining(runs / "prepare", objective=objective, held_out=held_out, **changes)


def test_it_is_stopped_and_goes_on_and_both_folders_load(runs: Any, work: Work) -> None:
    settings = settings_of(runs)
    assert work.run("pretrain", "whole", settings, *ALLOWED) == 0
    assert work.run("pretrain", "parts", settings, *ALLOWED, stop=(0, 5)) == 75
    assert work.run("pretrain", "parts", settings, *ALLOWED, "--resume", "auto") == 0
    assert work.trained == 2 * [(0, step) for step in range(12)]
    assert_same_outcome(work / "whole", work / "parts")
    lines = metrics(work / "whole/logs/metrics.jsonl")
    trained = [line for line in lines if "train/loss" in line]
    for line in trained:
        assert line["train/loss"] == pytest.approx(line["train/generator"] + 20 * line["train/discriminator"], rel=1e-5)
    assert len(trained) == 12 and trained[-1]["train/generator"] < trained[0]["train/generator"] - 0.5
    validated = json.loads((work / "whole/run.json").read_text())["metrics"]
    assert validated["always_original"] == 0.85 and validated["warnings"] == []
    for name in ("loss", "generator_loss", "accuracy"):
        assert validated["validation"][f"again_{name}"] == validated["validation"][name]
    model = transformers.AutoModelForTokenClassification.from_pretrained(work / "whole")
    generator = transformers.AutoModelForMaskedLM.from_pretrained(work / "whole/generator")
    assert model.config.id2label == {0: "original", 1: "replaced"} and generator.config.num_hidden_layers == 1
    assert torch.equal(model.get_input_embeddings().weight, generator.get_input_embeddings().weight)


def test_what_is_hidden_may_depend_on_the_step(toy_corpus: Any, toy_tokenizer: Any) -> None:
    train, validation = corpus_readers(toy_corpus, ReplacedTokens(last_rate=0.45).build(toy_tokenizer), 24)
    rows = np.arange(8)
    hidden = []
    for reader, step in ((train, 0), (train, 5), (train, 10), (train, 99), (validation, 99)):
        key = Key(3, step, np.zeros_like(rows), rows)
        batch, counts = reader.batch(key), reader.objective.counts(reader.plan, key)
        hidden.append(int((batch["targets"] != IGNORE_INDEX).sum()))
        assert counts == {"num_hidden": hidden[-1], "num_read": len(batch["positions"])}
    maskable = train.plan.maskable_tokens[:8]
    assert hidden[:4] == [int(np.rint(rate * maskable).sum()) for rate in (0.15, 0.3, 0.45, 0.45)]
    assert hidden[4] == int(np.maximum(np.rint(0.15 * validation.plan.maskable_tokens[:8]), 1).sum())


def test_random_tokens_replaces_a_share_of_each_row(toy_corpus: Any, toy_tokenizer: Any) -> None:
    """The example of docs/how-to/add-an-objective.md; validation always replaces 15 %."""
    rows = np.arange(8)
    train, validation = corpus_readers(toy_corpus, RandomTokens(rate=0.3).build(toy_tokenizer), 24)
    for reader, rate in ((train, 0.3), (validation, 0.15)):
        key = Key(3, 0, np.zeros_like(rows), rows)
        batch, original = reader.batch(key), reader.objective.read(reader.split, reader.plan, key).packed.input_ids
        replaced = np.asarray(batch["input_ids"]) != original
        assert reader.objective.counts(reader.plan, key) == {"num_targets": len(batch["positions"])}
        assert (batch["targets"] == replaced.ravel()[batch["positions"]]).all()
        most = int(reader.objective.masker.num_masked(reader.plan.maskable_tokens[:8], 0.0).sum())
        assert most == np.maximum(np.rint(rate * reader.plan.maskable_tokens[:8]), 1).sum()
        assert 0.8 * most < replaced.sum() == batch["targets"].sum() <= most  # a random token may be the original


def test_settings_of_masked_lm_beside_another_objective_are_an_error(runs: Any, work: Work, capsys: Any) -> None:
    settings = settings_of(runs, masking={"mlm_probability": 0.3})
    assert work.run("pretrain", "out", settings, *ALLOWED, "--json") == 2
    said = capsys.readouterr().err
    assert_printed(said, where="masking", found="next to objective", expected="masking inside it...")
    assert work.run("pretrain", "out", settings_of(runs)) == 2
    assert f"{CLASS}" in capsys.readouterr().err, "not allowed on this command line"
