"""A family, a kind of vocabulary, an objective and a task have a folder each: searched in the source, and shown by a
package of a user, whose four folders go through every stage together."""

from __future__ import annotations

import ast
import csv
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from domainbert.base.choices import choices_of
from domainbert.data.prepared import open_prepared
from domainbert.encoders.config import EncoderConfig
from domainbert.pretraining.config import ObjectiveConfig
from domainbert.tasks.config import TaskConfig
from domainbert.tokenization.config import TokenizerKindConfig
from tests import forked
from tests.package_source import ROOT, nodes, trees

USER = Path(__file__).parent / "user_package"


class Room(NamedTuple):
    """Where the folders of a base class stand, how many there are, and which modules may name them."""

    base: type
    place: str
    count: int
    known_by: tuple[str, ...] = ()


ROOMS = [
    # the two tasks that have a name in Python; the labelled files that `sample` writes; what brat has beside entities
    Room(TaskConfig, "tasks", 8, ("serving/loaders.py", "samples", "stages/sample.py", "labelled/annotation_tools.py")),
    Room(EncoderConfig, "encoders", 9),
    # the default of `vocab`; the words of labelled files are cut as in BERT
    Room(
        TokenizerKindConfig,
        "tokenization/kinds",
        3,
        ("stages/vocab.py", "tokenization/align.py", "tokenization/from_texts.py"),
    ),
    # the default of `pretrain`, whose tokens `distill` masks; a kind of head is called masked_lm, too
    Room(
        ObjectiveConfig,
        "pretraining/objectives",
        4,
        (
            *("stages/pretrain.py", "pretraining/module.py", "pretraining/data_module.py"),
            *("pretraining/rows_module.py", "distillation/corpus_distillation.py", "encoders"),
        ),
    ),
]
KNOW_HEADS = ("encoders", "tasks", "labelled", "serving/onnx/graph.py")
"""Where families map kinds of heads, and tasks choose theirs; rows have a key "tokens", the graph a dimension called
"sequence"."""

HEADS = {"tokens", "sequence", "span", "crf", "biaffine"}


def sources(*but: str) -> dict[str, ast.Module]:
    """The modules by path, without those in some folders."""
    chosen = {name: tree for name, tree in trees().items() if not name.startswith(but)}
    assert len(trees()) - len(chosen) >= len(but) and len(chosen) > 100
    return chosen


def strings(tree: ast.Module) -> Iterator[ast.Constant]:
    """String constants, docstrings apart."""
    docs = {id(node.value) for node in nodes(tree) if isinstance(node, ast.Expr)}
    for node in nodes(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node


def compared(tree: ast.Module) -> Iterator[str]:
    """Strings that something is compared with, and those by which something is looked up or passed to a head."""
    for node in nodes(tree):
        parts: list[ast.expr | None] = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("load_model", "build_head", "save_model"):
            parts = list(node.args)
        for part in filter(None, parts):
            yield from (one.value for one in ast.walk(part) if isinstance(one, ast.Constant) and type(one.value) is str)


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.place)
def test_nothing_outside_names_what_stands_in_a_folder(room: Room) -> None:
    classes = choices_of(room.base)
    folders = {kind.__module__.split(".")[-2] for kind in classes.values()}
    assert len(folders) == room.count
    package = f"domainbert.{room.place.replace('/', '.')}"
    found = []
    for name, tree in sources(*(f"{room.place}/{folder}/" for folder in folders), *room.known_by).items():
        modules = [node.module or "" for node in nodes(tree) if isinstance(node, ast.ImportFrom)]
        inside = [module.removeprefix(f"{package}.").split(".")[0] for module in modules if module.startswith(package)]
        named = [node.id for node in nodes(tree) if isinstance(node, ast.Name)]
        found += [f"{name} imports {one}" for one in inside if one in folders]
        found += [f"{name} names {one}" for one in named if one in classes]
        found += [f"{name} says {one.value!r}" for one in strings(tree) if one.value.replace("-", "_") in folders]
    assert found == []


def test_only_families_and_tasks_know_kinds_of_heads() -> None:
    found = []
    for name, tree in sources(*KNOW_HEADS).items():
        found += [f"{name} compares with {one!r}" for one in compared(tree) if one in HEADS]
        found += [f"{name} says {one.value!r}" for one in strings(tree) if one.value in HEADS - {"tokens"}]
    assert found == []


def written(folder: Path) -> None:
    """A corpus, and texts whose grade is the share of good words in them; some are longer than a window."""
    draw = random.Random(0)

    def text(length: int, good: float) -> str:
        return " ".join("cash" if draw.random() < good else "prices" for _ in range(length))

    folder.mkdir()
    with open(folder / "corpus.jsonl", "w") as file:
        for _ in range(120):
            words = [f"word{draw.randrange(80)}" for _ in range(draw.choice([5, 20]))]
            file.write(json.dumps({"text": f"{' '.join(words)} {text(20, draw.random())}"}) + "\n")
    for name, count in {"train": 64, "validation": 24, "test": 40}.items():
        with open(folder / f"{name}.jsonl", "w") as file:
            for _ in range(count):
                words = text(draw.choice([5, 20, 60]), draw.random()).split()
                row = {"text": " ".join(words), "grade": words.count("cash") / len(words)}
                file.write(json.dumps(row) + "\n")


