from __future__ import annotations

from domainbert.metrics.summary import Resampling
from domainbert.metrics.table import cost_lines
from tests.metrics.scored import classes, entities

DRAWN = Resampling(100, 0)


def test_a_tagger_that_predicts_nothing_is_told_in_the_table() -> None:
    found, none = [[(0, 1, "x")], []], [[], []]
    scoring = entities(found, {"ours": {"seed-1": found, "seed-2": none, "seed-3": none}})
    summary = scoring.summary(DRAWN)
    advice = "it has not learned; train it with another optim.lr or longer"
    assert summary["warnings"] == [f"ours (seed-2, seed-3) predicts no entity at all: {advice}"]
    assert scoring.lines(summary)[2] == f"warning: {summary['warnings'][0]}"
    scoring = entities(none, {"ours": {"seed-1": none}})
    reason = "f1 is undefined, because neither the test set nor the model has a label"
    assert scoring.summary(DRAWN)["warnings"] == [f"ours: {reason}"], "there was none to predict"


def test_a_classifier_that_predicts_one_class_is_told_in_the_table() -> None:
    gold = ["a", "b", "a"]
    scoring = classes(gold, {"one": {"m": ["b"] * 3}, "two": {"m": gold}}, ["a", "b"])
    summary = scoring.summary(DRAWN)
    assert len(summary["warnings"]) == 1
    assert scoring.lines(summary)[3].startswith("warning: one (m) predicts one class only: ")
    scoring = classes(["a"] * 3, {"one": {"m": ["a"] * 3}}, ["a", "b"])
    assert scoring.summary(DRAWN)["warnings"] == []


def test_the_spread_of_the_times_stands_beside_them() -> None:
    cost = {"parameters": 10, "folder_bytes": 10, "pieces_per_word": 1.0, "words_per_second": 5.0, "teachers": []}
    cost |= {"latency_1": 0.1, "latency_32": 0.2, "spread": 0.034}
    head, line = cost_lines({"one": {"f1": 0.8, "cost": cost}})
    assert head.split()[-4:] == ["for", "32", "spread", "speed"] and line.split()[-3:] == ["200.0", "±3%", "1.00x"]


def test_only_a_student_has_a_score_to_keep() -> None:
    cost = {"parameters": 10, "folder_bytes": 10, "pieces_per_word": 1.0, "words_per_second": 5.0}
    cost |= {"latency_1": 0.1, "latency_32": 0.2, "spread": 0.034, "teachers": []}
    systems = {"teacher": {"f1": 0.8, "cost": cost}, "scratch": {"f1": 0.2, "cost": cost}}
    assert [line.split()[-1] for line in cost_lines(systems)] == ["speed", "1.00x", "1.00x"]
    systems["student"] = {"f1": 0.6, "cost": cost | {"teachers": ["teacher"]}}
    assert [line.split("speed")[-1].strip() for line in cost_lines(systems)[:1]] == ["F1 kept"]
    assert [line.rstrip()[-6:].strip() for line in cost_lines(systems)[1:]] == ["1.00x", "1.00x", "75.0 %"]
