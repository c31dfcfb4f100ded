"""configs/cluster/prepare.py with datatrove's executors: the parts of `prepare`, and filters on planted faults."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from domainbert.base.files import RUN_FILES
from domainbert.cli import main
from domainbert.data.prepared import open_prepared
from domainbert.stages.prepare import prepare
from domainbert.tokenization.kinds.wordpiece.kind import SPECIAL_TOKENS, bert_backend
from domainbert.tokenization.load import DomainTokenizer
from tests.toy_corpus import WORDS

pytest.importorskip("datatrove")
SCRIPT = Path(__file__).parents[2] / "configs/cluster/prepare.py"
FILES = 5
SLURM = {
    "sbatch": """#!/bin/sh
for file; do :; done
last=$(sed -n 's/^#SBATCH --array=0-\\([0-9]*\\).*/\\1/p' "$file")
for task in $(seq 0 "$last"); do SLURM_ARRAY_TASK_ID=$task bash "$file" >&2 || exit 1; done
echo Submitted batch job 1
""",
    "srun": """#!/bin/sh
shift 3
exec "$@"
""",
    "scontrol": """#!/bin/sh
echo node1
""",
}
"""SLURM on this machine: `sbatch` runs the tasks of a job, one after the other, before it ends."""
GOOD, COPIES, ALIKE, SHORT, REPEATED, MAILS = 60, 3, 4, 6, 2, 7


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("prepare_script", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def settings(toy_tokenizer: DomainTokenizer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A corpus of files, of which the third and the last hold no document that is long enough."""
    folder = tmp_path_factory.mktemp("settings")
    (folder / "text").mkdir()
    for number in range(FILES):
        lines = [" ".join(WORDS[place % 5 :]) + " the" * (place + number) for place in range(20)]
        (folder / f"text/{number}.txt").write_text("\n".join(lines) if number not in (2, FILES - 1) else "a\n")
    (folder / "text/ignored.tsv").write_text("a\tb\n")
    toy_tokenizer.save(folder / "tokenizer")
    sources = [{"path": str(folder / "text"), "documents": "line"}]
    (folder / "known.jsonl").write_text(json.dumps({"text": " ".join(WORDS[1:10])}))
    corpus = {"sources": sources, "min_characters": 2, "validation_fraction": 0.2}
    corpus["exclude"] = [str(folder / "known.jsonl")]
    return {"corpus": corpus, "tokenizer": str(folder / "tokenizer"), "row_lengths": [16, 40]}


