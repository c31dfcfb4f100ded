"""The report of runs that were written by hand: its content, and the notes on the parts that it leaves out."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from domainbert.base.files import read_json
from domainbert.base.run_record import RunRecord
from domainbert.report.command import perform, write_report
from domainbert.report.page import MAX_BYTES
from domainbert.report.runs import read_runs
from domainbert.report.trainings import curve_groups
from domainbert.settings.command_line import ParsedArguments, parse_arguments
from tests.refusals import refused
from tests.report.hand_made import CROOKED, evaluated, mistake, put, record_again, stage, training, whole_run
from tests.report.reading import Read


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def typed(*words: str) -> ParsedArguments:
    return parse_arguments(words, {"out": "one"})


def page(*folders: Path | str) -> Read:
    write_report([Path(folder) for folder in folders], Path("page.html"))
    return Read(Path("page.html").read_text(encoding="utf-8"))


def test_the_report_of_a_whole_run(capsys: pytest.CaptureFixture[str]) -> None:
    whole_run(Path("runs/law"))
    assert perform(typed("runs/law")) == 0 and capsys.readouterr().out == "report: runs/law/report.html\n"
    read = Read(Path("runs/law/report.html").read_text(encoding="utf-8"))
    text = read.within("body")
    assert [one for tag, one in read.tags if tag == "h2"] and read.within("h1") == "Report: law"
    for title in ("Verdict", "Systems", "Differences", "Score against cost", "Learning curves", "By label", "Slices"):
        assert title in read.within("h2")
    for title in ("Confusion", "Reliability", "Mistakes", "Vocabulary", "Data", "How it was made"):
        assert title in read.within("h2")
    assert "ours is better than theirs by 25.0 points of entity F1 [20.0, 30.0]." in text
    assert "75.00 [73.00, 77.00]" in text and "+25.00 [+20.00, +30.00]" in text
    assert "data/test.conll; 14 gold labels; intervals from 100 resamples of 5 documents" in text
    assert "and of seeds" not in text, "each system has one"
    assert "init pretrained random" in text, "settings that differ between the trainings"
    assert "ours: 3 of 3 texts with mistakes" in text and "2 of 2 seeds" in text
    assert "domainbert finetune -c runs/law/ours/config.yaml --force" in text
    assert "Missing from this report" not in text


def test_intervals_of_several_seeds_resample_seeds() -> None:
    folder = evaluated(Path("run/result"), {"a": 0.5})
    facts = json.loads((folder / "metrics.json").read_text())
    facts["systems"]["a"]["seeds"] = 2
    put(folder / "metrics.json", facts)
    assert "intervals from 100 resamples of 5 documents and of seeds" in page("run").within("body")


def test_a_stage_that_the_recipe_has_no_more_is_left_out_and_named() -> None:
    for name in ("old", "new"):
        evaluated(Path("run") / name, {"a": 0.5, f"{name} system": 0.52})
    assert "old system" in page("run").within("body")
    put(Path("run/recipe.json"), {"command": "domainbert run law.yaml", "stages": {"new": "evaluate"}})
    text = page("run").within("body")
    assert "old system" not in text and "new system" in text
    assert "run/old: not a stage of the last recipe of this run; it is left out" in text


def test_a_stage_is_made_again_by_its_recipe_or_by_its_own_settings() -> None:
    """With its own settings, a stage of a recipe would no longer match the recipe."""
    evaluated(Path("run/new"), {"a": 0.5})
    assert "domainbert evaluate -c run/new/config.yaml --force" in page("run").within("pre")
    command = "domainbert run 'my law.yaml' --vars.data=d --only=new,old --from=new"
    put(Path("run/recipe.json"), {"command": command, "stages": {"new": "evaluate"}})
    text = page("run").within("pre")
    assert "domainbert run 'my law.yaml' --vars.data=d --only new --force new" in text and "config.yaml" not in text


def test_what_is_marked_in_a_mistake_is_what_was_labelled() -> None:
    whole_run(Path("run"))
    read = page("run")
    assert read.within("mark").startswith("school attendanceoutcome, boundary attendanceoutcome, boundary")
    tips = [one["data-tip"] for tag, one in read.tags if tag == "mark"]
    assert "outcome\nboundary\nprobability 0.750" in tips


def test_texts_of_data_stay_texts_and_two_reports_are_the_same_bytes() -> None:
    whole_run(Path("run"))
    read = page("run")
    assert Path("page.html").stat().st_size < 500_000
    first = Path("page.html").read_bytes()
    tags = [tag for tag, _ in read.tags]
    assert tags.count("script") == 1 and tags.count("img") == len(read.pictures()) > 0
    attributes = {name for _, one in read.tags for name in one}
    assert "style" not in attributes and not [name for name in attributes if name.startswith("on")]
    found = [read.within(tag).count(CROOKED) for tag in ("th", "mark", "p", "option", "li")]
    assert all(found), "label, mark, second text, filter, finding"
    ids = [one["id"] for _, one in read.tags if one.get("id")]
    assert len(ids) == len(set(ids))
    page("run")
    assert Path("page.html").read_bytes() == first


def test_no_difference_is_told_where_the_interval_holds_0() -> None:
    evaluated(Path("run/result"), {"a": 0.5, "b": 0.52, "c": 0.4})
    assert (
        "No significant difference between a and b: a minus b is -2.0 points of entity F1 [-7.0, +3.0]. "
        "a is better than c by 10.0 points of entity F1 [5.0, 15.0]."
    ) in page("run").within("p")


@pytest.mark.slow
def test_many_systems_are_a_table_with_a_note_on_chance() -> None:
    """Of 29 systems three are better than the first, one is worse; 5 % of 29 intervals exclude 0 by chance."""
    scores = {"first": 0.5, "good": 0.6, "fine": 0.57, "best": 0.7, "poor": 0.3}
    evaluated(Path("run/result"), scores | {f"same {number}": 0.5 for number in range(25)})
    read = page("run")
    note = "4 of 29 intervals exclude 0. If all systems were equally good, about 1.5 would by chance"
    assert note in read.within("p") and "No significant difference" not in read.within("p")
    text = Path("page.html").read_text(encoding="utf-8")
    (table,) = (part for part in text.split("</table>") if "<caption>Systems compared with first</caption>" in part)
    rows = [row.split("</td>")[0].replace("</th><td>", ": ") for row in table.split('<th scope="row">')[1:]]
    results = ["good: better", "fine: better", "best: better", "poor: worse"]
    assert rows == results + [f"same {number}: no significant difference" for number in range(25)]


def test_less_is_better_where_the_metric_says_so() -> None:
    metric = {"key": "f1", "name": "mean error", "direction": "minimize", "percent": False}
    evaluated(Path("run/result"), {"a": 0.5, "b": 0.7}, metric=metric)
    assert "a is better than b by 0.2000 of mean error [0.1500, 0.2500]." in page("run").within("p")


def test_a_run_without_evaluation_shows_its_curves_and_says_that_nothing_was_evaluated() -> None:
    training(Path("run/ours"), {"seed-1": [0.25, 0.5, float("nan")]})
    with open("run/ours/seed-1/logs/metrics.jsonl", "a") as file:
        file.write('{"step": 40, "valid')  # the run was killed here
    read = page("run")
    assert "No system has been evaluated on a test set yet." in read.within("p")
    (curves,) = read.pictures()
    assert ">validation f1</text>" in curves
    assert "ours seed-1: values of validation/f1 that are not finite: 1" in read.within("p")
    assert "metrics.jsonl: damaged lines left out: 1" in read.within("li")
    assert "Systems" not in read.within("h2")


@pytest.mark.parametrize("kind", ["finetune", "distill-task"])
def test_an_unfinished_training_is_shown_as_one_of_its_task(kind: str) -> None:
    """`seeds.json` is written at the end."""
    task = {"class_path": "mine.Tags"}
    record_again(stage(Path("run/ours"), kind, config={"task": task}), state="stopped")
    scores = {"validation/loss": 0.5, "validation/f1": 0.25, "validation/recall": 0.75}
    put(Path("run/ours/seed-1/logs/metrics.jsonl"), [{"step": 5, "train/loss": 2.5}, {"step": 10, **scores}])
    put(Path("run/ours/seed-1/training.json"), {"validation": {"step": 10}})
    put(Path("run/ours/seed-2/logs/metrics.jsonl"), [{"step": 5, "train/loss": 1.5}])
    (group,) = curve_groups(read_runs([Path("run")]))
    assert (group.title, group.metrics) == ("Tags", ["validation/f1", "train/loss", "train/lr"])
    found = [(curve.seed, curve.steps, curve.values, curve.best) for curve in group.panel("validation/f1")]
    assert found == [("seed-1", [10], [0.25], None)]
    assert [(curve.seed, curve.values) for curve in group.panel("train/loss")] == [("seed-1", [2.5]), ("seed-2", [1.5])]


def test_an_unfinished_pretraining_stays_one() -> None:
    record_again(stage(Path("run/ours"), "pretrain"), state="stopped")
    put(Path("run/ours/logs/metrics.jsonl"), [{"step": 10, "validation/loss": 0.5}])
    (group,) = curve_groups(read_runs([Path("run")]))
    assert group.title == "Pretraining" and [curve.seed for curve in group.panel("validation/loss")] == [""]


def test_a_run_of_an_older_version_lacks_what_was_not_written_then() -> None:
    old = {"task": "tags", "test": "test.conll", "gold": 3, "systems": {"ours": {"f1": 0.5}}, "paired": []}
    put(stage(Path("run/result"), "evaluate") / "metrics.json", old)
    read = page("run")
    assert "ours: F1 is 50.0 %." in read.within("p")
    assert "domainbert check looks for leaks" in read.within("p")
    assert not {"Mistakes", "Reliability", "Confusion"} & set(read.within("h2").split())


def test_stages_that_are_not_done_and_warnings_stand_beside_the_verdict() -> None:
    stage(Path("run/ours"), "finetune", metrics={"warnings": ["predicts one class only"]})
    Path("run/theirs").mkdir()
    Path("run/theirs/config.yaml").write_text("init: random\n")
    RunRecord("finetune", "failed", "the training diverged").write(Path("run/theirs"))
    text = page("run").within("li")
    assert "run: stage theirs is not done (failed: the training diverged)" in text
    assert "ours: predicts one class only" in text


def test_a_warning_of_evaluate_stands_once_for_each_run() -> None:
    for run in ("a", "b"):
        evaluated(Path(run) / "result", {"model": 0.5}, warnings=["few seeds"])
        record_again(Path(run, "result"), metrics={"warnings": ["few seeds"]})
    text = page("a", "b").within("li")
    assert "result (a): few seeds" in text and "result (b): few seeds" in text and text.count("few seeds") == 2


@pytest.mark.slow
def test_a_page_of_huge_mistakes_stays_small_and_says_what_it_left_out() -> None:
    evaluated(Path("run/result"), {"a": 0.5, "b": 0.5})
    long = " très long" * 4500
    for name in "ab":
        rows = [mistake(number, text=f"{number} raised school attendance{long}") for number in range(1, 60)]
        put(Path(f"run/result/mistakes/{name}/seed-1.jsonl"), rows)
    text = page("run").within("p")
    assert Path("page.html").stat().st_size <= MAX_BYTES
    assert "The 5 worst mistakes of each system (5 instead of 50, because the page would be larger than 2 MB)" in text


def test_a_page_that_is_too_large_without_mistakes_keeps_them_and_says_its_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("domainbert.report.page.MAX_BYTES", 1000)
    evaluated(Path("run/result"), {"a": 0.5})
    put(Path("run/result/mistakes/a/seed-1.jsonl"), [mistake(number) for number in range(1, 60)])
    messages = write_report([Path("run")], Path("page.html"))
    size = Path("page.html").stat().st_size
    assert messages == [f"page.html: the page has {size:,} bytes, more than 1,000"]
    assert "The 50 worst mistakes of each system:" in Read(Path("page.html").read_text(encoding="utf-8")).within("p")


def test_a_long_table_says_how_many_rows_it_has() -> None:
    files = {f"data/{number}.txt": "a" * 64 for number in range(1234)}
    stage(Path("run/prepare"), "prepare", inputs=files)
    assert "SHA-256 of inputs and weights; the first 300 of 1,234 rows" in page("run").within("caption")


@pytest.mark.parametrize(
    ("words", "file", "where", "problem", "expected"),
    [
        ([], "...", "report", "expected the folder of a run...", "..."),
        (["nowhere"], "nowhere", "...", "no such folder", "an output folder of domainbert run..."),
        (["empty"], "empty", "...", "contains no stage", "an output folder of domainbert run..."),
        (["runs"], "runs", "...", "found a folder of runs", "a single run, such as 'runs/law'"),
        (["a", "b"], "...", "report", "found 2 runs without --out", "--out FILE"),
        (["a", "--deep", "1"], "...", "--deep", "no such option of report", "..."),
        (["a", "-c", "run.yaml"], "...", "-c", "no such option of report", "..."),
    ],
)
def test_what_is_wrong_with_the_command_is_told(
    words: list[str], file: str, where: str, problem: str, expected: str
) -> None:
    Path("empty").mkdir()
    stage(Path("runs/single"), "prepare")
    put(Path("runs/law/recipe.json"), {"command": "domainbert run law.yaml", "stages": {}})
    with refused(file=file, where=where, problem=problem, expected=expected):
        perform(typed(*words))


def edit(path: Path) -> None:
    """Change one digit: the file keeps its size."""
    text = path.read_text(encoding="utf-8")
    digit = next(character for character in text if character in "123456789")
    path.write_text(text.replace(digit, str(int(digit) % 9 + 1)), encoding="utf-8")


def test_numbers_that_their_stage_did_not_write_are_left_out_and_named() -> None:
    names = ["metrics.json", "draws.json", "mistakes/a/seed-1.jsonl", "check.json", "run.json"]
    changes = {
        f"{number}-{change.__name__}": (name, change)
        for number, name in enumerate(names)
        for change in (edit, Path.unlink)
    }
    for stage_name in changes:
        folder = evaluated(Path("run", stage_name), {"a": 0.5, "b": 0.4})
        put(folder / "draws.json", {"drawn": {"seed": 1}, "systems": {"a": [0.5, 0.6], "b": [0.4, 0.3]}})
        put(folder / "mistakes/a/seed-1.jsonl", [mistake(1)])
        put(folder / "check.json", {"facts": {}, "findings": {}, "errors": [], "counts": {"café": 12345}})
        record_again(folder)
    stage(Path("run/other"), "vocab")
    assert write_report([Path("run")], Path("page.html")) == []
    for stage_name, (name, change) in changes.items():
        change(Path("run", stage_name, name))
    write_report([Path("run")], Path("page.html"))
    messages = re.findall(
        "left out: run/(.+?): .*?([a-z0-9-]+[.]jsonl?) (has changed|is missing)", Path("page.html").read_text()
    )
    result = {edit: "has changed", Path.unlink: "is missing"}
    expected = {(name, Path(file).name, result[change]) for name, (file, change) in changes.items()}
    assert set(messages) == expected - {("4-unlink", "run.json", "is missing")}  # without run.json no hashes are known


def test_an_evaluation_that_cannot_be_read_is_not_one_that_was_never_made(capsys: pytest.CaptureFixture[str]) -> None:
    folder = evaluated(Path("run/result"), {"a": 0.5, "b": 0.4})
    record_again(folder)
    edit(folder / "metrics.json")
    assert perform(typed("run")) == 0
    path, warning = capsys.readouterr().out.splitlines()
    assert path == "report: run/report.html" and warning.startswith("warning: left out: run/result: ")
    read = Read(Path("run/report.html").read_text(encoding="utf-8"))
    assert "No result of evaluate could be read; see the warnings." in read.within("p")
    assert read.within("li").count(warning.removeprefix("warning: ")) == 2, "beside the verdict, and at the end"


def test_metrics_of_an_export_are_no_evaluation() -> None:
    put(stage(Path("run/onnx"), "export") / "metrics.json", {"bytes": 1})
    write_report([Path("run")], Path("page.html"))
    read = Read(Path("page.html").read_text(encoding="utf-8"))
    assert "No system has been evaluated on a test set yet." in read.within("p")


def test_a_fault_of_the_page_itself_is_to_be_seen() -> None:
    folder = evaluated(Path("run/ner"), {"a": 0.5, "b": 0.4})
    put(folder / "metrics.json", {**read_json(folder / "metrics.json", "scores"), "systems": ["a", "b"]})
    with pytest.raises(AttributeError):
        write_report([Path("run")], Path("page.html"))


def test_a_text_is_one_whatever_each_seed_has_cut_off() -> None:
    evaluated(Path("run/result"), {"ours": 0.75})
    for number, text in enumerate(("… the end of it.", "The beginning …"), 1):
        rows = [mistake(item=4, text=text, gold=[], predicted=[]), mistake(item=5)]
        put(Path(f"run/result/mistakes/ours/seed-{number}.jsonl"), rows[:number])
    text = page("run").within("li")
    assert text.count("The beginning …") + text.count("… the end of it.") == 1
    assert [found in page("run").within("p") for found in ("2 of 2 seeds", "1 of 2 seeds")] == [True, True]


def test_labels_of_any_characters_can_be_filtered() -> None:
    evaluated(Path("run/result"), {"ours": 0.75})
    labels = ["a|b", "  two  spaces", '"quoted" & <b>', CROOKED, "عربي"]
    put(Path("run/result/mistakes/ours/seed-1.jsonl"), [mistake(labels=labels)])
    read = page("run")
    (held,) = [one["data-labels"] for tag, one in read.tags if tag == "li" and "data-labels" in one]
    assert json.loads(str(held)) == labels
    assert {one.get("value") for tag, one in read.tags if tag == "option"} == {"", "boundary", *labels}


def test_a_name_that_begins_with_a_low_line_is_in_the_legends() -> None:
    training(Path("run/_ours"), {"seed-1": [0.2, 0.6], "seed-2": [0.1, 0.4]})
    training(Path("run/_"), {"seed-1": [0.1, 0.3]})
    evaluated(Path("run/result"), {"_ours": 0.75, "_": 0.5})
    words = re.findall(r">([^<>]*)</text>", " ".join(page("run").pictures()))
    words = " ".join(words).split()
    named = {name: words.count(name) for name in ("_ours", "_")}
    assert named["_ours"] >= 3 and named["_"] >= 3, "differences, costs, curves"
