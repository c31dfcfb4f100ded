"""A number for each text: reading, the units of the folder, and all stages on pairs."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from domainbert import load_predictor
from domainbert.cli import main
from domainbert.corpus.config import CorpusConfig, Source
from domainbert.data.batches import LabelledBatches, Share
from domainbert.labelled.contents import TextPair
from domainbert.labelled.folds import split_folds
from domainbert.labelled.items import Labelled
from domainbert.metrics.regression import regression_scores
from domainbert.models.loading import load_model
from domainbert.models.saving import save_model
from domainbert.stages.distill_task import DistillTask
from domainbert.tasks.config import TASK_KEY
from domainbert.tasks.decoding import mean_over_windows
from domainbert.tasks.packed_logits import packed_logits
from domainbert.tasks.regression.config import Regression, RegressionFormat
from domainbert.tasks.regression.files import NumberedText
from domainbert.tasks.regression.files import read as read_numbers
from domainbert.tasks.regression.task import OUTPUT, RegressionTask, squared_difference
from domainbert.tasks.task import task_from_training_set
from domainbert.tuning.search import read_search
from tests.refusals import refused
from tests.tasks.tiny_folders import FAMILIES, TEXTS, Folders, tiny_model

MEAN, DEVIATION = 2000.0, 8.0


def of_numbers(*numbers: float) -> RegressionTask:
    items = [NumberedText("a", number=number, line=line) for line, number in enumerate(numbers, 1)]
    return task_from_training_set(Regression(), Labelled(Path("train.jsonl"), items, "jsonl"))


def test_numbers_of_json_and_of_columns(tmp_path: Path) -> None:
    numbers = [3, -2.5, 1e-3, 0]
    rows = [{"text": f"é {number}", "label": number} for number in numbers]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    file = read_numbers(Regression(), tmp_path / "a.jsonl")
    assert [item.number for item in file.items] == numbers
    assert file.describe().endswith("a.jsonl: 4 texts; JSONL; numbers from -2.5 to 3, mean 0.12525")
    assert all(item.labels == () for item in file.items)
    (tmp_path / "b.csv").write_text('text,grade\na,3\n"b, c", -2.5\nd,+.5e1\n')
    found = read_numbers(Regression(format=RegressionFormat(label_key="grade")), tmp_path / "b.csv")
    assert [(item.number, item.line) for item in found.items] == [(3, 2), (-2.5, 3), (5, 4)]


@pytest.mark.parametrize(
    ("value", "found", "expected"),
    [
        ("NaN", "NaN", "a number from -1e30 to 1e30"),
        ("-Infinity", "-Infinity", "a number from..."),
        ("1e31", "1e+31", "a number from..."),
        ("null", "null", "a number, such as 0.5"),
        ("true", "true", "a number..."),
        ('"3.5"', '"3.5"', "a number without quotes"),
        ("[3]", "a JSON list", "a number..."),
    ],
)
def test_what_is_no_number_is_told_with_its_line(tmp_path: Path, value: str, found: str, expected: str) -> None:
    (tmp_path / "a.jsonl").write_text(f'{{"text": "a", "label": 1}}\n{{"text": "b", "label": {value}}}\n')
    with refused(file="a.jsonl", line=2, problem=f"'label' is {found}", expected=expected):
        read_numbers(Regression(), tmp_path / "a.jsonl")


@pytest.mark.parametrize("column", ["", "nan", "inf", "1_000", "3,5", "0x1", "\u0663", "one", 100_000 * "9" + "x"])
def test_what_is_no_number_in_a_column(tmp_path: Path, column: str) -> None:
    (tmp_path / "a.tsv").write_text(f"text\tlabel\na\t1\nb\t{column}\n")
    with refused(file="a.tsv", line=3, problem="'label' is \"...", expected="a number, such as 0.5"):
        read_numbers(Regression(), tmp_path / "a.tsv")


def test_numbers_that_hardly_differ_are_refused() -> None:
    assert (of_numbers(1, 2, 6).mean, of_numbers(1, 2, 6).deviation) == (3, pytest.approx(np.std([1, 2, 6])))
    for numbers in ((3.0,), (0.0, 0.0), (0.1, 0.1, 0.1), (1e9, 1e9 + 3)):
        with refused(file="train.jsonl", found="numbers from...", expected="numbers that differ..."):
            of_numbers(*numbers)


def test_loss_and_divergence_are_numpys(tokenizer: Any) -> None:
    """Standardised; windows of a text are averaged; a text to be predicted counts for nothing."""
    task = of_numbers(10.0, 30.0, 20.0)
    texts = ["a b c", " ".join("abcdefgh" * 3), "c"]
    items = [NumberedText(text, number=10.0 * n, line=1) for n, text in enumerate(texts)]
    examples = task.encode(items, tokenizer, 10) + task.encode_contents(["h g"], tokenizer, 10)
    batch = {n: torch.from_numpy(v) for n, v in LabelledBatches(examples, tokenizer, 10_000, Share())[0].items()}
    logits = np.random.default_rng(0).normal(size=(8, 1))
    owners = batch["items"].numpy()[batch["example"].numpy()]
    mean = np.stack([logits[owners == text, 0].mean() for text in range(3)])
    gold = (np.asarray([0.0, 10.0, 20.0]) - 20) / np.std([10, 20, 30])
    found = float(task.loss(torch.from_numpy(logits), batch))
    assert found == pytest.approx(((mean - gold) ** 2).sum(), rel=1e-5)
    numbers = [one.value for one in task.decode(torch.from_numpy(logits), batch)]
    by_item = dict(zip(batch["items"].tolist(), numbers, strict=True))
    assert [by_item[n] for n in range(3)] == pytest.approx(mean * np.std([10, 20, 30]) + 20, rel=1e-6)
    one, other = torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0], [2.5]])
    assert squared_difference(one, other).tolist() == [4.0, 0.25]


def test_a_training_that_came_to_nothing_is_told() -> None:
    items = [NumberedText("a", number=number, line=1) for number in (1.0, 3.0)]
    (warning,) = RegressionTask.training_hooks.warnings(of_numbers(1, 3), items, {"rmse": 1.01, "r2": -0.02})
    assert "RMSE 1.01 and R2 -0.02 on validation, while predicting the mean for every text gets 1 and 0" in warning
    assert RegressionTask.training_hooks.warnings(of_numbers(1, 3), items, {"rmse": 0.5, "r2": 0.75}) == []
    assert RegressionTask.training_hooks.warnings(of_numbers(1, 3), items[:1], {"rmse": 0.5, "r2": 0.0}) == []


@pytest.mark.parametrize("family", FAMILIES)
def test_transformers_gives_the_units_of_the_files(family: str, vocabularies: Folders, tmp_path: Path) -> None:
    """The folder's last layer has taken mean and deviation in; training from it again begins where this one ended."""
    transformers = pytest.importorskip("transformers")
    model, tokenizer = tiny_model(family, vocabularies, 1)
    task = RegressionTask([OUTPUT])
    task.mean, task.deviation = MEAN, DEVIATION
    task.scaling.set_units(task, model.head)
    weights = task.scaling.folder_weights(model.state_dict())
    facts = {TASK_KEY: task.name, **task.model_config_fields({})}
    save_model(tmp_path, model, FAMILIES[family][1], tokenizer, "sequence", "", task.labels, 64, weights, facts=facts)
    fields = json.loads((tmp_path / "config.json").read_text())
    assert (fields["problem_type"], fields["id2label"]) == ("regression", {"0": "value"})
    theirs, loading = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not loading["missing_keys"] and not loading["unexpected_keys"] and theirs.config.num_labels == 1
    predictor, again = load_predictor(tmp_path, "32-true"), load_model(tmp_path, "sequence", task.labels)[0].eval()
    task.scaling.init_head(task, again.head)
    examples = task.encode_contents(TEXTS[:8], tokenizer, 64)
    standard = standardised(model, examples, tokenizer)
    assert standard.std() > 0.005
    np.testing.assert_allclose(standardised(again, examples, tokenizer), standard, atol=1e-4)
    encode = transformers.AutoTokenizer.from_pretrained(tmp_path)
    encoded = encode(TEXTS[:8], return_tensors="pt", padding=True)
    with torch.inference_mode():
        output = theirs.eval()(**encoded, labels=torch.full((8,), 2003.0)).logits[:, 0]
    found = [one.value for one in predictor.predict(TEXTS[:8])]
    assert found == pytest.approx(output.tolist(), abs=1e-3)
    sixteen = load_predictor(tmp_path, "bf16-mixed")
    assert [one.value for one in sixteen.predict(TEXTS[:8])] == pytest.approx(found, abs=1e-3)
    assert found == pytest.approx((standard * DEVIATION + MEAN).tolist(), abs=1e-3)


