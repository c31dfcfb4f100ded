"""Errors that follow from YAML and files alone are reported before the first stage runs, all together."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from domainbert.base.errors import DomainbertError
from domainbert.base.run_record import RunRecord
from domainbert.cli import main
from domainbert.encoders.bert.config import BertConfig
from domainbert.labelled.entities import NerFile
from domainbert.runner.recipe import read_recipe
from domainbert.runner.recipe_plan import Selection
from domainbert.stages.finetune import finetune
from domainbert.tasks.ner.config import Ner
from domainbert.tasks.ner.files import read
from domainbert.tuning.search import read_search

RECIPE = """\
out: run
stages:
  vocab:
    corpus: &corpus {sources: [{path: corpus.txt}]}
    labelled: [train.conll]
  prepare: {corpus: *corpus, tokenizer: "@vocab"}
  pretrain:
    prepared: ["@prepare"]
    encoder: BertConfig
    budget: {max_steps: 1}
    loggers: [jsonl]
  tagger: &tagger
    stage: finetune
    model: "@pretrain"
    task: Ner
    train: train.conll
    validation: validation.conll
  other:
    <<: *tagger
    model: model
  result:
    stage: evaluate
    models: {ours: "@tagger", other: "@other"}
    task: Ner
    train: train.conll
    test: test.conll
"""
CRF = "task: {class_path: Ner, init_args: {head: crf}}"
TRAIN = "A\tO\nloan\tB-x\n\nor\tO\nnot\tB-y\n"


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recipe whose stages `vocab`, `prepare` and `pretrain` have yet to run, and a model that is there."""
    monkeypatch.chdir(tmp_path)
    Path("recipe.yaml").write_text(RECIPE)
    Path("corpus.txt").write_text("A loan or not, " * 20)
    for name in ("train", "validation", "test"):
        Path(f"{name}.conll").write_text(TRAIN)
    Path("model").mkdir()
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "loan"]
    Path("model/vocab.txt").write_text("\n".join(pieces))
    Path("model/config.json").write_text(json.dumps({**BertConfig(8, 1, 1, 8).to_json(), "vocab_size": 7}))
    Path("model/model.safetensors").touch()


def problems_of(*options: tuple[str, str], selection: Selection | None = None) -> list[str]:
    try:
        read_recipe(Path("recipe.yaml"), options, {}, selection=selection or Selection())
    except DomainbertError as error:
        return error.problems
    return []


def test_a_sound_recipe_is_read_without_torch(capsys: pytest.CaptureFixture[str]) -> None:
    assert problems_of() == []
    assert capsys.readouterr() == ("", ""), "only the stage that reads a file reports its format"
    code = (
        "import sys\n"
        "from domainbert.cli import main\n"
        "assert main(['run', 'recipe.yaml', '--dry-run']) == 0\n"
        "print([name for name in ('torch', 'lightning', 'datasets', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_everything_is_told_before_the_first_stage(capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.conll").write_text(TRAIN + "\nthree\tcolumns\tO\n")
    Path("validation.conll").write_text("A\tO\nloan\tC-x\n")
    Path("model/config.json").write_text('{"model_type": "gpt2"}')
    text = RECIPE.replace("loggers: [jsonl]", "loggers: [wandb]")
    Path("recipe.yaml").write_text(text.replace("task: Ner\n    train", "max_length: 999\n    task: Ner\n    train", 1))
    assert importlib.util.find_spec("wandb") is None
    for command in (["run", "recipe.yaml"], ["run", "recipe.yaml", "--dry-run"]):
        assert main(command) == 2
        reported = [line.strip() for line in capsys.readouterr().err.splitlines()]
        assert reported[0] == "domainbert: recipe.yaml: 5 problems"
        where = "recipe.yaml:5: stages.vocab.labelled[0]"
        assert reported[1] == f"train.conll:7: 3 columns separated by tabs; expected 2 as in line 1 ({where})"
        wandb = "needs wandb; run pip install 'domainbert[wandb]'"
        assert reported[2] == f"recipe.yaml:11: stages.pretrain.loggers: {wandb}"
        longest = "expected at most 512, the number of positions of the encoder"
        assert reported[3] == f"recipe.yaml:15: stages.tagger.max_length: found 999; {longest}"
        assert reported[4].startswith("validation.conll:2: unknown tag 'C-x'"), "once, though two stages read it"
        assert reported[5].startswith("recipe.yaml:21: stages.other.model: model/config.json: model_type: found 'gpt2'")
    assert not Path("run").exists()


