from __future__ import annotations

import re
import sys
from dataclasses import make_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

import pytest

from domainbert.base.errors import DomainbertError, Problems
from domainbert.encoders.bert.config import BertConfig
from domainbert.encoders.config import EncoderConfig
from domainbert.runner.stage_table import STAGES, load_stage
from domainbert.settings.reader import Settings, read_settings
from domainbert.settings.suggestions import TRANSFORMERS_SETTINGS, keys_below
from domainbert.settings.trainer_arguments import ALLOWED_NAMES
from domainbert.settings.tree import read_config
from domainbert.settings.yaml_files import dump_yaml
from domainbert.stages.vocab import vocab
from tests.refusals import fact_rows


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("source.txt").write_text("x")


def read(function: Any, *texts: str, options: tuple[tuple[str, str], ...] = ()) -> tuple[Settings, list[Any]]:
    files = []
    for index, text in enumerate(texts):
        files.append(Path(f"{index}.yaml"))
        files[-1].write_text(text)
    problems = Problems("test")
    settings = read_settings(function, read_config(files, options), problems)
    return settings, fact_rows(problems.errors)


def test_every_problem_is_found_with_line_key_and_nearest_key(fake_stages: ModuleType) -> None:
    text = """\
source: missing.txt
shap: 1
optim:
  lr: abc
  nme: adamw
steps: 1.5
seeds: [1, two]
limit: aut
trainer: {max_step: 5, devices: 1}
"""
    _, problems = read(fake_stages.use, text, options=(("optim.name", "sgd"), ("shape.class_path", "Circl")))
    assert problems == [
        ("0.yaml:2", "shap", "unknown key", "did you mean 'shape'?"),
        ("0.yaml:1", "source", "'missing.txt' does not exist", "a file or folder"),
        ("", "--shape.class_path", "'Circl' is not allowed", "did you mean 'Circle'?"),
        ("0.yaml:5", "optim.nme", "unknown key", "did you mean 'name'?"),
        ("0.yaml:4", "optim.lr", "found 'abc'", "a number"),
        ("", "--optim.name", "found 'sgd'", "one of 'adamw', 'muon'"),
        ("0.yaml:6", "steps", "found 1.5", "an integer"),
        ("0.yaml:7", "seeds[1]", "found 'two'", "an integer"),
        ("0.yaml:8", "limit", "found 'aut'", "an integer or 'auto'"),
        ("0.yaml:9", "trainer.max_step", "lightning.Trainer has no such argument", "did you mean 'max_steps'?"),
    ]


def test_missing_and_null_and_shapes(fake_stages: ModuleType) -> None:
    assert read(fake_stages.use)[1] == [("", "command line: source", "missing", "a path")]
    assert read(fake_stages.use, "steps: 1\n")[1] == [("", "0.yaml: source", "missing", "a path")]
    text = "source: source.txt\nsteps: null\nseeds: {a: 3}\noptim: [1]\ntrainer: 5\nshape: {class_path: 3}\nnote: 7\n"
    assert read(fake_stages.use, text)[1] == [
        ("0.yaml:6", "shape.class_path", "3 is not allowed", "one of Circle, Square"),
        ("0.yaml:4", "optim", "found a list", "a mapping with the keys lr, name"),
        ("0.yaml:2", "steps", "found null", "an integer"),
        ("0.yaml:3", "seeds", "found a mapping", "a list, each item an integer"),
        ("0.yaml:7", "note", "found 7", "text"),
        ("0.yaml:5", "trainer", "found 5", "a mapping, each value any value or null"),
    ]


def test_values_are_of_the_declared_types(fake_stages: ModuleType) -> None:
    text = "source: source.txt\nsteps: 1e5\nseeds: [3, 1e1]\nlimit: 2e1\noptim: {lr: 1}\ntrainer: {devices: 2}\n"
    settings, problems = read(fake_stages.use, text, options=(("note", "1e-4"),))
    assert problems == []
    assert settings.arguments["steps"] == 100_000 and type(settings.arguments["steps"]) is int
    assert settings.arguments["seeds"] == (3, 10)
    assert settings.arguments["limit"] == 20
    assert settings.arguments["source"] == Path("source.txt")
    assert settings.arguments["note"] == "1e-4"
    # missing settings of a group come from the default of the stage, not from the default of the class
    assert settings.arguments["optim"] == fake_stages.Optim(lr=1.0, name="muon")
    assert settings.inputs == [Path("source.txt")]
    assert "shape" not in settings.arguments


