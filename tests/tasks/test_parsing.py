"""Dependency parsing: windows, loss, trees, scores, and all stages."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from domainbert.base.errors import DomainbertError
from domainbert.cli import main
from domainbert.data.batches import LabelledBatches
from domainbert.data.types import IGNORED, Share
from domainbert.encoders.packed import Packed
from domainbert.metrics.attachment import LENGTHS, attachment_scores, count_arcs, count_by_label, count_by_length
from domainbert.models.folder import load_model, open_model
from domainbert.serving.predictor import load_predictor
from domainbert.tasks.parsing.config import Parsing
from domainbert.tasks.parsing.files import Sentence, read_treebank
from domainbert.tasks.parsing.task import ParsingTask
from domainbert.tasks.parsing.trees import is_tree
from tests.tasks.treebank import write

LABELS = ("amod", "det", "root")


def tree(length: int, seed: int) -> Sentence:
    """Words of a few pieces each, in a random tree."""
    draw = random.Random(seed)
    words = [draw.choice(["men's", "banks", *"abcd"]) for _ in range(length)]
    heads = [0, *(draw.randint(1, word - 1) for word in range(2, length + 1))]
    return Sentence(words, heads, [draw.choice(LABELS) for _ in words], ["NOUN"] * length, [], 1, 0)


ITEMS = [tree(3, 0), tree(20, 1), tree(1, 2), tree(7, 3)]


def batch_of(task: ParsingTask, tokenizer: Any, items: list[Sentence], max_length: int = 10) -> dict[str, Any]:
    examples = task.encode(items, tokenizer, max_length)
    batch = LabelledBatches(examples, tokenizer, 10_000, Share())[0]
    return {name: torch.from_numpy(values) for name, values in batch.items()}


@pytest.fixture
def model(make_model: Callable[..., Any]) -> Any:
    return make_model("biaffine", len(LABELS)).eval()


@pytest.fixture
def task(model: Any) -> ParsingTask:
    task = ParsingTask(LABELS)
    task.bind(model.head)
    return task


def test_each_word_is_read_once_at_its_first_piece(task: ParsingTask, tokenizer: Any) -> None:
    examples = task.encode(ITEMS, tokenizer, 10)
    assert [len(example.windows) for example in examples] == [1, 6, 1, 2]
    for item, example in zip(ITEMS, examples, strict=True):
        words = np.concatenate([window.outputs for window in example.windows])
        assert words.tolist() == list(range(len(item.words))) and example.num_outputs == len(words)
        targets = np.concatenate([window.targets for window in example.windows]).tolist()
        assert targets == [[head, LABELS.index(label)] for head, label in item.arcs]
        first = [int(window.input_ids[place]) for window in example.windows for place in window.positions]
        texts = [tokenizer.backend.id_to_token(one) for one in first]
        assert all(word.startswith(text) for word, text in zip(item.words, texts, strict=True))
    (hidden,) = task.encode_contents([["a", "b"]], tokenizer, 10)
    assert (hidden.windows[0].targets == IGNORED).all()


def test_loss_and_trees_are_those_of_whole_sentences(model: Any, task: ParsingTask, tokenizer: Any) -> None:
    """Of packed rows, windows and padding, against each sentence by itself from the same states."""
    batch = batch_of(task, tokenizer, ITEMS)
    with torch.inference_mode():
        logits = model(Packed.of(batch), batch["positions"])
        found, trees = float(task.loss(logits, batch)), task.decode(logits, batch)
    items = batch["items"].tolist()
    wanted = 0.0
    for place, number in enumerate(items):
        item, own = ITEMS[number], batch["example"] == place
        order = batch["outputs"][own].argsort()
        words, length = logits[own][order].unsqueeze(0), len(item.words)
        real = torch.ones(1, length, dtype=torch.bool)
        arcs = model.head.arc_scores(words, torch.tensor([length]))[0].detach().double().numpy()
        labels = model.head.label_scores(words, torch.tensor([item.heads]), real).detach().double().numpy()
        for word, (head, label) in enumerate(item.arcs):
            wanted += np.log(np.exp(arcs[word]).sum()) - arcs[word, head]
            wanted += np.log(np.exp(labels[word]).sum()) - labels[word, LABELS.index(label)]
        heads = [head for head, _ in trees[place].arcs]
        again = model.head.label_scores(words, torch.tensor([heads]), real).detach().double().numpy()
        best = np.exp(again) / np.exp(again).sum(axis=1, keepdims=True)
        assert [label for _, label in trees[place].arcs] == [LABELS[one] for one in best.argmax(axis=1)]
        of_head = np.exp(arcs[np.arange(length), heads]) / np.exp(arcs).sum(axis=1)
        np.testing.assert_allclose(trees[place].scores, of_head * best.max(axis=1), rtol=1e-4)
        assert is_tree(heads)
    assert found == pytest.approx(wanted, rel=1e-5)
    hidden = {**batch, "targets": torch.where(batch["example"].unsqueeze(1) == 0, IGNORED, batch["targets"])}
    with torch.inference_mode():
        assert float(task.loss(logits, hidden)) < found
    task.decoding = "greedy"
    greedy = [[head for head, _ in one.arcs] for one in task.decode(logits, batch)]
    assert not all(map(is_tree, greedy)) and [len(one) for one in greedy] == [len(ITEMS[item].words) for item in items]


def test_a_model_that_gives_no_numbers_gives_trees(model: Any, task: ParsingTask, tokenizer: Any) -> None:
    batch = batch_of(task, tokenizer, ITEMS)
    logits = torch.full((len(batch["positions"]), 400), torch.nan)
    assert all(is_tree([head for head, _ in one.arcs]) for one in task.decode(logits, batch))


def test_scores_are_those_of_conll_2018_and_of_allennlp() -> None:
    """Spelled out: F1 of aligned words and universal labels; all words but those with certain tags."""
    draw = random.Random(5)
    names = ["nsubj", "nsubj:pass", "obj", "det"]
    gold, system, ignored = [], [], []
    for length in (1, 5, 12, 30):
        gold.append([(draw.randint(0, length), draw.choice(names)) for _ in range(length)])
        system.append(
            [arc if draw.random() < 0.6 else (draw.randint(0, length), draw.choice(names)) for arc in gold[-1]]
        )
        ignored.append([draw.random() < 0.2 for _ in range(length)])
    counts = count_arcs(gold, system, ignored)
    found = attachment_scores(counts.sum(axis=0))
    rows = zip(gold, system, ignored, strict=True)
    words = [word for row in rows for word in zip(*row, strict=True)]

    def f1(right: int, number: int) -> float:
        precision, recall = right / number, right / number  # the same words on both sides
        return 2 * precision * recall / (precision + recall)

    assert found["uas"] == pytest.approx(f1(sum(a[0] == b[0] for a, b, _ in words), len(words)), abs=1e-12)
    assert found["las"] == pytest.approx(f1(sum(a == b for a, b, _ in words), len(words)), abs=1e-12)
    kept = [(a, b) for a, b, skip in words if not skip]
    assert found["las_no_punctuation"] == pytest.approx(sum(a == b for a, b in kept) / len(kept), abs=1e-12)
    assert found["uas_no_punctuation"] == pytest.approx(sum(a[0] == b[0] for a, b in kept) / len(kept), abs=1e-12)
    assert found["exact"] == sum(a == b for a, b in zip(gold, system, strict=True)) / 4
    by_label = count_by_label(gold, system, names)
    for label, (tp, fp, fn) in zip(names, by_label.tolist(), strict=True):
        assert tp == sum(a == b and a[1] == label for a, b, _ in words)
        assert (tp + fp, tp + fn) == tuple(sum(pair[side][1] == label for pair in words) for side in (1, 0))
    by_length = count_by_length(gold, system)
    assert by_length.sum(axis=0)[0] == sum(a[0] == b[0] for a, b, _ in words)
    assert by_length.sum() - by_length[:, 0].sum() == 2 * (len(words) - by_length[:, 0].sum())


def test_lengths_of_arcs() -> None:
    gold = [[(0, "x"), *((1, "x") for _ in range(8))]]
    tp, fp, fn = count_by_length(gold, gold).T
    assert dict(zip(LENGTHS, tp.tolist(), strict=True)) == {"root": 1, "1": 1, "2": 1, "3-6": 4, ">6": 2}
    assert not fp.any() and not fn.any()


def test_a_training_that_came_to_nothing_is_told(task: ParsingTask) -> None:
    items = [Sentence(list("abcd"), [2, 0, 4, 2], list("wxyz"), ["_"] * 4, [], 1, 0)]
    (warning,) = task.warnings(items, {"uas": 0.5})
    assert "UAS 50.0 on validation, while the word beside it as head of every word gets 50.0" in warning
    assert task.warnings(items, {"uas": 0.6}) == []


def test_what_a_folder_says(tmp_path: Path) -> None:
    assert ParsingTask.of_folder(LABELS, {}).decoding == "mst"
    facts = ParsingTask(LABELS, "greedy").folder_facts({})
    assert ParsingTask.of_folder(LABELS, facts).decoding == "greedy"
    with pytest.raises(DomainbertError, match="domainbert_decode: found 'best'; expected mst or greedy"):
        ParsingTask.of_folder(LABELS, {"domainbert_decode": "best"})


def test_words_or_a_text_to_predict(task: ParsingTask) -> None:
    assert task.content_of({"tokens": ["a", "b"], "text": "c"}, "text") == ["a", "b"]
    assert task.content_of({"body": "a b"}, "body") == "a b"
    for row, problem in (
        ({}, "no string under 'text'"),
        ({"tokens": [1]}, "'tokens' holds 1; expected filled strings"),
    ):
        with pytest.raises(DomainbertError, match=problem):
            task.content_of(row, "text")


@pytest.fixture(scope="module")
def treebank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trees of a grammar, some longer than a window, and their text."""
    folder = tmp_path_factory.mktemp("treebank")
    for number, (split, count) in enumerate({"train": 300, "validation": 60, "test": 60}.items()):
        found = read_treebank(write(folder / f"{split}.conllu", count, seed=number, documents=5))
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
    stages = {
        "vocab": {"corpus": corpus, "vocab_size": 128, "model_max_length": 64},
        "trees": {**training, **first, "seeds": [1, 2]},
        "more": {**training, "model": "@trees", "max_epochs": 1, "optim": {"lr": 1e-4, "head_lr": 1e-4}},
        "scores": {
            "stage": "evaluate",
            "models": {"trees": "@trees", "more": "@more"},
            "task": "Parsing",
            "test": f"{treebank}/test.conllu",
            "bootstrap_resamples": 200,
        },
        "said": {"stage": "predict", "model": "@trees", "input": f"{treebank}/test.jsonl"},
        "onnx": {"stage": "export", "model": "@trees", "check": f"{treebank}/validation.conllu"},
    }
    return {"out": str(out), "stages": stages}


