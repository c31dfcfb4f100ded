"""Pairs of texts: reading, windows, refusals, and the same numbers as transformers."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from domainbert.data.packing import collate
from domainbert.distillation.teachers import load_teachers
from domainbert.labelled.contents import TextPair
from domainbert.labelled.folds import split_folds
from domainbert.labelled.rows import read_words_or_texts
from domainbert.models.saving import save_model
from domainbert.serving.predictor import load_predictor
from domainbert.stages.early_checks import StageArguments
from domainbert.stages.evaluate import check_arguments
from domainbert.stages.export import export
from domainbert.tasks.classification.config import Classification, ClassificationFormat
from domainbert.tasks.classification.files import read as read_classification
from domainbert.tasks.classification.task import ClassificationTask
from domainbert.tasks.config import TASK_KEY
from domainbert.tasks.multi_label.config import MultiLabel, MultiLabelFormat
from domainbert.tasks.multi_label.files import read as read_multi_label
from domainbert.tasks.multi_label.task import MultiLabelTask
from domainbert.tasks.regression.config import Regression, RegressionFormat
from domainbert.tasks.regression.files import read as read_numbers
from domainbert.tasks.task import encode_file, task_from_training_set
from domainbert.tokenization.load import DomainTokenizer, load_tokenizer
from tests.refusals import refused
from tests.tasks.tiny_folders import FAMILIES, PAIRS, Folders, tiny_model

FORMAT = ClassificationFormat(text_pair_key="text_pair")
PAIRED = [{"text": "a b", "text_pair": "c d e", "label": "yes"}, {"text": "é", "text_pair": "f", "label": "no"}]
LABELS = ("no", "yes")


def jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def pair_task(key: str = "text_pair") -> ClassificationTask:
    task = ClassificationTask(LABELS)
    task.pair_key = key
    return task


def test_files_of_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = read_classification(Classification(format=FORMAT), jsonl(tmp_path / "a.jsonl", PAIRED))
    assert file.contents == [TextPair("a b", "c d e"), TextPair("é", "f")]
    assert (file.unit, file.items[0].label) == ("pairs of texts", "yes")
    assert file.describe().endswith("a.jsonl: 2 pairs of texts; JSONL; 2 classes (no 1, yes 1)")
    assert file.items[1].as_row == {"text": "é", "text_pair": "f"}
    (tmp_path / "b.csv").write_text('premise,hypothesis,topics\n"a, b",c,x;y\nd,e,\nf,g,y;x\n')
    format = MultiLabelFormat(text_key="premise", text_pair_key="hypothesis", label_key="topics")
    several = read_multi_label(MultiLabel(format=format), tmp_path / "b.csv")
    assert [(one.content, one.labels) for one in several.items] == [
        (TextPair("a, b", "c"), ("x", "y")),
        (TextPair("d", "e"), ()),
        (TextPair("f", "g"), ("y", "x")),
    ]
    (tmp_path / "c.tsv").write_text("text\ttext_pair\tscore\na\tb\t2.5\nc\td\t-1e1\n")
    numbers = read_numbers(
        Regression(format=RegressionFormat(text_pair_key="text_pair", label_key="score")), tmp_path / "c.tsv"
    )
    assert [(one.content, one.number) for one in numbers.items] == [
        (TextPair("a", "b"), 2.5),
        (TextPair("c", "d"), -10),
    ]
    assert read_words_or_texts(tmp_path / "a.jsonl") == ["a b", "c d e", "é", "f"]
    folds = split_folds(tmp_path / "b.csv", MultiLabel(format), 2, 0)
    assert all(fold.train[0].startswith("premise,hypothesis,topics\n") for fold in folds)


@pytest.mark.parametrize(
    ("rows", "line", "problem", "expected"),
    [
        ([{"text": "a", "label": "yes"}], 1, "no key 'text_pair'; found 'text', 'label'...", "..."),
        ([*PAIRED, {"text": "a", "text_pair": " ", "label": "no"}], 3, "'text_pair' is empty", "..."),
        ([{"text": "a", "text_pair": ["b"], "label": "no"}], 1, "'text_pair' is a JSON list", "a..."),
        ([], "", "no texts", "at least one row with 'text' and 'text_pair' and 'label'"),
    ],
)
def test_what_is_no_pair_is_named(
    tmp_path: Path, rows: list[Any], line: int | str, problem: str, expected: str
) -> None:
    with refused(file="a.jsonl", line=line, problem=problem, expected=expected):
        read_classification(
            Classification(format=ClassificationFormat(text_pair_key="text_pair", kind="jsonl")),
            jsonl(tmp_path / "a.jsonl", rows),
        )


def test_keys_are_different() -> None:
    with refused(where="text_pair_key", found="'text', as for text_key"):
        ClassificationFormat(text_pair_key="text")
    with refused(where="label_key", found="'text', as for text_key"):
        RegressionFormat(label_key="text")
    with refused(where="text_pair_key", found="'b', as for label_key"):
        ClassificationFormat(text_pair_key="b", label_key="b")


def test_windows_over_the_second_text_alone(tokenizer: DomainTokenizer) -> None:
    first, second = "a b", " ".join("abcdefgh" * 2)
    (example,) = pair_task().encode_contents([TextPair(first, second)], tokenizer, 10)
    ids = dict(zip("abcdefgh", range(11, 19), strict=True))
    assert tokenizer.encode(["a h"]) == [[ids["a"], ids["h"]]]
    assert example.num_outputs == 1 and [len(one.input_ids) for one in example.windows] == [5] * len(example.windows)
    for window in example.windows:
        assert window.first is not None and window.first.tolist() == [ids["a"], ids["b"]]
        assert (window.num_tokens, window.positions.tolist()) == (10, [-1])
    read = [window.input_ids.tolist() for window in example.windows]
    whole = [ids[letter] for letter in "abcdefgh" * 2]
    assert read[0] == whole[:5] and read[-1] == whole[-5:]
    assert all(one[2:] == other[:3] for one, other in itertools.pairwise(read[:-1])), "half of a window on"
    batch = collate([example], [0], tokenizer)
    row = [tokenizer.cls_id, ids["a"], ids["b"], tokenizer.sep_id, *read[0], tokenizer.sep_id]
    assert batch["input_ids"].flatten()[:10].tolist() == row
    assert batch["token_type_ids"].flatten()[:10].tolist() == [0] * 4 + [1] * 6
    assert batch["example"].tolist() == [0] * len(read)


def test_what_fits_is_one_window_however_long_the_first_text_is(tokenizer: DomainTokenizer) -> None:
    (example,) = pair_task().encode_contents([TextPair("a b c d e f", "g")], tokenizer, 10)
    assert len(example.windows) == 1 and example.num_tokens == 10


def test_a_first_text_that_leaves_too_little_room_is_told_with_its_line(
    tmp_path: Path, tokenizer: DomainTokenizer
) -> None:
    rows = [*PAIRED, {"text": "a b c d", "text_pair": "e f g h", "label": "no"}]
    file = read_classification(Classification(format=FORMAT), jsonl(tmp_path / "a.jsonl", rows))
    task = task_from_training_set(Classification(FORMAT), file)
    assert len(encode_file(task, file, tokenizer, 11)) == 3
    with refused(
        file="a.jsonl",
        line=3,
        problem="the first text of this pair has 4 tokens, the second 4",
        expected="a first text of at most 3 tokens, half of the room in a window (max_length), or a larger max_length",
    ):
        encode_file(task, file, tokenizer, 10)
    with refused(where="max_length", found="3", expected="more than the 3 special tokens of a text"):
        encode_file(task, file, tokenizer, 3)


def test_single_texts_and_pairs_are_not_taken_for_each_other(tokenizer: DomainTokenizer) -> None:
    pairs, singles = pair_task("other"), ClassificationTask(LABELS)
    assert pairs.inputs.content_of(pairs, {"text": "a", "other": "b"}, "text") == TextPair("a", "b")
    assert singles.inputs.content_of(singles, {"text": "a", "other": "b"}, "text") == "a"
    with refused(problem="no string under 'other'", expected="the second text, as the model reads..."):
        pairs.inputs.content_of(pairs, {"text": "a"}, "text")
    with refused(problem="a second text under 'text_pair'", expected="none, as the model reads single..."):
        singles.inputs.content_of(singles, {"text": "a", "text_pair": "b"}, "text")
    with refused(where="text 2", found="a single text", expected="pairs of texts for this model"):
        pairs.encode_contents([TextPair("a", "b"), "a"], tokenizer, 10)
    with refused(where="text 1", found="a pair of texts", expected="single texts for this model (and 1 more..."):
        singles.encode_contents([TextPair("a", "b")] * 2, tokenizer, 10)


def test_the_folder_says_what_its_model_reads(tokenizer: DomainTokenizer) -> None:
    facts = pair_task("b").model_config_fields({})
    assert facts == {"domainbert_text_pair_key": "b"} and ClassificationTask(LABELS).model_config_fields({}) == {}
    ours = {TASK_KEY: "classification"}
    assert ClassificationTask.inputs.kinds(ClassificationTask.from_model_folder(LABELS, ours | facts)) == (
        "pairs of texts",
    )
    assert ClassificationTask.inputs.kinds(ClassificationTask.from_model_folder(LABELS, ours)) == ("single texts",)
    several = MultiLabelTask.from_model_folder(LABELS, {**ours, **facts, "domainbert_threshold": 0.25})
    assert (several.pair_key, several.threshold) == ("b", 0.25)
    with refused(where="domainbert_text_pair_key", found="3", expected="text or null"):
        ClassificationTask.from_model_folder(LABELS, {"domainbert_text_pair_key": 3})
    foreign = ClassificationTask.from_model_folder(LABELS, {})
    assert foreign.inputs.content_of(foreign, {"text": "a", "text_pair": "b"}, "text") == TextPair("a", "b")
    lengths = [one.num_tokens for one in foreign.encode_contents([TextPair("a", "b"), "a", ["b", "c"]], tokenizer, 10)]
    assert lengths == [5, 3, 4], "of a folder from elsewhere nobody knows"


def test_a_tokenizer_that_frames_no_pairs_is_refused_early(tmp_path: Path, vocabularies: Folders) -> None:
    fields = json.loads((vocabularies("bert") / "tokenizer.json").read_text())
    fields["post_processor"]["pair"] = [{"Sequence": {"id": name, "type_id": 0}} for name in "AB"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(fields))
    for task in (Classification(), Classification(FORMAT)):
        given = StageArguments({"model": tmp_path, "task": task})
        given.check_pairs("model")
        assert len(given.problems) == task.reads_pairs
        for _, error in given.problems:
            assert error.problem.endswith("has no template for pairs") and error.expected == "another tokenizer"
    given = StageArguments({"model": vocabularies("bert"), "task": Classification(FORMAT)})
    given.check_pairs("model")
    assert given.problems == []


@pytest.mark.parametrize("family", FAMILIES)
def test_pairs_are_read_as_transformers_reads_them(family: str, vocabularies: Folders, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model, made = tiny_model(family, vocabularies, 2)
    facts = {TASK_KEY: "classification", **pair_task().model_config_fields({})}
    save_model(tmp_path, model, FAMILIES[family][1], made, "sequence", "", LABELS, 64, facts=facts)
    tokenizer, theirs = load_tokenizer(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    predictor = load_predictor(tmp_path, "32-true")
    examples = predictor.task.encode_contents(PAIRS, tokenizer, 64)
    hugging_face, loading = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not loading["missing_keys"] and not loading["unexpected_keys"]
    for pair, example, found in zip(PAIRS, examples, predictor.predict(PAIRS), strict=True):
        encoded = theirs(pair.first, pair.second)
        batch, length = collate([example], [0], tokenizer), example.num_tokens
        assert len(example.windows) == 1 and encoded["input_ids"] == batch["input_ids"][0, :length].tolist()
        if "token_type_ids" in encoded:
            assert encoded["token_type_ids"] == batch["token_type_ids"][0, :length].tolist()
        with torch.inference_mode():
            logits = hugging_face.eval()(**theirs(pair.first, pair.second, return_tensors="pt")).logits[0]
        np.testing.assert_allclose(list(found.scores.values()), torch.softmax(logits, -1).numpy(), atol=1e-5)
    assert ("token_type_ids" in encoded) == (family in ("bert", "deberta-v2"))


def test_windows_of_a_pair_are_averaged(vocabularies: Folders, tmp_path: Path) -> None:
    model, made = tiny_model("bert", vocabularies, 2)
    facts = {TASK_KEY: "classification", **pair_task().model_config_fields({})}
    save_model(tmp_path, model, FAMILIES["bert"][1], made, "sequence", "", LABELS, 48, facts=facts)
    predictor = load_predictor(tmp_path, "32-true", max_length=30)
    long = TextPair("café rates", " ".join(pair.second for pair in PAIRS))
    (example,) = predictor.task.encode_contents([long], predictor.tokenizer, 30)
    assert len(example.windows) > 3
    ((_, logits),) = predictor.runtime.logits([example])
    (found,) = predictor.predict([long])
    wanted = torch.softmax(logits.mean(dim=0), -1).tolist()
    assert list(found.scores.values()) == pytest.approx(wanted, abs=1e-6)
    assert logits.std(dim=0).max() > 1e-3, "windows differ"


def test_a_teacher_of_single_texts_teaches_no_pairs(vocabularies: Folders, tmp_path: Path) -> None:
    model, tokenizer = tiny_model("bert", vocabularies, 2)
    facts = {TASK_KEY: "classification"}
    save_model(tmp_path, model, FAMILIES["bert"][1], tokenizer, "sequence", "", LABELS, 48, facts=facts)
    assert load_teachers([tmp_path], ClassificationTask(LABELS), "32-true", None, 4).default_max_length == 48
    with refused(problem="...reads single texts", expected="a model that reads pairs of texts"):
        load_teachers([tmp_path], pair_task(), "32-true", None, 4)


def test_a_test_set_of_other_things_than_training_is_told_early() -> None:
    training = StageArguments({"task": Classification(FORMAT), "model": Path("model"), "train": None})
    arguments = {"models": {"a": Path("run/a")}, "task": Classification(), "test": Path("run/test"), "train": None}
    given = StageArguments(arguments, {"run/a": training, "run/test": training})
    check_arguments(given)
    ((key, error),) = given.problems
    assert (key, str(error)) == ("task", "reads single texts, unlike models.a; set format.text_pair_key")


def test_an_export_names_what_its_model_does_not_read(vocabularies: Folders, tmp_path: Path) -> None:
    """With its line, and before the file is made: the check is read as single texts unless `task` says otherwise."""
    pytest.importorskip("onnxscript")
    model, tokenizer = tiny_model("bert", vocabularies, 2)
    facts = {TASK_KEY: "classification", **pair_task().model_config_fields({})}
    save_model(tmp_path / "model", model, FAMILIES["bert"][1], tokenizer, "sequence", "", LABELS, 48, facts=facts)
    check = jsonl(tmp_path / "check.jsonl", [{"text": "a b", "label": label} for label in LABELS])
    (tmp_path / "out").mkdir()
    with refused(file="check.jsonl", line=1, found="a single text", expected="pairs of texts..."):
        export(tmp_path / "out", model=tmp_path / "model", check=check)
    assert list((tmp_path / "out").iterdir()) == []