def standardised(model: Any, examples: Any, tokenizer: Any) -> Any:
    by_item = {}
    for batch, logits in packed_logits(model, tokenizer, examples, torch.device("cpu")):
        by_item |= zip(batch["items"].tolist(), mean_over_windows(logits, batch)[:, 0].tolist(), strict=True)
    return np.asarray([by_item[item] for item in range(len(examples))])


def similar(folder: Path) -> Path:
    """Write pairs as in STS-B, from 0 to 5 by how many of the first text's words the second one has; of some the second
    is longer than a window of 40 tokens."""
    draw, words = (
        random.Random(0),
        ["café", "loan", "firm", "bank", "rate", "price", "school", "girl", "Zürich", "work"],
    )
    folder.mkdir()
    for split, count in {"train": 96, "validation": 32, "test": 40}.items():
        with open(folder / f"{split}.jsonl", "w", encoding="utf-8") as file:
            for _ in range(count):
                first, shared = draw.sample(words, 4), draw.randrange(5)
                others = [word for word in words if word not in first]
                second = first[:shared] + draw.choices(others, k=draw.choice([4 - shared, 4, 45]))
                row = {"sentence1": " ".join(first), "sentence2": " ".join(draw.sample(second, len(second)))}
                file.write(json.dumps(row | {"score": 1.25 * shared}) + "\n")
    return folder


