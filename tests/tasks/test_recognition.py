"""The task that a labelled file is for, by its beginning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from domainbert.labelled.file_sample import read_sample
from domainbert.labelled.formats import NerFormat
from domainbert.labelled.sets import LabelledFile, Single
from domainbert.tasks.config import DetectedTask
from domainbert.tasks.ner.config import Ner
from domainbert.tasks.recognition import detect_task
from tests.refusals import refused
from tests.samples.task_data import write_task_data

CLASSES = [("Prices fell in Zürich 🍰.", "down"), ("Nothing œ at all œ changed.", "none")]


def detect(file: Single, task: str | None = None, **options: str) -> DetectedTask:
    return detect_task(read_sample(file, options), task)


def jsonl(path: Path, *rows: dict[str, Any], times: int = 10) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows) * times, encoding="utf-8")
    return path


def labelled(path: Path, key: str, *labels: Any) -> Path:
    return jsonl(path, *({"text": f"Prices fell by {number} %.", key: one} for number, one in enumerate(labels)))


def columns(path: Path, *rows: str) -> Path:
    path.write_text(("".join(f"{row}\n" for row in rows) + "\n") * 5, encoding="utf-8")
    return path


def same_file_is_read(found: DetectedTask, file: Path) -> int:
    """The items that the task reads with the keys that were found."""
    return len(found.task.read(file).items)


KINDS = {
    "ner": ("Ner", ("TokenLabels",)),
    "classification": ("Classification", ()),
    "relations": ("Relations", ("Classification",)),
    "pairs": ("Classification", ()),
    "questions": ("QuestionAnswering", ()),
    "token_labels": ("TokenLabels", ("Ner",)),
    "trees": ("Parsing", ()),
}


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from domainbert.stages.sample import sample

    out = tmp_path_factory.mktemp("sample")
    sizes = ("train_sentences", "validation_sentences", "test_sentences", "train_texts", "validation_texts")
    sample(out=out, corpus_documents=5, test_texts=20, **dict.fromkeys(sizes, 60))
    items = dict.fromkeys(("train", "validation", "test"), 60)
    write_task_data(out, 0, items, items)
    return out


@pytest.mark.parametrize("kind", KINDS)
def test_each_set_of_the_sample_is_told_and_read(sample, kind):
    (file,) = (sample / kind).glob("train.*")
    found = detect(file)
    assert (type(found.task).__name__, found.others) == KINDS[kind]
    assert found.task.reads_pairs == (kind in ("pairs", "questions"))
    assert same_file_is_read(found, file) >= 60


def test_names_and_numbers(tmp_path):
    file = tmp_path / "a.jsonl"

    def kind(*labels: Any) -> str:
        return type(detect(labelled(file, "label", *labels)).task).__name__

    assert kind("up", "down") == "Classification"
    assert kind(0, 1, 2) == "Classification"
    assert kind(0.5, 3, 4.25) == "Regression"
    assert kind(*range(1950, 2000)) == "Regression", "years are no classes"
    assert kind(["a", "b"], [], ["b"]) == "MultiLabel"
    assert kind(0.0, 1.0) == kind("0.0", "1.0") == "Classification"
    both = "Classification or Regression (Classification: texts under 'text', 3 ...numbers from 1 to 5 under 'label')"
    with refused(file=file, problem=f"may be for {both}", expected="--task Classification or --task Regression"):
        detect(labelled(file, "label", 1.0, 2, 5))
    assert type(detect(file, "Regression").task).__name__ == "Regression"
    assert type(detect(file, "classification").task).__name__ == "Classification"


def test_a_text_that_may_stand_in_two_places_is_asked_for(tmp_path):
    file = jsonl(
        tmp_path / "a.jsonl",
        {"title": "On prices in towns", "abstract": "They fell, and that was all.", "stance": "dovish", "year": 2010},
        {"title": "On the labour of children", "abstract": "It rose œ by 9 %.", "stance": "hawkish", "year": 2011},
    )
    expected = "--text_key KEY, and for pairs of texts --text_pair_key KEY"
    with refused(file=file, problem="the text may be under 'title', 'abstract'", expected=expected):
        detect(file)
    found = detect(file, text_key="abstract")
    assert found.reason == "texts under 'abstract', 2 names under 'stance'"
    assert found.task.read(file).items[0].content == "They fell, and that was all."
    pairs = detect(file, text_key="title", text_pair_key="abstract")
    assert pairs.task.reads_pairs and same_file_is_read(pairs, file) == 20
    assert detect(file, text_pair_key="abstract").reason.startswith("texts under 'title' and 'abstract', pairs")
    words = {"premise": "They fell by a third.", "hypothesis": "They rose by a third.", "source": "On prices in towns"}
    pairs = jsonl(tmp_path / "b.jsonl", *({**words, "label": label} for label in ("yes", "no")))
    assert detect(pairs).reason.startswith("texts under 'premise' and 'hypothesis', pairs")
    with refused(problem="the text may be under 'premise', 'hypothesis'", expected="--text_key KEY..."):
        detect(pairs, text_pair_key="source")


def test_a_label_that_may_stand_in_two_places_or_in_none_is_asked_for(tmp_path):
    rows = [{"text": text, "label": label, "topic": "t"} for text, label in CLASSES]
    file = jsonl(tmp_path / "a.jsonl", *rows)
    with refused(file=file, problem="the label may be under 'label', 'topic'", hint="choose one with --label_key KEY"):
        detect(file)
    assert detect(file, label_key="label").reason == "texts under 'text', 2 names under 'label'"
    expected = "texts and labels under two keys, or in columns separated by commas (.csv) or tabs (.tsv)"
    bare = jsonl(tmp_path / "b.jsonl", *({"text": text} for text, _ in CLASSES))
    with refused(file=bare, problem="a single key, 'text'", expected=expected):
        detect(bare)
    partly = jsonl(tmp_path / "e.jsonl", {"text": CLASSES[0][0]}, *rows, times=1)
    assert detect(partly, label_key="label").reason.startswith("texts under 'text', "), "the first row has no label"
    (table := tmp_path / "c.csv").write_text("text|label\na b|up\nc d|down\n")
    with refused(file=table, problem="a single key, 'text|label'", expected=expected):
        detect(table)
    neither = jsonl(tmp_path / "d.jsonl", *({"text": text, "of": {"a": 1}} for text, _ in CLASSES))
    with refused(
        file=neither, problem="no key with labels (found 'text', 'of')", hint="choose one with --label_key KEY"
    ):
        detect(neither)


def test_a_table_without_a_header(tmp_path):
    (short := tmp_path / "a.csv").write_text("b 0,up\nb 1,down\n" * 5)
    hint = "choose one with --text_key KEY, or add a header"
    with refused(file=short, problem="no key with texts (found 'b 0', 'up')", hint=hint):
        detect(short)
    (file := tmp_path / "b.tsv").write_text("They fell by a third.\tup\nThey rose by a third.\tdown\n" * 5)
    problem = "the header names the column of the labels 'up', which is also one of its labels"
    with refused(file=file, line=1, problem=problem, expected="column names first, or --label_key up"):
        detect(file)
    assert detect(file, label_key="up").reason.endswith("2 names under 'up'")


def test_what_an_annotator_answered_is_no_label(tmp_path):
    rows = [{"text": "It fell œ alas.", "mood": "ab"[n % 2], "answer": "accept"} for n in range(20)]
    found = detect(jsonl(tmp_path / "a.jsonl", *rows, {**rows[0], "answer": "reject"}, times=1))
    assert found.reason == "texts under 'text', 2 names under 'mood'"
    found = detect(jsonl(tmp_path / "b.jsonl", *({"text": "Is it so?", "answer": one} for one in ("yes", "no"))))
    assert found.reason == "texts under 'text', 2 names under 'answer'"


def test_unusual_keys_are_found_by_their_values(tmp_path):
    rows = [{"id": f"{n}", "utterance": f"It fell {n} times œ alas.", "mood": "ab"[n % 2]} for n in range(40)]
    file = jsonl(tmp_path / "a.jsonl", *rows, times=1)
    found = detect(file)
    assert found.reason == "texts under 'utterance', 2 names under 'mood'"
    assert [item.label for item in found.task.read(file).items[:3]] == ["a", "b", "a"]


@pytest.mark.parametrize("pair", [("premise", "hypothesis"), ("sentence1", "sentence2"), ("text", "text_pair")])
def test_pairs_are_known_by_the_names_of_their_texts(tmp_path, pair):
    rows = [{pair[0]: "Prices rose.", pair[1]: "They fell.", "label": label} for label in ("yes", "no")]
    file = jsonl(tmp_path / "a.jsonl", *rows)
    found = detect(file)
    assert found.task.reads_pairs and same_file_is_read(found, file) == 20


def test_tables_and_parallel_files(tmp_path):
    table = tmp_path / "a.csv"
    table.write_text("text,label\n" + '"Prices, in Zürich 🍰, fell.",down\nNothing.,none\n' * 9, encoding="utf-8")
    assert same_file_is_read(detect(table), table) == 18
    several = tmp_path / "b.csv"
    several.write_text("text,labels\n" + "Prices fell.,down; trade\nNothing.,\n" * 9, encoding="utf-8")
    found = detect(several)
    assert type(found.task).__name__ == "MultiLabel"
    assert found.task.read(several).items[0].labels == ("down", "trade")
    lists = tmp_path / "d.csv"
    lists.write_text("text,labels\n" + "Prices fell.,\"['down', 'trade']\"\nNothing.,[]\n" * 9, encoding="utf-8")
    assert (type(detect(lists).task).__name__, detect(lists).others) == ("MultiLabel", ())
    assert same_file_is_read(detect(lists), lists) == 18
    numbers = tmp_path / "c.tsv"
    numbers.write_text("sentence1\tsentence2\tscore\n" + "A man.\tA boy.\t3.5\nRain.\tSun.\t0\n" * 5, encoding="utf-8")
    assert [one.number for one in detect(numbers).task.read(numbers).items[:2]] == [3.5, 0]
    (tmp_path / "text").write_text("Prices fell 🍰.\nNothing.\n" * 9, encoding="utf-8")
    (tmp_path / "label").write_text("1\n0\n" * 9, encoding="utf-8")
    both = LabelledFile(text=tmp_path / "text", label=tmp_path / "label")
    assert detect(both).reason == "texts under 'text', 2 whole numbers under 'label'"


def test_semicolons_arrays_and_files_without_quoting(tmp_path):
    rows = [{"text": "Prices fell; é.", "stance": stance} for stance in ("down", "none")] * 9
    array = tmp_path / "a.json"
    array.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    table = tmp_path / "b.csv"
    table.write_text("text;label\n" + '"Prices; fell, é";down\n3,5 %;none\n' * 9, encoding="utf-8")
    plain = tmp_path / "c.tsv"
    plain.write_text("text\tlabel\n" + '"I love it\tpos\né fell\tneg\nHe hates this "\tneg\n' * 9, encoding="utf-8")
    for file, count in ((array, 18), (table, 18), (plain, 27)):
        found = detect(file)
        assert (type(found.task).__name__, same_file_is_read(found, file)) == ("Classification", count)


@pytest.mark.parametrize("kind", ["null", "absent", "empty"])
def test_the_row_without_a_label_is_named_when_it_is_read(tmp_path, kind):
    rows = [{"text": "Prices fell é.", "label": label} for label in ("down", "none")] * 9
    odd = {"null": {"label": None}, "absent": {}, "empty": {"label": ""}}[kind]
    file = jsonl(tmp_path / "a.jsonl", *rows[:3], {"text": "odd"} | odd, *rows, times=1)
    with refused(file=file, line=4):
        detect(file).task.read(file)
    table = tmp_path / "b.csv"
    table.write_text("text,label\na text,1\nanother,0\nodd,\n" + "a text,1\n" * 9)
    with refused(file=table, line=4, problem="'label' is empty"):
        detect(table).task.read(table)


def test_tagged_words_however_they_stand(tmp_path):
    entities = columns(tmp_path / "a.txt", "-DOCSTART- (1)", "", "Zürich NNP B-place", "was VBD O", "🍰 X B-food")
    assert (type(detect(entities).task).__name__, same_file_is_read(detect(entities), entities)) == ("Ner", 5)
    bare = columns(tmp_path / "bare.tsv", "Zürich\tB", "Nord\tI", "was\tO", "🍰\tB")
    assert (type(detect(bare).task).__name__, same_file_is_read(detect(bare), bare)) == ("Ner", 5)
    parts = columns(tmp_path / "b.conll", "Prices\tNNS", "fell\tVBD", "then\tRB", "prices\tNNS")
    found = detect(parts)
    assert (type(found.task).__name__, found.task.outside) == ("TokenLabels", None)
    lists = jsonl(
        tmp_path / "c.jsonl",
        {"words": ["A", "loan"], "ner_tags": [0, 1], "label_names": ["O", "B-x"]},
        {"words": ["Zürich"], "ner_tags": [0]},
        times=1,
    )
    found = detect(lists)
    assert type(found.task).__name__ == "Ner"
    assert [one.tags for one in found.task.read(lists).items] == [["O", "B-x"], ["O"]]


def test_texts_with_entities_and_exports_of_tools(tmp_path):
    row = {"text": "Cash 🍰 helped", "entities": [{"start": 0, "end": 4, "label": "thing"}]}
    lines = jsonl(tmp_path / "a.jsonl", row)
    array = tmp_path / "b.json"
    array.write_text(json.dumps([["Cash 🍰 helped", {"entities": [[0, 4, "thing"]]}]]), encoding="utf-8")
    brat = tmp_path / "brat"
    brat.mkdir()
    (brat / "1.txt").write_text("Cash helped", encoding="utf-8")
    (brat / "1.ann").write_text("T1\tthing 0 4\tCash\n", encoding="utf-8")
    older = jsonl(
        tmp_path / "c.jsonl", {"text": "Cash 🍰 helped", "label": [[0, 4, "thing"]]}, {"text": "No", "label": []}
    )
    assert detect(older).task == detect(older, label_key="label").task == Ner(NerFormat(entity_key="label"))
    for file in (lines, array, brat, older):
        found = detect(file)
        assert type(found.task).__name__ == "Ner"
        assert found.task.read(file).items[0].spans == [(0, 1, "thing")]


def test_questions_on_one_line_or_one_a_line(tmp_path):
    context = "Im Café Zürich 🍰 sat Ada."
    qa = {"id": "1", "question": "Who?", "answers": [{"text": "Ada", "answer_start": 21}]}
    whole = tmp_path / "a.json"
    whole.write_text(json.dumps({"data": [{"paragraphs": [{"context": context, "qas": [qa]}]}]}), encoding="utf-8")
    answers = {"text": ["Ada"], "answer_start": [21]}
    lines = jsonl(tmp_path / "b.jsonl", {"question": "Who?", "context": context, "answers": answers}, times=1)
    for file in (whole, lines):
        found = detect(file)
        assert type(found.task).__name__ == "QuestionAnswering"
        assert found.task.read(file).items[0].texts == ["Ada"]


def test_what_is_no_labelled_file_is_refused(tmp_path):
    prose = tmp_path / "a.txt"
    prose.write_text("Prices fell.\nThen they rose again, and then nothing at all changed.\n" * 9, encoding="utf-8")
    for task, wanted in ((None, "Classification, ..."), ("Parsing", "Parsing...")):
        with refused(file="a.txt", problem=f"does not look like a labelled file of {wanted}"):
            detect(prose, task)
    broken = tmp_path / "b.jsonl"
    broken.write_text('{"text": "one two", "label": "a",}\n' + '{"text": "one two", "label": "a"}\n' * 5)
    with refused(file="b.jsonl", line=1, problem="...JSON..."):
        detect(broken).task.read(broken)
    with refused(where="--task", problem="no task 'Parsng'", hint="did you mean 'Parsing'?"):
        detect(prose, "Parsng")