def test_resolved_settings_read_back_equal(fake_stages: ModuleType) -> None:
    text = "source: source.txt\nshape: {class_path: Square, init_args: {side: 3}}\nnote: 'no'\noptim: {lr: 1e-5}\n"
    first, _ = read(fake_stages.use, text)
    second, problems = read(fake_stages.use, dump_yaml(first.plain))
    assert problems == []
    assert second.plain == first.plain
    assert first.arguments.items() <= second.arguments.items()
    assert first.plain["shape"] == {"class_path": "fake_stages.Square", "init_args": {"side": 3}}


def test_a_choice_that_is_not_named_is_the_usual_one(fake_stages: ModuleType) -> None:
    assert read(fake_stages.use, "source: source.txt\nshape: {}\n")[0].arguments["shape"] == fake_stages.Circle(2.0)
    named = "source: source.txt\nshape: {class_path: Circle}\n"
    assert read(fake_stages.use, named)[0].arguments["shape"] == fake_stages.Circle(1.0)


@pytest.mark.parametrize(
    "shape",
    [
        "{class_path: Circle, init_args: {radius: 3}}",
        "{class_path: fake_stages.Circle, radius: 3}",
        "circle.yaml",
        "configs/circle.yaml",
    ],
)
def test_ways_to_choose(fake_stages: ModuleType, shape: str) -> None:
    Path("configs").mkdir()
    for file in ("circle.yaml", "configs/circle.yaml"):
        Path(file).write_text("class_path: Circle\ninit_args: {radius: 3}\n")
    settings, problems = read(fake_stages.use, f"source: source.txt\nshape: {shape}\n")
    assert problems == []
    assert settings.arguments["shape"] == fake_stages.Circle(3.0)


def test_a_file_named_by_a_file_is_found_beside_it(fake_stages: ModuleType) -> None:
    Path("configs").mkdir()
    Path("configs/circle.yaml").write_text("class_path: Circle\n")
    Path("configs/use.yaml").write_text("source: source.txt\nshape: circle.yaml\n")
    problems = Problems("test")
    tree = read_config([Path("configs/use.yaml")], [("shape.radius", "5")])
    assert read_settings(fake_stages.use, tree, problems).arguments["shape"] == fake_stages.Circle(5.0)
    assert read(fake_stages.use, "source: source.txt\nshape: none.yaml\n")[1] == [
        ("0.yaml:2", "", "file none.yaml does not exist", "a YAML file")
    ]


def test_a_later_file_replaces_lists_and_merges_mappings(fake_stages: ModuleType) -> None:
    circle = "shape: {class_path: Circle, radius: 7}\n"
    base = f"source: source.txt\nseeds: [1, 2, 3]\noptim: {{lr: 1, name: adamw}}\n{circle}"
    settings, _ = read(fake_stages.use, base, "seeds: [9]\noptim: {lr: 2}\nshape: {init_args: {radius: 4}}\n")
    assert settings.arguments["seeds"] == (9,)
    assert settings.arguments["optim"] == fake_stages.Optim(2.0, "adamw")
    assert settings.arguments["shape"] == fake_stages.Circle(4.0)
    # another class starts afresh: nothing of the Circle stays
    settings, problems = read(fake_stages.use, base, "shape: {class_path: Square, init_args: {side: 2}}\n")
    assert problems == [] and settings.arguments["shape"] == fake_stages.Square(2)


def test_checks_of_dataclasses_are_collected_too(fake_stages: ModuleType) -> None:
    text = "source: source.txt\nshape: {class_path: Circle, radius: -1}\nsteps: x\n"
    assert read(fake_stages.use, text)[1] == [
        ("0.yaml:2", "shape.radius", "found -1.0", "a positive number"),
        ("0.yaml:3", "steps", "found 'x'", "an integer"),
    ]


def test_a_value_alone_is_a_list_of_one(fake_stages: ModuleType) -> None:
    settings, problems = read(fake_stages.make, "words: 'a'\n", options=(("texts.files", "source.txt"),))
    assert problems == [] and settings.arguments["words"] == ["a"] and settings.inputs == [Path("source.txt")]
    assert settings.plain == read(fake_stages.make, "words: [a]\ntexts: {files: [source.txt]}\n")[0].plain
    settings, problems = read(fake_stages.use, "source: source.txt\n", options=(("seeds", "7"), ("note", "x")))
    assert problems == [] and settings.arguments["seeds"] == (7,)
    assert read(fake_stages.use, "source: source.txt\nseeds: x\n")[1] == [
        ("0.yaml:2", "seeds", "found 'x'", "an integer, or a list: [A, B]")
    ]