def test_labels_that_training_does_not_have(capsys: pytest.CaptureFixture[str]) -> None:
    """The test set is checked too: an untrained model has the labels of its training set."""
    Path("validation.conll").write_text("A\tO\nloan\tB-place\n")
    Path("test.conll").write_text("loan\tB-x\n\nKenya\tB-time\n")
    text = RECIPE.replace("    train: train.conll\n    test", "    test")
    Path("recipe.yaml").write_text(text)
    assert problems_of() == [
        "validation.conll:1: label 'place' (count 1, first here) was not in training; expected a training label: "
        "'x', 'y' (recipe.yaml:17: stages.tagger.validation)",
        "test.conll:3: label 'time' (count 1, first here) was not in training; expected a training label: 'x', 'y' "
        "(recipe.yaml:25: stages.result.test)",
    ]


def write_tagger(folder: Path, *types: str) -> None:
    """A model folder that says it is for entities."""
    if folder != Path("model"):
        shutil.copytree("model", folder)
    fields = json.loads(Path("model/config.json").read_text())
    tags = ["O", *(f"{begin}-{one}" for one in types or ("x", "y") for begin in "BI")]
    fields |= {"architectures": ["BertForTokenClassification"], "id2label": dict(enumerate(tags))}
    (folder / "config.json").write_text(json.dumps(fields))


def test_a_file_is_parsed_once_whatever_its_labels_are_compared_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same file for training, validation and test was parsed for each set of known labels."""
    parsed = []

    def counted_read(config: Ner, path: Path) -> NerFile:
        parsed.append(path)
        return read(config, path)

    monkeypatch.setattr("domainbert.tasks.ner.files.read", counted_read)
    text = RECIPE.replace("validation.conll", "train.conll").replace("test.conll", "train.conll")
    write_tagger(Path("done"), "x")
    Path("recipe.yaml").write_text(text.replace('"@other"}', '"@other", done: done}').replace("task: Ner", CRF, 1))
    problem = "train.conll:4: label 'y' (count 1, first here) was not in training; expected a training label: 'x'"
    assert problems_of() == [f"{problem} (recipe.yaml:26: stages.result.test)"]
    assert parsed == [Path("train.conll")]


def test_labels_that_a_model_folder_does_not_have() -> None:
    write_tagger(Path("model"), "x")
    expected = "test.conll:4: label 'y' (count 1, first here) was not in training; expected a training label: 'x'"
    expected = f"{expected} (recipe.yaml:26: stages.result.test)"
    assert problems_of(("stages.result.models", "{ours: model}")) == [expected]
    changes = ("stages.result.task", "Classification"), ("stages.result.train", "null")
    wrong = problems_of(("stages.result.models", "{ours: model}"), *changes)
    expected = "stages.result.models.ours: 'model' is for ner; expected a model for classification"
    assert f"--stages.result.models: {expected}" in wrong


OTHER_TASKS = (
    RECIPE.partition("  tagger:")[0]
    + """\
  classes: {stage: finetune, model: "@pretrain", task: Classification, train: a.csv, validation: a.csv}
  packed: {stage: export, model: "@classes"}
  bare: {stage: predict, model: "@pretrain", input: corpus.txt}
  plain: {stage: predict, model: model, input: corpus.txt}
  good: {stage: predict, model: "@packed", input: corpus.txt}
  student:
    stage: distill-task
    teachers: ["@pretrain", model, "@classes", tagger]
    task: Ner
    train: train.conll
    validation: train.conll
    losses: [HardTargets]
  result:
    stage: evaluate
    models: {a: "@classes", b: "@student", c: "@packed", d: "@pretrain"}
    task: Ner
    test: x.conll
"""
)


def test_models_without_a_head_or_for_another_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that have yet to be made; the test set was blamed for the classes of a model that is for texts."""
    monkeypatch.setattr("domainbert.stages.early_checks.is_installed", lambda name: True)
    Path("recipe.yaml").write_text(OTHER_TASKS)
    Path("a.csv").write_text("text,label\na,up\nb,down\n")
    Path("x.conll").write_text("loan\tB-x\n")
    write_tagger(Path("tagger"))
    headless = "no trained task head; expected a model that finetune wrote"
    found = [problem.partition(": ")[2] for problem in problems_of()]
    assert found == [
        f"stages.bare.model: 'run/pretrain' has {headless}",
        f"stages.plain.model: 'model' has {headless}",
        f"stages.student.teachers[0]: 'run/pretrain' has {headless}",
        f"stages.student.teachers[1]: 'model' has {headless}",
        "stages.student.teachers[2]: 'run/classes' is for classification; expected a model for ner",
        *(
            f"stages.result.models.{name}: {kind}; expected a model for ner"
            for name, kind in (
                ("a", "'run/classes' is for classification"),
                ("c", "'run/packed' is for classification"),
                ("d", "'run/pretrain' has no trained task head"),
            )
        ),
    ]


