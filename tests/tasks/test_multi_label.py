"""Texts with any number of labels: reading, loss, and all stages."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import domainbert
from domainbert.cli import main
from domainbert.data.batches import LabelledBatches, Share
from domainbert.data.packing import IGNORE_INDEX
from domainbert.labelled.folds import split_folds
from domainbert.metrics.classification import THRESHOLDS
from domainbert.serving.predictor import load_predictor
from domainbert.tasks.multi_label.config import MultiLabel, MultiLabelFormat
from domainbert.tasks.multi_label.files import LabelledText
from domainbert.tasks.multi_label.files import read as read_multi_label
from domainbert.tasks.multi_label.task import MultiLabelTask, sigmoid_divergence
from tests.refusals import refused

NAMES = ("price", "trade", "work")
ROWS = [["trade"], [], ["price", "work"], ["work"]]


def jsonl(path: Path, rows: list[Any], **first: Any) -> Path:
    written = [{"text": f"text {number}", "labels": row} for number, row in enumerate(rows)]
    written[0] |= first
    path.write_text("".join(json.dumps(row) + "\n" for row in written))
    return path


@pytest.mark.parametrize(
    ("rows", "format", "first"),
    [
        (ROWS, {}, {}),
        ([[1], [], [0, 2], [2]], {"label_names": NAMES}, {}),
        ([[1], [], [0, 2], [2]], {}, {"label_names": list(NAMES)}),
        ([[0, 1, 0], [0, 0, 0], [1, 0, 1], [0, 0, 1]], {"label_names": NAMES}, {}),
    ],
)
def test_labels_are_names_numbers_or_one_for_each_name(tmp_path: Path, rows: Any, format: Any, first: Any) -> None:
    file = read_multi_label(MultiLabel(format=MultiLabelFormat(**format)), jsonl(tmp_path / "a.jsonl", rows, **first))
    assert [list(item.labels) for item in file.items] == ROWS
    assert file.describe().endswith("4 texts, 1 of them without labels; JSONL; 3 labels (price 1, trade 1, work 2)")


def test_a_column_holds_several_labels(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('text,topics\na,trade\nb,\nc,"price, work"\nd,work\n')
    format = MultiLabelFormat(label_key="topics", separator=",")
    assert [list(item.labels) for item in read_multi_label(MultiLabel(format=format), tmp_path / "a.csv").items] == ROWS
    (tmp_path / "a.tsv").write_text("text\tlabels\na\t1\nb\t\nc\t0;2\nd\t2\n")
    numbered = read_multi_label(MultiLabel(format=MultiLabelFormat(kind="tsv", label_names=NAMES)), tmp_path / "a.tsv")
    assert [list(item.labels) for item in numbered.items] == ROWS


def test_lists_that_pandas_wrote_are_read_as_lists(tmp_path: Path) -> None:
    columns = ["['café', \"women's work\"]", "[]", "['a;b']", '["trade"]', "[1.0, 0]", "trade; work", ""]
    quoted = ['"' + column.replace('"', '""') + '"' for column in columns]
    (tmp_path / "a.csv").write_text("text,labels\n" + "".join(f"x,{one}\n" for one in quoted[:4] + quoted[5:]))
    file = read_multi_label(MultiLabel(), tmp_path / "a.csv")
    assert [list(item.labels) for item in file.items] == [
        *(["café", "women's work"], [], ["a;b"], ["trade"], ["trade", "work"], []),
    ]
    assert "changed: columns with a list such as ['a', 'b'], read as its labels (4)" in file.describe()
    (tmp_path / "b.csv").write_text(f"text,labels\nx,{quoted[4]}\n")
    assert [item.labels for item in read_multi_label(MultiLabel(), tmp_path / "b.csv").items] == [("1", "0")]


@pytest.mark.parametrize(("names", "labels"), [(None, "1 2"), (("1.0", "2.0"), "1.0 2.0"), (("a", "b", "c"), "b c")])
def test_whole_numbers_with_a_point_are_read_alike_in_lists(tmp_path: Path, names: Any, labels: str) -> None:
    (tmp_path / "a.csv").write_text("text,labels\nx,1.0;2.0\ny,2.0\nz,1.0\n")
    file = read_multi_label(MultiLabel(format=MultiLabelFormat(label_names=names)), tmp_path / "a.csv")
    one, two = labels.split()
    assert [item.labels for item in file.items] == [(one, two), (two,), (one,)]
    assert sum(file.notes.changed.values()) == (0 if one == "1.0" else 4)


@pytest.mark.parametrize("column", ["['a' 'b']", "['a', ['b']]", "[a, b]", "[1 2]", "['a', __import__('os')]", "[01]"])
def test_what_looks_like_a_list_and_is_none_is_no_label(tmp_path: Path, column: str) -> None:
    (tmp_path / "a.csv").write_text(f'text,labels\nx,ok\nx,"{column}"\n')
    with refused(file="a.csv", line=3, problem="'labels' is \"[...", expected="labels without brackets, with ';'..."):
        read_multi_label(MultiLabel(), tmp_path / "a.csv")


def test_commas_do_not_divide_an_invalid_list(tmp_path: Path) -> None:
    format = MultiLabelFormat(separator=",")
    (tmp_path / "a.csv").write_text('text,labels\nx,ok\nx,"[new], [old]"\n')
    file = read_multi_label(MultiLabel(format=format), tmp_path / "a.csv")
    assert [item.labels for item in file.items] == [("ok",), ("[new]", "[old]")]
    for column in ("[a, b]", "['a', None]"):
        (tmp_path / "a.csv").write_text(f'text,labels\nx,ok\nx,"{column}"\n')
        with refused(file="a.csv", line=3, problem="'labels' is...", expected="labels without brackets, with ','..."):
            read_multi_label(MultiLabel(format=format), tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("rows", "format", "line", "problem", "expected"),
    [
        (["trade"], {}, 1, "'labels' is \"trade\"", "a list"),
        ([["a"], ["a", "a"]], {}, 2, "'labels' has 'a' more than once", "it once..."),
        ([[0, 1, 0]], {}, 1, "'labels' has '0' more than once", "it once (for lists with a 0 or 1..."),
        ([["a"], [1]], {}, 2, "'labels' is 1, a number", "a string as in line 1"),
        ([["a "]], {}, 1, "'labels' is \"a \"", "visible characters and no white space around them"),
        ([["rent"]], {"label_names": NAMES}, 1, 'unknown label "rent"', "one of the label_names..."),
        ([[3]], {"label_names": NAMES}, 1, "unknown label 3", "one of the label_names 'price'..."),
        ([[None]], {}, 1, "'labels' is null", "a string or whole number"),
    ],
)
def test_what_is_no_list_of_labels_is_named(
    tmp_path: Path, rows: Any, format: Any, line: int, problem: str, expected: str
) -> None:
    with refused(file="a.jsonl", line=line, problem=problem, expected=expected):
        read_multi_label(MultiLabel(format=MultiLabelFormat(**format)), jsonl(tmp_path / "a.jsonl", rows))


def test_zeros_and_ones_need_names(tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    file.write_text("".join(json.dumps({"text": "a", "labels": one}) + "\n" for one in ([0, 1], [1, 0], [1, 1])))
    with refused(problem="'labels' has two numbers, each 0 or 1, in every row", expected="the..."):
        read_multi_label(MultiLabel(), file)


def test_rare_labels_are_spread_over_folds(tmp_path: Path) -> None:
    rows = [["usual", *(["rare"] if number % 6 == 0 else [])] if number % 3 else ["rare"] for number in range(12)]
    folds = split_folds(jsonl(tmp_path / "a.jsonl", rows), MultiLabel(), 2, 0)
    counts = [
        Counter(label for line in fold.validation[0].splitlines() for label in json.loads(line)["labels"])
        for fold in folds
    ]
    assert counts[0] == counts[1] == {"rare": 2, "usual": 4}


def test_loss_and_divergence_are_numpys(tokenizer: Any) -> None:
    """Windows of a text are averaged; a text without labels counts, one that is to be predicted does not."""
    task = MultiLabelTask(NAMES)
    texts = ["a b c", " ".join("abcdefgh" * 3), "", "h g"]
    items = [LabelledText(text, tuple(labels), 1) for text, labels in zip(texts, ROWS, strict=True)]
    examples = task.encode(items[:3], tokenizer, 10) + task.encode_contents(texts[3:], tokenizer, 10)
    assert [len(example.windows) for example in examples] == [1, 5, 1, 1]
    batch = {n: torch.from_numpy(v) for n, v in LabelledBatches(examples, tokenizer, 10_000, Share())[0].items()}
    logits = np.random.default_rng(0).normal(size=(8, 3))
    owners = batch["items"].numpy()[batch["example"].numpy()]
    mean = np.stack([logits[owners == text].mean(axis=0) for text in range(3)])
    gold = np.asarray([[0, 1, 0], [0, 0, 0], [1, 0, 1]])
    holds = 1 / (1 + np.exp(-mean))
    wanted = -(gold * np.log(holds) + (1 - gold) * np.log(1 - holds)).mean(axis=1).sum()
    assert float(task.loss(torch.from_numpy(logits), batch)) == pytest.approx(wanted, rel=1e-5)
    assert (task.targets(batch)[batch["items"].tolist().index(3)] == IGNORE_INDEX).all()

    one, other = (np.random.default_rng(seed).normal(size=(5, 3)) for seed in (1, 2))
    p, q = 1 / (1 + np.exp(-one)), 1 / (1 + np.exp(-other))
    divergence = (p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))).mean(axis=1)
    found = sigmoid_divergence(torch.from_numpy(one), torch.from_numpy(other))
    np.testing.assert_allclose(found.numpy(), divergence, rtol=1e-10)


def test_a_training_that_came_to_nothing_is_told() -> None:
    task = MultiLabelTask(("a", "b"))
    items = [LabelledText("text", labels, 1) for labels in (("a",), ("a",), ("a", "b"), ())]
    (warning,) = task.training_hooks.warnings(task, items, {"f1": 0.75})
    assert "micro F1 75.0 on validation, while predicting the same labels for every text gets 75.0" in warning
    assert task.training_hooks.warnings(task, items, {"f1": 0.8}) == []
    assert task.training_hooks.warnings(task, [LabelledText("text", (), 1)], {"f1": 0.0}) == []


def test_the_threshold_of_a_folder() -> None:
    assert MultiLabelTask.from_model_folder(NAMES, {}).threshold == 0.5
    for threshold in THRESHOLDS.tolist():
        facts = MultiLabelTask(NAMES).model_config_fields({"threshold": float(np.float32(threshold))})
        assert MultiLabelTask.from_model_folder(NAMES, facts).threshold == threshold
    assert MultiLabelTask.from_model_folder(NAMES, {"domainbert_threshold": 0.25}).threshold == 0.25
    with refused(where="domainbert_threshold", found="'x'", expected="a number above 0 and below 1"):
        MultiLabelTask.from_model_folder(NAMES, {"domainbert_threshold": "x"})


@pytest.fixture(scope="module")
def topics(runs: Any) -> Path:
    """The sample's texts, whose labels are which of some words occur in them, and whether they are long."""
    folder: Path = runs / "topics"
    folder.mkdir()
    for split in ("train", "validation", "test"):
        rows = [json.loads(line) for line in runs.labelled("classification", split).read_text().splitlines()]
        with open(folder / f"{split}.jsonl", "w") as file:
            for row in rows:
                labels = [word for word in ("the", "effect", "of") if word in row["text"].lower().split()]
                labels += ["long"] if len(row["text"]) > 110 else []
                file.write(json.dumps({"text": row["text"], "labels": labels}) + "\n")
    return folder


