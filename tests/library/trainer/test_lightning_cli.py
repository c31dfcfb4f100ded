"""`LightningCLI(FineTuning, LabelledData)` trains from a YAML."""

from __future__ import annotations

import pytest
import yaml
from lightning.pytorch.cli import LightningCLI

from domainbert.tasks.finetuning import FineTuning
from domainbert.tasks.labelled_data import LabelledData
from tests.library.trainer.tiny_library import DATA, OPTIM, equal, trainer, weights

TRAINER = {"accelerator": "cpu", "devices": 1, "enable_progress_bar": False, "enable_model_summary": False}


@pytest.mark.usefixtures("one_thread")
def test_it_trains_as_a_script_does_and_its_saved_configuration_trains_again(tiny, tmp_path):
    task = {
        "class_path": "domainbert.tasks.ner.config.Ner",
        "init_args": {"head": "linear", "labels": ["LOC", "ORG", "PER"]},
    }
    sets = {name: str(DATA / f"ner-{name}.conll") for name in ("train", "validation")}
    optim = {"lr": OPTIM.lr, "head_lr": OPTIM.head_lr, "eps": OPTIM.eps}
    config = {
        "model": {"model": str(tiny / "model"), "task": task, "optim": optim, "max_length": 24},
        "data": {"task": task, **sets, "tokenizer": str(tiny / "vocab"), "batch_size": 8, "max_length": 24},
        "trainer": {"max_epochs": 1, "default_root_dir": str(tmp_path), **TRAINER},
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    module_task = tiny.module().task.config
    cli = LightningCLI(FineTuning, LabelledData, args=["fit", "--config", str(tmp_path / "config.yaml")])
    assert cli.trainer.global_step == 5 and cli.model.optim == OPTIM and cli.model.task.config == module_task
    script = tiny.module()
    trainer(max_epochs=1).fit(script, tiny.data())
    assert equal(weights(cli.model), weights(script))
    (saved,) = tmp_path.rglob("lightning_logs/*/config.yaml")
    again = LightningCLI(FineTuning, LabelledData, args=["fit", "--config", str(saved)])
    assert equal(weights(again.model), weights(script))
    checkpoint = next(tmp_path.rglob("*.ckpt"))
    loaded = FineTuning.load_from_checkpoint(checkpoint, weights_only=True)
    assert loaded.task.config == module_task
    words = ["test", "--config", str(tmp_path / "config.yaml"), "--ckpt_path", str(checkpoint)]
    tested = LightningCLI(FineTuning, LabelledData, args=[*words, f"--data.test={DATA / 'ner-test.conll'}"])
    assert equal(weights(tested.model), weights(script))