def test_outputs_of_earlier_stages_are_not_looked_at() -> None:
    """What an earlier run left in the folder of a stage that will write it again says nothing."""
    Path("run/pretrain").mkdir(parents=True)
    Path("run/pretrain/config.json").write_text("broken")
    assert problems_of() == []
    assert problems_of(("stages.tagger.model", "run/pretrain")) != []


def test_a_corpus_to_come_that_a_training_could_not_read_is_told_before_it_is_prepared() -> None:
    """Rows of other lengths, and a vocabulary that is not the model's."""
    lengths = ("stages.prepare.row_lengths", "[64, 512]")
    assert problems_of(lengths, ("stages.pretrain.max_length", "512")) == []
    assert problems_of(lengths) == [
        "recipe.yaml:7: stages.pretrain.max_length: found 128; expected one of 64, 512, the row_lengths of run/prepare"
    ]
    phases = ("stages.pretrain.max_length", "[{until: 0.5, length: 32}, {length: 64}]")
    assert problems_of(lengths, phases, ("stages.pretrain.budget.max_steps", "10")) == [
        "--stages.pretrain.max_length: found 32; expected one of 64, 512, the row_lengths of run/prepare"
    ]
    model = (
        ("stages.pretrain.encoder", "null"),
        ("stages.pretrain.init_from", "model"),
        ("stages.pretrain.max_length", "8"),
    )
    assert problems_of(*model) == [
        "--stages.pretrain.init_from: run/prepare is prepared with run/vocab, which is not the tokenizer of model; "
        "set tokenizer: model in the stage of run/prepare"
    ]
    assert problems_of(*model, ("stages.prepare.tokenizer", "model")) == []


@pytest.mark.parametrize(
    ("file", "content", "expected"),
    [
        (
            "model/config.json",
            "{",
            "recipe.yaml:20: stages.other.model: model/config.json: not the config.json",
        ),
        ("model/vocab.txt", None, "recipe.yaml:20: stages.other.model: model: no tokenizer; expected tokenizer.json"),
        ("model/model.safetensors", None, "recipe.yaml:20: stages.other.model: model: no model.safetensors and no"),
    ],
)
def test_a_model_that_cannot_be_opened(file: str, content: str | None, expected: str) -> None:
    Path(file).write_text(content) if content else Path(file).unlink()
    (problem,) = problems_of()
    assert problem.startswith(expected)


def test_the_files_of_a_stage_that_is_not_needed_are_not_read() -> None:
    Path("model/vocab.txt").unlink()
    Path("validation.conll").write_text("A\tO\nloan\tB-z\n")
    vocabulary = "recipe.yaml:20: stages.other.model: model: no tokenizer; expected tokenizer.json"
    label = (
        "validation.conll:1: label 'z' (count 1, first here) was not in training; expected a training label: 'x', 'y'"
    )
    for selection, expected in {
        Selection(): [label, vocabulary],
        Selection(only=("pretrain",)): [],
        Selection(only=("tagger",)): [label],
        Selection(first="result"): [label, vocabulary],
    }.items():
        reported = problems_of(selection=selection)
        assert len(reported) == len(expected) and all(map(str.startswith, reported, expected)), (selection, reported)


def test_a_finished_stage_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("domainbert.stages.finetune.finetune", finetune)
    recipe = read_recipe(Path("recipe.yaml"), [], {})
    write_tagger(Path("run/other"))
    job = recipe.jobs["other"]
    RunRecord("finetune", "done", key=job.key, made_from=dict(job.freshness.facts)).write(Path("run/other"))
    monkeypatch.setattr("domainbert.training.config._EXTRAS", ("jsonl",))
    monkeypatch.setattr("domainbert.training.config.is_installed", lambda name: False)
    reported = [problem.split(": ")[1] for problem in problems_of()]
    assert reported == ["stages.pretrain.loggers", "stages.tagger.loggers"]