@pytest.fixture(scope="module")
def whole(settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What one `prepare` writes."""
    folder = tmp_path_factory.mktemp("whole")
    prepare(folder, **settings, num_workers=0)
    return content(folder)


def content(folder: Path) -> dict[str, bytes]:
    """All files of a folder, without those that tell how a stage ran."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    files = {name: path for name, path in files.items() if name not in RUN_FILES}
    return {name: path.read_bytes() for name, path in files.items()}


def command(folder: Path, settings: Mapping[str, Any], *options: str) -> list[str]:
    (folder / "prepare.yaml").write_text(json.dumps(settings))
    return [sys.executable, str(SCRIPT), str(folder / "prepare.yaml"), str(folder / "out"), *options]


@pytest.mark.parametrize(
    ("executor", "tasks"),
    [("local", 3), *(pytest.param(*one, marks=pytest.mark.slow) for one in (("slurm", 3), ("ray", 2)))],
)
def test_the_folder_is_that_of_prepare(
    executor: str,
    tasks: int,
    settings: dict[str, Any],
    whole: dict[str, bytes],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if executor == "ray":
        pytest.importorskip("ray")
    options = ["--executor", executor, "--tasks", str(tasks), "--memory", "1"]
    (tmp_path / "bin").mkdir()
    for name, script in SLURM.items():
        (tmp_path / "bin" / name).write_text(script)
        (tmp_path / "bin" / name).chmod(0o755)
    path = os.pathsep.join([str(tmp_path / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    subprocess.run(
        command(tmp_path, settings, *options), check=True, env={**os.environ, "PATH": path, "SLURM_NODELIST": "node1"}
    )
    assert content(tmp_path / "out") == whole
    assert main(["prepare", "-c", str(tmp_path / "prepare.yaml"), "--out", str(tmp_path / "out")]) == 0
    assert "is already done with these settings and inputs" in capsys.readouterr().out
    assert sum(name.endswith("/prepared.json") for name in whole) == FILES


@pytest.fixture
def own(settings: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    """The same with a copy of the text, to be changed."""
    source = settings["corpus"]["sources"][0]
    shutil.copytree(source["path"], tmp_path / "text")
    return {**settings, "corpus": {**settings["corpus"], "sources": [{**source, "path": str(tmp_path / "text")}]}}


def test_the_same_command_does_what_failed_or_was_killed_and_no_more(own: dict[str, Any], tmp_path: Path) -> None:
    file, out = tmp_path / "text/3.txt", tmp_path / "out"
    # One worker: with several, the failure of task 3 may stop task 2 before its end.
    words = command(tmp_path, own, "--tasks", "4", "--workers", "1")
    good = file.read_text()
    file.write_bytes(b"\xff broken\n")
    assert subprocess.run(words, check=False, stderr=subprocess.DEVNULL).returncode != 0
    assert not (out / "prepared.json").exists()
    logs = next(tmp_path.glob("out.datatrove/*/logs/parts"))
    finished = {int(path.name) for path in logs.glob("completions/*")}
    assert finished == {0, 1, 2}
    (logs / "completions/00001").unlink()  # as if the task had been killed while it wrote
    (out / "parts/00001/prepared.json").unlink()
    before = {number: (out / f"parts/0000{number}/prepared.json").stat().st_mtime_ns for number in (0, 2, 4)}
    file.write_text(good)
    subprocess.run(words, check=True)
    assert {number: (out / f"parts/0000{number}/prepared.json").stat().st_mtime_ns for number in before} == before
    prepare(tmp_path / "whole", **own, num_workers=0)
    assert content(out) == content(tmp_path / "whole")


def test_other_work_is_no_continuation(script: ModuleType, own: dict[str, Any], tmp_path: Path) -> None:
    words = command(tmp_path, own, "--tasks", "2", "--workers", "1")[2:]
    script.main(words)
    before = content(tmp_path)
    script.main(words)
    assert content(tmp_path) == before
    for other in (["--tasks", "3"], ["--filters"]):
        with pytest.raises(SystemExit, match="of other settings, files, filters or tasks"):
            script.main([*words, *other])
    (tmp_path / "text/0.txt").write_text("other words\n" * 9)
    with pytest.raises(SystemExit, match=r"^.*/parts/00000: .*/text/0\.txt changed since it was written"):
        script.main(words)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"row_lengths": None}, "prepare.yaml: no row_lengths; expected the max_length of trainings"),
        ({"corpus": {"sources": [{"path": "text", "weight": 2}]}}, r"corpus\.sources\[0\] has a weight above 1"),
    ],
)
def test_settings_that_do_not_go_together(
    script: ModuleType, settings: dict[str, Any], tmp_path: Path, change: Any, sentence: str, monkeypatch: Any
) -> None:
    monkeypatch.chdir(Path(settings["tokenizer"]).parent)
    with pytest.raises(SystemExit, match=sentence):
        script.main([*command(tmp_path, {**settings, **change})[2:], "--filters"])


def planted(generator: np.random.Generator) -> dict[str, list[str]]:
    """Return documents by the expected outcome of each."""
    words = ["".join(generator.choice(list("abdeiklmnorstuvé"), size)) for size in generator.integers(4, 9, 800)]
    frequent = ["the", "of", "and", "to", "that", "with"]

    def sentence() -> str:
        drawn = [str(generator.choice(frequent if generator.random() < 0.3 else words)) for _ in range(14)]
        return " ".join(drawn).capitalize() + "."

    def text() -> str:
        return "\n".join(sentence() + " " + sentence() for _ in range(6))

    found = {"good": [text() for _ in range(GOOD)]}
    mailed = [f"{one}\nWrite to anna.meier{number}@bank.example for more." for number, one in enumerate(found["good"])]
    found["good"][:MAILS] = mailed[:MAILS]
    found["copies"] = found["good"][10 : 10 + COPIES]
    found["alike"] = [one.replace(one.split()[40], "changed", 1) for one in found["good"][20 : 20 + ALIKE]]
    found["short"] = [" ".join(sentence() for _ in range(3)) for _ in range(SHORT)]
    found["repeated"] = ["\n".join([sentence()] * 12) for _ in range(REPEATED)]
    return found


def test_filters_drop_what_was_planted_and_nothing_else(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "raw").mkdir()
    documents = planted(np.random.default_rng(0))
    named = [(f"{kind}-{number}", text) for kind, texts in documents.items() for number, text in enumerate(texts)]
    for number in range(3):
        lines = [json.dumps({"id": name, "text": text}) + "\n" for name, text in named[number::3]]
        (tmp_path / f"raw/{number}.jsonl").write_text("".join(lines))
    vocab = {token: number for number, token in enumerate([*SPECIAL_TOKENS.values(), "the", "@", "example", "email"])}
    DomainTokenizer(bert_backend(vocab, {})).save(tmp_path / "tokenizer", 512)
    corpus = {"sources": [str(tmp_path / "raw")], "validation_fraction": 0.1}
    settings = {"corpus": corpus, "tokenizer": str(tmp_path / "tokenizer"), "row_lengths": [64]}
    words = command(tmp_path, settings, "--filters", "--tasks", "2", "--workers", "1")[2:]
    script.main(words)
    everything = sum(map(len, documents.values()))
    notes = next((tmp_path / "out.datatrove").iterdir())
    assert script.counts(notes) == {
        "Gopher Repetition": (everything, REPEATED),
        "Gopher Quality": (everything - REPEATED, SHORT),
        "FineWeb Quality": (everything - REPEATED - SHORT, 0),
        "MinHash stage 4": (GOOD + COPIES + ALIKE, COPIES + ALIKE),
    }
    assert f"Gopher Quality: {everything - REPEATED:,} documents, {SHORT} dropped" in capsys.readouterr().out
    reports = [
        json.loads(path.read_text())["report"]["sources"][0] for path in tmp_path.glob("out/parts/*/prepared.json")
    ]
    assert len(reports) == 3
    assert not (tmp_path / "out/run.json").exists(), "these settings without filters give another corpus"
    assert sum(report["dropped"]["filters of datatrove"] for report in reports) == everything - GOOD
    assert all(report["read"] == sum({**report["documents"], **report["dropped"]}.values()) for report in reports)
    corpus = open_prepared([tmp_path / "out"])
    assert corpus.train.num_documents + corpus.validation.num_documents == GOOD
    files = tmp_path.glob("out/parts/*/*/data-*.arrow")
    kept = [row for file in files for row in pa.ipc.open_stream(file.read_bytes()).read_all().to_pylist()]
    places = [re.fullmatch(r"(\d)\.jsonl:(\d+)", row["id"]).groups() for row in kept]
    names = [named[int(file) + 3 * (int(line) - 1)][0] for file, line in places]
    assert {name.split("-")[0] for name in names} <= {"good", "copies", "alike"}
    apart = {f"good-{number}" for number in range(GOOD)} - {f"good-{n}" for n in [*range(10, 13), *range(20, 24)]}
    assert apart <= {*names}
    mails = [row for row in kept if vocab["@"] in row["input_ids"]]
    assert len(mails) == MAILS and all({*mail["input_ids"]} & {vocab["example"]} for mail in mails)


def test_the_pipelines_wait_for_each_other_on_a_cluster(
    script: ModuleType, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted: list[Any] = []

    class Submitted:
        def __init__(self, **how: Any) -> None:
            submitted.append(how)

        def run(self) -> None:
            pass

    import datatrove.executor

    monkeypatch.setattr(datatrove.executor, "SlurmPipelineExecutor", Submitted)
    words = [*command(tmp_path, settings)[2:], "--filters", "--tasks", "512", "--workers", "3", "--executor", "slurm"]
    script.main([*words, "--partition", "long", "--time", "01:00:00"])
    assert [(one["tasks"], one["job_name"]) for one in submitted] == [
        (FILES, "prepare-signatures"),
        (14, "prepare-buckets"),
        (1, "prepare-clusters"),
        (FILES, "prepare-parts"),
        (1, "prepare-corpus"),
    ]
    assert {(one["partition"], one["time"], one["mem_per_cpu_gb"]) for one in submitted} == {("long", "01:00:00", 4)}
    assert submitted[0]["depends"] is None and all(isinstance(one["depends"], Submitted) for one in submitted[1:])
