"""Labelled JSONL as data sets and annotation tools write it: numbered labels, entities as stretches of characters."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from domainbert.base.errors import DomainbertError
from domainbert.labelled.formats import NerFormat
from domainbert.labelled.items import label_set
from domainbert.tasks.classification.config import Classification, ClassificationFormat
from domainbert.tasks.classification.files import read as read_classification
from domainbert.tasks.ner.config import Ner
from domainbert.tasks.ner.files import read_ner
from domainbert.tokenization.align import align_text, align_words, basic_words
from domainbert.tokenization.kinds.wordpiece.kind import SPECIAL_TOKENS, bert_backend
from domainbert.tokenization.load import DomainTokenizer
from tests.refusals import fact_rows, refused

NAMES = ["O", "B-gene", "I-gene", "B-drug"]


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("key", ["tags", "ner_tags"])
@pytest.mark.parametrize("place", ["format", "list", "id2label", "label2id", "row"])
def test_numbered_tags_get_their_names(tmp_path: Path, key: str, place: str) -> None:
    rows: list[Any] = [{"tokens": ["p", "53", "x"], key: [1, 2, 0]}, {"tokens": ["aspirin"], key: [3]}]
    format = NerFormat()
    if place == "format":
        format = NerFormat(label_names=tuple(NAMES))
    elif place == "row":
        rows[0]["label_names"] = NAMES
    else:
        numbered = {str(number): name for number, name in enumerate(NAMES)}
        named = {name: number for number, name in enumerate(NAMES)}
        value = {"list": NAMES, "id2label": {"model_type": "bert", "id2label": numbered}, "label2id": named}[place]
        (tmp_path / "names.json").write_text(json.dumps(value))
        format = NerFormat(label_names_file=tmp_path / "names.json")
    file = read_ner(write(tmp_path / "a.jsonl", rows), format)
    assert [one.tags for one in file.sentences] == [["B-gene", "I-gene", "O"], ["B-drug"]]
    assert (file.num_spans, file.kind, file.layout) == (2, "jsonl", f"JSONL, words in 'tokens', tags in {key!r}")


@pytest.mark.parametrize(
    ("row", "format", "problem", "expected"),
    [
        ({"tags": [0, 1]}, {}, "'tags' contains the number 0", "strings, or format.label_names with..."),
        ({"tags": [0, 4]}, {"label_names": NAMES}, "'tags' contains 4", "indices of label_names, from 0 to 3"),
        ({"tags": [0, -100]}, {"label_names": NAMES}, "'tags' contains -100", "indices of label_names..."),
        ({"tags": [0, "O"]}, {"label_names": NAMES}, "'tags' contains \"O\"", "indices of label_names..."),
        ({"tags": [0, True]}, {"label_names": NAMES}, "'tags' contains true", "indices of label_names..."),
        ({"tags": [0]}, {"label_names": NAMES}, "'tokens' has length 2, but 'tags' has length 1", "one..."),
        (
            {"tags": [0, 0], "label_names": NAMES},
            {"label_names": NAMES},
            "label names in format.label_names and in this row",
            "...",
        ),
        ({"tags": [0, 0], "label_names": ["O", "O"]}, {}, "duplicate label names 'O'", "different..."),
        ({"tags": [0, 0], "label_names": [*map(str, range(200_000)), "7"]}, {}, "duplicate label names '7'", "..."),
        ({"tags": [0, 0], "label_names": "O"}, {}, 'the label names are "O"', "a list of names, or an..."),
        ({"tags": [0, 0], "label_names": ["O", 1]}, {}, "found label name 1", "a string of visible..."),
        ({"tags": ["O"], "ner_tags": ["O"]}, {}, "tags under 'tags', 'ner_tags'", "format.tag_column to..."),
        ({"tags": ["O"], "entities": []}, {}, "found labels under 'tags' and 'entities'", "one of them in..."),
    ],
)
def test_bad_numbers_name_the_line(
    tmp_path: Path, row: dict[str, Any], format: dict[str, Any], problem: str, expected: str
) -> None:
    path = write(tmp_path / "a.jsonl", [{"tokens": ["a", "b"], **row}])
    with refused(file=path, line=1, problem=problem, expected=expected):
        read_ner(path, NerFormat(**format))


def test_the_numbers_of_a_file_of_names_have_no_holes(tmp_path: Path) -> None:
    (tmp_path / "names.json").write_text('{"0": "O", "2": "B-gene"}')
    path = write(tmp_path / "a.jsonl", [{"tokens": ["a"], "tags": [0]}])
    with refused(file="names.json", problem="the labels are not numbered from 0 to 1", expected="a list..."):
        read_ner(path, NerFormat(label_names_file=tmp_path / "names.json"))
    (tmp_path / "names.json").write_text("[")
    with refused(file="names.json", problem="cannot be read as JSON..."):
        read_ner(path, NerFormat(label_names_file=tmp_path / "names.json"))


def test_numbered_classes_are_named_or_it_is_said_that_they_are_not(tmp_path: Path) -> None:
    rows = [{"text": "a", "label": 2}, {"text": "b", "label": 0}]
    path = write(tmp_path / "a.jsonl", rows)
    file = read_classification(Classification(), path)
    assert [text.label for text in file.items] == ["2", "0"] == label_set(file.items)[::-1]
    assert file.describe().endswith("2 classes (0 1, 2 1); classes are numbers without names (set format.label_names)")
    names = ("down", "flat", "up")
    named = read_classification(Classification(format=ClassificationFormat(label_names=names)), path)
    assert [text.label for text in named.items] == ["up", "down"] and "without names" not in named.describe()
    (tmp_path / "a.csv").write_text("text,label\na,2\nb,down\n")
    assert read_classification(
        Classification(format=ClassificationFormat(label_names=names)), tmp_path / "a.csv"
    ).items == [
        *named.items[:0],
        *(type(one)(one.text, one.label, one.line + 1) for one in named.items),
    ]
    write(path, [{"text": "a", "label": 3}, {"text": "b", "label": "sideways"}])
    with pytest.raises(DomainbertError) as error:
        read_classification(Classification(format=ClassificationFormat(label_names=names)), path)
    expected = "expected one of the label_names 'down', 'flat', 'up', or its index from 0"
    assert error.value.problems == [
        f"{path}:1: unknown label 3; {expected}",
        f'{path}:2: unknown label "sideways"; {expected}',
    ]


def test_digits_that_may_be_a_name_or_a_number_are_refused(tmp_path: Path) -> None:
    """Stars 1 to 3 as 0, 1, 2: CSV gave 1, 1, 2."""
    stars = ClassificationFormat(label_names=("1", "2", "3"))
    numbers = write(tmp_path / "a.jsonl", [{"text": "a", "label": number} for number in range(3)])
    assert [text.label for text in read_classification(Classification(format=stars), numbers).items] == ["1", "2", "3"]
    (tmp_path / "a.csv").write_text("text,label\na,0\nb,1\nc,2\nd,3\n")
    strings = write(tmp_path / "b.jsonl", [{"text": "a", "label": str(number)} for number in range(4)])
    for path, first in ((tmp_path / "a.csv", 2), (strings, 1)):
        with pytest.raises(DomainbertError) as caught:
            read_classification(Classification(format=stars), path)
        reason = "may be a name or an index from 0, because label_names are '1', '2', '3'"
        expected = "label_names that are not numbers, or no label_names if the labels are names"
        assert fact_rows(caught.value.errors) == [
            (f"{path}:{first + number}", "", f'label "{number}" {reason}', expected) for number in range(4)
        ]
    (tmp_path / "a.csv").write_text("text,label\na,0\nb,1\nc,2000\n")
    for names, found in (
        (("0", "1", "2000"), ["0", "1", "2000"]),
        (("1999", "2001", "2000"), ["1999", "2001", "2000"]),
    ):
        texts = read_classification(
            Classification(format=ClassificationFormat(label_names=names)), tmp_path / "a.csv"
        ).items
        assert [text.label for text in texts] == found, "one of the readings only, or the same"


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ('{"a": [1]}', "found a JSON list as the index of a label"),
        ('{"label2id": {"O": 0}}', "found a JSON dict as the index of a label"),
        ('{"a": 0, "b": true}', "found true as the index of a label"),
        ('{"a": 0, "b": 1.0}', "found 1.0 as the index of a label"),
        ('{"a": 0, "b": "x"}', 'found "x" as the index of a label'),
        (f'{{"{"9" * 5000}": "a"}}', 'found "a" as the index of a label'),
        ('{"0": ["a"]}', "found label name a JSON list"),
        ("{}", "the label names are empty"),
        ("3", "the label names are 3"),
    ],
)
def test_a_file_of_names_with_odd_values_is_refused(tmp_path: Path, names: str, problem: str) -> None:
    file, path = tmp_path / "names.json", write(tmp_path / "a.jsonl", [{"text": "a", "label": 0}])
    file.write_text(names)
    with pytest.raises(DomainbertError) as caught:
        read_classification(Classification(format=ClassificationFormat(label_names_file=file)), path)
    ((*place, message, expected),) = fact_rows(caught.value.errors)
    assert "".join(place) == str(file) and message == problem and expected


TEXT = "\U0001f600 Cafe\u0301's aspirin,\r\nstopped TP53."
ENTITIES = [(8, 15, "drug"), (26, 30, "gene"), (2, 7, "place")]


@pytest.mark.parametrize("form", ["label", "type", "both", "list"])
def test_entities_of_characters_become_tags_of_words(tmp_path: Path, form: str) -> None:
    entities = [
        (TEXT.index("aspirin"), "aspirin", "drug"),
        (TEXT.index("TP"), "TP53", "gene"),
        (2, "Cafe\u0301", "bar"),
    ]
    spelled: list[Any] = []
    for start, text, kind in entities:
        keys = {"both": ("label", "type")}.get(form, (form,))
        one = {"start": start, "end": start + len(text), "text": text, **dict.fromkeys(keys, kind)}
        spelled.append([start, start + len(text), kind] if form == "list" else one)
    file = read_ner(write(tmp_path / "a.jsonl", [{"text": TEXT, "entities": spelled}, {"text": "", "entities": []}]))
    words = ["\U0001f600", "Cafe\u0301", "'", "s", "aspirin", ",", "stopped", "TP53", "."]
    assert file.sentences[0].words == words and file.sentences[1].words == []
    assert file.sentences[0].tags == ["O", "B-bar", "O", "O", "B-drug", "O", "O", "B-gene", "O"]
    assert file.layout == "JSONL, texts in 'text', entities in 'entities', words cut at spaces and punctuation"


FIVE = {"start": 0, "end": 5, "label": "x"}


@pytest.mark.parametrize(
    ("entities", "where", "problem", "expected"),
    [
        ([(0, 3, "x")], "entities[0]", "'COV' (0-3) is not at word boundaries", "whole words:..."),
        ([(5, 6, "x")], "entities[0]", "' ' (5-6) is not at word boundaries", "whole words: at least..."),
        ([(0, 12, "x")], "entities[0]", "'COVID vaccin' (0-12) is not at...", "whole words: 'COVID' (0-5) to..."),
        ([(0, 99, "x")], "entities[0]", "start 0, end 99 in a text of 14 characters", "0 <= start <..."),
        ([(3, 3, "x")], "entities[0]", "start 3, end 3 in a text of 14...", "..."),
        ([(-5, 5, "x")], "entities[0]", "start -5, end 5 in a text of 14...", "..."),
        (
            [(0, 14, "x"), (6, 14, "y")],
            "entities[1]",
            "x 'COVID vaccine.' (0-14) and y 'vaccine.' (6-14) overlap",
            "...",
        ),
        ([(0, 5, "x"), (0, 5, "x")], "entities[1]", "x 'COVID' (0-5) and x 'COVID' (0-5) overlap", "..."),
        ([(0, 5, 3)], "entities[0]", "'label' is 3", "the type of the entity as one string, under..."),
        ([(0, 5.0, "x")], "entities[0]", "found start 0 and end 5.0", "character offsets..."),
        ([(0, 5, "x ")], "...", "tag 'B-x '", "a type of visible characters..."),
        (["COVID"], "entities[0]", 'found "COVID"', "an object with 'start', 'end' and 'label', or a..."),
        ([{"start": 0, "end": 5}], "entities[0]", "no type", "the type of the entity as one string..."),
        ([{**FIVE, "type": "y"}], "entities[0]", "'label' is \"x\" and 'type' is \"y\"", "..."),
        ([{"start": 0, "label": "x"}], "entities[0]", "found start 0 and end null", "character offsets..."),
        (
            [{**FIVE, "text": "OVID "}],
            "entities[0]",
            "...are 'COVID', but the annotation has 'OVID '",
            "the same text:...",
        ),
        ({}, "...", "'entities' is a JSON dict", "a list"),
    ],
)
def test_a_span_is_never_moved(tmp_path: Path, entities: Any, where: str, problem: str, expected: str) -> None:
    rows = [{"text": "fine", "entities": []}, {"text": "COVID vaccine.", "entities": entities}]
    path = write(tmp_path / "a.jsonl", rows)
    with refused(file=path, line=2, where=where, problem=problem, expected=expected):
        read_ner(path)


def test_white_space_at_the_ends_of_entities_is_trimmed_if_it_is_asked_for(tmp_path: Path) -> None:
    text = "Le café  fell by \u00a09 % today"
    spans = [(0, 3), (2, 9), (16, 22), (22, 27), (7, 9)]
    rows = [{"text": text, "entities": [{"start": a, "end": b, "label": "x"}]} for a, b in spans]
    path = write(tmp_path / "a.jsonl", rows[:4])
    file = read_ner(path, NerFormat(trim=True))
    found = [sentence.words[slice(*span[:2])] for sentence in file.sentences for span in sentence.spans]
    assert found == [["Le"], ["café"], ["9", "%"], ["today"]]
    assert file.describe().endswith("\n  changed: entities with white space at their ends, which was trimmed (3)")
    with refused(
        file="a.jsonl",
        line=1,
        where="entities[0]",
        problem="'Le ' (0-3) is not...",
        expected="...(format.trim: true removes...",
    ):
        read_ner(path)
    with refused(file="a.jsonl", line=1, where="entities[0]", problem="... is not at word boundaries"):
        read_ner(write(tmp_path / "a.jsonl", rows[4:]), NerFormat(trim=True))
    repaired: list[Any] = [Ner(NerFormat(repair=True)), Ner(NerFormat(repair=True, trim=True)), None]
    assert [Ner.format_detector.with_repair(task) for task in (Ner(), *repaired[:2])] == repaired


def test_lists_of_words_in_an_array(tmp_path: Path) -> None:
    rows = [{"tokens": ["Cash", "helped"], "ner_tags": ["B-x", "O"]}, {"tokens": ["No"], "ner_tags": ["I-x"]}]
    (tmp_path / "a.json").write_text(json.dumps(rows[:1]))
    (tmp_path / "b.json").write_text(json.dumps(rows, indent=1))
    file = read_ner(tmp_path / "a.json")
    assert [(item.words, item.tags, item.line) for item in file.items] == [(["Cash", "helped"], ["B-x", "O"], 1)]
    with refused(file="b.json", line=2, problem="I-x begins the sentence, which IOB2 forbids"):
        read_ner(tmp_path / "b.json", NerFormat(scheme="IOB2"))


def test_exports_of_doccano(tmp_path: Path) -> None:
    """Newer ones have entities with offsets of other names, older ones lists under "label"."""
    newer = {
        "text": "A loan",
        "entities": [{"id": 4, "label": "x", "start_offset": 2, "end_offset": 6}],
        "Comments": [],
    }
    assert read_ner(write(tmp_path / "a.jsonl", [newer])).sentences[0].tags == ["O", "B-x"]
    older = write(tmp_path / "b.jsonl", [{"id": 1, "text": "A loan", "label": [[2, 6, "x"]]}])
    with refused(problem="no key 'entities'; ...(write 'entities': [] in a text w... to 'label')"):
        read_ner(older)
    assert read_ner(older, NerFormat(entity_key="label")).sentences[0].tags == ["O", "B-x"]
    broken = write(tmp_path / "c.jsonl", [{"text": "A loan", "entities": [{"label": "x", "from": 2, "to": 6}]}])
    with refused(found="start null and end null", expected="...start_offset and end_offset in doccano..."):
        read_ner(broken)


def test_other_keys_are_named_in_the_format(tmp_path: Path) -> None:
    """As of Prodigy, whose rows have tokens too, and of Doccano."""
    rows: list[Any] = [{"body": "a b", "tokens": [{"text": "a"}], "spans": [{"start": 2, "end": 3, "label": "x"}]}]
    path = write(tmp_path / "a.jsonl", rows)
    assert read_ner(path, NerFormat(text_key="body", entity_key="spans")).sentences[0].tags == ["O", "B-x"]
    with refused(line=1, problem="no key 'text'; found 'body', 'tokens', 'spans'"):
        read_ner(path)
    path = write(tmp_path / "a.jsonl", [{"text": "a b", "label": [[2, 3, "x"]]}])
    assert read_ner(path, NerFormat(entity_key="label")).sentences[0].tags == ["O", "B-x"]
    with refused(line=1, problem="no key 'entities'; found 'text', 'label'..."):
        read_ner(path)


PARTS = [
    "cat",
    "TP53",
    "Cafe\u0301",
    "\u00e9t\u00e9",
    "\U0001f600",
    "\U0001f468\u200d\U0001f469",
    "\u4e2d\u56fd",
    "\u0e01\u0e34",
    "n\u0303",
]
PARTS += [
    " ",
    "  ",
    "\r\n",
    "\n",
    "\t",
    "\u00a0",
    "\u200b",
    "\ufeff",
    "\x00",
    "-",
    "'",
    ".",
    "(",
    "\u2014",
    "[SEP]",
    "\u0130",
    "\ufb01",
    "x" * 120,
]


def random_text(generator: random.Random) -> str:
    return "".join(generator.choices(PARTS, k=generator.randrange(30)))


@pytest.fixture(scope="module", params=[True, False], ids=["uncased", "cased"])
def tokenizer(request: pytest.FixtureRequest) -> DomainTokenizer:
    pieces = [chr(code) for code in range(33, 127)] + ["cat", "caf", "##e", "\u4e2d", "\U0001f600"]
    vocab = {piece: number for number, piece in enumerate([*SPECIAL_TOKENS.values(), *pieces])}
    return DomainTokenizer(bert_backend(vocab, {"do_lower_case": request.param}))


def test_words_of_a_text_are_those_that_prediction_reads(tokenizer: DomainTokenizer) -> None:
    generator = random.Random(0)
    texts = [random_text(generator) for _ in range(500)]
    read = align_text(tokenizer, texts)
    assert [one.word_offsets for one in read] == basic_words(texts)
    words = [[text[start:end] for start, end in one] for text, one in zip(texts, basic_words(texts), strict=True)]
    trained = align_words(tokenizer, words)
    for one, other in zip(read, trained, strict=True):
        assert (one.input_ids, one.word_index, one.starts_pretoken) == (
            other.input_ids,
            other.word_index,
            other.starts_pretoken,
        )


def test_every_entity_on_words_comes_back_at_its_place(tmp_path: Path) -> None:
    generator = random.Random(1)
    rows, wanted = [], []
    for _ in range(300):
        text = random_text(generator)
        words = basic_words([text])[0]
        borders = sorted(generator.sample(range(len(words) + 1), k=min(len(words), 6) // 2 * 2))
        pairs = [
            (words[a][0], words[b - 1][1], generator.choice("xy"))
            for a, b in zip(borders[::2], borders[1::2], strict=True)
        ]
        rows.append({"text": text, "entities": [{"start": s, "end": e, "type": k} for s, e, k in pairs]})
        wanted.append(pairs)
    file = read_ner(write(tmp_path / "a.jsonl", rows))
    assert file.num_spans == sum(map(len, wanted)) > 300
    for row, sentence, pairs in zip(rows, file.sentences, wanted, strict=True):
        words = basic_words([str(row["text"])])[0]
        assert [(words[a][0], words[b - 1][1], kind) for a, b, kind in sentence.spans] == pairs
