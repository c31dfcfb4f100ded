"""What a command reads and runs before the body of its stage: each input once, through few files of the package."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

import domainbert
from domainbert.stages.stage import Inputs
from domainbert.tasks.classification.config import Classification, ClassificationFormat
from domainbert.tasks.ner.config import Ner
from tests.forked import run_script
from tests.refusals import refused

# Counts how often a process opens each file, and the files of the package whose functions (CO_OPTIMIZED, so neither
# modules nor classes) run before the body of a stage.
WATCH = """
import collections, importlib, json, sys

module, package, arguments = sys.argv[1], sys.argv[2], sys.argv[3:]
opened, entered = collections.Counter(), set()

def audit(event, values):
    if event == "open" and isinstance(values[0], str):
        opened[values[0]] += 1

def profile(frame, event, _):
    code = frame.f_code
    if event == "call" and code is body:
        sys.setprofile(None)
    elif event == "call" and code.co_filename.startswith(package) and code.co_flags & 1:
        entered.add(code.co_filename)

from domainbert.cli import main
name = module.rpartition(".")[2]
body = getattr(importlib.import_module(module), name).__wrapped__.__code__
sys.addaudithook(audit)
sys.setprofile(profile)
code = main([name.replace("_", "-"), *arguments])
sys.setprofile(None)
print("\\n" + json.dumps({"code": code, "opened": opened, "entered": sorted(entered)}))
"""


def watch(stage: str, settings: dict[str, Any], folder: Path) -> tuple[Counter[str], list[str]]:
    """How often the command opens each file by name, and the files of the package that it enters before the stage."""
    config = folder / f"{stage}.yaml"
    config.write_text(yaml.safe_dump({**settings, "out": str(folder / stage)}), encoding="utf-8")
    package = str(Path(domainbert.__file__).parent)
    said = run_script(WATCH, folder, f"domainbert.stages.{stage}", package, "-c", str(config), reimport=True)
    found = json.loads(said.splitlines()[-1])
    assert found["code"] in (0, None)
    return Counter(found["opened"]), found["entered"]


OPENINGS = 2  # of a labelled file: to hash it, and to parse it


def test_finetune_and_evaluate_open_each_input_once(runs: Any, tmp_path: Path) -> None:
    train, validation, test = (str(runs.labelled("ner", split)) for split in ("train", "validation", "test"))
    settings = {"task": "Ner", "train": train, "max_epochs": 1, "seeds": [1, 2], "loggers": []}
    settings |= {"precision": "32-true", "trainer": {"accelerator": "cpu", "devices": 1}}
    given = {"model": str(runs / "pretrain"), "validation": validation}
    opened, entered = watch("finetune", settings | given, tmp_path)
    assert [opened[file] for file in (train, validation)] == [OPENINGS, OPENINGS]
    assert opened[str(tmp_path / "finetune.yaml")] == 1
    assert opened[str(runs / "pretrain/tokenizer.json")] == 1  # to hash it: `tokenizers` opens it by itself
    assert len(entered) <= 57, entered

    folder = tmp_path / "finetune"
    settings = {"task": "Ner", "models": {"a": str(folder)}, "test": test, "train": train, "bootstrap_resamples": 100}
    opened, entered = watch("evaluate", settings, tmp_path)
    assert [opened[file] for file in (test, train)] == [OPENINGS, OPENINGS]
    assert opened[str(tmp_path / "evaluate.yaml")] == 1
    assert sum(count for file, count in opened.items() if file.endswith("run.json")) <= 3
    assert len(entered) <= 55, entered


def test_a_changed_file_is_read_again_and_large_files_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors are kept as well, until the file changes."""
    files = [tmp_path / f"{name}.conll" for name in "abc"]
    for number, file in enumerate(files):
        file.write_text(f"é{number} B-x\n. O\n\n", encoding="utf-8")
    inputs, task = Inputs(), Ner()
    read = [inputs.labelled(task, file) for file in files]
    assert [inputs.labelled(task, file) for file in files] == read and inputs.labelled(task, files[0]) is read[0]
    assert list(inputs.labels(task, files[0])) == ["x"]
    files[0].write_text("é B-x\n.\n\n", encoding="utf-8")
    for _ in range(2):
        with refused(file="a.conll", line=2):
            inputs.labelled(task, files[0])
    files[0].write_text("é B-y\n. O\n\n", encoding="utf-8")
    assert list(inputs.labels(task, files[0])) == ["y"]
    monkeypatch.setattr("domainbert.stages.stage._MAX_KEPT_BYTES", 30)  # two files
    again = inputs.labelled(task, files[0])
    assert inputs.labelled(task, files[2]) is read[2] and inputs.labelled(task, files[0]) is again
    assert inputs.labelled(task, files[1]) is not read[1]
    assert inputs.labelled(task, files[2]) is not read[2]
    monkeypatch.setattr("domainbert.stages.stage._MAX_KEPT_BYTES", 10)
    assert inputs.labelled(task, files[2]) is not inputs.labelled(task, files[2])


def test_what_stands_beside_an_input_counts_too(runs: Any, tmp_path: Path) -> None:
    """The model of a seed in a folder of seeds, and a file with the names of labels."""
    inputs = Inputs()
    shutil.copytree(runs / "ner-pretrained", folder := tmp_path / "tagger")
    first = inputs.model(folder)
    assert inputs.model(folder) is first
    fields = json.loads((first.path / "config.json").read_text())
    fields["id2label"]["1"] = "B-é"
    (first.path / "config.json").write_text(json.dumps(fields))
    assert inputs.model(folder).labels[1] == "B-é"
    (rows := tmp_path / "rows.jsonl").write_text('{"text": "é", "label": 1}\n{"text": "a", "label": 0}\n')
    task = Classification(ClassificationFormat(label_names_file=(names := tmp_path / "names.json")))
    for found in (["good", "bad"], ["né", "non"]):
        names.write_text(json.dumps(found))
        assert sorted(inputs.labels(task, rows)) == sorted(found)
