# ruff: noqa: E501 (messages are not wrapped)
"""Messages as users read them: a page for the mistakes of a user in each kind of file.

Other tests assert the facts of an error (`tests/refusals.py`). A message is here if its wording is worth reading.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from domainbert import Ner
from domainbert.cli import main
from domainbert.labelled.read import read_file
from tests.refusals import refused

SETTINGS = """\
task: Nre
model: runs/pretrain
train: train.conll
validation: train.conll
max_lenght: 128
batch_size: 0
patience: many
optim: {lr: 3e-5, betas: [0.9, 1]}
schedule: {warmup_fraction: 2}
trainer: {precision: fp8, callbacks: [x]}
"""
RECIPE = """\
out: runs/a
stages:
  vocab: {corpus: {sources: [{path: absent.jsonl}]}, vocab_size: 100}
  prepare: {corpus: {sources: [{path: train.conll, format: pdf}]}, tokenizer: "@vocb"}
  pretrain: {stage: pretrian, prepared: ["@prepare"]}
"""
CORPUS = """\
{"text": "a"}
{"txt": "b"}
[1]
{"text": 3}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    files = {"a.yaml": SETTINGS, "recipe.yaml": RECIPE, "corpus.jsonl": CORPUS, "train.conll": "EU B-ORG\n"}
    for name, content in files.items():
        Path(name).write_text(content, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("command", "page"),
    [
        (
            "finetune -c a.yaml --out o",
            """\
finetune: 9 problems
  a.yaml:5: max_lenght: unknown key; did you mean 'max_length'?
  a.yaml:2: model: 'runs/pretrain' does not exist; expected a file or folder, or hub:runs/pretrain for a model on the Hugging Face hub
  a.yaml:1: task.class_path: 'Nre' is not allowed; did you mean 'Ner'?
  a.yaml:7: patience: found 'many'; expected an integer from 1 to 1,000,000,000
  a.yaml:6: batch_size: found 0; expected an integer from 1 to 1,000,000
  a.yaml:8: optim.betas[1]: found 1; expected a number from 0 to below 1
  a.yaml:9: schedule.warmup_fraction: found 2; expected a number from 0 to 1
  a.yaml:10: trainer.precision: domainbert sets it; set precision, outside of trainer
  a.yaml:10: trainer.callbacks: domainbert sets it; remove it, because its value cannot be changed
""",
        ),
        (
            "run recipe.yaml",
            """\
recipe.yaml: 4 problems
  recipe.yaml:3: stages.vocab.corpus.sources[0].path: found 'absent.jsonl', which neither exists nor matches as a glob; expected a file, folder, glob or hub:NAME
  recipe.yaml:4: found '@vocb', but no earlier stage is named 'vocb'; did you mean 'vocab'?
  recipe.yaml:4: stages.prepare.corpus.sources[0].format: found 'pdf'; expected one of 'auto', 'text', 'jsonl', 'csv', 'parquet', 'conll'
  recipe.yaml:5: stages.pretrain.stage: found 'pretrian'; did you mean 'pretrain'?
""",
        ),
        (
            "vocab --corpus.sources [corpus.jsonl] --vocab_size 200 --out o",
            """\
corpus.jsonl: 3 problems
  corpus.jsonl:2: no key 'text' (keys found: 'txt'); set text_key to the key of the text in every row
  corpus.jsonl:3: a JSON list; expected an object per line
  corpus.jsonl:4: the value of 'text' is of type int; expected a string
""",
        ),
        ("runs gone lost", "runs: found 'lost'; expected at most one folder, and optionally --json\n"),
        ("pretrian", "no command or stage 'pretrian'; did you mean 'pretrain'?\n"),
        ("vocab corpus.jsonl", "found 'corpus.jsonl' without an option; expected -c FILE or --KEY VALUE\n"),
    ],
    ids=["settings", "recipe", "corpus", "runs", "command", "option"],
)
def test_the_command_line_tells_all_mistakes(command: str, page: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command.split()) == 2
    assert capsys.readouterr().err == f"domainbert: {page}"


@pytest.mark.parametrize(
    ("tags", "line", "problem", "expected"),
    [
        ("EU B-ORG\nsays O O\n", 2, "3 columns separated by spaces", "2 as in line 1"),
        ("EU B-\n", 1, "unknown tag 'B-'", "O, B-TYPE or I-TYPE (or E-, S-, L-, U-TYPE)"),
        ("-DOCSTART- B-X\n\nEU B-ORG\n", 1, "-DOCSTART- has the tag 'B-X'", "O"),
    ],
    ids=["columns", "tag", "document"],
)
def test_a_tagged_file_tells_line_and_tag(tags: str, line: int, problem: str, expected: str) -> None:
    Path("train.conll").write_text(tags, encoding="utf-8")
    with refused(file="train.conll", line=line, problem=problem, expected=expected):
        read_file(Ner(), Path("train.conll"))