def recipe_of_pairs(folder: Path, vocabulary: Path) -> Path:
    """configs/pairs.yaml for a tiny random model on `similar`, with a student, and further training, beside."""
    recipe = yaml.safe_load((Path(__file__).parents[2] / "configs/pairs.yaml").read_text())
    recipe["check"] = False  # `again` trains on its validation set
    recipe["out"], recipe["vars"] = str(folder / "run"), {"model": str(vocabulary), "labelled": str(folder / "data")}
    stages = recipe["stages"]
    cpu = {"precision": "32-true", "loggers": ["jsonl"], "trainer": {"accelerator": "cpu", "devices": 1}}
    quick = {"max_length": 40, "batch_size": 8, "max_epochs": 3, "optim": {"lr": 2e-3, "head_lr": 5e-3}, "seeds": [1]}
    labelled = {name: stages["similarity"][name] for name in ("task", "train", "validation")}
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    encoder = {"class_path": "BertConfig", "init_args": {**sizes, "max_position_embeddings": 64}}
    stages["similarity"] |= {**cpu, **quick, "init": "random", "encoder": encoder}
    slow = {**quick, "max_epochs": 1, "optim": {"lr": 1e-9, "head_lr": 1e-9}}
    few = {**labelled, "train": labelled["validation"]}  # with another mean and deviation
    stages["again"] = {**few, **cpu, **slow, "stage": "finetune", "model": "@similarity/seed-1"}
    taught = {"teachers": ["@similarity"], "student": {"first_layers": 1}, "losses": ["SoftTargets", "HardTargets"]}
    taught |= {"stage": "distill-task", "cache": str(folder / "cache")}
    stages["student"] = {**labelled, **cpu, **quick, **taught}
    stages["copy"] = {**few, **cpu, **slow, **taught, "student": {}, "teachers": ["@similarity/seed-1"]}
    check = {"task": labelled["task"], "check": labelled["validation"]}
    stages["onnx"] = {"stage": "export", "model": "@similarity", **check}
    stages["result"] |= {"bootstrap_resamples": 200}
    stages["result"]["models"]["student"] = "@student"
    for name in ("result", "numbers"):
        stages[name] = stages.pop(name)  # behind the student
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False))
    return folder / "recipe.yaml"


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


