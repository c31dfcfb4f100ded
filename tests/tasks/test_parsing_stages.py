"""Dependency parsing through all stages, on a treebank that a small model can learn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from domainbert.cli import main
from domainbert.encoders.head_config import HeadConfig
from domainbert.encoders.packed import Packed
from domainbert.metrics.attachment import LENGTHS
from domainbert.models.folder import open_model
from domainbert.models.loading import load_model
from domainbert.serving.predictor import load_predictor
from domainbert.tasks.parsing.config import Parsing
from domainbert.tasks.parsing.files import read as read_treebank
from domainbert.tasks.parsing.scoring import TreeScoring
from domainbert.tasks.parsing.trees import is_tree
from tests.tasks.treebank import write


@pytest.fixture(scope="module")
def treebank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trees of a grammar, some longer than a window, and their text."""
    folder = tmp_path_factory.mktemp("treebank")
    for number, (split, count) in enumerate({"train": 300, "validation": 60, "test": 60}.items()):
        found = read_treebank(Parsing(), write(folder / f"{split}.conllu", count, seed=number, documents=5))
        texts = [json.dumps({"text": " ".join(item.words)}) for item in found.items]
        (folder / f"{split}.jsonl").write_text("\n".join(texts) + "\n")
    return folder


def recipe(treebank: Path, out: Path) -> dict[str, Any]:
    corpus = {"sources": [{"path": f"{treebank}/train.jsonl"}], "validation_fraction": 0.1}
    encoder = {"class_path": "BertConfig", "init_args": {"hidden_size": 48, "num_hidden_layers": 2}}
    encoder["init_args"] |= {"num_attention_heads": 4, "intermediate_size": 96, "max_position_embeddings": 64}
    training = {"stage": "finetune", "task": {"class_path": "Parsing", "init_args": {"arc_size": 24, "label_size": 12}}}
    training |= {split: f"{treebank}/{split}.conllu" for split in ("train", "validation")}
    training |= {"batch_size": 16, "loggers": [], "precision": "32-true", "max_length": 20}
    training |= {"trainer": {"accelerator": "cpu", "devices": 1}, "optim": {"lr": 3e-3, "head_lr": 3e-3}}
    first = {"model": "@vocab", "init": "random", "encoder": encoder, "max_epochs": 12}
    taught = {"stage": "distill-task", "teachers": ["@trees/seed-1", "@trees/seed-2"], "student": {"first_layers": 1}}
    taught |= {"losses": ["SoftTargets", "HardTargets"]}
    stages = {
        "vocab": {"corpus": corpus, "vocab_size": 128, "model_max_length": 64},
        "trees": {**training, **first, "seeds": [1, 2]},
        "more": {**training, "model": "@trees", "max_epochs": 1, "optim": {"lr": 1e-4, "head_lr": 1e-4}},
        "student": {**training, **taught, "unlabelled": corpus, "max_epochs": 8},
        "scores": {
            "stage": "evaluate",
            "models": {"trees": "@trees", "more": "@more", "student": "@student"},
            "task": "Parsing",
            "test": f"{treebank}/test.conllu",
            "bootstrap_resamples": 200,
        },
        "said": {"stage": "predict", "model": "@trees", "precision": "32-true", "input": f"{treebank}/test.jsonl"},
        "onnx": {"stage": "export", "model": "@trees", "check": f"{treebank}/validation.conllu"},
    }
    return {"out": str(out), "stages": stages}


