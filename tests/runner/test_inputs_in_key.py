"""The key of every stage depends on the content of every file that it reads."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

from domainbert.base.choices import choices_of, is_choice
from domainbert.base.errors import Problems
from domainbert.base.files import FileHashes
from domainbert.base.freshness import Freshness
from domainbert.corpus.config import CorpusConfig, Select, Source
from domainbert.labelled.formats import NerFormat
from domainbert.labelled.sets import LabelledFile
from domainbert.runner.stage_table import STAGES, Stage, load_stage
from domainbert.settings.facts import hashes_of_inputs, stage_facts
from domainbert.settings.reader import Settings, read_settings
from domainbert.settings.yaml_files import dump_yaml, load_yaml, to_node
from domainbert.tasks.ner.config import Ner

REQUIRED: dict[str, dict[str, Any]] = {
    "pretrain": {"budget": {"max_steps": 1}},
    "distill": {"budget": {"max_steps": 1}, "losses": ["HardTargets"]},
    "distill-task": {"task": "Ner", "losses": ["HardTargets"]},
    "finetune": {"task": "Ner"},
    "evaluate": {"task": "Ner"},
}
"""Settings without default that are no inputs."""

READS = {
    "sample": [],
    "vocab": ["compare_with", "corpus", "labelled"],
    "transfer": ["corpus", "model", "tokenizer"],
    "check": ["corpus", "other_corpora", "tokenizer"],
    "prepare": ["corpus", "tokenizer"],
    "merge": ["prepared"],
    "pretrain": ["held_out", "init_from", "prepared"],
    "distill": ["prepared", "teachers"],
    "distill-task": ["model", "teachers", "train", "unlabelled", "validation"],
    "finetune": ["model", "train", "validation"],
    "evaluate": ["models", "test", "train"],
    "predict": ["input", "model"],
    "export": ["check", "model"],
}
FOLDERS = {"model", "models", "teachers", "prepared", "tokenizer", "init_from", "held_out", "compare_with"}


def members(hint: Any) -> Iterator[Any]:
    """A type, and all that it holds."""
    yield hint
    for argument in get_args(hint):
        yield from members(argument)


def below(kind: Any) -> Iterator[Any]:
    """The dataclasses that a setting may hold, whatever their depth."""
    for member in members(kind):
        found = choices_of(member).values() if isinstance(member, type) and is_choice(member) else [member]
        for one in found:
            if isinstance(one, type) and dataclasses.is_dataclass(one):
                yield one
                for field in get_type_hints(one).values():
                    yield from below(field)


def value_of(name: str, hint: Any, folder: Path) -> Any:
    """Return a value for a setting that names a new file, or a new folder with a file in a folder."""
    path = folder / name
    if name in FOLDERS:
        (path / "below").mkdir(parents=True)
        (path / "below/file.bin").write_text("one")
    else:
        path = path.with_suffix(".txt")
        path.write_text("one")
    if any(hasattr(kind, "input_files") for kind in members(hint)):
        return {"sources": [{"path": str(path)}]}
    kinds = [get_origin(kind) for kind in members(hint) if get_origin(kind) not in (None, Union, types.UnionType)]
    return [str(path)] if list in kinds else {"a": str(path)} if dict in kinds else str(path)


def inputs_of(stage: Stage) -> dict[str, Any]:
    """The settings that hold a path or a configuration that names files, with their types."""
    return {
        name: hint
        for name, hint in get_type_hints(stage.settings).items()
        if Path in list(members(hint)) or any(hasattr(kind, "input_files") for kind in below(hint))
    }


def read(stage: Stage, config: dict[str, Any], folder: Path) -> Settings:
    file, problems = folder / "settings.yaml", Problems(stage.name)
    file.write_text(dump_yaml(config))
    settings = read_settings(stage.settings, load_yaml(file), problems)
    problems.raise_if_any()
    return settings


def facts(stage: Stage, settings: Settings) -> Freshness:
    return stage_facts(stage.name, stage.settings, settings, hashes_of_inputs(settings, FileHashes()))


@pytest.mark.parametrize("name", STAGES)
def test_every_input_of_every_stage_is_in_its_key(name: str, tmp_path: Path) -> None:
    stage, data = load_stage(name), tmp_path / "data"
    data.mkdir()
    inputs = inputs_of(stage)
    assert sorted(inputs) == READS[name]
    config = {**REQUIRED.get(name, {}), **{key: value_of(key, hint, data) for key, hint in inputs.items()}}
    if name == "check":  # `other_corpora` are compared by a labelled set
        config |= {"task": "Ner", "labelled": {"train": str(data / "corpus.txt")}}
    settings = read(stage, config, tmp_path)
    assert {path.stem for path in settings.inputs} == set(inputs)

    def key() -> str:
        return facts(stage, settings).key

    files = sorted(path for path in data.rglob("*") if path.is_file())
    assert len(files) == len(inputs)
    for file in files:
        before = key()
        file.write_text("two")
        assert key() != before, file
        file.write_text("one")
        assert key() == before, file
        if file.parent != data:  # a folder counts with all that it holds
            (file.parent / "more").write_text("")
            assert key() != before, file
            (file.parent / "more").unlink()


def test_the_folder_of_an_onnx_file_is_in_the_key(tmp_path: Path) -> None:
    """It has the labels, the tokenizer and the transitions of a CRF."""
    folder = tmp_path / "onnx"
    folder.mkdir()
    for name in ("model.onnx", "config.json"):
        (folder / name).write_text("one")
    (tmp_path / "texts.txt").write_text("Rates rose.")
    config = {"model": str(folder / "model.onnx"), "input": str(tmp_path / "texts.txt")}
    stage = load_stage("predict")
    keys = []
    for labels in ("one", "two"):
        (folder / "config.json").write_text(labels)
        keys.append(facts(stage, read(stage, config, tmp_path)).key)
    assert keys[0] != keys[1]


@pytest.mark.parametrize("name", STAGES)
def test_a_file_that_a_configuration_names_is_in_the_key(name: str, tmp_path: Path) -> None:
    """Only configurations of label names have paths, apart from `input_files` and the files of a labelled set."""
    stage = load_stage(name)
    found = [
        f"{kind.__name__}.{field}"
        for hint in get_type_hints(stage.settings).values()
        for kind in below(hint)
        for field, type_ in get_type_hints(kind).items()
        if Path in list(members(type_))
    ]
    formats = ("ClassificationFormat", "MultiLabelFormat", "NerFormat", "RelationFormat", "TaggedFormat")
    named = {f"{one}.label_names_file" for one in formats}
    named |= {f"LabelledFile.{one}" for one in ("path", "text", "label")}
    named |= {f"LabelledSets.{one}" for one in ("train", "validation", "test") if name == "check"}
    named = named if "task" in get_type_hints(stage.settings) else set()
    assert set(found) == named | ({"Source.translation"} & set(found))
    if name == "prepare":
        for one in ("a", "b"):
            (tmp_path / f"{one}.txt").write_text("one\n")
        source = {"path": str(tmp_path / "a.txt"), "documents": "line", "translation": str(tmp_path / "b.txt")}
        inputs = {key: value_of(key, hint, tmp_path) for key, hint in inputs_of(stage).items() if key != "corpus"}
        settings = read(stage, {**inputs, "corpus": [source]}, tmp_path)
        assert {tmp_path / f"{one}.txt" for one in ("a", "b")} <= set(settings.inputs)
    if name == "finetune":
        inputs = {key: value_of(key, hint, tmp_path) for key, hint in inputs_of(stage).items()}
        (tmp_path / "names.json").write_text('["a", "b"]')
        task = {"class_path": "Ner", "init_args": {"format": {"label_names_file": str(tmp_path / "names.json")}}}
        settings = read(stage, {**inputs, "task": task}, tmp_path)
        assert tmp_path / "names.json" in settings.inputs
        for one in ("text", "label", "path"):
            (tmp_path / f"{one}.txt").write_text("one")
        pair = {one: str(tmp_path / f"{one}.txt") for one in ("text", "label")}
        train = [pair, {"path": str(tmp_path / "path.txt")}]
        settings = read(stage, {**inputs, "task": "Classification", "train": train}, tmp_path)
        assert {tmp_path / f"{one}.txt" for one in ("text", "label", "path")} <= set(settings.inputs)


def test_the_files_of_instances_from_python_are_in_the_key_as_those_of_a_yaml(tmp_path: Path) -> None:
    """A training that is repeated from Python keeps its finished seeds only if no file has changed."""
    stage, names = load_stage("distill-task"), ("train", "validation", "corpus", "like", "labels")
    train, validation, corpus, like, labels = files = [tmp_path / f"{name}.txt" for name in names]
    for file in files:
        file.write_text(file.name)
    config = {
        "teachers": str(tmp_path),
        "losses": ["HardTargets"],
        "task": Ner(format=NerFormat(label_names_file=labels)),
        "train": LabelledFile(train),
        "validation": [LabelledFile(text=validation, label=labels)],
        "unlabelled": CorpusConfig([Source(str(corpus))], select=Select([Source(str(like))], keep=0.5)),
    }
    problems = Problems(stage.name)
    settings = read_settings(stage.settings, to_node(config, stage.name), problems)
    assert problems.messages == [] and {*settings.inputs} == {tmp_path, *files}
    recorded = facts(stage, settings).facts
    train.write_text("changed")
    assert facts(stage, settings).changes(recorded).keys() == {"teachers", "train.path"}
    corpus.unlink()
    read_settings(stage.settings, to_node(config, stage.name), problems)
    assert problems.messages == [
        f"distill-task: unlabelled.sources[0].path: found '{corpus}', which neither exists nor matches as a glob; "
        "expected a file, folder, glob or hub:NAME"
    ]


def test_files_of_a_folder_count_by_their_names_and_order(tmp_path: Path) -> None:
    """Which text is read first, and how often each is, may depend on both."""
    stage = load_stage("prepare")
    (tmp_path / "tokenizer").mkdir()
    for name in ("a/1", "b/1", "b/2"):
        (tmp_path / f"c/{name}.txt").parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"c/{name}.txt").write_text(f"né à {name}")
    given = {"corpus": f"{tmp_path}/c/*/*.txt", "tokenizer": str(tmp_path / "tokenizer")}

    def key() -> str:
        return facts(stage, read(stage, given, tmp_path)).key

    whole = key()
    for one, other in (("b/1", "b/2"), ("a/1", "b/1")):
        files = [tmp_path / f"c/{name}.txt" for name in (one, other)]
        texts = [file.read_text() for file in files]
        for file, text in zip(files, reversed(texts), strict=True):
            file.write_text(text)
        assert key() != whole
        for file, text in zip(files, texts, strict=True):
            file.write_text(text)
    assert key() == whole


def test_the_order_of_models_counts_and_one_of_an_older_version_does_not(tmp_path: Path) -> None:
    """The first is compared with each other one."""
    stage = load_stage("evaluate")
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file.bin").write_text(name)
    (tmp_path / "test.conll").write_text("Zoë B-x\n")

    def found(*names: str) -> Freshness:
        models = {name: str(tmp_path / name) for name in names}
        given = {"models": models, "task": "Ner", "test": str(tmp_path / "test.conll")}
        return facts(stage, read(stage, given, tmp_path))

    rising, falling = found("one", "other"), found("other", "one")
    assert rising.key != falling.key
    assert falling.changes(rising.facts) == {"models": "order of models changed"}
    assert falling.changes({name: fact for name, fact in rising.facts.items() if name != "models"}) == {}
