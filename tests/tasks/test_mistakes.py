"""The mistakes that each task reports: marks on the right characters, of the right kinds, the worst first."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domainbert.labelled.entities import NerFile, Sentence
from domainbert.labelled.tag_schemes import spans_from_tags, to_iob2
from domainbert.labelled.tagged_files import TaggedSentence
from domainbert.metrics.entities import error_kinds
from domainbert.tasks.classification.config import Classification
from domainbert.tasks.classification.files import ClassFile
from domainbert.tasks.classification.files import LabelledText as ClassifiedText
from domainbert.tasks.classification.scoring import ClassScoring, TextPrediction
from domainbert.tasks.mistakes import CONTEXT, MAX_UNCUT, Mark, Mistake, excerpt
from domainbert.tasks.multi_label.config import MultiLabel
from domainbert.tasks.multi_label.files import LabelledText, MultiLabelFile
from domainbert.tasks.multi_label.scoring import LabelsOfText, MultiLabelScoring
from domainbert.tasks.ner.config import Ner
from domainbert.tasks.ner.scoring import EntityScoring
from domainbert.tasks.parsing.config import Parsing
from domainbert.tasks.parsing.files import Sentence as Parsed
from domainbert.tasks.parsing.files import Treebank
from domainbert.tasks.parsing.scoring import TreeScoring
from domainbert.tasks.parsing.trees import Tree
from domainbert.tasks.question_answering.config import QuestionAnswering
from domainbert.tasks.question_answering.files import Answer, Question, QuestionFile
from domainbert.tasks.question_answering.reader import Reply
from domainbert.tasks.question_answering.scoring import AnswerScoring
from domainbert.tasks.regression.config import Regression
from domainbert.tasks.regression.files import NumberedText, NumberFile
from domainbert.tasks.regression.task import Estimate, RegressionScoring
from domainbert.tasks.relations.config import Relations
from domainbert.tasks.relations.files import RelatedEntities, RelationFile
from domainbert.tasks.relations.marked import find_markers
from domainbert.tasks.relations.scoring import Relation, RelationScoring
from domainbert.tasks.token_labels.config import TokenLabels
from domainbert.tasks.token_labels.files import TokenLabelFile
from domainbert.tasks.token_labels.task import WordScoring
from domainbert.tasks.word_task import TaggedWords

PATH = Path("données.jsonl")
MARKERS = ("<<", ">>", "[[", "]]")


def written(scoring: Any, predictions: Sequence[Any], folder: Path) -> list[dict[str, Any]]:
    """The rows of the file of mistakes, which has the same bytes twice."""
    scoring.predictions = {"a": {"seed-1": list(predictions)}}
    files = folder / "one.jsonl", folder / "other.jsonl"
    for file in files:
        scoring.write_mistakes("a", "seed-1", file)
    assert files[0].read_bytes() == files[1].read_bytes()
    rows = [json.loads(line) for line in files[0].read_text(encoding="utf-8").splitlines()]
    assert [row["severity"] for row in rows] == sorted((row["severity"] for row in rows), reverse=True)
    return rows


def shown(row: dict[str, Any], side: str) -> list[tuple[Any, ...]]:
    """Characters, label and kind of each mark."""
    places = [(mark.get("start"), mark.get("end")) for mark in row[side]]
    texts = ["" if start is None else row["text"][start:end] for start, end in places]
    return [(text, mark["label"], mark.get("kind")) for text, mark in zip(texts, row[side], strict=True)]


def entities(sentences: Sequence[tuple[str, str]]) -> EntityScoring:
    """A test set of words and tags."""
    items = [Sentence(words.split(), tags.split(), 10 * n, n) for n, (words, tags) in enumerate(sentences, 1)]
    return EntityScoring(Ner(), NerFile(PATH, items, "jsonl", "", [], "IOB2"), None)


def test_entities(tmp_path: Path) -> None:
    words = "Naïve 🄱ayes </script> cured the œdème of Zoë ."
    scoring = entities(
        [
            ("a b", "B-x I-x"),
            (words, "B-m I-m O O O B-d O B-p O"),
            (words, "O O O O O O O O O"),
        ]
    )
    tags = ["B-m", "I-m", "O", "O", "B-d", "I-d", "O", "B-d", "B-p"]
    scores = [0.9, 0.9, 1, 1, 0.75, 0.75, 1, 0.25, 0.5]
    missing = TaggedWords(["O", "O"], [0.5, 0.75])
    right = TaggedWords(["O"] * 9, [1.0] * 9)
    mixed, missed = written(scoring, [missing, TaggedWords(tags, scores), right], tmp_path)
    assert (mixed["line"], missed["line"]) == (20, 10)
    assert shown(mixed, "gold") == [
        ("Naïve 🄱ayes", "m", "correct"),
        ("œdème", "d", "boundary"),
        ("Zoë", "p", "type"),
    ]
    assert shown(mixed, "predicted") == [
        ("Naïve 🄱ayes", "m", "correct"),
        ("the œdème", "d", "boundary"),
        ("Zoë", "d", "type"),
        (".", "p", "spurious"),
    ]
    assert [mark["score"] for mark in mixed["predicted"]] == [0.9, 0.75, 0.25, 0.5]
    assert (mixed["kinds"], mixed["labels"]) == (["boundary", "spurious", "type"], ["d", "p"])
    assert mixed["severity"] == 0.75, "severity of the boundary error"
    assert missed["severity"] == 0.5, "probability of no entity at its less certain word"
    assert missed["gold"] == [{"label": "x", "start": 0, "end": 3, "kind": "missed"}] and missed["predicted"] == []
    facts = scoring.facts("a")
    assert facts["by_words"] == {"0-8": {"support": 1, "right": 0.0}, "9-16": {"support": 2, "right": 0.5}}
    assert facts["confusion"]["labels"] == ["d", "m", "p", "x", "none"]
    assert facts["confusion"]["counts"] == [
        [1, 0, 0, 0, 0],
        [0, 1, 0, 0, 0],
        [1, 0, 0, 0, 0],
        [0, 0, 0, 0, 1],
        [0, 0, 1, 0, 0],
    ]
    assert [(one["confidence"], one["accuracy"]) for one in facts["reliability"]["bins"]] == [
        (0.25, 0),
        (0.5, 0),
        (0.75, 0),
        (0.9, 1),
    ]


def test_the_row_in_the_documentation(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/reference/evaluation.md").read_text(encoding="utf-8")
    row = json.loads(page.split("```text")[1].split("```")[0])
    items = [Sentence(row["text"].split(), ["B-policy", "I-policy", "O", "B-outcome", "O"], 12, 0)]
    scoring = EntityScoring(Ner(), NerFile(PATH, items, "jsonl", "", [], "IOB2"), None)
    said = TaggedWords(["O", "B-policy", "O", "O", "O"], [0.25, 0.75, 0.9, 0.875, 1.0])
    assert written(scoring, [said], tmp_path) == [row]


tags = st.lists(st.sampled_from(["O", "B-x", "I-x", "B-y", "I-y"]), min_size=1, max_size=9)


@given(st.lists(st.tuples(tags, st.randoms(use_true_random=False)), min_size=1, max_size=6))
def test_marks_of_entities_are_counted_as_the_error_slices_count_them(given: Any) -> None:
    golds = [to_iob2(one) for one, _ in given]
    said = [to_iob2(draw.choices(["O", "B-x", "I-x", "B-y", "I-y"], k=len(one))) for one, draw in given]
    scoring = entities([("é " * len(one), " ".join(one)) for one in golds])
    found = [scoring.mistake(i, TaggedWords(t, [0.5] * len(t))) for i, t in zip(scoring.test.items, said, strict=True)]
    assert [one is None for one in found] == [one == other for one, other in zip(golds, said, strict=True)]
    kinds = Counter(mark.kind for one in found if one for mark in one.gold)
    kinds.update(mark.kind for one in found if one for mark in one.predicted if mark.kind == "spurious")
    expected = error_kinds([spans_from_tags(one) for one in golds], [spans_from_tags(one) for one in said])
    del kinds["correct"], expected["correct"]
    assert {kind: kinds[kind] for kind in expected} == expected


def test_classes_of_a_set_of_two_files(tmp_path: Path) -> None:
    texts = {
        name: [ClassifiedText(f"{name} {n}", label, n) for n, label in enumerate("éab", 1)] for name in ("fr", "de")
    }
    one, other = (ClassFile(Path(f"{name}.jsonl"), items, "jsonl") for name, items in texts.items())
    both = ClassFile(Path("."), [*one.items, *other.items], "jsonl", parts=(one, other))
    scoring = ClassScoring(Classification(), both)
    predictions = [TextPrediction(label, {"é": 0.25, "a": 0.5, "b": 0.25}) for label in "éaaaab"]
    rows = written(scoring, predictions, tmp_path)
    assert [row["line"] for row in rows] == ["fr.jsonl:3", "de.jsonl:1"], "of equals the first in the file first"
    assert rows[1] == {
        "line": "de.jsonl:1",
        "item": 3,
        "text": "de 1",
        "gold": [{"label": "é", "score": 0.25, "kind": "type"}],
        "predicted": [{"label": "a", "score": 0.5, "kind": "type"}],
        "kinds": ["type"],
        "labels": ["a", "é"],
        "severity": 0.5,
    }
    assert scoring.facts("a")["confusion"] == {"labels": ["a", "b", "é"], "counts": [[2, 0, 0], [1, 1, 0], [1, 0, 1]]}
    assert scoring.facts("a")["reliability"]["bins"] == [
        {"confidence": 0.25, "accuracy": 1.0, "count": 2},
        {"confidence": 0.5, "accuracy": 0.5, "count": 4},
    ]


def test_any_number_of_labels(tmp_path: Path) -> None:
    labels = [("joy", "love"), ("joy",), ("joy",), ()]
    items = [LabelledText(f"texte {n}", of_text, n) for n, of_text in enumerate(labels, 1)]
    scoring = MultiLabelScoring(MultiLabel(), MultiLabelFile(PATH, items, "jsonl"))
    said = [("joy",), ("joy",), ("love",), ("joy", "love")]
    some = {"joy": 0.5, "love": 0.125}
    rows = written(scoring, [LabelsOfText(list(one), some) for one in said], tmp_path)
    assert [row["line"] for row in rows] == [1, 3, 4]
    assert shown(rows[0], "gold") == [("", "joy", "correct"), ("", "love", "missed")]
    assert [row["severity"] for row in rows] == [0.875, 0.5, 0.5]
    assert (rows[1]["kinds"], rows[1]["labels"]) == (["missed", "spurious"], ["joy", "love"])
    assert rows[2]["gold"] == [] and rows[2]["kinds"] == ["spurious"]
    facts = scoring.facts("a")
    assert facts["confusion"] == {"labels": ["joy", "love", "none"], "counts": [[2, 1, 0], [0, 0, 1], [1, 1, 0]]}
    assert [tuple(one.values()) for one in facts["reliability"]["bins"]] == [(0.125, 0.25, 4), (0.5, 0.75, 4)]


def test_numbers(tmp_path: Path) -> None:
    items = [NumberedText(f"prix {n}", number, n, text_pair="été") for n, number in enumerate([1.0, 3.0, 1.0, 3.0], 1)]
    scoring = RegressionScoring(Regression(), NumberFile(PATH, items, "jsonl"))
    rows = written(scoring, [Estimate(one) for one in (1.0, 6.0, 0.0, 2.0000001)], tmp_path)
    assert [(row["line"], row["kinds"], row["labels"]) for row in rows] == [
        (2, ["too high"], []),
        (3, ["too low"], []),
        (4, ["too low"], []),
    ]
    assert rows[0]["severity"] == 3 / 4 and rows[1]["severity"] == 1 / 2, "errors of 3 and 1 deviation"
    assert (rows[2]["gold"], rows[2]["predicted"]) == ([{"label": "3"}], [{"label": "2", "kind": "too low"}])
    assert rows[0]["text_pair"] == "été" and scoring.facts("a") == {}


def test_relations(tmp_path: Path) -> None:
    texts = ["<< œstrogen >> raises [[ <b> ]]", "[[ b ]] and << a >>", "<< a >> [[ b ]]", "<< a >> [[ b ]]"]
    golds = ["up", "none", "up", "none"]
    pairs = enumerate(zip(texts, golds, strict=True), 1)
    items = [RelatedEntities(find_markers(text, MARKERS), label, line) for line, (text, label) in pairs]
    scoring = RelationScoring(Relations(negative="none"), RelationFile(PATH, items, "jsonl"))
    said = ["down", "up", "none", "none"]
    scores = {"down": 0.5, "up": 0.25, "none": 0.25}
    rows = written(scoring, [Relation(label, scores) for label in said], tmp_path)
    entities = [("œstrogen", "head", None), ("<b>", "tail", None)]
    assert shown(rows[0], "gold") == [("", "up", "type"), *entities]
    assert shown(rows[1], "gold") == [("a", "head", None), ("b", "tail", None)]
    assert [row["kinds"] for row in rows] == [["type"], ["spurious"], ["missed"]]
    assert [row["labels"] for row in rows] == [["down", "up"], ["up"], ["up"]]
    assert rows[2]["predicted"] == [] and rows[2]["gold"][0] == {"label": "up", "score": 0.25, "kind": "missed"}


def test_labels_of_words(tmp_path: Path) -> None:
    words = ["Zoë", "et", "les", "naïfs", "."]
    items = [TaggedSentence(words, ["P", "O", "P", "P", "O"], 3, 0)]
    said = TaggedWords(["P", "O", "I", "I", "O"], [0.9, 0.8, 0.25, 0.5, 0.9])
    scoring = WordScoring(TokenLabels(), TokenLabelFile(PATH, items, "conll", "", []))
    (row,) = written(scoring, [said], tmp_path)
    assert shown(row, "gold") == [("Zoë", "P", "correct"), ("les naïfs", "P", "type")]
    assert shown(row, "predicted") == [("Zoë", "P", "correct"), ("les naïfs", "I", "type")]
    assert (row["severity"], row["predicted"][1]["score"], row["labels"]) == (0.5, 0.5, ["I", "P"])
    assert scoring.facts("a")["confusion"] == {"labels": ["I", "O", "P"], "counts": [[0, 0, 0], [0, 2, 0], [2, 0, 1]]}
    assert sum(one["count"] for one in scoring.facts("a")["reliability"]["bins"]) == 5
    missed = TaggedWords(["P", "P", "O", "P", "O"], [0.9, 0.75, 0.5, 0.9, 0.9])
    (row,) = written(scoring, [missed], tmp_path)
    assert shown(row, "gold") == [("Zoë", "P", "correct"), ("les", "P", "missed"), ("naïfs", "P", "correct")]
    assert shown(row, "predicted")[1] == ("et", "P", "spurious") and row["kinds"] == ["missed", "spurious"]


def test_trees(tmp_path: Path) -> None:
    words, heads, labels = ["Zoë", "a", "vu", "ça"], [3, 3, 0, 3], ["nsubj", "aux", "root", "obj"]
    items = [Parsed(words, heads, labels, ["_"] * 4, [], 7, 0)]
    scoring = TreeScoring(Parsing(), Treebank(PATH, items, "conll", False))
    tree = Tree([(4, "obj"), (3, "obj"), (0, "root"), (1, "obj")], [0.25, 0.5, 0.9, 0.75])
    (row,) = written(scoring, [tree], tmp_path)
    assert shown(row, "gold") == [("Zoë", "nsubj", "head and label"), ("a", "aux", "label"), ("ça", "obj", "head")]
    assert [mark["head"] for mark in row["gold"]] == ["vu", "vu", "vu"]
    assert [mark["head"] for mark in row["predicted"]] == ["ça", "vu", "Zoë"]
    assert (row["line"], row["severity"], row["labels"]) == (7, 0.75, ["aux", "nsubj", "obj"])
    facts = scoring.facts("a")
    assert facts["confusion"]["counts"] == [[0, 0, 1, 0], [0, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    assert [one["accuracy"] for one in facts["reliability"]["bins"]] == [0, 0, 0, 1]


def test_answers(tmp_path: Path) -> None:
    context = "La Zoë lives in the Łódź centre."
    answers = [(Answer("Łódź", 20), Answer("Łódź", 20)), (Answer("Zoë", 3),), (), (), (Answer("Zoë", 3),)]
    items = [Question(str(n), "Où ?", context, one, n) for n, one in enumerate(answers, 1)]
    scoring = AnswerScoring(QuestionAnswering(), QuestionFile(PATH, items, "jsonl"))
    near, nothing = Reply("Łódź centre", 20, 31, 0.75, 0.0, []), Reply("", None, None, 0.5, 1.0, [])
    rows = written(scoring, [near, nothing, near, nothing, near], tmp_path)
    assert [(row["line"], row["kinds"]) for row in rows] == [
        (1, ["boundary"]),
        (3, ["spurious"]),
        (5, ["missed", "spurious"]),
        (2, ["missed"]),
    ]
    assert shown(rows[0], "gold") == [("Łódź", "answer", "boundary")]
    assert shown(rows[0], "predicted") == [("Łódź centre", "answer", "boundary")]
    assert rows[1]["gold"] == [] and rows[3]["predicted"] == [] and rows[3]["severity"] == 0.5
    assert (rows[0]["text"], rows[0]["text_pair"]) == (context, "Où ?")
    facts = scoring.facts("a")
    assert facts["confusion"] == {"labels": ["answer", "none"], "counts": [[2, 1], [1, 1]]}
    assert [tuple(one.values()) for one in facts["reliability"]["bins"]] == [(0.5, 0.5, 2), (0.75, 0.0, 3)]


word = st.text("aé🙂 <…", min_size=1, max_size=12)


@given(st.lists(word, max_size=400), st.data())
def test_an_excerpt_has_its_places_where_they_were(words: list[str], data: st.DataObject) -> None:
    text = " ".join(words)
    place = st.integers(0, max(len(text) - 1, 0)).flatmap(
        lambda start: st.tuples(st.just(start), st.integers(min(start + 1, len(text)), min(start + 50, len(text))))
    )
    around, others = (data.draw(st.lists(place, max_size=3)) for _ in range(2))
    cut = excerpt(text, around, [*around, *others])
    whole = len(text) <= MAX_UNCUT
    assert (cut.text == text) == whole or not around
    for start, end in [*around, *others]:
        moved = cut.shift((start, end))
        assert moved is None or cut.text[slice(*moved)] == text[start:end]
        assert moved is not None or (start, end) not in around
    kept = [text[slice(*stretch)] for stretch, _ in cut.kept]
    assert cut.text.replace("…", "").split() == " ".join(kept).replace("…", "").split()
    assert sum(map(len, kept)) <= max(MAX_UNCUT + 30, len(around) * (2 * CONTEXT + 2 * 30 + 50) + 50 * len(others))
    assert whole or cut.text.startswith("… ") or cut.kept[0][0][0] == 0


def test_a_long_text_is_shown_around_what_is_wrong() -> None:
    words = [f"mot{number:03}" for number in range(1000)]
    text = " ".join(words)
    marks = [
        Mark("x", 7 * n, 7 * n + 6, kind=kind) for n, kind in [(300, "missed"), (310, "correct"), (900, "correct")]
    ]
    row = Mistake(text, marks, [Mark("x", 7 * 301, 7 * 301 + 6, 0.5, "spurious")], 0.5, text_pair=text).as_json()
    assert [row["text"][mark["start"] : mark["end"]] for mark in row["gold"]] == ["mot300", "mot310"]
    assert [row["text"][mark["start"] : mark["end"]] for mark in row["predicted"]] == ["mot301"]
    assert row["text"].startswith("… mot271 ") and row["text"].endswith(" mot330 …") and len(row["text"]) < 450
    assert row["text_pair"] == f"{' '.join(words[:86])} …"
    whole = Mistake(text, [Mark("up")], [Mark("down", kind="type")], 0.5).as_json()
    assert whole["text"] == row["text_pair"] and whole["gold"] == [{"label": "up"}]


@pytest.mark.parametrize("kind", ["missed", "spurious"])
def test_two_places_far_from_each_other_are_two_parts(kind: str) -> None:
    text = "é" * 3000
    row = Mistake(text, [Mark("x", start, start + 5, kind=kind) for start in (1000, 2500)], [], 1.0).as_json()
    assert row["text"] == f"… {'é' * 405} … {'é' * 405} …"
    assert [mark["start"] for mark in row["gold"]] == [202, 202 + 405 + 3]
