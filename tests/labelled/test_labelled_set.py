"""Labelled sets: texts and labels in two files, several files as one set, slices of rows and of files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from domainbert.base.errors import DomainbertError, Problems
from domainbert.base.files import FileHashes
from domainbert.base.freshness import Freshness
from domainbert.labelled.items import check_set_known
from domainbert.labelled.row_values import is_unicode
from domainbert.labelled.sets import LabelledFile, files_of, paths_of, read_set, set_name
from domainbert.settings.facts import hashes_of_inputs, stage_facts
from domainbert.settings.reader import Settings, read_settings
from domainbert.settings.yaml_files import to_node
from domainbert.stages.finetune import Finetune
from domainbert.tasks.classification.config import Classification, ClassificationFormat
from domainbert.tasks.multi_label.config import MultiLabel, MultiLabelFormat
from domainbert.tasks.ner.config import Ner
from domainbert.tasks.ner.files import read_ner
from domainbert.tasks.ner.scoring import EntityScoring
from domainbert.tasks.parsing.config import Parsing
from domainbert.tasks.question_answering.config import QuestionAnswering
from domainbert.tasks.regression.config import Regression, RegressionFormat
from domainbert.tasks.task import read_task
from domainbert.tasks.token_labels.config import TokenLabels
from domainbert.tasks.word_task import TaggedWords
from tests.refusals import fact_rows, refused

NAMES = ("negative", "neutral", "positive")
ODD_WORDS = (
    "two\nlines",
    "a\ttab",
    "\ufeffmark",
    "-DOCSTART-",
    " -DOCSTART- x",
    "\r",
    "x\u2028y",
    "#",
    " ",
    "économie",
)
BY_LANGUAGE = Classification(ClassificationFormat(label_names=NAMES, slice_keys=("language",)), mean_over="language")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative paths, as in a recipe."""
    monkeypatch.chdir(tmp_path)


def pair(language: str, texts: list[str], labels: list[str], slices: bool = True) -> LabelledFile:
    """Write two parallel files."""
    text, label = Path(f"{language}_text.txt"), Path(f"{language}_labels.txt")
    text.write_text("".join(f"{one}\n" for one in texts), encoding="utf-8")
    label.write_text("".join(f"{one}\n" for one in labels), encoding="utf-8")
    return LabelledFile(text=text, label=label, slices={"language": language} if slices else {})


def test_two_files_are_read_line_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["C'était génial \u2028 !", '"quoted, with\ta tab', '{"text": "no JSON"}']
    file = pair("french", texts, ["2", "0", "neutral"], slices=False)
    config = Classification(ClassificationFormat(label_names=NAMES))
    found = read_set(config, file)
    assert [(one.text, one.label, one.line) for one in found.items] == [
        (texts[0], "positive", 1),
        (texts[1], "negative", 2),
        (texts[2], "neutral", 3),
    ]
    assert found.path == Path("french_text.txt") and "3 texts; lines of text" in found.describe()
    both = read_set(MultiLabel(), pair("x", ["a", "b"], ["up;down", ""], slices=False))
    assert [one.labels for one in both.items] == [("up", "down"), ()]


@pytest.mark.parametrize(
    ("texts", "labels", "file", "line", "problem", "expected"),
    [
        (["a", "b", "c"], ["0", "1"], "x_text.txt", 3, "found 3 lines, but x_labels.txt has 2", "the same number..."),
        (["a"], ["0", "1"], "x_labels.txt", 2, "found 2 lines, but x_text.txt has 1", "..."),
        (["a", "", "c"], ["0", "1", "2"], "x_text.txt", 2, "'text' is empty", "a non-empty string"),
        (["a", "b"], ["0", ""], "x_text.txt", 2, "'label' is empty", "a non-empty string..."),
        (["a", "b"], ["0", "3"], "x_text.txt", 2, 'unknown label "3"', "one of the label_names..."),
        ([], [], "x_text.txt", "", "no texts", "..."),
    ],
)
def test_what_is_wrong_with_two_files(
    texts: list[str], labels: list[str], file: str, line: int | str, problem: str, expected: str
) -> None:
    with refused(file=file, line=line, problem=problem, expected=expected):
        read_set(BY_LANGUAGE, pair("x", texts, labels))


