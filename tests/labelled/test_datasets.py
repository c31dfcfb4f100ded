"""Labelled data of Hugging Face `datasets`, of the hub and from lists: read as JSONL is, with names of class labels."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value

from domainbert.base.errors import Problems
from domainbert.base.files import FileHashes
from domainbert.corpus.rows import Rows
from domainbert.labelled.folds import split_folds, write_folds
from domainbert.labelled.formats import NerFormat, TaggedFormat
from domainbert.labelled.read import read_labelled
from domainbert.labelled.sets import LabelledFile, open_dataset, read_set
from domainbert.settings.facts import hashes_of_inputs
from domainbert.settings.reader import Settings, read_settings
from domainbert.settings.yaml_files import to_node
from domainbert.stages.check import check
from domainbert.stages.finetune import Finetune
from domainbert.tasks.classification.config import Classification, ClassificationFormat
from domainbert.tasks.config import TaskConfig
from domainbert.tasks.multi_label.config import MultiLabel
from domainbert.tasks.ner.config import Ner
from domainbert.tasks.parsing.config import Parsing
from domainbert.tasks.question_answering.config import QuestionAnswering
from domainbert.tasks.regression.config import Regression
from domainbert.tasks.relations.config import Relations
from domainbert.tasks.token_labels.config import TokenLabels
from tests.refusals import fact_rows, refused

PAGE = Path(__file__).parents[2] / "docs/reference/labelled-files.md"
TEXT = Value("string")
UP_DOWN = ClassLabel(names=["up", "down"])
TAGS = ClassLabel(names=["O", "B-gene", "I-gene"])
ROWS = [{"text": "Prices rose.", "label": 0}, {"text": "Prices fell.", "label": 1}, {"text": "Wages rose.", "label": 0}]
CLASSES = Dataset.from_list(ROWS, features=Features({"text": TEXT, "label": UP_DOWN}))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """`datasets` opens a local folder by the same call as a data set of the hub, without the network."""
    folder = tmp_path / "hub"
    for config, words in {"news": ("rose", "fell"), "tweets": ("up", "down")}.items():
        for split, count in {"train": 2, "test": 1}.items():
            rows = [{"text": f"{split} {word}", "label": word} for word in words[:count]]
            (folder / config).mkdir(parents=True, exist_ok=True)
            (folder / config / f"{split}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    configs = [f"- config_name: {config}\n  data_dir: {config}" for config in ("news", "tweets")]
    (folder / "README.md").write_text("---\nconfigs:\n" + "\n".join(configs) + "\n---\n")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return "hub:hub"


def classes(items: Any) -> list[tuple[str, str, int]]:
    return [(item.text, item.label, item.line) for item in items.items]


NAMED = [("Prices rose.", "up", 1), ("Prices fell.", "down", 2), ("Wages rose.", "up", 3)]

SETS: list[tuple[TaskConfig, Features, list[dict[str, Any]], dict[str, Any]]] = [
    (
        Classification(),
        Features({"text": TEXT, "label": UP_DOWN}),
        [{"text": "rose", "label": 0}, {"text": "fell", "label": 1}],
        {"label": ["up", "down"]},
    ),
    (
        Classification(ClassificationFormat(text_key="premise", text_pair_key="hypothesis", slice_keys=("year",))),
        Features({"premise": TEXT, "hypothesis": TEXT, "year": Value("int32"), "label": UP_DOWN}),
        [{"premise": "a", "hypothesis": "b", "year": 1999, "label": 1}],
        {"label": ["down"]},
    ),
    (
        MultiLabel(),
        Features({"text": TEXT, "labels": List(UP_DOWN)}),
        [{"text": "both", "labels": [0, 1]}, {"text": "none", "labels": []}],
        {"labels": [["up", "down"], []]},
    ),
    (
        Regression(),
        Features({"text": TEXT, "label": Value("float32")}),
        [{"text": "half", "label": 0.5}, {"text": "one", "label": 1.0}],
        {},
    ),
    (
        Ner(),
        Features({"tokens": List(TEXT), "pos_tags": List(TAGS), "ner_tags": List(TAGS)}),
        [{"tokens": ["the", "BRCA", "1"], "pos_tags": [0, 0, 0], "ner_tags": [0, 1, 2]}],
        {"ner_tags": [["O", "B-gene", "I-gene"]]},
    ),
    (
        Ner(),
        Features({"text": TEXT, "entities": List({"start": Value("int32"), "end": Value("int32"), "label": UP_DOWN})}),
        [{"text": "it went up", "entities": [{"start": 8, "end": 10, "label": 0}]}, {"text": "no", "entities": []}],
        {"entities": [[{"start": 8, "end": 10, "label": "up"}], []]},
    ),
    (
        TokenLabels(format=TaggedFormat(tag_column="upos")),
        Features({"tokens": List(TEXT), "upos": List(ClassLabel(names=["NOUN", "VERB"]))}),
        [{"tokens": ["prices", "rose"], "upos": [0, 1]}],
        {"upos": [["NOUN", "VERB"]]},
    ),
    (
        Relations(),
        Features({"text": TEXT, "label": UP_DOWN}),
        [{"text": "<<rates>> move [[prices]]", "label": 1}],
        {"label": ["down"]},
    ),
    (
        QuestionAnswering(),
        Features(
            {
                "id": TEXT,
                "question": TEXT,
                "context": TEXT,
                "answers": {"text": List(TEXT), "answer_start": List(Value("int32"))},
            }
        ),
        [{"id": "q", "question": "who?", "context": "Ada did", "answers": {"text": ["Ada"], "answer_start": [0]}}],
        {},
    ),
]


@pytest.mark.parametrize(("task", "features", "rows", "named"), SETS, ids=lambda one: type(one).__name__)
def test_rows_of_a_data_set_are_those_of_jsonl_with_names(
    task: TaskConfig, features: Features, rows: list[dict[str, Any]], named: dict[str, Any]
) -> None:
    written = [{**row, **{key: values[number] for key, values in named.items()}} for number, row in enumerate(rows)]
    Path("rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in written))
    expected = read_labelled(task, "rows.jsonl")
    dataset = Dataset.from_list(rows, features=features)
    dataset.save_to_disk("saved")
    assert len(expected.items) == len(rows)
    for source in (dataset, dataset.to_iterable_dataset(), written, iter(written), Path("saved"), "saved"):
        found = read_labelled(task, source)
        assert found.items == expected.items
        assert [found.location(number) for number in range(len(rows))] == [
            f"{found.path}:{n}" for n in range(1, len(rows) + 1)
        ]
    assert "JSONL" in expected.describe() and "JSONL" not in found.describe() and "rows" in found.describe()


def test_a_list_of_rows_may_hold_arrays_tuples_and_numbers_of_numpy() -> None:
    rows = [{"tokens": ("a", "b"), "tags": np.array(["O", "B-x"])}]
    assert read_labelled(Ner(), rows).items[0].tags == ["O", "B-x"]
    format = NerFormat(label_names=("O", "B-x"))
    assert read_labelled(Ner(format=format), [{"tokens": ["a", "b"], "tags": np.array([0, 1])}]).items[0].tags == [
        "O",
        "B-x",
    ]
    found = read_labelled(Classification(), [{"text": "a", "label": np.int64(1)}, {"text": "b", "label": np.int64(0)}])
    assert classes(found) == [("a", "1", 1), ("b", "0", 2)] and found.nameless


def test_a_pandas_table_comes_by_way_of_datasets() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"text": ["a", "b"], "label": ["up", None]})
    with refused(where="rows", found="DataFrame", expected="a path, hub:NAME, a datasets.Dataset..."):
        read_labelled(Classification(), table)
    with refused(file="train", line=2, problem="'label' is null", expected="a string or whole number..."):
        read_labelled(Classification(), Dataset.from_pandas(table), name="train")
    assert classes(read_labelled(Classification(), Dataset.from_pandas(table[:1]))) == [("a", "up", 1)]


@pytest.mark.parametrize(
    ("task", "rows", "line", "problem", "expected"),
    [
        (Classification(), [{"text": "a", "label": "x"}, {"text": "b"}], 2, "no key 'label'; found 'text'...", "..."),
        (Classification(), [{"text": "a", "label": "x"}, ["b"]], 2, "found list", "a mapping of columns to values"),
        (Classification(), [{"text": "a", "label": {1}}], 1, "'label' is \"a set\"", "a string or whole number"),
        (Classification(), [], "", "no texts", "at least one row with 'text' and 'label'"),
        (Ner(), [], "", "no sentences", "words with tags"),
        (Ner(), [{"tokens": ["a"], "tags": ["O", "O"]}], 1, "'tokens' has length 1, but 'tags' has length 2", "..."),
        (
            Ner(NerFormat(scheme="IOB2")),
            [{"tokens": ["a"], "tags": ["I-x"]}],
            1,
            "I-x begins the sentence, which IOB2 forbids",
            "B-x...",
        ),
        (
            Ner(),
            [{"text": "abc", "entities": [{"start": 0, "end": 2, "label": "x"}]}],
            1,
            "'ab' (0-2) is not at word boundaries",
            "...",
        ),
        (QuestionAnswering(), [{"question": "a"}], 1, "no key 'answers'", "..."),
        (Parsing(), [{"tokens": ["a"]}], "", "found rows", "the path of a treebank in CoNLL-U or CoNLL-X..."),
    ],
)
def test_errors_name_the_row(task: TaskConfig, rows: Any, line: int | str, problem: str, expected: str) -> None:
    with refused(file="rows", line=line, problem=problem, expected=expected):
        read_labelled(task, rows)


@pytest.mark.parametrize("rows", [5, {"text": ["a"]}])
def test_what_has_no_rows_is_refused_by_its_type(rows: Any) -> None:
    expected = "a path, hub:NAME, a datasets.Dataset or a list of rows"
    with refused(where="rows", found=type(rows).__name__, expected=expected):
        read_labelled(Classification(), rows)


def test_a_class_of_minus_one_is_no_label() -> None:
    rows = [{"text": "a", "label": 0}, {"text": "b", "label": -1}]
    dataset = Dataset.from_list(rows, features=Features({"text": TEXT, "label": UP_DOWN}))
    with refused(file="test", line=2, problem="'label' is null", expected="a string or whole number..."):
        read_labelled(Classification(), dataset, name="test")


def test_of_several_splits_one_has_to_be_named() -> None:
    both = DatasetDict({"train": CLASSES, "test": CLASSES.select([1])})
    with refused(where="rows", found="several splits", expected="hub_split to be one of 'train', 'test'..."):
        read_labelled(Classification(), both)
    with refused(where="rows", found="no split 'dev'", expected="hub_split to be one of ..."):
        read_labelled(Classification(), both, hub_split="dev")
    assert classes(read_labelled(Classification(), both, hub_split="test")) == [("Prices fell.", "down", 1)]
    assert classes(read_labelled(Classification(), DatasetDict({"train": CLASSES}))) == NAMED
    both.save_to_disk("saved")
    with refused(where="saved", found="several splits", expected="hub_split to be one of 'train', 'test'..."):
        read_labelled(Classification(), "saved")
    for source in ("saved/train", LabelledFile(Path("saved"), hub_split="train")):
        assert classes(read_labelled(Classification(), source)) == NAMED
    assert len(read_labelled(Classification(), ["saved/train", "saved/test"]).items) == 4


def test_a_formatted_or_filtered_data_set_is_read_as_it_is() -> None:
    chosen = CLASSES.filter(lambda row: row["label"] == 0).with_format("numpy")
    assert classes(read_labelled(Classification(), chosen)) == [("Prices rose.", "up", 1), ("Wages rose.", "up", 2)]


def test_a_data_set_of_the_hub(hub: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = read_labelled(Classification(), hub, hub_config="news", hub_split="train")
    assert classes(found) == [("train rose", "rose", 1), ("train fell", "fell", 2)]
    assert found.describe() == "hub:hub: 2 texts; rows; 2 classes (fell 1, rose 1)"
    with refused(file="hub:hub", problem="the data set cannot be read: Config name is missing..."):
        read_labelled(Classification(), hub)
    with refused(where="hub:hub", found="several splits", expected="hub_split to be one of 'train', 'test'..."):
        read_labelled(Classification(), hub, hub_config="news")
    with refused(file="hub:hub/absent", problem="the data set cannot be read: ..."):
        read_labelled(Classification(), "hub:hub/absent")
    with refused(where="hub:../secret", problem="not a valid name on the Hugging Face hub"):
        read_labelled(Classification(), "hub:../secret")
    calls = []
    monkeypatch.setattr(datasets, "load_dataset", lambda *names, **rest: calls.append((names, rest)) or CLASSES)
    assert classes(read_labelled(Classification(), "hub:me/data@v1")) == NAMED
    assert calls == [(("me/data", None), {"revision": "v1"})]


def test_slices_of_a_data_set(hub: str) -> None:
    task = Classification(ClassificationFormat(slice_keys=("source",)))
    files = [
        LabelledFile(Path(hub), hub_config=one, hub_split="train", slices={"source": one}) for one in ("news", "tweets")
    ]
    found = read_set(task, files)
    assert [(item.label, item.slices["source"]) for item in found.items] == [
        ("rose", "news"),
        ("fell", "news"),
        ("up", "tweets"),
        ("down", "tweets"),
    ]
    with refused(file="hub:hub", problem="task 'ner' reads no `label` or `slices`", expected="only `path`"):
        read_labelled(Ner(), files[0])


def settings_of(values: dict[str, Any]) -> tuple[Settings, list[Any]]:
    problems = Problems("finetune")
    given = {"task": {"class_path": "Classification"}, "model": "model", **values}
    return read_settings(Finetune, to_node(given, "finetune"), problems), fact_rows(problems.errors)


def test_settings_of_a_stage_name_data_sets(hub: str) -> None:
    Path("model").mkdir()
    CLASSES.save_to_disk("saved")
    given = {"train": {"path": hub, "hub_config": "news", "hub_split": "train"}, "validation": "saved"}
    found, problems = settings_of(given)
    assert problems == []
    assert found.instance.train == LabelledFile(Path(hub), hub_config="news", hub_split="train")
    assert read_set(found.instance.task, found.instance.train).items[1].label == "fell"
    assert classes(read_set(found.instance.task, found.instance.validation)) == NAMED
    assert found.inputs == [Path("model"), Path("saved")]
    assert found.plain["train"] == {
        "path": "hub:hub",
        "text": None,
        "label": None,
        "slices": {},
        "hub_config": "news",
        "hub_split": "train",
    }
    found, _ = settings_of({**given, "train": hub})
    assert found.plain["train"] == "hub:hub"
    hashes = []
    for rows in (CLASSES, CLASSES.select([0])):
        Path("saved").rename(f"saved-{len(hashes)}")
        rows.save_to_disk("saved")
        hashes.append(hashes_of_inputs(found, FileHashes())["saved"])
    assert hashes[0] != hashes[1]


@pytest.mark.parametrize(
    ("train", "where", "problem"),
    [
        ("hub:../a", "train: hub:../a", "not a valid name on the Hugging Face hub"),
        ("me/data", "train", "'me/data' does not exist"),
        ({"path": "rows.jsonl", "hub_config": "a"}, "train.hub_config", "found 'a' for rows.jsonl"),
    ],
)
def test_settings_that_name_no_data_set(train: Any, where: str, problem: str) -> None:
    Path("rows.jsonl").write_text('{"text": "a", "label": "x"}\n')
    Path("model").mkdir()
    _, problems = settings_of({"train": train, "validation": "rows.jsonl"})
    assert [row[1:3] for row in problems] == [(f"finetune: {where}", problem)]


def test_a_split_beside_a_file_is_refused() -> None:
    Path("rows.jsonl").write_text('{"text": "a", "label": "x"}\n')
    with refused(file="rows.jsonl", where="hub_split", found="'train' for a file", expected="it only for..."):
        read_labelled(Classification(), "rows.jsonl", hub_split="train")


def test_folds_of_a_data_set_are_jsonl_with_names() -> None:
    rows = [{"text": f"text {number}", "label": number % 2} for number in range(8)]
    Dataset.from_list(rows, features=CLASSES.features).save_to_disk("saved")
    folds = split_folds(Path("saved"), Classification(), 2, seed=0)
    for fold in folds:
        parts = [[json.loads(line) for line in one.splitlines()] for one in (fold.train[0], fold.validation[0])]
        assert [len(part) for part in parts] == [4, 4]
        assert all(row["label"] == ("up", "down")[int(row["text"][-1]) % 2] for part in parts for row in part)
    assert sorted(folds[0].train[0].splitlines()) == sorted(folds[1].validation[0].splitlines())


def test_folds_of_a_split_are_files_that_each_task_reads() -> None:
    rows = [{"tokens": [f"word{number}", "gene"], "tags": [0, 1]} for number in range(8)]
    dataset = Dataset.from_list(rows, features=Features({"tokens": List(TEXT), "tags": List(TAGS)}))
    DatasetDict({"train": dataset, "test": dataset}).save_to_disk("saved")
    train = LabelledFile(Path("saved"), hub_split="train")
    changes = write_folds(split_folds(train, Ner(), 2, seed=0), train, Path("folds"))
    assert changes["fold-1"]["train"] == {"path": "folds/fold-1/train", "slices": {}}
    words: list[list[str]] = []
    for fold in changes.values():
        parts = {name: read_set(Ner(), LabelledFile(Path(value["path"]))).items for name, value in fold.items()}
        assert [len(part) for part in parts.values()] == [4, 4]
        assert all(item.tags == ["O", "B-gene"] for part in parts.values() for item in part)
        words += [item.words for item in parts["validation"]]
    assert sorted(words) == [row["tokens"] for row in rows]
    Path("tree.conllu").write_text("1\tA\t_\tX\t_\t_\t0\troot\t_\t_\n\n")
    assert read_labelled(Parsing(), LabelledFile(Path("tree.conllu"))).items[0].words == ["A"]


def test_a_stage_reads_a_data_set(tmp_path: Path) -> None:
    DatasetDict({"train": CLASSES, "test": CLASSES.select([1])}).save_to_disk("saved")
    found = check(
        tmp_path / "out",
        task=Classification(),
        labelled={"train": Path("saved/train"), "test": LabelledFile(Path("saved"), hub_split="test")},
    )
    assert found["errors"] == []
    report = json.loads((tmp_path / "out/check.json").read_text())
    rare = next(one for one in report["findings"] if one["rule"] == "rare-label")
    place = {"path": "saved/train", "line": 2, "text": "Prices fell."}
    assert "'down' 1, 'up' 2" in rare["message"] and rare["places"][0] == place


def test_the_block_of_the_page_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(block, str(PAGE), "exec"), {})
    assert capsys.readouterr().out.strip() == block.rpartition("# ")[2].strip() == "[('rise', 1), ('fall', 2)]"


def test_rows_are_read_anew_and_copied() -> None:
    rows = [{"text": "a", "label": 1.0}]
    source = Rows("rows", rows)
    for _ in range(2):
        found = read_labelled(Classification(), source)
        assert classes(found) == [("a", "1", 1)]
        assert found.notes.changed == {"labels such as 1.0, read as 1": 1}
    assert rows == [{"text": "a", "label": 1.0}]


@pytest.mark.parametrize("name", ["dataset_info.json", "state.json", "data-00000-of-00001.arrow", "train/state.json"])
def test_a_pipe_in_a_saved_set_is_refused(tmp_path: Path, name: str) -> None:
    saved = DatasetDict({"train": CLASSES}) if "/" in name else CLASSES
    saved.save_to_disk(tmp_path / "saved")
    (tmp_path / "saved" / name).unlink()
    os.mkfifo(tmp_path / "saved" / name)
    with refused(file=f"saved/{name}", problem="is a pipe", expected="a regular file"):
        open_dataset(LabelledFile(tmp_path / "saved"))