def test_it_goes_through_every_stage(treebank: Path, tmp_path: Path, one_thread: None) -> None:
    pytest.importorskip("onnxruntime")
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
    """Those of the written treebank, counted here; the words between are as they were."""
    metrics = json.loads((run / "scores/metrics.json").read_text())
    assert metrics["metric"]["name"] == "LAS" and metrics["bootstrap"]["unit"] == "documents"
    trees = metrics["systems"]["trees"]
    gold = (treebank / "test.conllu").read_text(encoding="utf-8").splitlines()
    found = (run / f"scores/predictions/trees/{best}.conllu").read_text(encoding="utf-8").splitlines()
    pairs = [(a.split("\t"), b.split("\t")) for a, b in zip(gold, found, strict=True)]
    words = [(a, b) for a, b in pairs if len(a) == 10]
    assert all(a[:6] == b[:6] and (b[8], a[9]) == ("_", b[9]) for a, b in words)
    assert [a for a, _ in pairs if len(a) == 1] == [b for a, b in pairs if len(a) == 1]
    las = sum(a[6:8] == b[6:8] for a, b in words) / len(words)
    assert trees["las_by_seed"][best] == pytest.approx(las, abs=1e-9)
    kept = [(a, b) for a, b in words if a[3] != "PUNCT"]
    one = json.loads((run / "scores/metrics.json").read_text())["systems"]["more"]
    assert trees["las"] > 0.8 > 0.5 > trees["las"] - trees["interval"][0] > 0
    assert 0.8 < trees["las_no_punctuation"] < trees["uas_no_punctuation"] <= 1 and len(kept) < len(words)
    assert metrics["paired"][0]["las" if "las" in metrics["paired"][0] else "difference"] == pytest.approx(
        trees["las"] - one["las"]
    )
    assert sum(label["support"] for label in trees["per_label"].values()) == metrics["gold"] == len(words)
    assert set(trees["by_length"]) == set(LENGTHS)