def test_a_problem_of_a_corpus_stands_at_its_source() -> None:
    text = "corpus:\n  sources:\n  - path: source.txt\n  - {weight: 2,\n     path: nope}\n  - path: none\n"
    assert read(vocab, text)[1] == [
        (
            f"0.yaml:{line}",
            f"corpus.sources[{number}].path",
            f"found {name!r}, which neither exists nor matches as a glob",
            "a file, folder, glob or hub:NAME",
        )
        for line, number, name in [(5, 1, "nope"), (6, 2, "none")]
    ]
    assert read(vocab, "corpus: {sources: []}\n")[1] == [
        (
            "0.yaml:1",
            "corpus.sources",
            "found []",
            "a list of one or more items, each item a mapping with the keys path, format, text_key, translation_key, "
            "translation, documents, weight, language, hub_config, hub_split, or only the value of path",
        )
    ]


def test_input_files_of_a_dataclass(fake_stages: ModuleType) -> None:
    settings, problems = read(fake_stages.make, "words: [a]\ntexts: {files: [source.txt]}\n")
    assert problems == [] and settings.inputs == [Path("source.txt")]
    Path("0.yaml").write_text("words: [a]\ntexts:\n  files: [nope.txt]\n")
    problems = Problems("test")
    read_settings(fake_stages.make, read_config([Path("0.yaml")], ()), problems)
    (error,) = problems.errors
    assert (error.context, *fact_rows([error])) == ("0.yaml:2: texts", ("nope.txt", "", "no such file", "a text"))