def test_several_files_are_one_set() -> None:
    Path("more.jsonl").write_text(json.dumps({"text": "Gut.", "label": 2, "language": "german"}) + "\n")
    files = [pair("arabic", ["a", "b"], ["0", "1"]), pair("french", ["c"], ["2"]), Path("more.jsonl")]
    found = read_set(BY_LANGUAGE, files)
    assert [(one.text, one.slices["language"]) for one in found.items] == [
        *(("a", "arabic"), ("b", "arabic"), ("c", "french"), ("Gut.", "german"))
    ]
    assert [found.line_or_location(number) for number in range(4)] == [
        *("arabic_text.txt:1", "arabic_text.txt:2", "french_text.txt:1", "more.jsonl:1")
    ]
    assert found.parts[0].line_or_location(1) == 2
    assert set_name(files) == "arabic_text.txt, french_text.txt, more.jsonl"
    assert [path.name for path in paths_of(files)] == [
        *("arabic_text.txt", "arabic_labels.txt", "french_text.txt", "french_labels.txt", "more.jsonl")
    ]
    with refused(file="french_text.txt", line=1, problem="label 'positive' ... was not in training"):
        check_set_known(found, ["negative", "neutral"])
    _, _, task = read_task(BY_LANGUAGE, files, files[0])
    assert task.labels == NAMES and task.headline is not None and task.headline.key == "f1_over_language"


def test_the_problems_of_all_files_are_told() -> None:
    files: Any = [pair("arabic", ["a", ""], ["0", "1"]), pair("french", ["c"], ["7"])]
    with pytest.raises(DomainbertError) as error:
        read_set(BY_LANGUAGE, files)
    assert [problem.partition(" ")[0] for problem in error.value.problems] == [
        "arabic_text.txt:2:",
        "french_text.txt:1:",
    ]


def test_classes_are_names_or_numbers_in_all_files() -> None:
    for name, labels in {"names": '"up"', "numbers": "0", "digits": '"0"'}.items():
        Path(f"{name}.jsonl").write_text(f'{{"text": "a", "label": {labels}}}\n')
    problem = "labels are numbers without names, but names.jsonl has 'up'"
    with refused(file="numbers.jsonl", problem=problem, expected="names in both (set format.label_names)"):
        read_set(Classification(), [Path("names.jsonl"), Path("numbers.jsonl")])
    assert len(read_set(Classification(), [Path("digits.jsonl"), Path("numbers.jsonl")]).items) == 2


def test_lists_of_labels_are_names_or_numbers_in_all_files() -> None:
    for name, labels in {"names": '["up", "down"]', "numbers": "[1]"}.items():
        Path(f"{name}.jsonl").write_text(f'{{"text": "a", "labels": {labels}}}\n')
    files = [Path("names.jsonl"), Path("numbers.jsonl")]
    said = "1 label (1 1); labels are numbers without names (set format.label_names)"
    assert read_set(MultiLabel(), files[1]).describe().endswith(said)
    with refused(file="numbers.jsonl", problem="labels are numbers without names, but names.jsonl..."):
        read_set(MultiLabel(), files)
    named = MultiLabel(MultiLabelFormat(label_names=("up", "down")))
    assert [item.labels for item in read_set(named, files).items] == [("up", "down"), ("down",)]


def test_slices_that_rows_lack_or_files_give_twice() -> None:
    rows = [{"text": "a", "label": 0, "language": "arabic", "year": 2019}, {"text": "b", "label": 1, "year": 2020}]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with refused(file="rows.jsonl", line=2, problem="no key 'language'; found 'text', 'label', 'year' (set..."):
        read_set(BY_LANGUAGE, Path("rows.jsonl"))
    by_year = Classification(ClassificationFormat(label_names=NAMES, slice_keys=("year",)))
    assert [one.slices for one in read_set(by_year, Path("rows.jsonl")).items] == [{"year": "2019"}, {"year": "2020"}]
    with refused(file="rows.jsonl", line=1, problem="'year' is a key of the row and of `slices` in the settings"):
        read_set(by_year, LabelledFile(path=Path("rows.jsonl"), slices={"year": "2021"}))
    with refused(where="slices", found="'language'", hint="add it to format.slice_keys (now 'year'), or remove it..."):
        read_set(by_year, LabelledFile(path=Path("rows.jsonl"), slices={"language": "arabic"}))
    Path("rows.csv").write_text("text,label\na,0\n")
    with refused(file="rows.csv", line=1, problem="no column 'year'", hint="... (set format.text_key, label_key..."):
        read_set(by_year, Path("rows.csv"))
    whole = LabelledFile(path=Path("rows.csv"), slices={"year": "2021"})
    assert read_set(by_year, whole).items[0].slices == {"year": "2021"}
    for task in (Ner(), TokenLabels(), Parsing(), QuestionAnswering()):
        with refused(problem=f"task '{task.name}' reads no `label` or `slices`", expected="only `path`"):
            read_set(task, whole)


