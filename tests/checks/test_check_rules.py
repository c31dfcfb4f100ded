"""Rules on labelled sets: each finds the fault that was planted for it, and no other one does."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from domainbert.checks import corpus_rules
from domainbert.checks.rules import LABELLED_SET_RULES
from domainbert.stages.check import check
from domainbert.tasks.classification.config import Classification
from tests.refusals import refused

_SPEC = importlib.util.spec_from_file_location("planted", Path(__file__).with_name("planted.py"))
assert _SPEC is not None and _SPEC.loader is not None
planted = importlib.util.module_from_spec(_SPEC)
sys.modules["planted"] = planted
_SPEC.loader.exec_module(planted)


def looked_at(folder: Path, rows: Any, task: Any, **settings: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the stage returns, and `check.json`."""
    labelled = {name: str(path) for name, path in planted.written(folder / "data", rows).items()}
    result = check(folder / "out", labelled=labelled, task=task, **settings)
    return result, json.loads((folder / "out/check.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("task", planted.TASKS)
def test_nothing_is_found_in_clean_sets(task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result, report = looked_at(tmp_path, planted.TASKS[task](), task)
    assert report["findings"] == [] and result == {"findings": {}, "errors": [], "warnings": []}
    assert capsys.readouterr().out == "check: nothing found\n"
    assert {name: one["items"] for name, one in report["data"].items()} == planted.SIZES
    expected = {"down": 120, "up": 120} if task == "Classification" else {"disease": 160}
    assert report["data"]["train"]["labels"] == expected


@pytest.mark.parametrize("fault", planted.FAULTS, ids=lambda fault: fault.rule)
def test_the_fault_of_a_rule_is_found_and_no_other(fault: Any, tmp_path: Path) -> None:
    _, report = looked_at(tmp_path, planted.planted(fault), fault.task, thresholds=dict(fault.thresholds))
    found = [(one["rule"], one["count"]) for one in report["findings"]]
    assert found == [(fault.rule, fault.count)], [one["message"] for one in report["findings"]]
    for place in report["findings"][0]["places"]:
        assert Path(place["path"]).is_file() and place["line"] >= 1
    assert len(report["findings"][0]["places"]) <= 20


def places(report: Mapping[str, Any]) -> list[str]:
    return [f"{Path(place['path']).name}:{place['line']}: {place['text']}" for place in report["findings"][0]["places"]]


def fault(rule: str) -> Any:
    return next(one for one in planted.FAULTS if one.rule == rule)


def test_places_say_what_stands_where(tmp_path: Path) -> None:
    _, report = looked_at(tmp_path / "a", planted.planted(fault("broken-characters")), "Classification")
    assert places(report)[0].startswith("test.jsonl:4: 'Ã©' in: ") and places(report)[0].endswith("cafÃ©")
    _, report = looked_at(tmp_path / "b", planted.planted(fault("same-text-in-train-and-test")), "Classification")
    train = tmp_path / "b/data/train.jsonl"
    assert [one.split(") ")[0] for one in places(report)] == [f"test.jsonl:{n}: (and {train}:{n}" for n in (1, 2)]
    _, report = looked_at(tmp_path / "c", planted.planted(fault("surface-missed")), "Ner")
    assert places(report)[0].startswith("train.jsonl:2: 'Ébola' in: ")


def test_a_leak_is_an_error_where_it_is_more_than_a_twentieth(tmp_path: Path) -> None:
    rows = planted.classes()
    for number in range(4):
        rows["test"][number] = dict(rows["train"][number])
    rows["test"][0]["label"] = "up"
    result, report = looked_at(tmp_path / "a", rows, "Classification")
    one = report["findings"][0]
    assert (one["severity"], one["count"], one["threshold"]) == ("error", 4, 0.05)
    assert one["message"] == "4 of 60 texts of test are also in train, 1 of them with other labels"
    assert result["errors"] == [
        "same-text-in-train-and-test: 4 of 60 texts of test are also in train, 1 of them with other labels; "
        "correct the data, or set ignore: {same-text-in-train-and-test: your reason} for check"
    ]
    assert result["warnings"] == [one["message"]]
    ignored = {"ignore": {"same-text-in-train-and-test": "café"}}
    result, _ = looked_at(tmp_path / "c", rows, "Classification", **ignored)
    assert (result["errors"], result["warnings"]) == ([], [f"{one['message']} (ignored: café)"]), "beside the scores"
    rows["test"][3] = planted.classes()["test"][3]
    result, report = looked_at(tmp_path / "b", rows, "Classification")
    assert (report["findings"][0]["severity"], result["errors"]) == ("warning", [])


def test_what_is_ignored_has_a_reason_and_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = planted.planted(fault("unknown-label"))
    result, _ = looked_at(tmp_path / "a", rows, "Classification")
    assert result["errors"][0].startswith("unknown-label: the label 'sideways' of test (count 1)")
    result, report = looked_at(tmp_path / "b", rows, "Classification", ignore={"unknown-label": "a typing error"})
    assert (result["errors"], report["findings"][0]["ignored"]) == ([], "a typing error")
    assert "error  unknown-label (ignored: a typing error)" in capsys.readouterr().out


def test_warnings_are_errors_where_it_is_strict(tmp_path: Path) -> None:
    rows = planted.planted(fault("broken-characters"))
    assert looked_at(tmp_path / "a", rows, "Classification")[0]["errors"] == []
    assert len(looked_at(tmp_path / "b", rows, "Classification", strict=True)[0]["errors"]) == 1
    ignored = {"strict": True, "ignore": {"broken-characters": "about encodings"}}
    assert looked_at(tmp_path / "c", rows, "Classification", **ignored)[0]["errors"] == []


def test_files_that_cannot_be_read_are_findings_and_the_others_are_looked_at(tmp_path: Path) -> None:
    paths = planted.written(tmp_path, planted.planted(fault("broken-characters")))
    lines = paths["train"].read_text().splitlines()
    lines[6:8] = ["{", '{"text": "", "label": "up"}']
    paths["train"].write_text("\n".join(lines))
    labelled = {name: str(path) for name, path in paths.items()}
    result = check(tmp_path / "out", labelled=labelled, task="Classification")
    assert result["findings"] == {"unreadable": 2, "broken-characters": 1}
    assert result["errors"][0].endswith("cannot be read: 2 problems; correct the data"), "no advice to ignore the rule"
    first = json.loads((tmp_path / "out/check.json").read_text())["findings"][0]
    assert [place["line"] for place in first["places"]] == [7, 8] and first["severity"] == "error"


def test_a_reason_is_shown_with_its_blanks(tmp_path: Path) -> None:
    """A value that is wrong by its blanks would look right."""
    path = tmp_path / "train.csv"
    path.write_text("text,label\nA text.,up  and \u00e9\nOther.,two  blanks \n")
    check(tmp_path / "out", labelled={"train": str(path)}, task="Classification")
    (place,) = json.loads((tmp_path / "out/check.json").read_text())["findings"][0]["places"]
    assert place["text"].startswith("'label' is \"two  blanks \"; expected")


def test_no_sentence_has_an_entity(tmp_path: Path) -> None:
    rows = planted.TASKS["Ner"]()
    for row in (row for name in rows for row in rows[name]):
        row["tags"] = ["O"] * len(row["tags"])
    result, _ = looked_at(tmp_path, rows, "Ner")
    assert list(result["findings"]) == ["only-one-label"] and len(result["errors"]) == 1
    assert result["errors"][0].startswith("only-one-label: the 240 sentences of train have no entities;")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Call +49 30 123456.", 1),
        ("Call +1 (555) 123-4567.", 1),
        ("Call +33123456789.", 1),
        ("Call +49.30.123456.", 1),
        ("Growth by +0.12345 points.", 0),
        ("Growth by +1.234567 points.", 0),
        (f"The state +{'10' * 500}x.", 0),  # within seconds
    ],
)
def test_phone_numbers(tmp_path: Path, text: str, count: int) -> None:
    rows = planted.classes()
    rows["train"][0]["text"] = text
    result, _ = looked_at(tmp_path, rows, "Classification", thresholds={"long-word": 2000})
    assert result["findings"].get("personal-data", 0) == count


@pytest.mark.parametrize(("first", "count"), [(",", 1), ("rare", 0)])
def test_an_entity_that_ends_in_a_pair_of_brackets_may_begin_with_a_comma(
    tmp_path: Path, first: str, count: int
) -> None:
    rows = planted.TASKS["Ner"]()
    words = {"tokens": ["Not", first, "ataxia", "(A-T)"], "tags": ["O", *("B-disease", "I-disease", "I-disease")]}
    rows["train"][1] |= words
    result, _ = looked_at(tmp_path, rows, "Ner")
    assert result["findings"].get("punctuation-at-edge", 0) == count


def test_all_classes_are_one(tmp_path: Path) -> None:
    rows = planted.classes()
    for row in (row for name in rows for row in rows[name]):
        row["label"] = "up"
    result, _ = looked_at(tmp_path, rows, "Classification")
    assert list(result["findings"]) == ["only-one-label"] and len(result["errors"]) == 1


def test_documents_that_are_divided_are_known_by_their_names(tmp_path: Path) -> None:
    def conll(names: list[str], word: str) -> str:
        marks = [f"-DOCSTART- {name}\n\n" if name else "" for name in names]
        return "\n".join(f"{mark}{word}{n} O\nsaw B-x\n" for n, mark in enumerate(marks))

    cases = {"same": ["(31) O", "(104) O"], "numbered": ["1", "2"], "marked late": ["", "1", "2"]}
    for case, names in {**cases, "unnamed": ["O", "O"], "one": ["-X- O"]}.items():
        for split, word in (("train", "é"), ("test", "ü")):
            (tmp_path / f"{case}-{split}.conll").write_text(conll(names, word))
        labelled = {split: str(tmp_path / f"{case}-{split}.conll") for split in ("train", "test")}
        found = check(tmp_path / case, labelled=labelled, task="Ner", thresholds={"rare-label": 0})["findings"]
        assert found == ({"same-document-in-train-and-test": 2} if case == "same" else {})


def test_a_relation_in_another_pair_of_a_text_is_no_copy(tmp_path: Path) -> None:
    texts = {
        "train": "<< Losartan >> blocks the [[ receptor ]] and valsartan at once.",
        "test": "Losartan blocks the [[ receptor ]] and << valsartan >> at once.",
    }
    rows = {name: [{"text": text, "label": "x"}] for name, text in texts.items()}
    result, _ = looked_at(tmp_path, rows, "Relations", ignore={"only-one-label": "tiny"}, thresholds={"rare-label": 0})
    assert result["findings"] == {"only-one-label": 0, "same-document-in-train-and-test": 1}


def test_a_text_of_a_terminal_escape_and_half_a_character(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = planted.classes()
    rows["train"][0]["text"] += " \x1b[2Jgone \ud83d"
    _, report = looked_at(tmp_path, rows, "Classification")
    assert "\x1b" not in capsys.readouterr().out
    assert report["findings"][0]["rule"] in ("broken-characters", "unreadable")


def test_settings_that_make_no_sense(tmp_path: Path) -> None:
    train = planted.written(tmp_path, planted.classes())["train"]
    with refused(where="labelled", found="no set and no corpus"):
        check(tmp_path / "out", task="Classification")
    usual = {"labelled": {"train": str(train)}, "task": "Classification"}
    with refused(where="ignore", problem="no rule has the name 'rare-labels'", hint="did you mean 'rare-label'?"):
        check(tmp_path / "out", **usual, ignore={"rare-labels": "few"})
    with refused(where="ignore", problem="the rule 'rare-label' has no reason"):
        check(tmp_path / "out", **usual, ignore={"rare-label": " "})
    with refused(where="thresholds", problem="the rule 'unknown-label' has no threshold", hint="remove it here;..."):
        check(tmp_path / "out", **usual, thresholds={"unknown-label": 3})
    with refused(where="task", problem="missing"):
        check(tmp_path / "out", labelled={"train": str(train)})


def test_the_same_inputs_give_the_same_bytes(tmp_path: Path) -> None:
    paths = planted.written(tmp_path, planted.planted(fault("surface-missed")))
    for name in ("a", "b"):
        check(tmp_path / name, labelled={name: str(path) for name, path in paths.items()}, task="Ner")
    assert (tmp_path / "a/check.json").read_bytes() == (tmp_path / "b/check.json").read_bytes()


def test_the_tables_of_the_page_are_those_of_the_rules() -> None:
    import_path = Path(__file__).with_name("rules_table.py")
    spec = importlib.util.spec_from_file_location("rules_table", import_path)
    assert spec is not None and spec.loader is not None
    rules_table = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rules_table)
    page, made = rules_table.PAGE.read_text(encoding="utf-8"), rules_table.tables()
    assert {name: rules_table.stored(name, page) for name in made} == made, f"python {import_path} writes them"
    assert all(text.endswith(".") for rule in LABELLED_SET_RULES for text in rules_table.texts(rule))
    assert all(text for rule in corpus_rules.RULES for text in rules_table.texts(rule))
    assert len({one.name for one in LABELLED_SET_RULES}) == len(LABELLED_SET_RULES) == 25


def test_an_empty_file_is_told_with_its_name_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = tmp_path / "train.jsonl"
    train.write_text("")
    check(tmp_path / "out", labelled={"train": str(train)}, task="Classification")
    said = f"  {train} (train) cannot be read: 1 problem\n    {train}: no texts; expected at least one row with 'text'"
    assert said in capsys.readouterr().out


def test_a_copy_with_other_punctuation_has_other_labels_only_if_its_entities_differ(tmp_path: Path) -> None:
    rows = planted.entities()
    copied = [row for row in rows["train"] if "B-disease" in row["tags"]][:2]
    rows["test"][:2] = [{"tokens": [",", *row["tokens"]], "tags": ["O", *row["tags"]]} for row in copied]
    _, report = looked_at(tmp_path / "a", rows, "Ner")
    assert report["findings"][0]["message"] == "2 of 60 texts of test are also in train"
    rows["test"][0]["tags"] = ["O"] * len(rows["test"][0]["tags"])
    _, report = looked_at(tmp_path / "b", rows, "Ner")
    message = "2 of 60 texts of test are also in train, 1 of them with other labels"
    assert message in [finding["message"] for finding in report["findings"]]


def test_a_copy_with_other_punctuation_has_another_number(tmp_path: Path) -> None:
    rows = {
        name: [{"text": row["text"], "label": 1.5} for row in planted_rows]
        for name, planted_rows in planted.classes().items()
    }
    rows["test"][0] = {"text": f"{rows['train'][0]['text']}!", "label": 2.5}
    _, report = looked_at(tmp_path, rows, "Regression")
    messages = [finding["message"] for finding in report["findings"]]
    assert "1 of 60 texts of test are also in train, 1 of them with other labels" in messages


def test_a_label_of_the_task_is_known_without_a_training_text(tmp_path: Path) -> None:
    rows = planted.planted(fault("unknown-label"))
    task = Classification(labels=("up", "down", "sideways"))
    result, _ = looked_at(tmp_path, rows, task)
    assert result["errors"] == [] and "unknown-label" not in result["findings"]