@pytest.mark.slow
@pytest.mark.usefixtures("torch_for_onnx")
def test_it_goes_through_every_stage(runs: Any, topics: Path, tmp_path: Path, one_thread: None) -> None:
    pytest.importorskip("onnxscript")
    transformers = pytest.importorskip("transformers")
    training = f"""
      task: MultiLabel
      train: {topics}/train.jsonl
      validation: {topics}/validation.jsonl
      batch_size: 8
      max_epochs: 4
      optim: {{lr: 2e-3, head_lr: 5e-3}}
      precision: 32-true
      loggers: [jsonl]
      trainer: {{accelerator: cpu, devices: 1}}"""
    (tmp_path / "recipe.yaml").write_text(f"""
out: {tmp_path}/run
stages:
  topics:
      stage: finetune
      model: {runs / "pretrain"}
      seeds: [2]{training}
  student:
      stage: distill-task
      teachers: ["@topics"]
      student: {{first_layers: 1}}
      losses: [SoftTargets, HardTargets]
      unlabelled: {{sources: [{{path: {topics}/test.jsonl}}]}}
      cache: {tmp_path}/cache
      top_k: 1{training}
  scores:
      stage: evaluate
      models: {{teacher: "@topics", student: "@student"}}
      task: MultiLabel
      test: {topics}/test.jsonl
  said: {{stage: predict, model: "@topics", precision: 32-true, input: {topics}/test.jsonl}}
  onnx: {{stage: export, model: "@topics", check: {topics}/validation.jsonl}}
""")
    assert main(["run", str(tmp_path / "recipe.yaml")]) == 0
    run = tmp_path / "run"
    noted = json.loads((run / "topics/seeds.json").read_text())
    best = run / "topics" / noted["best"]
    fields = json.loads((best / "config.json").read_text())
    assert (fields["domainbert_task"], fields["problem_type"]) == ("multi_label", "multi_label_classification")

    metrics = json.loads((run / "scores/metrics.json").read_text())
    assert metrics["metric"]["name"] == "micro F1" and metrics["paired"][0]["interval"][0] < 1
    teacher = metrics["systems"]["teacher"]
    rows = [
        json.loads(line)
        for line in (run / f"scores/predictions/teacher/{noted['best']}.jsonl").read_text().splitlines()
    ]
    right = sum(len(set(row["gold"]) & set(row["predicted"])) for row in rows)
    f1 = 2 * right / sum(len(row["gold"]) + len(row["predicted"]) for row in rows)
    assert teacher["f1_by_seed"][noted["best"]] == pytest.approx(f1) and f1 > 0.3
    assert sum(one["support"] for one in teacher["per_label"].values()) == metrics["gold"]
    threshold = fields["domainbert_threshold"]
    assert all(set(row["predicted"]) == {n for n, p in row["scores"].items() if p >= threshold} for row in rows)

    predictor = load_predictor(run / "topics", "32-true")
    (model,) = predictor.predict([rows[0]["text"]])
    assert model.scores == pytest.approx(rows[0]["scores"], abs=1e-6)
    said = json.loads((run / "said/predictions.jsonl").read_text().splitlines()[0])
    assert said["predicted_labels"] == rows[0]["predicted"] and said["scores"] == pytest.approx(
        rows[0]["scores"], abs=1e-6
    )
    (exported,) = load_predictor(run / "onnx", "32-true").predict([rows[0]["text"]])
    assert exported.labels == model.labels and exported.scores == pytest.approx(model.scores, abs=1e-4)

    theirs, loading = transformers.AutoModelForSequenceClassification.from_pretrained(best, output_loading_info=True)
    assert not loading["missing_keys"] and not loading["unexpected_keys"]
    encoded = transformers.AutoTokenizer.from_pretrained(best)(rows[0]["text"], return_tensors="pt")
    with torch.inference_mode():
        gold = torch.tensor([[float(name in rows[0]["gold"]) for name in predictor.labels]])
        output = theirs.eval()(**encoded, labels=gold)
    probabilities = torch.sigmoid(output.logits)[0].tolist()
    assert dict(zip(predictor.labels, probabilities, strict=True)) == pytest.approx(model.scores, abs=1e-5)
    task = predictor.task
    target = {"items": torch.zeros(1), "example": torch.tensor([0]), "targets": gold.long()}
    assert float(task.loss(output.logits, target)) == pytest.approx(float(output.loss), rel=1e-5)
    with refused(problem="is a multi-label classifier with the labels...", hint="load it with load_predictor"):
        domainbert.load_classifier(run / "topics", "32-true")
    assert json.loads((run / "student/seed-1/config.json").read_text())["domainbert_threshold"] > 0
