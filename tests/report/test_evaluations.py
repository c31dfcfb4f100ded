"""Systems of different runs on one test set."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from domainbert.base.table import Number
from domainbert.metrics.summary import Resampling
from domainbert.report.evaluations import Evaluation, evaluations
from domainbert.report.runs import read_runs
from domainbert.report.tables import further_table, label_tables, slice_tables
from domainbert.report.verdict import verdicts
from tests.metrics.scored import classes
from tests.report.hand_made import METRIC, evaluated, put, record_again, stage, system

LABELS = ["a", "b", "c"]


def found(*folders: Path) -> list[Evaluation]:
    return evaluations(read_runs(folders))


def test_the_interval_of_two_runs_is_that_of_one_evaluation_of_both(tmp_path: Path) -> None:
    """The same documents are drawn for both, so pairing saved draws is pairing; their seeds are drawn apart."""
    draw = random.Random(0)
    gold = [draw.choice(LABELS) for _ in range(60)]
    said = {
        name: {
            f"seed-{seed}": [one if draw.random() < right + seed / 20 else draw.choice(LABELS) for one in gold]
            for seed in range(3)
        }
        for name, right in {"ours": 0.7, "theirs": 0.5}.items()
    }
    how = Resampling(200, 7)
    together = classes(gold, said, LABELS).summary(how)["paired"][0]
    for name, runs in said.items():
        folder = tmp_path / name / "result"
        stage(folder, "evaluate", config={"test": "test.jsonl 12"})
        summary = classes(gold, {"model": runs}, LABELS).summary(how)
        draws = summary.pop("draws")
        put(folder / "metrics.json", {"metric": METRIC, "gold": 60, "test": "test.jsonl", **summary})
        put(folder / "draws.json", {"drawn": {"seed": 7, "resamples": 200, "units": 60}, "systems": draws})
    (one,) = found(tmp_path / "ours", tmp_path / "theirs")
    (pair,) = one.pairs
    assert (pair.a, pair.b) == ("model (ours)", "model (theirs)")
    assert pair.difference == pytest.approx(together["difference"])
    assert pair.interval == pytest.approx(together["interval"])


def test_a_stage_whose_name_begins_like_that_of_the_test_set_does_not_count(tmp_path: Path) -> None:
    for name, key in (("a", "1"), ("b", "2")):
        evaluated(tmp_path / name / "result", {"model": 0.5}, test="@split-new/test.conll")
        made_from = {"test": "@split-new/test.conll", "@split-new": "same", "@split": key}
        record_again(tmp_path / name / "result", made_from=made_from)
    assert len(found(tmp_path / "a", tmp_path / "b")) == 1


def test_without_the_same_draws_the_difference_has_no_interval_and_says_why(tmp_path: Path) -> None:
    evaluated(tmp_path / "a/result", {"model": 0.75})
    evaluated(tmp_path / "b/result", {"model": 0.5})
    draws = {"drawn": {"seed": 1}, "systems": {"model": [0.7, 0.8]}}
    put(tmp_path / "a/result/draws.json", draws)
    put(tmp_path / "b/result/draws.json", {**draws, "drawn": {"seed": 2}})
    (one,) = found(tmp_path / "a", tmp_path / "b")
    assert one.pairs[0].interval is None and one.title == ""
    assert verdicts(one) == [
        "model (a) is ahead of model (b) by 25.0 points of entity F1; the significance is unknown, because they were "
        "not evaluated on the same resamples."
    ]


def test_undefined_draws_are_left_out_of_a_paired_interval(tmp_path: Path) -> None:
    for name, draws in (("a", [0.7, None, 0.9, 1.0]), ("b", [0.5, 0.1, None, 0.8])):
        evaluated(tmp_path / name / "result", {"model": 0.75})
        put(tmp_path / name / "result/draws.json", {"drawn": {"seed": 1}, "systems": {"model": draws}})
    (one,) = found(tmp_path / "a", tmp_path / "b")
    assert one.pairs[0].interval == pytest.approx([0.2, 0.2])


def test_other_test_sets_stay_apart_and_so_do_two_evaluations_of_one_run(tmp_path: Path) -> None:
    evaluated(tmp_path / "a/result", {"model": 0.75})
    evaluated(tmp_path / "a/later", {"model": 0.7})
    evaluated(tmp_path / "b/result", {"model": 0.5}, test="test.conll 5678")
    evaluated(tmp_path / "b/same", {"model": 0.4})
    names = [(one.title, [system.name for system in one.systems]) for one in found(tmp_path / "a", tmp_path / "b")]
    assert names == [("later, same", ["model (a)", "model (b)"]), ("result", ["model (a)"]), ("result", ["model (b)"])]


def test_what_only_a_later_run_has_scored_is_shown_too(tmp_path: Path) -> None:
    sliced = {"year": {"2020": {"count": 3, "f1": 0.25}}}
    more = {**system(0.4, 0.3, 0.5), "lenient": {"f1": 0.75}, "slices": sliced}
    more |= {"calibration": {"ece": 0.25, "temperature": 0.83}, "errors": {"correct": 1.0}, "best_f1_threshold": -0.7}
    less = {key: value for key, value in system(0.5, 0.4, 0.6).items() if key not in ("per_type", "by_novelty")}
    evaluated(tmp_path / "old/ner", {"a": 0.5}, systems={"a": less})
    evaluated(tmp_path / "new/ner", {"b": 0.4}, systems={"b": more})
    (one,) = found(tmp_path / "old", tmp_path / "new")
    assert ["lenient, f1", "", Number("75.00", 0.75)] in further_table(one).rows
    assert ["calibration, ece", "", Number("25.00", 0.25)] in further_table(one).rows
    as_they_are = ["calibration, temperature", "errors, correct", "best f1 threshold"]
    shown = {row[0]: row[2].text for row in further_table(one).rows if isinstance(row[2], Number)}
    assert [shown[name] for name in as_they_are] == ["0.83", "1", "-0.7"]
    assert [table.caption for table in label_tables(one)] == ["per type"]
    assert [table.caption for table in slice_tables(one)] == ["by novelty", "by year"]
    assert slice_tables(one)[1].rows == [["2020", Number("3", 3), "", Number("25.00", 0.25)]]


def test_equal_scores_put_nobody_ahead(tmp_path: Path) -> None:
    for name in ("one", "two"):
        evaluated(tmp_path / name / "ner", {"a": 0.5})
    (one,) = found(tmp_path / "one", tmp_path / "two")
    (verdict,) = verdicts(one)
    assert verdict.startswith("a (one) and a (two) score the same; the significance is unknown")
