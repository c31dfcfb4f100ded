"""The library on two processes of a CPU: the same weights as on one, and the same scores."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.forked import SECONDS
from tests.library.trainer.tiny_library import DATA

pytestmark = pytest.mark.slow
SCRIPT = """
import json, sys
from pathlib import Path

import lightning as L
import torch

from domainbert.tasks.finetuning import FineTuning
from domainbert.tasks.labelled_data import LabelledData
from domainbert.tasks.ner.config import Ner
from domainbert.training.config import OptimConfig
from domainbert.training.sharding import FullySharded

if __name__ == "__main__":
    torch.set_num_threads(1)
    root, data, out, arguments = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), json.loads(sys.argv[4])
    sets = {name: data / f"ner-{name}.conll" for name in ("train", "validation", "test")}
    sizes = {"batch_size": arguments.pop("batch_size", 8), "max_length": 24, "predict": arguments.pop("predict", None)}
    labelled = LabelledData(Ner(head="linear"), **sets, tokenizer=root / "model", **sizes)
    optim = OptimConfig(lr=1e-2, head_lr=3e-2, eps=1e-4)
    module = FineTuning(root / "model", labelled.task, optim=optim, dropout=0.0, max_length=24)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    keeps = L.pytorch.callbacks.ModelCheckpoint(out, filename="{step}", every_n_train_steps=3, save_top_k=-1)
    resumed = arguments.pop("ckpt_path", None)
    if arguments.get("strategy") == "fsdp":
        arguments["strategy"] = FullySharded()
    trainer = L.Trainer(accelerator="cpu", max_epochs=2, callbacks=[keeps], **quiet, **arguments)
    trainer.fit(module, labelled, ckpt_path=resumed)
    validation = float(trainer.callback_metrics["validation/f1"])
    (scores,) = trainer.test(module, labelled, verbose=False)
    predicted = [one for batch in trainer.predict(module, labelled) for one in batch]
    module.save_pretrained(out / "model")
    written = {"written": (out / "model" / "model.safetensors").is_file()}
    facts = {"steps": trainer.global_step, "validation": validation, "test": scores, "predicted": len(predicted)}
    (out / f"facts-{trainer.global_rank}.json").write_text(json.dumps(facts | written))
"""


def launched(tiny, out: Path, **arguments) -> tuple[dict, dict[str, torch.Tensor]]:
    """What the first process says, and the weights that it saves."""
    out.mkdir()
    (out / "script.py").write_text(SCRIPT)
    words = [sys.executable, out / "script.py", tiny.root, DATA, out, json.dumps(arguments)]
    path = os.pathsep.join(filter(None, (str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(list(map(str, words)), env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((out / "facts-0.json").read_text()), load_file(out / "model" / "model.safetensors")


def close(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.allclose(value, other[name], atol=1e-4) for name, value in one.items())


def test_devices_and_strategy(tiny, tmp_path):
    alone, weights = launched(tiny, tmp_path / "one", devices=1)
    both, of_two = launched(tiny, tmp_path / "two", devices=2, strategy="ddp")
    assert alone["steps"] == both["steps"] == 10 and close(weights, of_two)
    assert both["validation"] == pytest.approx(alone["validation"], abs=0.02)
    assert both["test"]["test/f1"] == pytest.approx(alone["test"]["test/f1"], abs=0.02)
    supports = [sum(one["test"][f"test/support/{kind}"] for kind in ("LOC", "ORG", "PER")) for one in (alone, both)]
    assert supports == [48, 48] and (alone["predicted"], both["predicted"]) == (24, 12)
    other = json.loads((tmp_path / "two" / "facts-1.json").read_text())
    assert other["test"] == both["test"] and other["predicted"] == 12
    assert other["written"]
    resumed, again = launched(tiny, tmp_path / "again", devices=2, ckpt_path=str(tmp_path / "two" / "step=6.ckpt"))
    assert resumed["steps"] == 10 and all(torch.equal(value, again[name]) for name, value in of_two.items())
    parts, of_parts = launched(tiny, tmp_path / "parts", devices=2, accumulate_grad_batches=2)
    assert parts["steps"] == 10 and close(weights, of_parts)


def test_limits_and_intervals(tiny, tmp_path):
    some, _ = launched(tiny, tmp_path / "some", devices=2, limit_train_batches=2, val_check_interval=1)
    assert some["steps"] == 4


def test_shards_have_the_scores_of_one_process(tiny, tmp_path):
    """The second process has fewer batches of texts to predict, and computes as many as the first."""
    texts = ["Prices rose in Medellín.", "The Bank of Ghana lent.", "Loans.", "A. Duflo wrote.", "Rates fell."]
    alone, weights = launched(tiny, tmp_path / "one", devices=1, predict=texts, batch_size=2)
    sharded, of_two = launched(tiny, tmp_path / "two", devices=2, strategy="fsdp", predict=texts, batch_size=2)
    assert close(weights, of_two) and sharded["validation"] == pytest.approx(alone["validation"])
    assert sharded["test"] == pytest.approx(alone["test"])
    other = json.loads((tmp_path / "two" / "facts-1.json").read_text())
    assert [facts["predicted"] for facts in (alone, sharded, other)] == [5, 3, 2]
