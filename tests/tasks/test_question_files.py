"""Files of questions, contexts and answers."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from domainbert.labelled.contents import TextPair
from domainbert.labelled.folds import split_folds
from domainbert.labelled.sets import read_set
from domainbert.metrics.summary import Resampling
from domainbert.tasks.question_answering.config import QuestionAnswering
from domainbert.tasks.question_answering.files import read as read_questions
from domainbert.tasks.question_answering.reader import Reply
from domainbert.tasks.question_answering.scoring import AnswerScoring
from tests.refusals import refused

CONTEXT = "In 1889 the Café Zürich opened in Zürich 🍰."


def nested(qas: list[dict[str, Any]], context: str = CONTEXT) -> dict[str, Any]:
    return {"version": "v2.0", "data": [{"title": "t", "paragraphs": [{"context": context, "qas": qas}]}]}


def question(own: str, answers: list[tuple[str, int]], **more: Any) -> dict[str, Any]:
    return {
        "id": own,
        "question": f"What of {own}?",
        "answers": [{"text": text, "answer_start": start} for text, start in answers],
        **more,
    }


GOOD = [
    question("a", [("1889", 3), ("In 1889", 0)]),
    question("b", [("Zürich 🍰", CONTEXT.index("Zürich 🍰"))], is_impossible=False),
    question("c", [], is_impossible=True),
]


def test_squad_json_and_jsonl_hold_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(nested(GOOD), indent=1))
    with gzip.open(tmp_path / "b.json.gz", "wt") as stream:
        stream.write(json.dumps(nested(GOOD), ensure_ascii=False))
    with open(tmp_path / "c.jsonl", "w") as file:
        for one in GOOD:
            answers = {key: [answer[key] for answer in one["answers"]] for key in ("text", "answer_start")}
            file.write(json.dumps({**one, "context": CONTEXT, "title": "t", "answers": answers}) + "\n")
    files = [read_questions(QuestionAnswering(), tmp_path / name) for name in ("a.json", "b.json.gz", "c.jsonl")]
    for file in files:
        assert [one.id for one in file.items] == ["a", "b", "c"] and file.has_unanswerable
        assert [one.texts for one in file.items] == [["1889", "In 1889"], ["Zürich 🍰"], []]
        assert file.items[1].answers[0].end == len(CONTEXT) - 1
        assert file.items[0].content == TextPair("What of a?", CONTEXT) and file.items[0].labels == ()
    assert [file.kind for file in files] == ["json", "json", "jsonl"]
    lines = (tmp_path / "a.json").read_text().splitlines()
    assert [lines[one.line - 1].strip() for one in files[0].items] == [f'"id": "{one}",' for one in "abc"]
    assert [one.line for one in files[1].items] == [1, 1, 1] and [one.line for one in files[2].items] == [1, 2, 3]
    assert files[0].describe() == f"{tmp_path}/a.json: 3 questions, 1 of them without an answer, on 1 context; JSON"


@pytest.mark.parametrize("indent", [None, 1])
def test_an_array_is_read_like_jsonl(tmp_path: Path, indent: int | None) -> None:
    (tmp_path / "a.json").write_text("\ufeff" + json.dumps([ROW, ROW], indent=indent), encoding="utf-8")
    (tmp_path / "b.jsonl").write_text(f"\n{json.dumps(ROW)}\n{json.dumps(ROW)}\n")
    for name, lines in (("a.json", [1, 2]), ("b.jsonl", [2, 3])):
        assert [one.line for one in read_questions(QuestionAnswering(), tmp_path / name).items] == lines


def test_a_row_without_an_id_is_called_by_its_line(tmp_path: Path) -> None:
    row = {"question": "When?", "context": CONTEXT, "answers": {"text": ["1889"], "answer_start": [3]}}
    (tmp_path / "a.jsonl").write_text(f"{json.dumps(row)}\n\n{json.dumps(row)}\n")
    assert [one.id for one in read_questions(QuestionAnswering(), tmp_path / "a.jsonl").items] == ["1", "3"]


def test_questions_rejected_in_prodigy_are_left_out(tmp_path: Path) -> None:
    rows = [{**ROW, "id": answer, "answer": answer} for answer in ("accept", "reject", "ignore")]
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    file = read_questions(QuestionAnswering(), tmp_path / "a.jsonl")
    assert [one.id for one in file.items] == ["accept"]
    assert file.describe().endswith("\n  left out: texts that were not accepted (2)")


@pytest.mark.parametrize(
    ("qas", "where", "problem", "expected"),
    [
        ([question("x", [("1889", 4)])], "question 'x'", "answer '1889' has 'answer_start' 4...", "..."),
        ([question("x", [("1889", -44)])], "question 'x'", "answer '1889' has 'answer_start'...", "..."),
        ([question("x", [("1889", "3")])], "question 'x'", "answer '1889' has 'answer_start' \"3\"", "its..."),
        ([question("x", [(" ", 2)])], "question 'x': answer", "'text' is empty", "a non-empty string"),
        ([question("x", [])], "question 'x'", "'answers' has length 0 and 'is_impossible' is false", "..."),
        (
            [question("x", [("1889", 3)], is_impossible=True)],
            "question 'x'",
            "'answers' has length 1 and 'is_impossible' is true",
            "...",
        ),
        ([question("x", [], is_impossible=1)], "question 'x'", "'answers' has length 0 and...", "..."),
        ([{**GOOD[0], "question": " "}], "question 'a'", "'question' is empty", "a non-empty string"),
        ([{**GOOD[0], "answers": ["1889"]}], "question 'a'", 'answer "1889"', "an object with 'text'..."),
        ([{**GOOD[0], "answers": None}], "question 'a'", "'answers' is null", "a list"),
        ([{**GOOD[0], "id": 3}], "data[0].paragraphs[0].qas[0]", "'id' is 3", "a string"),
        ([GOOD[0], GOOD[2], GOOD[0]], "...", "the id 'a' occurs again", "each id once"),
        (["x"], "...", 'data[0].paragraphs[0].qas[0] is "x"', "an object"),
    ],
)
def test_what_is_wrong_with_squad_json_is_told_with_its_id(
    tmp_path: Path, qas: Any, where: str, problem: str, expected: str
) -> None:
    (tmp_path / "a.json").write_text(json.dumps(nested(qas)))
    with refused(file=f"{tmp_path}/a.json", line=1, where=where, problem=problem, expected=expected):
        read_questions(QuestionAnswering(), tmp_path / "a.json")


def test_the_line_of_a_broken_question(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(nested([*GOOD, question("d", [("1890", 3)])]), indent=1))
    with refused(file="a.json", line=42, where="question 'd'", problem="answer '1890' has 'answer_start' 3,..."):
        read_questions(QuestionAnswering(), tmp_path / "a.json")


ROW = {"question": "When?", "context": CONTEXT, "answers": {"text": ["1889"], "answer_start": [3]}}


@pytest.mark.parametrize(
    ("text", "line", "problem", "expected"),
    [
        (json.dumps(ROW | {"answers": ["1889"]}), 1, "'answers' is a JSON list", "an object such as..."),
        (json.dumps({"question": "", "context": "c"}), 1, "no key 'answers'", "an object such as..."),
        (json.dumps(ROW | {"context": None}), 1, "'context' is null", "a string"),
        (json.dumps(ROW | {"answers": {"text": ["1889"]}}), 1, "no key 'answer_start'; found 'text'", ""),
        (
            json.dumps(ROW | {"answers": {"text": ["1889"], "answer_start": []}}),
            1,
            "'answers' has length 1 under 'text' and 0 under 'answer_start'",
            "lists of the same length",
        ),
        ('{"data": [', 1, "not JSON...", "SQuAD's..."),
        ("[]", 1, "a JSON list", "SQuAD's..."),
        ('{"data": [{"paragraphs": [{"qas": [{"id": "\\x1"}]}]}]}', 1, "not JSON ...Invalid...", "SQuAD's..."),
        ('{"data": 3}', 1, "no list under 'data'", "SQuAD's..."),
        ('{"data": [{"paragraphs": {}}]}', 1, "data[0].paragraphs is a JSON dict", "a list"),
        ('{"data": [], "data": []}', "", "JSON that cannot be read ...the key 'data' more than...", "..."),
        ('{"data": []}', "", "no questions", "at least one with its context"),
        (b'{"data":\n"\xff"}', 2, "byte 2 of the line, 0xff, is not UTF-8", "UTF-8 text"),
    ],
)
def test_what_is_no_file_of_questions(
    tmp_path: Path, text: str | bytes, line: int | str, problem: str, expected: str, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a").write_bytes(text if isinstance(text, bytes) else text.encode())
    with refused(file="a", line=line, problem=problem, expected=expected):
        read_questions(QuestionAnswering(), Path("a"))


def test_a_broken_archive_is_told(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(json.dumps(nested(GOOD)).encode()))
    packed[12:40] = b"\xff" * 28
    (tmp_path / "a.json.gz").write_bytes(packed)
    with refused(file="a.json.gz", problem="cannot be read...", expected="a whole .gz file"):
        read_questions(QuestionAnswering(), tmp_path / "a.json.gz")


def test_a_test_set_of_several_files_has_each_id_once(tmp_path: Path) -> None:
    for name in "ab":  # rows without an id are called by their line
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(ROW) + "\n")
    files = read_set(QuestionAnswering(), [tmp_path / "a.jsonl", tmp_path / "b.jsonl"])
    with refused(file="b.jsonl", line=1, problem="the id '1' is also at ...a.jsonl:1", expected="an 'id' that..."):
        AnswerScoring(QuestionAnswering(), files)


def test_folds_divide_no_context(tmp_path: Path) -> None:
    paragraphs = [
        {"context": f"{CONTEXT} {number}", "qas": [question(f"{number}-{one}", [("1889", 3)]) for one in range(3)]}
        for number in range(5)
    ]
    whole = {"data": [{"paragraphs": paragraphs[:2]}, {"paragraphs": paragraphs[2:]}]}
    (tmp_path / "a.json").write_text(json.dumps(whole))
    items = read_questions(QuestionAnswering(), tmp_path / "a.json").items
    with open(tmp_path / "b.jsonl", "w") as file:
        for one in [*items[::2], *items[1::2]]:  # questions of a context stand apart
            row = {"id": one.id, "question": one.question, "context": one.context}
            file.write(json.dumps(row | {"answers": {"text": ["1889"], "answer_start": [3]}}) + "\n")
    for name in ("a.json", "b.jsonl"):
        folds = split_folds(tmp_path / name, QuestionAnswering(), 3, 0)
        held = []
        for fold in folds:
            sides = []
            for text in (fold.train[0], fold.validation[0]):
                (tmp_path / "part").write_text(text)
                sides.append(read_questions(QuestionAnswering(), tmp_path / "part").items)
            train, validation = ({one.context for one in side} for side in sides)
            assert not train & validation and len(sides[0]) + len(sides[1]) == 15
            assert all(one.texts == ["1889"] for side in sides for one in side)
            held += [one.id for one in sides[1]]
        assert sorted(held) == sorted(one.id for one in items)


def test_questions_on_a_single_context_are_drawn_themselves(tmp_path: Path) -> None:
    """All resamples of one context would be equal, and the interval would have no width."""
    (tmp_path / "a.json").write_text(json.dumps(nested(GOOD)))
    file = read_questions(QuestionAnswering(), tmp_path / "a.json")
    scoring = AnswerScoring(QuestionAnswering(), file)
    right = [Reply(item.texts[0] if item.texts else "", 0, 0, 1.0, 0.0, []) for item in file.items]
    scoring.predictions = {"a": {"1": [*right[:2], Reply("x", 0, 0, 1.0, 0.0, [])]}}
    (system,) = scoring.summary(Resampling(200, 0))["systems"].values()
    low, high = system["interval"]
    assert (scoring.num_units, file.unit, file.unit_ids) == (3, "questions", None)
    assert low < system["f1"] < high and system["f1"] == pytest.approx(2 / 3)
    assert (len(file.units()), file.fold_units()) == (1, [0, 0, 0]), "folds still divide no context"
