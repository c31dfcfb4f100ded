"""A secret in every path, name and tag of a recipe: no file that is written and no printed line has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from domainbert.base.errors import DomainbertError
from domainbert.cli import main
from domainbert.settings.yaml_files import dump_yaml
from domainbert.stages.evaluate import Evaluate
from domainbert.tasks.ner.config import Ner

SECRET = "hunter2hunter2hunter2"
SIZES = {"corpus_documents": 60, "train_sentences": 60, "validation_sentences": 20, "test_sentences": 30}
SIZES |= {"train_texts": 10, "validation_texts": 10, "test_texts": 10}
ENCODER = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}


def recipe(out: Path, data: Path) -> str:
    training = {"precision": "32-true", "loggers": ["jsonl", "tensorboard"]}
    training |= {"trainer": {"accelerator": "cpu", "devices": 1}, "card": {"tags": [SECRET, "law"]}}
    corpus = {"sources": [{"path": f"{data}/corpus-{SECRET}.jsonl"}], "validation_fraction": 0.1}
    encoder = {"class_path": "BertConfig", "init_args": {**ENCODER, "max_position_embeddings": 96}}
    train, validation, test = (f"{data}/{name}-{SECRET}.conll" for name in ("train", "validation", "test"))
    stages: dict[str, Any] = {
        "vocab": {"corpus": corpus, "vocab_size": 512, "model_max_length": 96, "labelled": [train]},
        "prepare": {"corpus": corpus, "tokenizer": "@vocab", "num_workers": 0},
        "pretrain": {
            **training, "prepared": ["@prepare"], "encoder": encoder, "max_length": 64, "batch_size": 16,
            "budget": {"max_steps": 2},
        },
        "tagger": {
            **training, "train": train, "validation": validation, "stage": "finetune", "model": "@pretrain",
            "task": "Ner", "max_epochs": 1, "batch_size": 8, "seeds": [1],
        },
        "student": {
            **training, "train": train, "validation": validation, "stage": "distill-task", "teachers": ["@tagger"],
            "model": "@pretrain", "task": "Ner", "max_epochs": 1, "batch_size": 8, "seeds": [1],
            "losses": ["SoftTargets", "HardTargets"], "cache": f"{data}/cache-{SECRET}",
        },
        "scores": {
            "stage": "evaluate", "models": {"tagger": "@tagger", "student": "@student"}, "task": "Ner", "test": test,
            "bootstrap_resamples": 100,
        },
        "copy": {"stage": "transfer", "model": "@pretrain", "tokenizer": "@vocab", "corpus": corpus},
        "checked": {"stage": "check", "task": "Ner", "labelled": {"train": train, "test": test}},
    }  # fmt: skip
    return dump_yaml({"out": str(out), "stages": stages})


@pytest.mark.slow
def test_a_secret_leaves_the_program_nowhere(
    tmp_path: Path, one_thread: None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("domainbert.training.throughput.measured_peak_flops", lambda *_: 1e12)  # it takes a second
    data, out = tmp_path / f"data-{SECRET}", tmp_path / "runs"
    data.mkdir()
    sample = tmp_path / "sample"
    sizes = [f"--{key}={size}" for key, size in SIZES.items()]
    assert main(["sample", *sizes, "--out", str(sample)]) == 0
    (sample / "corpus.jsonl").rename(data / f"corpus-{SECRET}.jsonl")
    for name in ("train", "validation", "test"):
        (sample / "ner" / f"{name}.conll").rename(data / f"{name}-{SECRET}.conll")
    (tmp_path / "recipe.yaml").write_text(recipe(out, data))
    monkeypatch.setenv("SERVICE_TOKEN", SECRET)
    run = ["run", str(tmp_path / "recipe.yaml")]
    codes = [main(run), main([*run, "--dry-run"]), main(["runs", str(out)]), main(["runs", str(out), "--json"])]
    codes += [main(["report", str(out), "--out", str(out / "page.html")])]
    texts = tmp_path / f"texts-{SECRET}.txt"
    texts.write_text("The court heard it.\n")
    codes += [main(["predict", "--model", str(out / "tagger"), "--input", str(texts), "--out", str(out / "predicted")])]
    printed = capfd.readouterr()
    assert codes == [0] * len(codes), printed.err
    assert SECRET not in printed.out and SECRET not in printed.err
    files = [path for path in out.rglob("*") if path.is_file()]
    assert [str(path.relative_to(out)) for path in files if SECRET.encode() in path.read_bytes()] == []
    assert len(files) > 60
    with pytest.raises(DomainbertError, match="models: found the name"):  # it would be the name of a folder
        Evaluate(models={SECRET: out / "tagger"}, task=Ner(), test=data / "test.conll")
    assert json.loads((out / "scores/metrics.json").read_text())["test"].endswith("data-***/test-***.conll")
    assert "\n- '***'\n- law\n" in (out / "tagger/seed-1/README.md").read_text()
