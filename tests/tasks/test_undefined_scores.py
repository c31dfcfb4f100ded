"""Scores that the data do not define are undefined, with a reason, not 0."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from domainbert.labelled.entities import NerFile, Sentence
from domainbert.metrics.headline import Headline
from domainbert.metrics.summary import Resampling
from domainbert.report.evaluations import Evaluation, System
from domainbert.report.tables import systems_table
from domainbert.runner.results_table import results_table
from domainbert.stages.evaluated_cards import write_cards
from domainbert.tasks.ner.config import Ner
from domainbert.tasks.ner.scoring import EntityScoring
from domainbert.tasks.regression.config import Regression
from domainbert.tasks.regression.files import NumberFile
from domainbert.tasks.regression.task import Estimate, NumberedText, RegressionScoring
from domainbert.tasks.word_task import TaggedWords


def entity_scoring(tags: str) -> EntityScoring:
    items = [Sentence(["Café", "crédit"], tags.split(), 1, 0), Sentence(["ou"], ["O"], 4, 1)]
    return EntityScoring(Ner(), NerFile(Path("a.conll"), items, "conll", "", [], "IOB2"), None)


def tagged(first: str) -> dict[str, list[TaggedWords]]:
    return {"1": [TaggedWords(first.split(), [0.5, 0.5]), TaggedWords(["O"], [0.5])]}


def test_entity_f1_without_any_entity():
    scoring = entity_scoring("O O")
    scoring.predictions = {"a": tagged("O O"), "b": tagged("B-x O"), "c": tagged("O O")}
    summary = scoring.summary(Resampling(50, 0))
    a, b = summary["systems"]["a"], summary["systems"]["b"]
    assert (a["f1"], a["interval"], a["f1_by_seed"]) == (None, None, {"1": None})
    assert (b["f1"], b["interval"]) == (0, [0, 0])
    assert [(one["difference"], one["interval"]) for one in summary["paired"]] == [(None, None)] * 2
    reason = "f1 is undefined, because neither the test set nor the model has a label"
    assert summary["warnings"] == [f"a: {reason}", f"c: {reason}"]
    lines = scoring.lines(summary)
    assert [line.split()[:2] for line in lines[1:4]] == [["a", "undefined"], ["b", "0.00"], ["c", "undefined"]]
    assert [line.split() for line in lines if line.startswith("a minus b")] == [["a", "minus", "b", "undefined"]]


def test_entity_f1_of_a_model_that_finds_nothing_is_zero():
    scoring = entity_scoring("B-x O")
    scoring.predictions = {"a": tagged("O O")}
    assert scoring.summary(Resampling(50, 0))["systems"]["a"]["f1"] == 0


def test_repaired_tags_of_predictions_that_are_not_counted():
    """`trainer.test` scores predictions, of which nobody counted the repaired tags."""
    scores = entity_scoring("B-x O").scores_of(tagged("B-x O")["1"], SimpleNamespace(labels=("O", "I-x")))
    assert scores["f1"] == 1 and "repaired_tags" not in scores


@pytest.mark.parametrize(
    ("true", "predicted", "why"),
    [
        ((1.0, 2.0, 3.0), (0.5, 0.5, 0.5), "all predictions are equal"),
        ((2, 2, 2), (1, 2, 3), "all true numbers are equal"),
    ],
)
def test_correlations_of_equal_numbers(tmp_path, true, predicted, why):
    items = [NumberedText(f"é {number}", number, line) for line, number in enumerate(true, 1)]
    scoring = RegressionScoring(Regression(), NumberFile(Path("a.jsonl"), items, "jsonl"))
    scoring.predictions = {
        "first": {"1": list(map(Estimate, map(float, predicted))), "2": list(map(Estimate, (1.0, 2.0, 4.0)))},
        "same": {"1": list(map(Estimate, map(float, predicted)))},
    }
    summary = scoring.summary(Resampling(50, 0))
    first = summary["systems"]["first"]
    assert (first["pearson"], first["spearman"], first["interval"]) == (None, None, None) and first["rmse"] > 0
    assert f"first: pearson is undefined, because {why}" in summary["warnings"]
    assert "undefined" in scoring.lines(summary)[1]
    metric = Headline("pearson", "Pearson correlation", percent=False)
    metrics = {"metric": metric.as_json(), **summary}
    assert results_table({"s": {"stage": "evaluate", "metrics": metrics}}).splitlines()[-1].split()[4] == "undefined"
    write_cards(tmp_path, {"first": tmp_path}, Regression(), "a.jsonl", summary["systems"])
    card = (tmp_path / "first/README.md").read_text()
    assert "| Pearson correlation | undefined | mean of " in card and "model-index" not in card
    systems = [System(name, one, None, tmp_path, {}, []) for name, one in summary["systems"].items()]
    table = systems_table(Evaluation("", metric, {}, systems, [], []))
    assert [row[1].text for row in table.rows] == ["undefined"] * 2


def test_correlations_of_equal_numbers_in_slices():
    """Of the lowest number, and of another one."""
    numbers = {"a": (1.0, 1.0), "b": (3.0, 3.0), "c": (1.0, 3.0)}
    rows = [(key, number) for key, values in numbers.items() for number in values]
    items = [NumberedText("é", number, line, slices={"l": key}) for line, (key, number) in enumerate(rows, 1)]
    scoring = RegressionScoring(Regression(format={"slice_keys": ("l",)}), NumberFile(Path("a.jsonl"), items, "jsonl"))
    scoring.predictions = {"a": {"1": list(map(Estimate, (1.0, 2.0) * 3))}}
    slices = scoring.summary(Resampling(50, 0))["systems"]["a"]["slices"]["l"]
    assert [slices[key]["pearson"] for key in numbers] == [None, None, pytest.approx(1)]
    assert [slices[key]["interval"] is None for key in numbers] == [True, True, False]
