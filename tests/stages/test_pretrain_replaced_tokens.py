"""Replaced-token detection through the stages: folders, resuming, going on, devices, precision, fine-tuning."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from domainbert.models.card import split_card
from domainbert.models.folder import open_model
from tests.interface.snapshot import check_folder
from tests.refusals import assert_printed
from tests.resuming import Work, assert_same_outcome, metrics, pretraining

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
ELECTRA = {"class_path": "ElectraConfig", "init_args": {**SIZES, "embedding_size": 16, "max_position_embeddings": 96}}
DEBERTA = {
    "class_path": "DebertaV2Config",
    "init_args": {
        **SIZES,
        "max_position_embeddings": 96,
        "relative_attention": True,
        "pos_att_type": "c2p|p2c",
        "position_buckets": 32,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "position_biased_input": False,
    },
}
AS_ELECTRA = {"generator": {"size": 0.5}, "sharing": "es", "mask_share": 0.85}
AS_DEBERTA = {"generator": {"layers": 0.5}}
KINDS = {"electra": (ELECTRA, AS_ELECTRA), "deberta": (DEBERTA, AS_DEBERTA)}


def settings_of(runs: Any, kind: str, **changes: Any) -> dict[str, Any]:
    encoder, objective = KINDS[kind]
    given = {"class_path": "ReplacedTokens", "init_args": objective}
    return pretraining(runs / "prepare", **{"encoder": encoder, "objective": given, **changes})


def validated(folder: Path) -> dict[str, float]:
    found: dict[str, float] = json.loads((folder / "run.json").read_text())["metrics"]["validation"]
    return found


def opened(kind: str, folder: Path) -> Any:
    model, said = getattr(transformers, kind).from_pretrained(folder, output_loading_info=True)
    assert not any(said[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys")), (kind, said)
    return model.eval()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["deberta", "electra"])
def test_it_is_stopped_and_goes_on_and_both_folders_open(runs: Any, work: Work, kind: str, capsys: Any) -> None:
    settings = settings_of(runs, kind)
    assert work.run("pretrain", "whole", settings) == 0
    check_folder("pretrain with ReplacedTokens", work / "whole")
    assert work.run("pretrain", "parts", settings, stop=(0, 5)) == 75
    assert work.run("pretrain", "parts", settings, "--resume", "auto") == 0
    assert_same_outcome(work / "whole", work / "parts")
    for line in metrics(work / "whole/logs/metrics.jsonl"):
        if "train/loss" in line:
            whole = line["train/generator"] + 50 * line["train/discriminator"]
            assert line["train/loss"] == pytest.approx(whole, rel=1e-5)
    found = validated(work / "whole")
    assert found["loss"] == pytest.approx(found["generator_loss"] + 50 * found["discriminator_loss"])
    assert 0.05 < found["replaced"] < 0.15 and 0 < found["generator_loss"] < 8
    assert f"{found['discriminator_loss']:.4f} nats per token" in (work / "whole/README.md").read_text()

    folder, heads = work / "whole", {"electra": "ElectraForPreTraining", "deberta": "AutoModelForTokenClassification"}
    model, generator = opened(heads[kind], folder), opened("AutoModelForMaskedLM", folder / "generator")
    encoder = transformers.AutoModel.from_pretrained(folder).eval()
    ids = torch.tensor([[2, 30, 31, 32, 3]])
    with torch.inference_mode():
        assert torch.equal(model.base_model(ids).last_hidden_state, encoder(ids).last_hidden_state)
        assert generator(ids).logits.shape == (1, 5, open_model(folder).vocab_size)
        assert model(ids).logits.shape == ((1, 5) if kind == "electra" else (1, 5, 2))
    size = sum(parameter.numel() for parameter in generator.parameters())
    assert f"{size:,} parameters with its head" in (folder / "README.md").read_text()
    ours = sum(parameter.numel() for parameter in model.parameters())
    assert f"pretrain: {ours:,} parameters and {size:,} of its generator; " in capsys.readouterr().out
    head, body = split_card((folder / "generator/README.md").read_text())
    assert head["pipeline_tag"] == "fill-mask" and f", {size:,} parameters with its head" in body
    assert 'AutoModelForMaskedLM.from_pretrained(".")' in body and f"{ours:,} parameters" not in body
    words = [one.get_input_embeddings().weight for one in (model, generator)]
    assert torch.equal(*words) == (kind == "electra"), "shared, or a sum"


@pytest.mark.parametrize("kind", KINDS)
def test_it_goes_on_from_its_folder_with_both_models(runs: Any, work: Work, kind: str, capsys: Any) -> None:
    assert work.run("pretrain", "first", settings_of(runs, kind, budget={"max_steps": 6})) == 0
    further = settings_of(runs, kind, encoder=None, init_from=str(work / "first"), seed=1, budget={"max_steps": 1})
    assert work.run("pretrain", "further", further) == 0
    assert "no weights for the head" not in capsys.readouterr().out
    rows = json.loads((work / "further/run.json").read_text())["metrics"]["history"]
    ended = validated(work / "first")
    assert rows[0] == pytest.approx({**ended, "step": 0}, rel=1e-4)
    other = {"class_path": "ReplacedTokens", "init_args": {**KINDS[kind][1], "generator": {"layers": 0.1, "size": 1}}}
    assert work.run("pretrain", "wrong", further | {"objective": other}, "--json") == (2 if kind == "electra" else 0)
    if kind == "electra":
        found = "another architecture than in ..."
        assert_printed(capsys.readouterr().err, where="objective.generator", found=found)


def test_sixteen_bits_learn_the_same(runs: Any, work: Work) -> None:
    for precision in ("32-true", "bf16-mixed"):
        changes = {"budget": {"max_steps": 2}, "batch_size": 16, "dropout": 0.0, "precision": precision}
        assert work.run("pretrain", precision, settings_of(runs, "deberta", **changes)) == 0
    one, other = (validated(work / precision) for precision in ("32-true", "bf16-mixed"))
    for name in ("generator_loss", "discriminator_loss", "replaced"):
        assert other[name] == pytest.approx(one[name], rel=0.02)
    assert all(math.isfinite(value) for value in other.values())


def test_a_task_masked_lm_and_another_vocabulary_start_from_the_discriminator(
    runs: Any, work: Work, capsys: Any
) -> None:
    assert work.run("pretrain", "first", settings_of(runs, "electra", budget={"max_steps": 4})) == 0
    labelled = {split: str(runs.labelled("ner", split)) for split in ("train", "validation")}
    tagger = {"model": str(work / "first"), "task": "Ner", **labelled, "max_epochs": 1, "seeds": [1]}
    tagger |= {name: settings_of(runs, "electra")[name] for name in ("precision", "loggers", "trainer")}
    assert work.run("finetune", "tagger", tagger) == 0
    assert open_model(work / "tagger").fields["architectures"] == ["ElectraForTokenClassification"]
    corpus = {"sources": [{"path": str(runs / "sample/corpus.jsonl")}]}
    assert work.run("transfer", "wider", {"model": str(work / "first"), "corpus": corpus, "extend": 5}) == 0
    wider = opened("ElectraForPreTraining", work / "wider")
    assert wider.config.vocab_size > open_model(work / "first").vocab_size
    masked = pretraining(runs / "prepare", encoder=None, init_from=str(work / "first"), budget={"max_steps": 2})
    assert work.run("pretrain", "masked", masked) == 0
    said = capsys.readouterr().out
    assert "unused weights: discriminator_predictions.dense.bias" in said
    assert "no weights for the head; initialised at random: generator_predictions.dense.weight" in said


def test_embeddings_that_cannot_be_shared_are_told_before_anything_runs(runs: Any, work: Work, capsys: Any) -> None:
    settings = settings_of(runs, "electra", encoder={"class_path": "BertConfig", "init_args": SIZES})
    assert work.run("pretrain", "out", settings, "--json") == 2
    found = "embeddings of width 16 in the generator, and of width 32 in the encoder"
    assert_printed(capsys.readouterr().err, where="objective", found=found)
    assert not (work / "out/logs").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_shared_embeddings_cannot_be_spread_over_devices(runs: Any, work: Work, kind: str, capsys: Any) -> None:
    trainer = {"accelerator": "cpu", "devices": 1, "strategy": "fsdp"}
    assert work.run("pretrain", "out", settings_of(runs, kind, trainer=trainer), "--json") == 2
    expected = "ddp, because the models share parameters..."
    assert_printed(capsys.readouterr().err, where="trainer.strategy", found="fsdp", expected=expected)


def test_rows_are_shown_with_what_the_generator_sees(runs: Any, work: Work, capsys: Any) -> None:
    """15 % of the tokens, 85 of a hundred of them hidden from it."""
    settings = settings_of(runs, "electra", batch_size=1, micro_batch_size=None)
    assert work.run("pretrain", "out", settings, "--show", "6") == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines() if "the generator, whose sample" in line]
    assert len(shown) > 40 and 0.75 < sum(line[3] == "hidden" for line in shown) / len(shown) < 0.95
    assert all(line[2] == line[-1] for line in shown), "each line names the text's own token"
