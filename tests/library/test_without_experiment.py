"""The library works where the experiment (settings, stages, recipes, tuning, checks, reports) cannot be imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BLOCKED = ("settings", "stages", "runner", "tuning", "checks", "report")

BLOCK = f"""
import importlib.abc, sys

class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if any((name + ".").startswith("domainbert." + part + ".") for part in {BLOCKED!r}):
            raise ImportError(name + " is blocked")

sys.meta_path.insert(0, Blocked())
"""

COMPONENTS = """
import domainbert
from domainbert import CorpusConfig, EntityF1, Packed, Source
from domainbert import bootstrap_interval, count_entities, load_encoder, load_predictor
from domainbert import open_prepared, packed_loader, prepare_corpus, train_tokenizer

texts = open("corpus.txt", encoding="utf-8").read().splitlines()
tokenizer = train_tokenizer(texts, kind="wordpiece", vocab_size=128)
corpus = CorpusConfig([Source("corpus.txt", documents="line")], validation_fraction=0.1)
summary = prepare_corpus(corpus, tokenizer, OUT)
assert open_prepared([OUT]).train.num_tokens == summary.splits["train"]["tokens"] > 1000

encoder = load_encoder("model")[0].encoder
batches = list(packed_loader(texts, tokenizer, batch_tokens=512))
states = [encoder(Packed.of(batch)).flatten(0, 1)[batch["positions"]] for batch in batches]
assert sum(map(len, states)) == 200 and {state.shape[-1] for state in states} == {16}

f1 = EntityF1(per_type=True)
f1.update([["B-law", "I-law"], ["O", "B-law"]], [["B-law", "I-law"], ["B-law", "O"]])
assert f1.compute()["f1"] == f1.compute()["f1/law"] == 0.5

counts = count_entities([[(0, 1, "law")], []] * 50, [[(0, 1, "law")], [(1, 2, "law")]] * 50, ["law"])
low, high = bootstrap_interval(counts)
assert 0.5 < low < 2 / 3 < high < 0.8

assert len(load_predictor("model").predict(texts[:3])) == 3
for name in dir(domainbert):
    getattr(domainbert, name)
"""


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)


def test_components_run_without_the_experiment(folder: Path, tmp_path: Path) -> None:
    result = run(BLOCK + COMPONENTS.replace("OUT", repr(str(tmp_path / "prepared"))), folder)
    assert result.returncode == 0, result.stderr


def test_the_experiment_is_what_is_blocked(tmp_path: Path) -> None:
    for name in BLOCKED:
        result = run(f"{BLOCK}\nimport domainbert.{name}", tmp_path)
        assert f"ImportError: domainbert.{name} is blocked" in result.stderr
