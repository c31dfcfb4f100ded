"""Entities in the formats of annotation tools, read and written."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from domainbert.base.errors import DomainbertError
from domainbert.labelled.formats import NerFormat
from domainbert.labelled.items import check_labels_known, check_set_known, find_labels, label_set
from domainbert.labelled.sets import read_set
from domainbert.stages.check import check
from domainbert.tasks.lookup import prediction_writer
from domainbert.tasks.ner.config import Ner
from domainbert.tasks.ner.files import read_ner
from domainbert.tasks.ner.tagger import Entity
from domainbert.tasks.output import JsonlWriter
from domainbert.tokenization.align import basic_words
from tests.refusals import refused

TEXT = "\U0001f468\u200d\U0001f469 \U0001f600 S\u00e3o Paulo\r\nraised \u00e9t\u00e9 loans"


def entity(text: str, words: str, kind: str, score: float = 0.5) -> Entity:
    start = text.index(words)
    return Entity(start, start + len(words), kind, words, score)


ENTITIES = [entity(TEXT, "S\u00e3o Paulo\r\nraised", "place"), entity(TEXT, "loans", "loan", 0.25)]
PREDICTED: list[tuple[dict[str, Any], list[Entity]]] = [
    ({"text": TEXT, "id": 7}, ENTITIES),
    ({"text": "Nothing changed"}, []),
    ({"text": "A loan\nand a loan"}, [entity("A loan\nand a loan", "loan\nand a loan", "loan")]),
    ({"text": "\ufeffA loan"}, [entity("\ufeffA loan", "loan", "loan")]),
    ({"text": "\ufeff\ufeffLoans"}, [entity("\ufeff\ufeffLoans", "Loans", "loan")]),
]


def written(tmp_path: Path, format: str) -> Path:
    with prediction_writer("ner", format)(tmp_path, "text") as writer:
        for row, entities in PREDICTED:
            writer.write(row, {"entities": [asdict(one) for one in entities]})
    return writer.path


def found_in(path: Path, texts: list[str], **format: Any) -> list[list[tuple[int, int, str]]]:
    """The entities of a labelled file in characters of its texts."""
    sentences = read_ner(path, NerFormat(**format)).sentences
    found = []
    for sentence, places in zip(sentences, basic_words(texts), strict=True):
        found.append([(places[first][0], places[last - 1][1], kind) for first, last, kind in sentence.spans])
    return found


WANTED = [[(one.start, one.end, one.type) for one in entities] for _, entities in PREDICTED]


def accepted(path: Path, **others: Any) -> Path:
    """A file of Label Studio after a person has taken over all predictions."""
    tasks = json.loads(path.read_text(encoding="utf-8"))
    for task in tasks:
        annotation = {"completed_by": 3, "was_cancelled": False, "result": task["predictions"][0]["result"], **others}
        task["annotations"] = [annotation]
    path.write_text(json.dumps(tasks), encoding="utf-8")
    return path


@pytest.mark.parametrize("format", ["jsonl", "prodigy", "label_studio", "brat"])
def test_what_is_written_is_read_back(tmp_path, format):
    path = written(tmp_path, format)
    if format == "label_studio":
        accepted(path)
    assert found_in(path, [row["text"] for row, _ in PREDICTED]) == WANTED
    assert [sentence.text for sentence in read_ner(path).sentences] == [row["text"] for row, _ in PREDICTED]


def test_the_files_are_those_of_the_tools(tmp_path):
    lines = written(tmp_path, "prodigy").read_text(encoding="utf-8").splitlines()
    spans = [{"start": 6, "end": 23, "label": "place"}, {"start": 28, "end": 33, "label": "loan"}]
    assert json.loads(lines[0]) == {"text": TEXT, "spans": spans, "meta": {"id": 7}}
    assert json.loads(lines[1]) == {"text": "Nothing changed", "spans": []}
    tasks = json.loads(written(tmp_path, "label_studio").read_text(encoding="utf-8"))
    value = {"start": 28, "end": 33, "text": "loans", "labels": ["loan"]}
    names = {"from_name": "label", "to_name": "text", "type": "labels"}
    assert tasks[0]["data"] == {"text": TEXT, "id": 7}
    assert tasks[0]["predictions"][0]["result"][1] == {"id": "e2", **names, "value": value, "score": 0.25}
    assert tasks[0]["predictions"][0]["score"] == 0.25 and tasks[1]["predictions"][0]["result"] == []
    folder = written(tmp_path, "brat")
    assert sorted(file.name for file in folder.iterdir())[:3] == ["0000001.ann", "0000001.txt", "0000002.ann"]
    assert (folder / "0000001.txt").read_bytes().decode() == TEXT
    wanted = "T1\tplace 6 23\tS\u00e3o Paulo  raised\nT2\tloan 28 33\tloans\n"
    assert (folder / "0000001.ann").read_bytes().decode() == wanted


@pytest.mark.parametrize("task", ["classification", "regression", "relations", "token_labels", "parsing"])
def test_a_format_that_a_task_does_not_have_is_refused(task):
    with refused(where="output_format", found="'brat'", expected=f"jsonl, as ... is for {task}..."):
        prediction_writer(task, "brat")
    assert prediction_writer(task, "jsonl") is JsonlWriter


def test_no_predictions_are_an_empty_list(tmp_path):
    with prediction_writer("ner", "label_studio")(tmp_path, "text") as writer:
        pass
    assert json.loads(writer.path.read_text()) == []


@pytest.mark.parametrize(
    "value",
    [
        [{"text": "A loan", "entities": [[2, 6, "loan"]]}],
        [{"text": "A loan", "ents": [{"start": 2, "end": 6, "label": "loan"}], "tokens": [{"id": 0}]}],
        [{"text": "A loan", "spans": [{"start": 2, "end": 6, "label": "loan", "token_start": 1}], "tokens": [{}]}],
        [["A loan", {"entities": [[2, 6, "loan"]]}]],
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_json_of_spacy(tmp_path, value, indent):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(value, indent=indent))
    assert found_in(path, ["A loan"]) == [[(2, 6, "loan")]]
    assert read_ner(path).describe().startswith(f"{path}: 1 sentence, 2 words; JSON, texts in 'text'")
    with refused(problem="k_folds and init cannot split JSON", expected="CoNLL or JSONL, or separate..."):
        read_ner(path).units()


def test_what_prodigy_did_not_accept_is_left_out_and_counted(tmp_path):
    rows = [{"text": "A loan", "spans": [], "answer": one} for one in ("accept", "reject", "ignore", "accept")]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    file = read_ner(path)
    assert len(file.sentences) == 2 and "left out: texts that were not accepted (2)" in file.describe()


def task(*annotations: Any, text: str = "A loan") -> dict[str, Any]:
    return {"id": 1, "data": {"text": text}, "annotations": list(annotations)}


def result(start: Any, end: Any, *labels: str, text: str | None = None, kind: str = "labels") -> dict[str, Any]:
    quoted = {} if text is None else {"text": text}
    return {"type": kind, "value": {"start": start, "end": end, "labels": list(labels), **quoted}}


def by(who: Any, *results: Any, **others: Any) -> dict[str, Any]:
    return {"completed_by": who, "result": list(results), **others}


def test_label_studio_counts_what_it_leaves_out(tmp_path, capsys):
    path = tmp_path / "a.json"
    choice = {"type": "choices", "value": {"choices": ["good"]}}
    tasks = [
        task(by(1, result(2, 6, "loan", text="loan"), choice), by(2, was_cancelled=True)),
        task(),
        task(by({"id": 2, "email": "a@b.org"}), by(1)),
    ]
    path.write_text(json.dumps(tasks))
    file = read_ner(path)
    assert [sentence.tags for sentence in file.sentences] == [["O", "B-loan"], ["O", "O"]]
    left = 'left out: results of the type "choices" (1), texts without an annotation (1)'
    assert file.describe().endswith(left) and "Label Studio's JSON" in file.describe()


def test_of_two_people_who_differ_one_has_to_be_named(tmp_path):
    path = tmp_path / "a.json"
    both = task(by(1, result(2, 6, "loan")), by({"id": 2, "email": "a@b.org"}, result(0, 1, "loan")))
    path.write_text(json.dumps([task(by(1)), both, task(by(3))], indent=0))
    line = 1 + path.read_text().split("\n").index('"id": 1,', 10) - 1
    with pytest.raises(DomainbertError) as error:
        read_ner(path)
    said = "annotations by '1', 'a@b.org' differ; correct them, or set format.annotator to one name"
    assert str(error.value) == f"{path}:{line}: {said}"
    assert [one.tags for one in read_ner(path, NerFormat(annotator="1")).sentences] == [["O", "O"], ["O", "B-loan"]]
    for name in ("2", "a@b.org"):
        file = read_ner(path, NerFormat(annotator=name))
        assert [one.tags for one in file.sentences] == [["B-loan", "O"]]
        assert f"texts without an annotation by {name!r} (2)" in file.describe()


SMILING = "\U0001f600 A loan"


@pytest.mark.parametrize(
    ("tasks", "where", "problem", "expected"),
    [
        (
            [task(by(1, result(5, 9, "x", text="loan")), text=SMILING)],
            "result[0]",
            "the offsets 5-9 of 'loan' count UTF-16 code...",
            "...",
        ),
        ([task(by(1, result(2, 6, "x", "y")))], "result[0]", "found 2 labels", "one label, because..."),
        (
            [task(by(1, result("/p[1]", "/p[1]", "x")))],
            "entities[0]",
            'found start "/p[1]" and end "/p[1]"',
            "character offsets...",
        ),
        ([task(by(1, result(2, 5, "x")))], "entities[0]", "'loa' (2-5) is not at word boundaries", "..."),
        ([{"data": {"body": ""}, "annotations": []}], "...", "no key 'text'; found 'body'", "..."),
        ([{"data": {"text": "a"}, "completions": []}], "...", "no key 'annotations'; found...", "..."),
        ([{"data": 3}], "...", "no object under 'data'", "Label Studio's export in the format JSON..."),
    ],
)
def test_broken_tasks_of_label_studio(tmp_path, tasks, where, problem, expected):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(tasks))
    with refused(file=path, line=1, where=where, problem=problem, expected=expected):
        read_ner(path)


@pytest.mark.parametrize(
    ("content", "line", "problem", "expected"),
    [
        ('[\n{"text": "a", "entities": []},\n{"text" "b"}]', 3, "not JSON (Expecting ':' delimiter)", "..."),
        ('[\n{"text": "a", "entities": []}\n{"text": "b"}]', 3, "the list is not closed", ", or ]"),
        ('[{"text": "a", "entities": []},\n]', 2, "not JSON (Expecting value)", "..."),
        ('[\n{"text": "a", "text": "b"}]', 2, "JSON that cannot be read (the key 'text' more...", "..."),
        ("[{}] []", "", "'[]' after the list", "..."),
        ("[]", "", "no annotated texts", "at least one in JSON"),
        ('[{"text": "a", "entities": []}, 3]', 1, "found 3", "an object, or spaCy's pair [text, object]"),
    ],
)
def test_broken_arrays(tmp_path, content, line, problem, expected):
    path = tmp_path / "a.json"
    path.write_text(content)
    with refused(line=line, problem=problem, expected=expected):
        read_ner(path)


def brat(folder: Path, **annotations: str) -> Path:
    folder.mkdir()
    for name, lines in annotations.items():
        (folder / f"{name}.txt").write_text("A loan of S\u00e3o Paulo\n")
        (folder / f"{name}.ann").write_text(lines)
    return folder


def test_brat_counts_what_it_leaves_out(tmp_path):
    others = "R1\tof Arg1:T1 Arg2:T2\n#1\tAnnotatorNotes T1\twhy\nA1\tNegated T1\n*\tEquiv T1 T2\n"
    folder = brat(tmp_path / "b", one=f"T1\tloan 2 6\tloan\n{others}T2\tplace 10 19\tS\u00e3o Paulo\n", two="")
    file = read_ner(folder)
    assert [one.tags for one in file.sentences] == [["O", "B-loan", "O", "B-place", "I-place"], ["O"] * 5]
    assert file.describe().endswith("left out: attributes (1), equivalences (1), notes (1), relations (1)")


@pytest.mark.parametrize(
    ("lines", "line", "problem", "expected"),
    [
        ("T1\tloan 2 6;7 9\tloan of\n", 1, "'loan' 2-6;7-9 is discontinuous", "one range of characters..."),
        ("\nT1\tloan 2 6\tloans\n", 2, "characters 2-6 are 'loan', but the annotation has 'loans'", "..."),
        ("T1 loan 2 6 loan\n", 1, "found 'T1 loan 2 6 loan'", "a line of brat..."),
        (f"T1\tloan {5000 * '9'} 6\tloan\n", 1, "found 'T1\\tloan 999...99999...", "a line of brat..."),
        ("R1\ta Arg1:T1\nT1\tloan 2 5\tloa\n", 2, "'loa' (2-5) is not at word boundaries", "..."),
        (
            "T1\tplace 10 19\tS\u00e3o Paulo\nT2\tname 10 13\tS\u00e3o\n",
            2,
            "name 'S\xe3o' (10-13) and place 'S\xe3o Paulo' (10-19) overlap",
            "...",
        ),
    ],
)
def test_broken_annotations_of_brat_are_named_by_their_line(tmp_path, lines, line, problem, expected):
    folder = brat(tmp_path / "b", one=lines)
    with refused(file="one.ann", line=line, problem=problem, expected=expected):
        read_ner(folder)


def test_places_in_a_folder_of_brat_are_files(tmp_path):
    folder = brat(tmp_path / "b", d1="T1\tloan 2 6\tloan\n", d2="T1\tplace 10 19\tS\u00e3o Paulo\n")
    file = read_ner(folder)
    places = [f"{folder}/d1.ann:1", f"{folder}/d2.ann:1"]
    assert [file.location(index) for index in (0, 1)] == [file.line_or_location(index) for index in (0, 1)] == places
    with refused(file="b/d2.ann", line=1, problem="label 'place' ... was not in training"):
        check_set_known(file, ["loan"])
    with refused(file="b/d2.ann", line=1, problem="label 'place' ... was not in training"):
        check_labels_known(find_labels(file.items), ["loan"], folder)
    check(tmp_path / "out", task=Ner(), labelled={"train": folder})
    report = json.loads((tmp_path / "out/check.json").read_text())
    rare = next(finding for finding in report["findings"] if finding["rule"] == "rare-label")
    assert [(place["path"], place["line"]) for place in rare["places"]] == [(f"{folder}/d{n}.ann", 1) for n in (1, 2)]
    (folder / "d2.ann").write_text("T1\tlo\u200ban 2 6\tloan\n")
    with refused(file="b/d2.ann", line=1, problem="tag 'B-lo\\u200ban'", expected="a type of visible characters..."):
        read_ner(folder)


def test_documents_of_brat_have_two_files(tmp_path):
    folder = brat(tmp_path / "b", one="")
    (folder / "more.txt").write_text("A")
    with refused(file="more.txt", problem="no more.ann next to it"):
        read_ner(folder)
    (tmp_path / "c").mkdir()
    with refused(problem="a folder without .ann files"):
        read_ner(tmp_path / "c")


def test_types_choose_a_layer_of_nested_entities(tmp_path):
    path = tmp_path / "a.jsonl"
    nested = [[2, 16, "programme"], [2, 6, "money"], [17, 23, "verb"]]
    path.write_text(json.dumps({"text": "A cash programme helped", "entities": nested}) + "\n")
    with refused(where="entities[1]", problem="money 'cash' ... and programme...", expected="... format.types..."):
        read_ner(path)
    file = read_ner(path, NerFormat(types=("programme", "verb")))
    assert file.sentences[0].tags == ["O", "B-programme", "I-programme", "B-verb"]
    assert file.describe().endswith("left out: entities of the type 'money' (1)")
    assert read_ner(path, NerFormat(types=("money",))).sentences[0].tags == ["O", "B-money", "O", "O"]
    task = Ner(format=NerFormat(types=("mony",)))
    with refused(where="format.types", found="'mony', but no entity..."):
        task.check_labels(label_set(read_set(task, [path, path]).items))
    Ner(format=NerFormat(types=("mony", "verb"))).check_labels(["verb"])


def test_types_of_tagged_files_too(tmp_path):
    path = tmp_path / "a.conll"
    path.write_text("A O\ncash B-money\nloan E-money\nhelped S-verb\n")
    file = read_ner(path, NerFormat(types=("verb",)))
    assert file.sentences[0].tags == ["O", "O", "O", "B-verb"]
    assert "scheme BIOES; 1 entity (verb 1)\n  left out: entities of the type 'money' (1)" in file.describe()


def test_a_set_says_of_each_file_what_is_left_out(tmp_path):
    (tmp_path / "a.conll").write_text("A\tO\nloan\tB-loan\n")
    (tmp_path / "brat").mkdir()
    (tmp_path / "brat/1.txt").write_text("Loans rose")
    (tmp_path / "brat/1.ann").write_text("T1\tloan 0 5\tLoans\nR1\tx Arg1:T1 Arg2:T1\n")
    found = read_set(Ner(), [tmp_path / "a.conll", tmp_path / "brat"])
    assert [one.labels for one in found.items] == [["loan"], ["loan"]]
    assert [found.location(0), found.location(1)] == [f"{tmp_path}/a.conll:1", f"{tmp_path}/brat/1.ann:1"]
    assert [line.split(";")[0] for line in found.describe().splitlines()] == [
        f"{tmp_path}/a.conll: 1 sentence, 2 words",
        f"{tmp_path}/brat: 1 sentence, 2 words",
        "  left out: relations (1)",
    ]