def test_pairs_in_several_files_with_slices() -> None:
    format = ClassificationFormat(text_pair_key="second", slice_keys=("language",))
    Path("a.jsonl").write_text(json.dumps({"text": "a", "second": "b", "label": "x", "language": "arabic"}) + "\n")
    Path("b.csv").write_text("text,second,label\nc,d,y\n")
    files: Any = [Path("a.jsonl"), LabelledFile(path=Path("b.csv"), slices={"language": "french"})]
    found = read_set(Classification(format), files)
    assert [(one.text, one.text_pair, one.label, one.slices) for one in found.items] == [
        ("a", "b", "x", {"language": "arabic"}),
        ("c", "d", "y", {"language": "french"}),
    ]
    lines = found.describe().splitlines()
    assert [line.partition("; ")[0] for line in lines] == ["a.jsonl: 1 pair of texts", "b.csv: 1 pair of texts"]
    _, _, task = read_task(Classification(format, mean_over="language"), files, files)
    assert task.model_config_fields({}) == {"domainbert_text_pair_key": "second"}
    with refused(problem="...found 'second', but the labels are in a...", expected="one file for both, or no..."):
        read_set(Classification(format), pair("x", ["a"], ["y"]))


def test_numbers_in_two_files_with_slices() -> None:
    task = Regression(RegressionFormat(slice_keys=("language",)), mean_over="language")
    found = read_set(task, [pair("arabic", ["a", "b"], ["1.5", "-2e-3"]), pair("french", ["c"], ["4"])])
    assert [(one.number, one.slices["language"]) for one in found.items] == [
        *((1.5, "arabic"), (-2e-3, "arabic"), (4.0, "french"))
    ]
    assert task.headline.key == "pearson_over_language" and not task.headline.percent
    with refused(file="x_text.txt", line=1, problem="'label' is \"many\"", also="...'x_labels.txt:1'..."):
        read_set(task, pair("x", ["a"], ["many"]))
    with refused(where="mean_over", found="'year'", expected="... format.slice_keys, which has 'language'..."):
        Regression(RegressionFormat(slice_keys=("language",)), mean_over="year")


def test_no_document_is_in_two_files() -> None:
    for name in ("a", "b"):
        Path(f"{name}.conll").write_text("Cash O\n\nRates O\n\n")
        Path(f"{name}.conllu").write_text("1\tRates\t_\t_\t_\t_\t0\troot\t_\t_\n\n")
    words = read_set(Ner(), [Path("a.conll"), Path("b.conll")])
    assert [one.document for one in words.items] == [0, 1, 2, 3]
    trees = read_set(Parsing(), [Path("a.conllu"), Path("b.conllu")])
    assert [one.document for one in trees.items] == [0, 1]
    assert [trees.location(number) for number in range(2)] == ["a.conllu:1", "b.conllu:1"]


def test_documents_are_those_that_any_of_the_files_marks() -> None:
    Path("plain.conll").write_text("Cash O\n\nRates O\n\n")
    Path("marked.conll").write_text("-DOCSTART- O\n\nCash O\n\nRates O\n\n-DOCSTART- O\n\nGut B-x\n\n")
    rows = "1\tRates\t_\t_\t_\t_\t0\troot\t_\t_\n\n"
    Path("plain.conllu").write_text(2 * rows)
    Path("marked.conllu").write_text(f"# newdoc\n{2 * rows}# newdoc\n{rows}")
    for kind, config in (("conll", Ner()), ("conllu", Parsing())):
        for names, wanted in ((("plain", "marked"), [0, 1, 2, 2, 3]), (("marked", "plain"), [0, 0, 1, 2, 3])):
            found = read_set(config, [Path(f"{name}.{kind}") for name in names])
            assert (found.unit, found.unit_ids) == ("documents", wanted)
            assert [one.document for one in found.items] == wanted


def test_sentences_of_a_single_document_are_resampled() -> None:
    Path("one.conll").write_text("-DOCSTART- -X- O\n\nCash NN B-x\n\nRates NN O\n\n")
    Path("one.conllu").write_text("# newdoc\n" + 2 * "1\tRates\t_\t_\t_\t_\t0\troot\t_\t_\n\n")
    for kind, config in (("conll", Ner()), ("conllu", Parsing())):
        single = read_set(config, Path(f"one.{kind}"))
        double = read_set(config, [Path(f"one.{kind}"), Path(f"one.{kind}")])
        assert (single.unit, single.unit_ids) == ("sentences", None)
        assert (double.unit, double.unit_ids) == ("documents", [0, 0, 1, 1]), "a document for each file"