@pytest.mark.slow
@pytest.mark.usefixtures("torch_for_onnx")
def test_it_goes_through_every_stage(treebank: Path, tmp_path: Path, one_thread: None) -> None:
    pytest.importorskip("onnxscript")
    run = tmp_path / "run"
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe(treebank, run), sort_keys=False))
    assert main(["run", str(tmp_path / "recipe.yaml")]) == 0
    noted = json.loads((run / "trees/seeds.json").read_text())
    best = run / "trees" / noted["best"]
    fields = json.loads((best / "config.json").read_text())
    assert (fields["domainbert_task"], fields["domainbert_head"]) == ("parsing", "biaffine")
    assert (fields["domainbert_arc_size"], fields["domainbert_label_size"]) == (24, 12)
    assert fields["architectures"] == ["BertModel"] and fields["domainbert_decode"] == "mst"
    the_scores(treebank, run, noted["best"])
    the_predictions(treebank, run)
    the_folder_in_transformers(best)
    the_folder_as_a_start(best)


def the_scores(treebank: Path, run: Path, best: str) -> None:
    """Scores equal a count over the written treebanks; all columns but heads and labels are unchanged."""
    metrics = json.loads((run / "scores/metrics.json").read_text())
    trees, more = (metrics["systems"][name] for name in ("trees", "more"))
    assert metrics["metric"]["name"] == "LAS" and metrics["bootstrap"]["unit"] == "documents"
    words = written_words(treebank / "test.conllu", run / f"scores/predictions/trees/{best}.conllu")
    assert trees["las_by_seed"][best] == pytest.approx(share_of_arcs(words, 8), abs=1e-9)
    words = written_words(treebank / "test.conllu", run / "scores/predictions/more/seed-1.conllu")
    kept = [(a, b) for a, b in words if a[3] != "PUNCT"]
    assert len(kept) < len(words)
    for prefix, column in (("uas", 7), ("las", 8)):
        assert more[prefix] == pytest.approx(share_of_arcs(words, column), abs=1e-9)
        assert more[f"{prefix}_no_punctuation"] == pytest.approx(share_of_arcs(kept, column), abs=1e-9)
    assert metrics["systems"]["student"]["las"] > 0.7
    assert trees["las"] > 0.8 and trees["interval"][0] < trees["las"] < trees["interval"][1]
    assert metrics["paired"][0]["difference"] == pytest.approx(trees["las"] - more["las"])
    assert sum(label["support"] for label in trees["per_label"].values()) == metrics["gold"] == len(words)
    assert set(trees["by_length"]) == set(LENGTHS)


def written_words(gold: Path, predicted: Path) -> list[tuple[list[str], list[str]]]:
    """The columns of each word in two treebanks, which differ in heads, labels and enhanced dependencies alone."""
    texts = [path.read_text(encoding="utf-8").splitlines() for path in (gold, predicted)]
    lines = [(a.split("\t"), b.split("\t")) for a, b in zip(*texts, strict=True)]
    assert all(a[:6] == b[:6] and a[9:] == b[9:] for a, b in lines)
    words = [(a, b) for a, b in lines if len(a) == 10]
    assert all(b[8] == "_" for _, b in words)
    return words


def share_of_arcs(words: list[tuple[list[str], list[str]]], stop: int) -> float:
    """Return the share of words whose columns from the head column (6) up to `stop` are equal."""
    return sum(a[6:stop] == b[6:stop] for a, b in words) / len(words)


def the_predictions(treebank: Path, run: Path) -> None:
    rows = [json.loads(line) for line in (run / "said/predictions.jsonl").read_text().splitlines()]
    predictor, exported = load_predictor(run / "trees", "32-true"), load_predictor(run / "onnx", "32-true")
    items = read_treebank(Parsing(), treebank / "test.conllu").items
    assert max(len(one.windows) for one in predictor.task.encode(items, predictor.tokenizer, 20)) > 1
    given = predictor.predict([item.words for item in items])
    for item, row, words in zip(items, rows, given, strict=True):
        assert [word["text"] for word in row["words"]] == item.words == [word.text for word in words]
        assert all(row["text"][word["start"] : word["end"]] == word["text"] for word in row["words"])
        assert [word["head"] for word in row["words"]] == [word.head for word in words]
        assert [word["score"] for word in row["words"]] == pytest.approx([word.score for word in words], abs=1e-5)
        assert is_tree([word.head for word in words]) and all(0 < word.score <= 1 for word in words)
    ours = [tree.arcs for tree in predictor.predict_trees([item.words for item in items])]
    theirs = [tree.arcs for tree in exported.predict_trees([item.words for item in items])]
    assert ours == theirs and predictor.predict(["", []]) == [[], []]
    scoring = TreeScoring(Parsing(decode="greedy"), read_treebank(Parsing(), treebank / "test.conllu"))
    greedy = scoring.predict(predictor)
    assert predictor.task.decoding == "greedy" and [len(one.arcs) for one in greedy] == list(map(len, ours))
    scores = json.loads((run / "onnx/metrics.json").read_text())
    assert scores["files"]["model.onnx"]["las"] == pytest.approx(scores["las"], abs=1e-9)
    assert "| logits | projections of words; biaffine.safetensors has" in (run / "onnx/README.md").read_text()