def domainbert_in(here: Path, *words: str) -> None:
    """Run a command, which starts others, as a user who has the package `mine`, and allows it."""
    path = os.pathsep.join([str(USER), str(ROOT.parent), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "domainbert.cli", *words, "--allow-import", "mine"]
    done = subprocess.run(command, cwd=here, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def values(file: Path) -> Any:
    return json.loads(file.read_text())


def test_a_users_family_vocabulary_objective_and_task_go_through_every_stage(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    written(tmp_path / "data")
    printed = forked.domainbert(tmp_path, "run", USER / "recipe.yaml", "--allow-import", "mine")
    run = tmp_path / "run"
    the_vocabulary(run)
    the_objective(run)
    the_family(run)
    assert "student: embeddings, layers 0, head of the teacher" in printed
    the_task(run, printed)
    shown = json.loads(forked.run_script((USER / "predict.py").read_text(), tmp_path).splitlines()[-1])
    assert shown["grade"] == pytest.approx(rows(run / "said/predictions.jsonl")[0]["predicted_grade"], abs=1e-6)
    assert shown["refused"].endswith("is a model with the outputs grade; load it with load_predictor")


def the_vocabulary(run: Path) -> None:
    entries = values(run / "vocab/tokenizer.json")["model"]["vocab"]
    assert entries["<nothing>"] == 0 and "cash" in entries and "<hidden>" in entries
    split = open_prepared([run / "prepare"]).train
    assert split.take_starts(0, split.num_tokens).all(), "each token is a word"
    for name in ("prepare/tokenizer", "pretrain", "grades/seed-1", "student/seed-1", "onnx"):
        assert values(run / name / "tokenizer.json")["model"]["vocab"] == entries


def the_objective(run: Path) -> None:
    validated = values(run / "pretrain/run.json")["metrics"]["validation"]
    assert validated["loss"] > 0 and 0.5 < validated["accuracy"] <= 1
    assert "random token substitution" in (run / "pretrain/README.md").read_text()
    assert values(run / "pretrain/config.json")["id2label"] == {"0": "original", "1": "replaced"}


def the_family(run: Path) -> None:
    kinds = {"pretrain": "TokenClassification"}
    kinds |= dict.fromkeys(["grades/seed-1", "grades/seed-2", "student/seed-1", "onnx"], "SequenceClassification")
    for name, kind in kinds.items():
        fields = values(run / name / "config.json")
        assert (fields["model_type"], fields["architectures"]) == ("pre_norm", [f"PreNormFor{kind}"])
        assert (fields["hidden_size"], fields["intermediate_size"], fields["max_length"]) == (32, 48, 48)
    assert values(run / "pretrain/config.json")["num_layers"] == 2
    assert values(run / "student/seed-1/config.json")["num_layers"] == 1


def the_task(run: Path, printed: str) -> None:
    fields = values(run / "grades/seed-1/config.json")
    assert (fields["domainbert_task"], fields["id2label"]) == ("grade", {"0": "grade"})
    noted = values(run / "grades/seeds.json")
    by_seed = noted["validation_mae"]
    assert (noted["metric"], noted["direction"]) == ("validation/mae", "minimize")
    assert noted["best"] == min(by_seed, key=by_seed.get)
    history = values(run / "grades/seed-1/training.json")["history"]
    assert by_seed["seed-1"] == min(row["mae"] for row in history) < max(row["mae"] for row in history)
    assert "| validation mean absolute error | 0." in (run / "grades/seed-1/README.md").read_text()

    scores = values(run / "scores/metrics.json")
    teacher = scores["systems"]["teacher"]
    assert scores["metric"]["direction"] == "minimize"
    assert teacher["interval"][0] < teacher["mae"] < teacher["interval"][1]
    assert teacher["mae_by_seed"].keys() == {"seed-1", "seed-2"} and teacher["cost"]["words_per_second"] > 0
    assert scores["paired"][0]["difference"] == teacher["mae"] - scores["systems"]["student"]["mae"]
    assert not {"confusion", "reliability"} & teacher.keys() and not (run / "scores/mistakes").exists()
    assert f"scores  teacher  mean absolute error  {teacher['mae']:.4f}" in printed
    errors = [abs(row["gold"] - row["predicted"]) for row in rows(run / "scores/predictions/teacher/seed-1.jsonl")]
    assert teacher["mae_by_seed"]["seed-1"] == pytest.approx(sum(errors) / len(errors))

    said, exported = (
        [row["predicted_grade"] for row in rows(run / name / "predictions.jsonl")] for name in ("said", "again")
    )
    best = [row["predicted"] for row in rows(run / f"scores/predictions/teacher/{noted['best']}.jsonl")]
    assert said == pytest.approx(best, abs=1e-6) and exported == pytest.approx(said, abs=1e-4)
    files = values(run / "onnx/metrics.json")
    assert files["files"]["model.onnx"]["mae"] == pytest.approx(files["mae"], abs=1e-5)
    assert "# Fine-tuned model for ONNX Runtime" in (run / "onnx/README.md").read_text()


@pytest.mark.slow
def test_a_search_with_folds_over_what_a_user_has_made(tmp_path: Path) -> None:
    written(tmp_path / "data")
    domainbert_in(tmp_path, "run", str(USER / "recipe.yaml"), "--only", "vocab,prepare,pretrain")
    domainbert_in(tmp_path, "tune", "-c", str(USER / "tune.yaml"))
    study = tmp_path / "study"
    with open(study / "trials.csv", newline="") as file:
        trials = list(csv.DictReader(file))
    assert [trial["state"] for trial in trials] == ["complete"] * 2
    held = [rows(study / f"folds/fold-{number}/validation.jsonl") for number in (1, 2)]
    train = rows(tmp_path / "data/train.jsonl")
    assert sorted(map(str, held[0] + held[1])) == sorted(map(str, train))
    best = values(study / "study.json")["best"]
    assert best["values"][0] == min(float(trial["validation/mae"]) for trial in trials)
    assert yaml.safe_load((study / "best.yaml").read_text())["task"]["class_path"] == "mine.grade.config.Grade"