def the_predictions(treebank: Path, run: Path) -> None:
    rows = [json.loads(line) for line in (run / "said/predictions.jsonl").read_text().splitlines()]
    predictor, exported = load_predictor(run / "trees"), load_predictor(run / "onnx")
    items = read_treebank(treebank / "test.conllu").items
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
    scoring = ParsingTask.scoring(Parsing(decode="greedy"), read_treebank(treebank / "test.conllu"), None)
    greedy = scoring.predict(predictor)
    assert predictor.task.decoding == "greedy" and list(map(len, greedy)) == list(map(len, ours))
    scores = json.loads((run / "onnx/metrics.json").read_text())
    assert scores["files"]["model.onnx"]["las"] == pytest.approx(scores["las"], abs=1e-9)
    assert "| logits | projections of words; biaffine.safetensors has" in (run / "onnx/README.md").read_text()


def the_folder_in_transformers(best: Path) -> None:
    """The encoder is a Hugging Face folder, whose hidden states are ours; the head stands beside."""
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
    """The head is taken over with the same labels and sizes, and made anew with others."""
    folder = open_model(best)
    sizes = {"arc_size": 24, "label_size": 12}
    assert folder.head_sizes == sizes and load_model(best, "biaffine", folder.labels, sizes=sizes)[2] == []
    for labels, other in ((folder.labels[:-1], sizes), (folder.labels, {"arc_size": 8, "label_size": 12})):
        model, _, made = load_model(best, "biaffine", labels, sizes=other)
        assert "biaffine.arc" in made and model.head.arc.shape == (other["arc_size"] + 1, other["arc_size"])
    assert load_model(best, "tokens", ("O",))[2] == ["classifier.weight", "classifier.bias"]


def test_files_and_stages_are_refused_before_anything_is_trained(
    treebank: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = recipe(treebank, tmp_path / "run")
    broken = tmp_path / "broken.conllu"
    broken.write_text((treebank / "validation.conllu").read_text() + "1\tw\t_\tX\t_\t_\t1\tx\t_\t_\n")
    whole["stages"]["trees"]["validation"] = str(broken)
    student = {name: value for name, value in whole["stages"]["trees"].items() if name not in ("init", "encoder")}
    whole["stages"]["student"] = {**student, "stage": "distill-task", "teachers": ["@trees"], "losses": ["SoftTargets"]}
    del whole["stages"]["student"]["model"]
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(whole, sort_keys=False))
    assert main(["run", str(tmp_path / "recipe.yaml")]) == 2
    said = capsys.readouterr().err
    assert "task: parsing gives no logits to compare with a teacher's; expected finetune of a smaller model" in said
    del whole["stages"]["student"]
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(whole, sort_keys=False))
    assert main(["run", str(tmp_path / "recipe.yaml")]) == 2
    lines = len(broken.read_text().splitlines())
    assert f"broken.conllu:{lines}: no word has head 0; expected one, the root" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