@pytest.mark.slow
def test_pairs_go_through_every_stage(
    tmp_path: Path, vocabularies: Folders, capsys: pytest.CaptureFixture[str], one_thread: None
) -> None:
    pytest.importorskip("onnxruntime")
    data, run = similar(tmp_path / "data"), tmp_path / "run"
    assert main(["run", str(recipe_of_pairs(tmp_path, vocabularies("bert")))]) == 0
    printed = capsys.readouterr().out
    assert "train.jsonl: 96 pairs of texts; JSONL; numbers from 0 to 5" in printed
    best = run / "similarity" / json.loads((run / "similarity/seeds.json").read_text())["best"]
    fields = json.loads((best / "config.json").read_text())
    assert (fields["domainbert_task"], fields["domainbert_text_pair_key"]) == ("regression", "sentence2")

    found = rows(run / f"result/predictions/similarity/{best.name}.jsonl")
    scored = regression_scores([row["gold"] for row in found], [row["predicted"] for row in found])
    metrics = json.loads((run / "result/metrics.json").read_text())
    teacher = metrics["systems"]["similarity"]
    assert teacher["pearson_by_seed"][best.name] == pytest.approx(scored["pearson"]) and scored["pearson"] > 0.3
    assert teacher["spearman_interval"][0] < teacher["spearman"] < teacher["spearman_interval"][1]
    assert metrics["bootstrap"]["unit"] == "pairs of texts" and not metrics["metric"]["percent"]
    assert {"interval", "spearman_difference", "rmse_interval", "r2_difference"} <= set(metrics["paired"][0])
    assert f"Pearson correlation  {teacher['pearson']:.4f}" in printed

    pairs = [TextPair(row["text"], row["text_pair"]) for row in found]
    predictor, exported = load_predictor(run / "similarity", "32-true"), load_predictor(run / "onnx", "32-true")
    wanted = [row["predicted"] for row in found]
    said = rows(run / "numbers/predictions.jsonl")
    assert [row["value"] for row in said] == pytest.approx(wanted, abs=1e-5) and said[0]["sentence2"] == pairs[0].second
    assert [one.value for one in exported.predict(pairs)] == pytest.approx(wanted, abs=1e-4)
    windows = [len(one.windows) for one in predictor.task.encode_contents(pairs, predictor.tokenizer, 40)]
    assert min(windows) == 1 and max(windows) > 1

    first, *others = (load_predictor(run / name, "32-true") for name in ("similarity/seed-1", "again", "copy"))
    before = [one.value for one in first.predict(pairs)]
    for other in others:
        assert [one.value for one in other.predict(pairs)] == pytest.approx(before, abs=1e-3), "it has hardly changed"
    assert json.loads((run / "onnx/metrics.json").read_text())["texts_compared"] > 32
    with refused(where="text 1", found="a single text", expected="pairs of texts for this model"):
        predictor.predict(["one text"])
    (tmp_path / "single.txt").write_text("one text\n")
    single = ["predict", "--model", str(best), "--input", str(tmp_path / "single.txt"), "--out", str(tmp_path / "x")]
    assert main(single) == 2
    assert (
        "single.txt:1: no string under 'sentence2'; expected the second text, as the model reads pairs"
        in capsys.readouterr().err
    )
    folds = split_folds(data / "train.jsonl", Regression(RegressionFormat("sentence1", "sentence2", "score")), 4, 0)
    held = [line for fold in folds for line in fold.validation[0].splitlines()]
    assert sorted(held) == sorted((data / "train.jsonl").read_text(encoding="utf-8").splitlines())


def test_sentences_of_a_corpus_are_no_pairs(tmp_path: Path) -> None:
    task, corpus = Regression(RegressionFormat(text_pair_key="b")), CorpusConfig([Source("corpus.txt")])
    with refused(where="unlabelled", found="single texts, but the task reads pairs"):
        teachers = [tmp_path]
        DistillTask(teachers=teachers, losses=[], task=task, train=tmp_path, validation=tmp_path, unlabelled=corpus)


def search_of(tmp_path: Path, vocabularies: Folders) -> Path:
    """A search with folds over the recipe's training, by an error and a speed."""
    similar(tmp_path / "data")
    training = yaml.safe_load(recipe_of_pairs(tmp_path, vocabularies("bert")).read_text())["stages"]["similarity"]
    files = {split: str(tmp_path / f"data/{split}.jsonl") for split in ("train", "validation")}
    training |= {"model": str(vocabularies("bert")), "seeds": [1], "max_epochs": 1, **files}
    search = {"out": str(tmp_path / "study"), "stage": training.pop("stage"), "settings": training}
    search |= {"objective": ["validation/rmse", "validation/pearson", "cost/words_per_second"], "trials": 2}
    search |= {"space": {"optim.lr": {"choices": [2e-3, 1e-9]}}, "sampler": "grid", "k_folds": 2}
    (tmp_path / "tune.yaml").write_text(yaml.safe_dump(search))
    return tmp_path / "tune.yaml"


def test_a_search_minimizes_errors(tmp_path: Path, vocabularies: Folders) -> None:
    search = read_search([search_of(tmp_path, vocabularies)], [])
    assert search.config.directions == ("minimize", "maximize", "maximize")


@pytest.mark.slow
def test_a_search_with_folds_on_pairs(tmp_path: Path, vocabularies: Folders) -> None:
    assert main(["tune", "-c", str(search_of(tmp_path, vocabularies))]) == 0
    with open(tmp_path / "study/trials.csv", newline="") as file:
        trials = list(csv.DictReader(file))
    assert [trial["state"] for trial in trials] == ["complete"] * 2
    assert all(float(trial["cost/words_per_second"]) > 0 for trial in trials)
    best = json.loads((tmp_path / "study/study.json").read_text())["best"]
    assert best["values"][0] == min(float(trial["validation/rmse"]) for trial in trials)