def settings_with(train: Any) -> tuple[Settings, list[Any]]:
    given = {"model": ".", "task": "Classification", "train": train, "validation": "one.jsonl"}
    problems = Problems("recipe")
    Path("one.jsonl").write_text(json.dumps({"text": "a", "label": "x"}) + "\n")
    return read_settings(Finetune, to_node(given, "recipe"), problems), fact_rows(problems.errors)


def test_settings_that_name_sets() -> None:
    file = pair("arabic", ["a"], ["0"])
    as_mapping = {"text": "arabic_text.txt", "label": "arabic_labels.txt", "slices": {"language": "arabic"}}
    for train, wanted in (
        ("one.jsonl", Path("one.jsonl")),
        (as_mapping, file),
        (["one.jsonl", as_mapping], [Path("one.jsonl"), file]),
    ):
        settings, said = settings_with(train)
        assert said == [] and settings.arguments["train"] == wanted
        assert set(paths_of(files_of(wanted))) <= set(settings.inputs), "all are hashed and sealed"
    assert settings.plain["train"][1] == as_mapping | dict.fromkeys(["path", "hub_config", "hub_split"])
    again, said = settings_with(settings.plain["train"])
    assert said == [] and again.arguments == settings.arguments, "what the manifest says can be read again"


def test_another_label_makes_another_training() -> None:
    pair("arabic", ["a"], ["x"])
    given = {"text": "arabic_text.txt", "label": "arabic_labels.txt"}

    def facts() -> Freshness:
        settings, said = settings_with(given)
        assert said == []
        inputs = hashes_of_inputs(settings, FileHashes())
        assert {"arabic_text.txt", "arabic_labels.txt"} < set(inputs)
        return stage_facts("finetune", Finetune, settings, inputs)

    before = facts()
    assert facts().key == before.key
    Path("arabic_labels.txt").write_text("y\n")
    assert facts().changes(before.facts) == {"model": "model changed", "train.label": "train.label changed"}


@pytest.mark.parametrize(
    ("train", "where", "problem"),
    [
        ({"text": "arabic_text.txt"}, "train", "found 'text'"),
        ({"path": "one.jsonl", "label": "arabic_labels.txt"}, "train", "found 'label' and 'path'"),
        ({"text": "arabic_text.txt", "label": "none.txt"}, "train.label", "'none.txt' does not exist"),
        ({"text": "arabic_text.txt", "labels": "x"}, "train.labels", "unknown key"),
        ([], "train", "found []"),
        (["one.jsonl", "two.jsonl"], "train[1]", "'two.jsonl' does not exist"),
    ],
)
def test_settings_that_are_wrong(train: Any, where: str, problem: str) -> None:
    pair("arabic", ["a"], ["0"])
    _, rows = settings_with(train)
    assert (f"recipe: {where}", problem) in [row[1:3] for row in rows]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(st.one_of(st.sampled_from(ODD_WORDS), st.text(min_size=1, max_size=5)), max_size=3))
@example(words=["two\nlines"])
@example(words=[])
@example(words=["x"])
def test_predictions_of_conll_and_jsonl_together_keep_every_word(words: list[str]) -> None:
    """Columns where every word fits into them, JSONL where the content of a file cannot be columns."""
    words = [word for word in words if is_unicode(word)]
    Path("a.conll").write_text("-DOCSTART-\tO\n\nCafé\tB-x\nou\tO\n", encoding="utf-8")
    Path("b.jsonl").write_text(json.dumps({"tokens": words, "tags": ["B-x"] * len(words)}) + "\n", encoding="utf-8")
    test = read_set(Ner(), [Path("a.conll"), Path("b.jsonl")])
    scoring = EntityScoring(Ner(), test, None)
    path = Path(f"model{scoring.suffix}")
    scoring.write(path, [TaggedWords(item.tags, [1.0] * len(item.words)) for item in test.items])
    if scoring.suffix == ".conll":
        found = [item.words for item in read_ner(path).items]
    else:
        found = [json.loads(line)["tokens"] for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
    assert found == [["Café", "ou"], words]
    assert scoring.suffix == ".conll" or words != ["x"]
