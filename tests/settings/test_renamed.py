"""Settings with a new name: the old name gives the same settings and a warning."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from domainbert.base.errors import Problems
from domainbert.base.fields import renamed_from
from domainbert.cli import main
from domainbert.distillation.student_config import StudentConfig
from domainbert.labelled.formats import RowFormat
from domainbert.labelled.sets import LabelledFile, LabelledSet
from domainbert.settings.facts import stage_facts
from domainbert.settings.reader import Settings, read_settings
from domainbert.settings.tree import read_config
from domainbert.stages.check import Check
from domainbert.training.hparams import from_plain
from tests.refusals import fact_rows

ADVICE = "the old name will be removed in the next version"


@dataclass(frozen=True, kw_only=True)
class Teach:
    """Settings of a stage."""

    student: StudentConfig = StudentConfig()
    format: RowFormat = RowFormat()
    train: LabelledSet = field(default_factory=list)
    formats: dict[str, RowFormat] = field(default_factory=dict)
    max_words: int | None = field(default=None, metadata=renamed_from("most_words"))


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("text,label\na,b\n")


def read(text: str, *options: tuple[str, str], cls: type = Teach) -> tuple[Settings, list[Any]]:
    Path("a.yaml").write_text(text)
    problems = Problems("test")
    return read_settings(cls, read_config([Path("a.yaml")], options), problems), fact_rows(problems.errors)


OLD = """\
student:
  every: 2
  narrow: svd
format: {by: [year]}
train: [{path: a.csv, by: {year: "2020"}}]
formats: {one: {by: [language]}}
most_words: 5
"""
NEW = """\
student: {every_nth_layer: 2, embedding_projection: svd}
format: {slice_keys: [year]}
train: [{path: a.csv, slices: {year: "2020"}}]
formats: {one: {slice_keys: [language]}}
max_words: 5
"""


def test_old_names_give_the_same_settings_and_one_warning_each() -> None:
    with pytest.warns(FutureWarning) as warned:
        old, problems = read(OLD)
    assert problems == []
    assert {str(warning.message) for warning in warned} == {
        f"a.yaml:7: most_words: renamed to max_words; {ADVICE}",
        f"a.yaml:2: student.every: renamed to student.every_nth_layer; {ADVICE}",
        f"a.yaml:3: student.narrow: renamed to student.embedding_projection; {ADVICE}",
        f"a.yaml:4: format.by: renamed to format.slice_keys; {ADVICE}",
        f"a.yaml:5: train[0].by: renamed to train[0].slices; {ADVICE}",
        f"a.yaml:6: formats.one.by: renamed to formats.one.slice_keys; {ADVICE}",
    }
    new, _ = read(NEW)
    assert old.instance == new.instance and old.plain == new.plain
    assert old.instance.student == StudentConfig(every_nth_layer=2, embedding_projection="svd")
    assert old.instance.train == [LabelledFile(Path("a.csv"), slices={"year": "2020"})]
    assert old.plain["student"] == {
        "encoder": None,
        "family": None,
        "layers": None,
        "every_nth_layer": 2,
        "first_layers": None,
        "embedding_projection": "svd",
        "init": "teacher",
    }


def test_an_option_may_have_the_old_name() -> None:
    with pytest.warns(FutureWarning) as warned:
        settings, problems = read("", ("student.first", "3"))
    assert [str(warning.message) for warning in warned] == [
        f"--student.first: renamed to student.first_layers; {ADVICE}"
    ]
    assert problems == [] and settings.instance.student.first_layers == 3
    with pytest.warns(FutureWarning, match="^a.yaml:1: most_characters: renamed to max_characters; "):
        assert read("most_characters: 7", cls=Check)[0].arguments["max_characters"] == 7


@pytest.mark.parametrize(
    ("text", "where", "problem", "expected"),
    [
        (
            "student: {every: 2, every_nth_layer: 3}",
            "student.every",
            "found next to every_nth_layer, its new name",
            "only every_nth_layer",
        ),
        (
            "student: {evry: 2}",
            "student.evry",
            "unknown key",
            "one of encoder, family, layers, every_nth_layer, first_layers, embedding_projection, init",
        ),
        ("student: {every_nth: 2}", "student.every_nth", "unknown key", "did you mean 'every_nth_layer'?"),
        ("most_word: 2", "most_word", "unknown key", "did you mean 'max_words'?"),
    ],
)
def test_two_names_and_similar_names_are_errors(
    text: str, where: str, problem: str, expected: str, recwarn: pytest.WarningsRecorder
) -> None:
    assert read(text)[1] == [("a.yaml:1", where, problem, expected)]
    assert not recwarn.list


def test_an_option_next_to_a_key_with_the_new_name_is_an_error() -> None:
    problem = "found next to max_words, its new name"
    assert read("max_words: 2", ("most_words", "3"))[1] == [("", "--most_words", problem, "only max_words")]


def test_an_error_in_the_value_is_reported_at_its_line_by_the_new_name() -> None:
    with pytest.warns(FutureWarning):
        assert read("student:\n  layers: [0]\n  every: 2\n")[1] == [
            ("a.yaml:3", "student.every_nth_layer", "found next to 'layers'", "only one of these keys")
        ]


def test_a_record_with_old_names_is_up_to_date() -> None:
    now = stage_facts("teach", Teach, read(NEW)[0], {})
    names = {
        "student.every_nth_layer": "student.every",
        "student.first_layers": "student.first",
        "student.embedding_projection": "student.narrow",
        "format.slice_keys": "format.by",
        "train[0].slices.year": "train[0].by.year",
        "formats.one.slice_keys": "formats.one.by",
        "max_words": "most_words",
    }
    assert names.keys() <= now.facts.keys()
    before = {names.get(name, name): fact for name, fact in now.facts.items()}
    assert now.changes(before) == {} and now.stale_reason(before) == ""
    assert now.changes({**before, "student.every": 3}) == {
        "student.every_nth_layer": "student.every_nth_layer was 3, is now 2"
    }


def test_a_checkpoint_with_old_names_is_read() -> None:
    assert from_plain(StudentConfig, {"every": 2}) == StudentConfig(every_nth_layer=2)
    assert from_plain(RowFormat, {"by": ["year"]}) == RowFormat(slice_keys=("year",))


def test_print_config_and_help_show_only_the_new_names(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(FutureWarning, match="^--student.every: renamed to student.every_nth_layer; "):
        assert main(["distill-task", "--student.every", "2", "--print_config"]) == 0
    printed = capsys.readouterr().out
    assert "  every_nth_layer: 2\n" in printed and " every:" not in printed
    assert main(["distill-task", "--help"]) == 0
    printed = capsys.readouterr().out
    assert "--student.every_nth_layer " in printed and "--student.every " not in printed


def test_the_command_prints_the_warning_in_one_line() -> None:
    words = [sys.executable, "-m", "domainbert", "check", "--most_characters", "5", "--print_config"]
    run = subprocess.run(words, capture_output=True, text=True, check=True)
    assert run.stderr == f"warning: --most_characters: renamed to max_characters; {ADVICE}\n"
    assert "max_characters: 5\n" in run.stdout
