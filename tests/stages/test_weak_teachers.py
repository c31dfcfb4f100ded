"""Warnings about teachers that are not better than the small model alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from domainbert.metrics.headline import Headline
from domainbert.stages.warnings import weak_teachers
from domainbert.tasks.ner.config import Ner

SIZES = {"student": 23, "teacher": 110, "alone": 23, "other": 40}


def warnings(folder: Path, scores: dict[str, list[float]], headline: Headline, taught: bool = True) -> list[str]:
    for name, values in scores.items():
        (folder / name).mkdir()
        by_seed = {f"seed-{number}": value for number, value in enumerate(values, 1)}
        (folder / name / "seeds.json").write_text(json.dumps({"best": "seed-1", f"validation_{headline.key}": by_seed}))
    costs = {name: {"parameters": SIZES[name], "teachers": []} for name in scores}
    costs["student"] = {"parameters": 23, "teachers": ["seed-1"] if taught else []}
    return weak_teachers({name: folder / name for name in costs}, costs, headline)


def test_a_teacher_below_the_small_model_is_named_with_both_scores(tmp_path):
    scores = {"teacher": [0.5, 0.6], "alone": [0.6, 0.7], "student": [0.8]}
    assert warnings(tmp_path, scores, Ner().headline) == [
        "models.teacher: validation entity F1 0.5500 is not better than 0.6500 of models.alone, which has the "
        "student's size and no teacher; train 'teacher' for more steps"
    ]


@pytest.mark.parametrize(
    ("scores", "taught"),
    [
        ({"teacher": [0.7], "alone": [0.6], "student": [0.5]}, True),
        ({"teacher": [0.5], "alone": [0.6], "student": [0.5]}, False),
        ({"teacher": [0.5], "student": [0.6]}, True),
        ({"other": [0.9], "teacher": [0.5], "student": [0.6]}, True),
    ],
    ids=["a better teacher", "no student", "no small model alone", "another size"],
)
def test_nothing_is_said_otherwise(tmp_path, scores, taught):
    assert warnings(tmp_path, scores, Ner().headline, taught) == []


def test_an_equal_score_is_not_better(tmp_path):
    assert len(warnings(tmp_path, {"teacher": [0.6], "alone": [0.6], "student": [0.6]}, Ner().headline)) == 1
