"""The checks that a recipe runs by itself, and errors that stop it: with a real tiny recipe that trains nothing yet."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from domainbert.base.errors import Problems
from domainbert.cli import main
from domainbert.runner.recipe import read_recipe
from domainbert.runner.stage_table import load_stage
from domainbert.settings.reader import read_settings
from domainbert.settings.yaml_files import dump_yaml, load_yaml
from domainbert.stages.implied_checks import RecipeStage, implied_checks
from tests.conftest import Runs
from tests.refusals import command_refused

RECIPE = """
out: {out}
{check}stages:
  sample: {{corpus_documents: 150, train_sentences: 12, validation_sentences: 6, test_sentences: 6, train_texts: 6, \
validation_texts: 3, test_texts: 3}}
  vocab: {{corpus: "@sample/corpus.jsonl", vocab_size: 512}}
  prepare: {{corpus: "@sample/corpus.jsonl", tokenizer: "@vocab", num_workers: 0}}
  pretrain: {{prepared: ["@prepare"], encoder: tiny, budget: {{max_steps: 1}}}}
  tagger: &tagger {{stage: finetune, model: "@pretrain", task: Ner, train: {train}, validation: {train}}}
  scratch: {{<<: *tagger, init: random}}
  scores: {{stage: evaluate, models: {{a: "@tagger", b: "@scratch"}}, task: Ner, test: {test}}}
"""
WORDS = ["Zika", "spread", "über", "Land", "ohne", "jede", "Pause", "immer", "weiter"]
TAGGED = json.dumps({"tokens": WORDS, "tags": ["B-x", *["O"] * 8]}) + "\n"


def recipe(folder: Path, check: str = "") -> Path:
    """A recipe whose training, validation and test set are the same."""
    for name in ("train", "test"):
        (folder / f"{name}.jsonl").write_text(TAGGED)
    path = folder / "recipe.yaml"
    files = {name: str(folder / f"{name}.jsonl") for name in ("train", "test")}
    path.write_text(RECIPE.format(out=folder / "run", check=check, **files))
    return path


def plan(path: Path, capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """The names of the stages in the order of the plan."""
    assert main(["run", str(path), "--dry-run", *words]) == 0
    return re.findall(r"^\w+ +([\w-]+) \(", capsys.readouterr().out, re.MULTILINE)


USUAL = ["sample", "vocab", "prepare", "pretrain", "tagger", "scratch", "scores"]


def test_a_check_stands_before_the_first_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(recipe(tmp_path), capsys) == [*USUAL[:3], "check", *USUAL[3:]]
    assert plan(recipe(tmp_path, "check: false\n"), capsys) == USUAL
    own = recipe(tmp_path)
    own.write_text(own.read_text() + "  mine: {stage: check, corpus: '@sample/corpus.jsonl'}\n")
    assert plan(own, capsys) == [*USUAL, "mine"]


def test_the_old_name_of_a_setting_of_the_check_replaces_its_default(tmp_path: Path) -> None:
    with pytest.warns(FutureWarning, match=r":3: most_characters: renamed to max_characters"):
        jobs = read_recipe(recipe(tmp_path, "check: {most_characters: 9}\n"), []).jobs
    assert jobs["check"].settings.instance.max_characters == 9
    assert read_recipe(recipe(tmp_path), []).jobs["check"].settings.instance.max_characters == 50_000_000


def test_the_test_set_is_looked_at_whatever_its_slices_and_also_of_an_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An evaluation may name slices that the training does not, and score the exported model alone."""
    monkeypatch.chdir(tmp_path)
    for name in ("@tagger", "@onnx"):
        Path(name).mkdir()
    rows = "".join(f'{{"text": "né {number}", "label": "{"ab"[number % 2]}", "year": "1"}}\n' for number in range(4))
    for name in ("train", "test"):
        (tmp_path / f"{name}.jsonl").write_text(rows)
    stages = f"""\
out: {tmp_path / "run"}
stages:
  tagger: {{stage: finetune, model: {tmp_path}, task: Classification, train: {tmp_path}/train.jsonl, \
validation: {tmp_path}/train.jsonl}}
  onnx: {{stage: export, model: "@tagger"}}
  scores: {{stage: evaluate, models: {{a: "@MODEL"}}, task: {{class_path: Classification, \
init_args: {{format: {{slice_keys: [year]}}}}}}, test: {tmp_path}/test.jsonl}}
"""
    for model in ("tagger", "onnx"):
        tree = read_stages(tmp_path, stages.replace("MODEL", model))
        (found,) = implied_checks(tree, None)
        assert found.node.plain()["labelled"]["test"] == f"{tmp_path}/test.jsonl"


