"""The first pages of docs/python.md run as printed, without the experiment; only lengths and sizes are smaller."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from safetensors.torch import load_file

from domainbert.tasks.labelled_data import LabelledData
from domainbert.tasks.ner.config import Ner
from tests.forked import SECONDS, run_script
from tests.library.test_without_experiment import BLOCK
from tests.library.trainer.tiny_library import DATA, Steps, trainer

ROOT = Path(__file__).parents[3]
SMALLER = {
    "BertConfig(384, 6, 12, 1536)": "BertConfig(16, 2, 2, 32)",
    "max_steps=10_000": "max_steps=4",
    "max_steps=5_000": "max_steps=2",
    "val_check_interval=500": "val_check_interval=2",
}


def snippet(name: str, page_name: str = "python.md") -> str:
    """A block of a page by its first line."""
    page = (ROOT / "docs" / page_name).read_text(encoding="utf-8")
    (found,) = re.findall(rf"^```python\n(# {name}\n.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return str(found)


def run(code: str, folder: Path) -> str:
    """Run the code as a separate script and return its output."""
    (folder / "script.py").write_text(f"{BLOCK}\n{code}", encoding="utf-8")
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    how = {"cwd": folder, "env": environment, "capture_output": True, "text": True, "timeout": SECONDS}
    done = subprocess.run([sys.executable, "script.py"], **how)
    assert done.returncode == 0, done.stderr[-6000:]
    return done.stdout


@pytest.fixture
def place(tiny, tmp_path: Path) -> Path:
    """The files that the page names."""
    (tmp_path / "models").mkdir()
    (tmp_path / "runs").mkdir()
    (tmp_path / "models" / "minilm").symlink_to(tiny / "model")
    for name, split in {"train": "train", "dev": "validation", "test": "test"}.items():
        (tmp_path / f"{name}.conll").symlink_to(DATA / f"ner-{split}.conll")
    for name, folder in {"prepared": "prepared", "vocab": "vocab"}.items():
        (tmp_path / "runs" / name).symlink_to(tiny / folder)
    return tmp_path


def test_fine_tuning_and_testing(place):
    said = run_script(f"{BLOCK}\n{snippet('lightning')}", place, reimport=True)
    assert "test/f1" in said and "test/f1/LOC" in said
    assert (place / "runs" / "tagger" / "config.json").is_file()
    assert "entities" in run_script(f"{BLOCK}\n{snippet('tested')}", place, reimport=True)


def test_a_dataset_and_an_own_optimizer(place, monkeypatch):
    monkeypatch.chdir(place)
    names: dict[str, Any] = {}
    exec(snippet("dataset"), names)
    module = names["module"]
    assert type(module.optimizers().optimizer) is torch.optim.NAdam and module.trainer.global_step == 10
    schedule = module.lr_schedulers()
    assert schedule.last_epoch == schedule.total_steps == 10 and 0 <= module.scores["f1"] <= 1


def test_a_slash_in_a_metric_makes_no_folder(tiny, tmp_path):
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    (arguments,) = re.findall(r"`ModelCheckpoint\((auto_insert_metric_name=.*?)\)`", page)
    keeps = eval(f"ModelCheckpoint(tmp_path, {arguments})")
    trainer(tmp_path, [keeps], max_epochs=1, enable_checkpointing=True).fit(module := tiny.module(), tiny.data())
    assert [path.name for path in tmp_path.iterdir()] == [f"0-{module.scores['f1']:.3f}.ckpt"]


def test_a_subclass(place, monkeypatch, tmp_path):
    monkeypatch.chdir(place)
    names: dict[str, Any] = {}
    exec(snippet("subclass"), names)
    keeps = ModelCheckpoint(tmp_path, filename="last")
    trainer(tmp_path, [keeps], max_steps=1, enable_checkpointing=True).fit(names["module"], names["data"])
    loaded = names["Regularised"].load_from_checkpoint(tmp_path / "last.ckpt", weights_only=True)
    assert loaded.penalty == loaded.hparams["penalty"] == 0.01


def test_r_drop(place, monkeypatch):
    """Without dropout both predictions are equal: twice the loss. With dropout the divergence is added."""
    monkeypatch.chdir(place)
    names: dict[str, Any] = {}
    exec(snippet("subclass", "how-to/improve-fine-tuning.md"), names)
    losses, data = [], LabelledData(Ner(), "train.conll", tokenizer="models/minilm")
    for kind, dropout in (("FineTuning", 0.0), ("RDrop", 0.0), ("RDrop", 0.3)):
        steps = Steps()
        module = names[kind].from_pretrained("models/minilm", data.task, dropout=dropout)
        trainer(callbacks=[steps], max_steps=1).fit(module, data)
        losses += steps.losses
    assert losses[1] == pytest.approx(2 * losses[0], rel=1e-5) and losses[2] > losses[1] * 1.0001


def shorter(code: str) -> str:
    """The snippet about pretraining with a small model and few steps."""
    for long, short in SMALLER.items():
        assert long in code
        code = code.replace(long, short)
    return code


def on_two_devices(code: str) -> str:
    """The snippet with two processes."""
    assert "L.Trainer(" in code
    return code.replace("L.Trainer(", 'L.Trainer(devices=2, accelerator="cpu", ')


def check_student(place: Path) -> None:
    weights = load_file(place / "runs" / "student" / "model.safetensors")
    assert not [name for name in weights if ".layer.1." in name] and any(".layer.0." in name for name in weights)


def test_pretraining_and_distillation(place):
    run_script(f"{BLOCK}\n{shorter(snippet('pretraining'))}", place, reimport=True)
    check_student(place)


@pytest.mark.slow
def test_fine_tuning_with_two_devices(place):
    code = snippet("lightning").replace('devices="auto"', 'devices=2, accelerator="cpu"')
    assert "test/f1/LOC" in run(code, place)
    assert (place / "runs" / "tagger" / "config.json").is_file()
    tested = snippet("tested").replace("L.Trainer(devices=1, ", "L.Trainer(")
    assert run(on_two_devices(tested), place).count("'entities'") == 2


@pytest.mark.slow
def test_pretraining_and_distillation_with_two_devices(place):
    run(on_two_devices(shorter(snippet("pretraining"))), place)
    check_student(place)
