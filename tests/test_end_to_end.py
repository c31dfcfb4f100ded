"""The stages one after the other, and scores against seqeval."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from domainbert.labelled.formats import NerFormat
from domainbert.tasks.ner.config import Ner
from domainbert.tasks.ner.files import read_ner
from tests.interface.snapshot import check_folder

STARTS = ("pretrained", "scratch")


def columns_of(path: Path) -> tuple[list[list[str]], list[list[str]]]:
    """Gold and predicted tags, read without any of our readers."""
    blocks = path.read_text(encoding="utf-8").split("\n\n")
    rows = [[line.split("\t") for line in block.splitlines()] for block in blocks if block.strip()]
    rows = [block for block in rows if block[0][0] != "-DOCSTART-"]
    return [[row[1] for row in block] for block in rows], [[row[2] for row in block] for block in rows]


def check_against_seqeval(folder: Path, system: str) -> int:
    """F1, precision and recall of every seed, and F1 of every type, equal seqeval's; gives the gold entities."""
    metrics = pytest.importorskip("seqeval.metrics")
    scheme = pytest.importorskip("seqeval.scheme").IOB2
    saved = json.loads((folder / "metrics.json").read_text())
    scored = saved["systems"][system]
    for seed, f1 in scored["f1_by_seed"].items():
        gold, predicted = columns_of(folder / "predictions" / system / f"{seed}.conll")
        assert sum(tag != "O" for tags in predicted for tag in tags) > 0
        assert f1 == pytest.approx(metrics.f1_score(gold, predicted, mode="strict", scheme=scheme), abs=1e-12)
    means = {"f1": 0.0, "precision": 0.0, "recall": 0.0}
    for seed in scored["f1_by_seed"]:
        gold, predicted = columns_of(folder / "predictions" / system / f"{seed}.conll")
        for name in means:
            score = getattr(metrics, f"{name}_score")(gold, predicted, mode="strict", scheme=scheme)
            means[name] += score / len(scored["f1_by_seed"])
    assert {name: scored[name] for name in means} == pytest.approx(means, abs=1e-12)
    assert sum(one["support"] for one in scored["per_type"].values()) == saved["gold"]
    assert sum(tag.startswith("B-") for tags in gold for tag in tags) == saved["gold"]
    return saved["gold"]


@pytest.mark.parametrize("system", STARTS)
def test_entity_scores_are_those_of_seqeval(runs, system):
    gold = check_against_seqeval(runs / "ner", system)
    assert gold == read_ner(runs.labelled("ner", "test")).num_spans == runs.results["ner"]["gold"] > 200
    assert runs.results["ner"]["systems"][system]["f1"] > 0.03


def test_the_numbers_of_every_stage_fit_together(runs):
    results = json.loads(json.dumps(runs.results))
    assert results["sample"]["documents"] == 150
    assert results["vocab"]["vocab_size"] == 1024
    assert results["prepare"]["tokenizer_fingerprint"] == results["vocab"]["fingerprint"]
    documents = [split["documents"] for split in results["prepare"]["splits"].values()]
    assert sum(documents) == 150 and min(documents) > 5
    for task, gold in (("ner", results["ner"]["gold"]), ("classification", 40)):
        facts = results[task]
        assert (facts["task"], facts["gold"]) == (task, gold)
        assert facts["test"].endswith(f"test.{'conll' if task == 'ner' else 'jsonl'}")
        assert list(facts["systems"]) == list(STARTS)
        assert all(one["seeds"] == 2 for one in facts["systems"].values())
        (pair,) = facts["paired"]
        difference = facts["systems"]["pretrained"]["f1"] - facts["systems"]["scratch"]["f1"]
        assert pair["difference"] == pytest.approx(difference, abs=1e-12)


def test_the_files_of_folders(runs):
    check_folder("sample", runs / "sample")
    for folder in (runs / "pretrain", runs / "ner-pretrained/seed-1", runs / "classification-scratch/seed-2"):
        assert (folder / "tokenizer.json").read_bytes() == (runs / "vocab/tokenizer.json").read_bytes()


def first_sentences(source: Path, target: Path, count: int) -> Path:
    """A labelled file with the first sentences of another."""
    blocks = [block for block in source.read_text(encoding="utf-8").split("\n\n") if block.strip()]
    target.write_text("\n\n".join(blocks[:count]) + "\n", encoding="utf-8")
    return target


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "train", "test", "sizes"),
    [
        ("bio_data", "ner/ncbi-disease/train.txt", "ner/ncbi-disease/test.txt", (940, 960)),
        ("econ_data", "ner/train.conll", "ner/test.conll", (1732, 4956)),
    ],
)
def test_real_entities_are_scored_as_seqeval_does(request, runs, tmp_path, data, train, test, sizes):
    folder = request.getfixturevalue(data)
    task = Ner(NerFormat(repair=True))
    part = first_sentences(folder / train, tmp_path / Path(train).name, 1000)
    changes = {"task": task, "train": part, "validation": part, "batch_size": 32, "seeds": (1,), "max_epochs": 4}
    model = runs.finetune(str(tmp_path / "model"), "ner", model=runs / "pretrain", **changes)
    out = runs.evaluate(str(tmp_path / "scores"), "ner", {"tiny": model}, task=task, test=folder / test)
    gold, predicted = columns_of(out / "predictions/tiny/seed-1.conll")
    assert (len(gold), check_against_seqeval(out, "tiny")) == sizes
    assert sum(tag.startswith("B-") for tags in predicted for tag in tags) > 50