SAMPLE = """\
out: run
stages:
  sample: {}
  vocab: {corpus: {sources: [{path: "@sample/corpus/*.jsonl"}]}}
  tagger:
    stage: finetune
    model: model
    task: Ner
    train: "@sample/ner/train.conll"
    validation: "@sample/ner/validation.conll"
"""


def test_what_a_stage_that_is_done_has_written_is_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A mistyped reference was found when the stage ran, after the old model there had been removed."""
    Path("recipe.yaml").write_text(SAMPLE)
    mistyped = SAMPLE.replace("ner/train", "ner/trian").replace("corpus/*.jsonl", "corpse/*.jsonl")
    Path("typo.yaml").write_text(mistyped)
    out = Path("run/sample")

    def wrong(name: str) -> list[str]:
        try:
            read_recipe(Path(name), [], {})
        except DomainbertError as error:
            return error.problems
        return []

    assert wrong("typo.yaml") == [], "nothing is known of what has yet to be written"
    job = read_recipe(Path("recipe.yaml"), [], {}).jobs["sample"]
    for name in ("train", "validation"):
        (out / "ner").mkdir(parents=True, exist_ok=True)
        (out / f"ner/{name}.conll").write_text("A\tO\nloan\tB-x\n" if name == "train" else TRAIN)
    (out / "corpus").mkdir()
    (out / "corpus/a.jsonl").write_text('{"text": "A loan."}')
    RunRecord("sample", "done", key=job.key, made_from=dict(job.freshness.facts)).write(out)
    assert wrong("recipe.yaml") == [
        "run/sample/ner/validation.conll:4: label 'y' (count 1, first here) was not in training; expected a training "
        "label: 'x' (recipe.yaml:10: stages.tagger.validation)"
    ]
    done = "does not exist, but its stage is done; expected a file or folder that the stage has written"
    assert main(["run", "typo.yaml", "--dry-run"]) == 2
    assert [line.strip() for line in capsys.readouterr().err.splitlines()] == [
        "domainbert: typo.yaml: 2 problems",
        "typo.yaml:4: stages.vocab.corpus.sources[0].path: found 'run/sample/corpse/*.jsonl', which neither exists "
        "nor matches as a glob; expected a file, folder, glob or hub:NAME",
        f"typo.yaml:9: stages.tagger.train: @sample/ner/trian.conll {done}",
    ]
    with (out / "ner/train.conll").open("a") as file:
        file.write("\nor\tO\nnot\tB-y\n")
    assert wrong("recipe.yaml") == wrong("typo.yaml") == [], "it is not as it was left, so that it has to be made again"


def test_a_single_stage_and_a_search_check_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    Path("stage.yaml").write_text(
        "model: model\ntask: Ner\ntrain: train.conll\nvalidation: validation.conll\nmax_length: 999\n"
    )
    assert main(["finetune", "-c", "stage.yaml", "--loggers", "[wandb]", "--out", "out"]) == 2
    assert [line.strip() for line in capsys.readouterr().err.splitlines()] == [
        "domainbert: finetune: 2 problems",
        "--loggers: needs wandb; run pip install 'domainbert[wandb]'",
        "stage.yaml:5: max_length: found 999; expected at most 512, the number of positions of the encoder",
    ]
    assert not Path("out").exists()
    Path("tune.yaml").write_text(
        "out: study\nstage: finetune\nsettings: {model: model, task: Ner, train: train.conll,\n"
        "  validation: validation.conll}\nspace:\n  loggers: {choices: [[jsonl], [wandb]]}\n"
        "  max_length:\n    choices: [8, 1000]\n"
    )
    with pytest.raises(DomainbertError) as error:
        read_search([Path("tune.yaml")], [])
    assert error.value.problems == [
        "tune.yaml:6: loggers: needs wandb; run pip install 'domainbert[wandb]'",
        "tune.yaml:8: max_length: found 1000; expected at most 512, the number of positions of the encoder",
    ]


def test_a_process_that_is_not_the_first_finds_what_ends_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not wait for a folder that the first process never takes."""
    waited = []
    monkeypatch.setattr("domainbert.runner.stage_command.follow_job", lambda *_: waited.append(1))
    monkeypatch.setenv("RANK", "1")
    for name in ("train", "validation"):
        Path(f"{name}.conll").write_text("A\tO\nloan\tC-x\n")
    words = ["finetune", "--model", "model", "--task", "Ner", "--out", "out"]
    assert main([*words, "--train", "train.conll", "--validation", "validation.conll"]) == 2
    assert not waited