@pytest.mark.parametrize(
    "name", ["os.system", "canary_module.Evil", "canary_module", "fake_stages.Optim", "Shape", "5"]
)
def test_nothing_else_can_be_named(fake_stages: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    Path("canary_module.py").write_text("open('canary', 'w').close()\nclass Evil: pass\n")
    monkeypatch.syspath_prepend(".")
    _, problems = read(fake_stages.use, f"source: source.txt\nshape: {{class_path: {name}}}\n")
    assert len(problems) == 1 and problems[0][2].endswith("is not allowed")
    # where any value may stand, there is no class_path
    evil = f"{{class_path: {name}, init_args: {{}}}}"
    _, problems = read(fake_stages.use, f"source: source.txt\ntrainer: {{plugins: [{evil}], strategy: {evil}}}\n")
    words = ", ".join(ALLOWED_NAMES["strategy"])
    assert problems == [
        ("0.yaml:2", "trainer.plugins", "domainbert sets it", "remove it, because its value cannot be changed"),
        ("0.yaml:2", "trainer.strategy", "found a mapping", f"one of {words}"),
    ]
    assert not Path("canary").exists() and "canary_module" not in sys.modules


def test_real_encoders_are_found_by_their_short_name() -> None:
    kind = make_dataclass("Settings", [("encoder", EncoderConfig)], frozen=True, kw_only=True)
    settings, problems = read(kind, options=(("encoder", "BertConfig"), ("encoder.hidden_size", "48")))
    assert problems == [] and settings.arguments["encoder"] == BertConfig(hidden_size=48)
    _, problems = read(kind, options=(("encoder", "BertConfg"),))
    assert problems == [
        ("", "--encoder: encoder.class_path", "'BertConfg' is not allowed", "did you mean 'BertConfig'?")
    ]


def test_arguments_that_domainbert_sets_are_refused(fake_stages: ModuleType) -> None:
    _, problems = read(fake_stages.use, "source: source.txt\ntrainer:\n  precision: 32\n  devices: 2\n")
    assert problems == [("0.yaml:3", "trainer.precision", "domainbert sets it", "set precision, outside of trainer")]


def test_a_huge_value_is_cut_in_the_message(fake_stages: ModuleType) -> None:
    _, problems = read(fake_stages.use, f"source: source.txt\nsteps: {'x' * 10_000}\n")
    ((place, where, problem, expected),) = problems
    assert (place, where, expected) == ("0.yaml:2", "steps", "an integer")
    assert len(problem) < 150 and re.fullmatch(r"found 'x+\.\.\.", problem)


def test_twenty_are_shown_and_all_counted(fake_stages: ModuleType) -> None:
    problems = Problems("test")
    tree = read_config([], [(f"bad{i}", "1") for i in range(30)])
    read_settings(fake_stages.use, tree, problems)
    with pytest.raises(DomainbertError) as caught:
        problems.raise_if_any()
    first, *_, last = str(caught.value).splitlines()
    assert (first, last.strip()) == ("test: 31 problems", "... and 11 more")


def test_a_model_of_the_hub_is_an_input_by_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def snapshot(name: str, revision: str | None, allow_patterns: list[str]) -> str:
        folder = Path("cache/models--owner--name/snapshots/0123abc")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.safetensors").touch()
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    text = "corpus: {sources: [{path: source.txt}]}\ncompare_with: hub:owner/name@v1\n"
    settings, problems = read(vocab, text)
    assert problems == []
    assert settings.plain["compare_with"] == "hub:owner/name@v1"
    folder = Path("cache/models--owner--name/snapshots/0123abc")
    assert settings.arguments["compare_with"] == folder and folder in settings.inputs


@pytest.mark.parametrize(
    ("stage", "key", "advice"),
    [
        ("finetune", "learning_rate", "did you mean 'optim.lr'?"),
        ("finetune", "lr", "did you mean 'optim.lr'?"),
        ("finetune", "devices", "did you mean 'trainer.devices'?"),
        ("finetune", "num_train_epochs", "did you mean 'max_epochs'?"),
        ("pretrain", "num_train_epochs", "did you mean 'budget.max_epochs'?"),
        ("pretrain", "max_steps", "did you mean 'budget.max_steps'?"),
        ("pretrain", "hidden_size", "did you mean 'encoder.hidden_size'?"),
        ("pretrain", "mlm_probability", "did you mean 'masking.mlm_probability'?"),
        ("finetune", "per_device_train_batch_size", "did you mean 'batch_size'?"),
        ("finetune", "warmup_ratio", "did you mean 'schedule.warmup_fraction'?"),
        ("finetune", "weight_decay", "did you mean 'optim.weight_decay'?"),
        ("finetune", "max_seq_length", "did you mean 'max_length'?"),
        ("finetune", "fp16", "did you mean 'precision'?"),
        ("finetune", "dataloader_num_workers", "did you mean 'num_workers'?"),
        ("finetune", "gradient_accumulation_steps", "did you mean 'micro_batch_size'?"),
        ("finetune", "output_dir", "did you mean 'out'?"),
        ("finetune", "model_name_or_path", "did you mean 'model'?"),
        ("pretrain", "model_name_or_path", "did you mean 'init_from'?"),
        ("finetune", "task.repair", "did you mean 'task.format.repair'?"),
        ("finetune", "repair", "did you mean 'task.format.repair'?"),
        ("finetune", "optim.warmup_steps", "one of name, lr"),
        ("finetune", "optim.learning_rate", "did you mean 'optim.lr'?"),
        ("finetune", "max_epoch", "did you mean 'max_epochs'?"),
        ("vocab", "min_chars", "one of corpus"),
    ],
)
def test_an_unknown_key_is_told_where_it_goes(stage: str, key: str, advice: str) -> None:
    section, _, name = key.rpartition(".")
    text = f"{name}: 2" if not section else f"{section}: {{{'class_path: Ner, ' * (section == 'task')}{name}: 2}}"
    problems = read(load_stage(stage).function, text + "\n")[1]
    (expected,) = [row[3] for row in problems if row[:3] == ("0.yaml:1", key, "unknown key")]
    assert expected.startswith(advice)


def test_the_names_of_other_libraries_lead_to_settings_that_there_are() -> None:
    dotted = {"out"}
    for name in STAGES:
        hints = get_type_hints(load_stage(name).settings, include_extras=True)
        dotted |= {*hints, *keys_below(hints)}
    assert {one for found in TRANSFORMERS_SETTINGS.values() for one in found} <= dotted
    assert len(TRANSFORMERS_SETTINGS) >= 30 and not set(TRANSFORMERS_SETTINGS) & {"lr", "devices"}


@pytest.mark.parametrize(
    ("stage", "text"),
    [
        ("finetune", "model: bert-base-uncased"),
        ("pretrain", "init_from: bert-base-uncased"),
        ("distill", "teachers: bert-base-uncased"),
        ("evaluate", "models: {a: bert-base-uncased}"),
        ("vocab", "compare_with: bert-base-uncased"),
    ],
)
def test_a_model_that_is_no_folder_may_be_one_of_the_hub(stage: str, text: str) -> None:
    problems = read(load_stage(stage).function, text + "\n")[1]
    problem, expected = (
        "'bert-base-uncased' does not exist",
        "a file or folder, or hub:bert-base-uncased for a {} on the ",
    )
    assert len([row for row in problems if row[2:] == (problem, f"{expected.format('model')}Hugging Face hub")]) == 1
    problems = read(load_stage("finetune").function, "train: bert-base-uncased\n")[1]
    assert ("0.yaml:1", "train", problem, f"{expected.format('data set')}Hugging Face hub") in problems