def test_the_test_set_is_looked_at_where_it_is_scored_without_subtypes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trees.conllu").write_text("1\tSí\t_\t_\t_\t_\t0\troot\t_\t_\n\n")
    files = f"train: {tmp_path}/trees.conllu, validation: {tmp_path}/trees.conllu"
    stages = f"""\
out: {tmp_path / "run"}
stages:
  parser: {{stage: finetune, model: {tmp_path}, task: Parsing, {files}}}
  scores: {{stage: evaluate, models: {{a: "@parser"}}, task: {{class_path: Parsing, \
init_args: {{format: {{subtypes: false}}}}}}, test: {tmp_path}/trees.conllu}}
"""
    (tmp_path / "@parser").mkdir()
    (found,) = implied_checks(read_stages(tmp_path, stages), None)
    assert found.node.plain()["labelled"]["test"] == f"{tmp_path}/trees.conllu"


def test_a_test_set_that_is_read_with_other_settings_has_a_check_with_these(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its stray I- is an error for the training, and a leak all the same."""
    path = recipe(tmp_path)
    (tmp_path / "other.jsonl").write_text(json.dumps({"tokens": list("éabc"), "tags": ["B-x", "O", "O", "O"]}) + "\n")
    (tmp_path / "test.jsonl").write_text(TAGGED.replace("B-x", "I-x"))
    text = path.read_text().replace(f"validation: {tmp_path}/train", f"validation: {tmp_path}/other")
    scored = "{class_path: Ner, init_args: {format: {repair: true}}}, test:"
    path.write_text(text.replace("task: Ner, test:", f"task: {scored}"))
    assert plan(path, capsys) == [*USUAL[:3], "check-tagger", "check-tagger-2", *USUAL[3:]]
    assert main(["run", str(path), "--only", "sample,vocab,prepare,check-tagger"]) == 0
    assert main(["run", str(path), "--only", "check-tagger-2"]) == 1
    assert "same-text-in-train-and-test" in capsys.readouterr().err


def test_a_model_that_is_a_folder_of_seeds_has_the_tokenizer_of_the_best(
    tmp_path: Path, runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    path = recipe(tmp_path)
    tagger = {"stage": "finetune", "model": str(runs / "ner-pretrained"), "task": "Ner"}
    tagger |= {name: str(tmp_path / f"{file}.jsonl") for name, file in (("train", "train"), ("validation", "test"))}
    path.write_text(dump_yaml({"out": str(tmp_path / "run"), "stages": {"tagger": tagger}}))
    (tmp_path / "test.jsonl").write_text(TAGGED.replace("Zika", "ⵣⵣ"))
    assert plan(path, capsys) == ["check", "tagger"]
    assert main(["run", str(path), "--only", "check"]) == 0
    fit = json.loads((tmp_path / "run/check/check.json").read_text())["fit"]
    assert fit["task"]["pieces_per_word"] > 1


def read_stages(folder: Path, text: str) -> dict[str, RecipeStage]:
    """Return the stages of a recipe, read but not checked against the files on disk."""
    (folder / "own.yaml").write_text(text)
    found = {}
    for name, node in load_yaml(folder / "own.yaml").value["stages"].value.items():
        kind = node.value["stage"].value
        problems = Problems("own.yaml")
        read = read_settings(load_stage(kind).settings, node.without("stage"), problems)
        problems.raise_if_any()
        found[name] = RecipeStage(kind, node, read.instance)
    return found


def test_settings_of_the_check_are_checked(tmp_path: Path) -> None:
    facts = {"file": "recipe.yaml", "line": 3, "where": "check"}
    words = ("run", recipe(tmp_path, "check: yes please\n"), "--dry-run")
    command_refused(*words, **facts, found="'yes please'", expected="settings, or false for no...")
    words = ("run", recipe(tmp_path, "check: {ignore: {same-txt: old}}\n"), "--dry-run")
    command_refused(*words, problem="...no rule has the name 'same-txt'...")


def test_errors_stop_the_recipe_and_a_reason_lets_it_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = recipe(tmp_path)
    command = ["run", str(path), "--only", "sample,vocab,prepare,check"]
    assert main(command) == 1
    err = capsys.readouterr().err
    rules = ["same-text-in-train-and-validation", "same-text-in-train-and-test"]
    assert all(f"; correct the data, or set ignore: {{{rule}: your reason}} for check" in err for rule in rules)
    made = (tmp_path / "run/check/check.json").stat().st_mtime_ns
    assert main(command) == 1 and "check: skipped (done)" in capsys.readouterr().out
    assert (tmp_path / "run/check/check.json").stat().st_mtime_ns == made
    reasons = ", ".join(f"{rule}: on purpose" for rule in rules)
    given = recipe(tmp_path, f"check: {{ignore: {{{reasons}}}}}\n")
    assert main(["run", str(given), *command[2:]]) == 0
    findings = json.loads((tmp_path / "run/check/check.json").read_text())["findings"]
    assert {one["rule"] for one in findings if one["ignored"] == "on purpose"} == set(rules)


def test_the_command_ends_with_1_for_errors_and_with_2_for_what_it_cannot_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(f'{{"text": "number {number}", "label": "same"}}\n' for number in range(3))
    (tmp_path / "train.jsonl").write_text(rows)
    words = ["check", "--task", "Classification", "--labelled.train", str(tmp_path / "train.jsonl")]
    assert main([*words, "--out", str(tmp_path / "out")]) == 1
    assert "only-one-label: all 3 texts of train have the label 'same'" in capsys.readouterr().err
    assert main([*words, "--out", str(tmp_path / "out")]) == 1, "as it was found before"
    assert main([*words, "--out", str(tmp_path / "other"), "--max_length", "one"]) == 2


def test_the_same_check_runs_again_after_files_or_settings_have_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A report is replaced without --force; other files, other stages and a changed report are not."""
    train, out = tmp_path / "train.jsonl", tmp_path / "out"
    words = ["check", "--task", "Classification", "--labelled.train", str(train), "--out", str(out)]
    rows = [{"text": f"número {number}", "label": "same"} for number in range(3)]
    train.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(words) == 1
    rows[0]["label"] = "other"
    train.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(words) == 0
    assert main([*words, "--strict", "true"]) == 1
    (out / "notes.txt").write_text("mine")
    assert main(words) == 2 and (out / "notes.txt").read_text() == "mine"
    assert "holds output of an earlier run (strict was True, is now False)" in capsys.readouterr().err
    (out / "notes.txt").unlink()
    (out / "check.json").write_text("{}")
    assert main(words) == 2 and (out / "check.json").read_text() == "{}"


def test_numbers_that_are_all_the_same_are_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def check(*numbers: str) -> int:
        rows = (f'{{"text": "número {place}", "label": {number}}}\n' for place, number in enumerate(numbers))
        (tmp_path / "train.jsonl").write_text("".join(rows))
        words = ["check", "--task", "Regression", "--labelled.train", str(tmp_path / "train.jsonl"), "--force"]
        return main([*words, "--out", str(tmp_path / "out")])

    assert check("2.5", "2.50", "25e-1") == 1
    assert "only-one-label: all 3 texts of train have the number 2.5" in capsys.readouterr().err
    assert check("2.5", "2.5", "2") == 0


def test_thresholds_of_nothing_and_below_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No run of sentences without entities is less probable than 0."""
    (tmp_path / "train.conll").write_text("Né B-x\n\n" + "a O\n\n" * 80 + "Né B-x\n\n")
    words = ["check", "--task", "Ner", "--labelled.train", str(tmp_path / "train.conll"), "--out", str(tmp_path / "o")]
    assert main([*words, "--thresholds", "{surface-missed: 0}"]) == 0
    assert "surface-missed" not in capsys.readouterr().out
    words = [*words, "--force", "--thresholds", "{surface-missed: -1}"]
    command_refused(*words, where="thresholds", found="-1 for the rule 'surface-missed'", expected="0 or more...")


def test_a_changed_set_is_checked_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f'{{"text": "número {number}", "label": "{"ab"[number % 2]}"}}\n' for number in range(4)]
    train, path = tmp_path / "train.jsonl", tmp_path / "recipe.yaml"
    train.write_text("".join(rows))
    stage = f"check: {{task: Classification, labelled: {{train: {train}}}}}"
    path.write_text(f"out: {tmp_path / 'run'}\nstages:\n  {stage}\n")
    assert main(["run", str(path)]) == 0 and main(["run", str(path), "--dry-run"]) == 0
    assert "skip  check (done)" in capsys.readouterr().out
    train.write_text(rows[0] + rows[2])
    assert main(["run", str(path)]) == 1
    assert "check: running (labelled.train changed)" in capsys.readouterr().out


def test_a_stage_that_is_called_check_keeps_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = recipe(tmp_path)
    path.write_text(path.read_text().replace("  scores:", "  check:"))
    assert plan(path, capsys) == [*USUAL[:3], "check-2", *USUAL[3:-1], "check"]


def test_a_training_that_is_asked_for_is_not_run_without_its_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = recipe(tmp_path)
    before = ["--only", "sample,vocab,prepare"]
    assert plan(path, capsys, *before) == USUAL[:3]
    assert main(["run", str(path), *before]) == 0
    assert plan(path, capsys, "--only", "pretrain") == ["check", "pretrain"]
    assert plan(path, capsys, "--from", "pretrain") == ["check", *USUAL[3:]]
    assert plan(path, capsys, "--only", "pretrain", "--check", "false") == ["pretrain"]
    assert main(["run", str(path), "--only", "pretrain"]) == 1, "its errors stop the training"
    assert not (tmp_path / "run/pretrain").exists()
    capsys.readouterr()
    plan(path, capsys, "--only", "pretrain")
    assert main(["run", str(path), "--only", "pretrain", "--force", "--dry-run"]) == 0
    assert "skip  check (done)" in capsys.readouterr().out, "--force applies only to the stages of --only"


def test_a_check_that_cannot_be_run_says_how_to_go_on_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = recipe(tmp_path)
    assert main(["run", str(path), "--only", "sample,vocab,prepare"]) == 0
    shutil.rmtree(tmp_path / "run/vocab")
    assert main(["run", str(path), "--only", "pretrain"]) == 2
    problem = "check: needs stage vocab, which is not up to date (never run); add vocab to --only, or use --from vocab"
    assert f"{problem}, or --check false to skip all checks" in capsys.readouterr().err


def test_a_process_that_is_not_the_first_ends_where_errors_stop_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = recipe(tmp_path)
    assert main(["run", str(path)]) == 1
    capsys.readouterr()
    monkeypatch.setattr("domainbert.runner.jobs._CLAIM_SECONDS", 0.0)  # it waits for no training
    monkeypatch.setenv("RANK", "1")
    assert main(["run", str(path)]) == 1
    said = f"domainbert: {tmp_path}/run/check: this stage found errors in the data; see the messages of rank 0\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("name", ["check", "check-tagger"])
def test_settings_of_a_check_of_the_recipe_itself_stand_under_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    path = recipe(tmp_path)
    assert main(["run", str(path), "--dry-run", f"--stages.{name}.ignore.duplicates", "old"]) == 2
    said = f"--stages.{name}.ignore.duplicates: the recipe has no stage '{name}'; to change the automatic checks, use "
    assert f"{said}--check.ignore.duplicates\n" in capsys.readouterr().err
    assert plan(path, capsys, "--check.ignore.duplicates", "old") == [*USUAL[:3], "check", *USUAL[3:]]