def the_folder_in_transformers(best: Path) -> None:
    """The encoder is a Hugging Face folder, whose hidden states are ours; the head has its own file."""
    transformers = pytest.importorskip("transformers")
    theirs, loading = transformers.AutoModel.from_pretrained(best, output_loading_info=True)
    assert {name.split(".")[0] for name in loading["unexpected_keys"]} <= {"biaffine"}
    assert all(name.startswith("pooler.") for name in loading["missing_keys"])
    encoded = transformers.AutoTokenizer.from_pretrained(best)("the poor bank rose.", return_tensors="pt")
    model, _, made = load_model(best, "biaffine")
    assert made == []
    length = encoded["input_ids"].shape[1]
    tokens = Packed(encoded["input_ids"], torch.arange(length)[None], torch.ones(1, length, dtype=torch.int64))
    with torch.inference_mode():
        states = theirs.eval()(**encoded).last_hidden_state
        torch.testing.assert_close(model.encoder.eval()(tokens), states, rtol=1e-5, atol=1e-5)


def the_folder_as_a_start(best: Path) -> None:
    """The head is loaded with the same labels and sizes, and initialised with others."""
    folder = open_model(best)
    sizes = {"arc_size": 24, "label_size": 12}
    assert folder.head_config == HeadConfig("biaffine", **sizes)
    assert load_model(best, folder.head_config, folder.labels)[2] == []
    for labels, other in ((folder.labels[:-1], sizes), (folder.labels, {"arc_size": 8, "label_size": 12})):
        model, _, made = load_model(best, HeadConfig("biaffine", **other), labels)
        assert "biaffine.arc" in made and model.head.arc.shape == (other["arc_size"] + 1, other["arc_size"])
    assert load_model(best, "tokens", ("O",))[2] == ["classifier.weight", "classifier.bias"]


def test_files_and_stages_are_refused_before_anything_is_trained(
    treebank: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = recipe(treebank, tmp_path / "run")
    broken = tmp_path / "broken.conllu"
    broken.write_text((treebank / "validation.conllu").read_text() + "1\tw\t_\tX\t_\t_\t1\tx\t_\t_\n")
    whole["stages"]["trees"]["validation"] = str(broken)
    student = whole["stages"]["student"]
    for changed, message in (
        ({"losses": ["SoftTargets", "LogitMSE"]}, "losses[1]: LogitMSE compares a logit for each label, but parsing"),
        ({"cache": "cache"}, "cache: parsing has no logit for each label; expected cache: null"),
    ):
        whole["stages"]["student"] = {**student, **changed}
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(whole, sort_keys=False))
        assert main(["run", str(tmp_path / "recipe.yaml")]) == 2
        assert message in capsys.readouterr().err
    whole["stages"]["student"] = student
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(whole, sort_keys=False))
    assert main(["run", str(tmp_path / "recipe.yaml")]) == 2
    lines = len(broken.read_text().splitlines())
    assert f"broken.conllu:{lines}: no word has head 0; expected head 0 at one word" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
