"""Damages of a whole run: of every file that a stage has written, its curves too; `--force` repairs four, with the
same numbers."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from domainbert.cli import main
from domainbert.settings.yaml_files import dump_yaml

pytestmark = pytest.mark.slow

SIZES = {"corpus_documents": 60, "train_sentences": 120, "validation_sentences": 20, "test_sentences": 30}
SIZES |= {"train_texts": 10, "validation_texts": 10, "test_texts": 10}
ENCODER = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
TRAINING = {"precision": "32-true", "loggers": ["jsonl"], "trainer": {"accelerator": "cpu", "devices": 1}}


def recipe(out: Path) -> str:
    corpus = {"sources": [{"path": "@sample/corpus.jsonl"}], "validation_fraction": 0.1}
    encoder = {"class_path": "BertConfig", "init_args": {**ENCODER, "max_position_embeddings": 96}}
    labelled = {split: f"@sample/ner/{split}.conll" for split in ("train", "validation")}
    stages: dict[str, Any] = {
        "sample": SIZES,
        "vocab": {"corpus": corpus, "vocab_size": 512, "model_max_length": 96},
        "prepare": {"corpus": corpus, "tokenizer": "@vocab", "num_workers": 0},
        "pretrain": {
            **TRAINING, "prepared": ["@prepare"], "encoder": encoder, "max_length": 64, "batch_size": 16,
            "budget": {"max_steps": 4}, "optim": {"lr": 5e-3},
        },
        "tagger": {
            **TRAINING, **labelled, "stage": "finetune", "model": "@pretrain", "task": "Ner", "max_epochs": 8,
            "batch_size": 8, "optim": {"lr": 5e-3, "head_lr": 1e-2}, "seeds": [1, 2],
        },
        "scores": {
            "stage": "evaluate", "models": {"tagger": "@tagger"}, "task": "Ner", "test": "@sample/ner/test.conll",
            "bootstrap_resamples": 100,
        },
    }  # fmt: skip
    return dump_yaml({"out": str(out), "stages": stages})


def flip_a_bit(file: Path) -> None:
    status, content = file.stat(), bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("damage")
    (root / "recipe.yaml").write_text(recipe(root / "runs"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("domainbert.training.throughput.measured_peak_flops", lambda *_: 1e12)  # it takes a second
        assert main(["run", str(root / "recipe.yaml")]) == 0
    return root


EDITABLE = {"README.md", "config.yaml"}
"""Files about the run and model cards: no stage and no report reads anything from them that the record has, too."""


def test_a_damage_of_any_file_is_told(
    finished: Path, one_thread: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("domainbert.training.throughput.measured_peak_flops", lambda *_: 1e12)
    run = ["run", str(finished / "recipe.yaml")]
    files = [path for path in (finished / "runs").glob("[!.]*/**/*") if path.is_file() and path.name not in EDITABLE]
    names = {path.relative_to(finished / "runs").as_posix() for path in files}
    curves = {"pretrain/logs/metrics.jsonl", "tagger/seed-1/logs/metrics.jsonl", "tagger/seed-1/training.json"}
    assert names >= curves and len(names) > 40
    silent = []
    for file in files:
        content, status = file.read_bytes(), file.stat()
        for damage in (Path.unlink, flip_a_bit):
            if not content and damage is flip_a_bit:
                continue
            damage(file)
            capsys.readouterr()
            code, error = main([*run, "--dry-run"]), capsys.readouterr()
            if code != 2 or file.name not in error.out + error.err:
                silent.append(f"{file.relative_to(finished / 'runs')}, {damage.__name__}")
            file.write_bytes(content)
            os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert silent == []
    assert main(run) == 0


def test_a_report_tells_a_damaged_curve(finished: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    for name in ("pretrain/logs/metrics.jsonl", "tagger/seed-2/training.json"):
        for damage in (Path.unlink, flip_a_bit):
            out = shutil.copytree(finished / "runs", tmp_path / "runs", dirs_exist_ok=True)
            damage(out / name)
            assert main(["report", str(out), "--out", str(page)]) == 0
            file = name.partition("/")[2]
            change = "is missing" if damage is Path.unlink else "has changed"
            assert f"{file} {change}" in page.read_text()
            shutil.rmtree(out)
