"""Every benchmark runs to its end and writes finite numbers: the smallest models, the sample corpus, one round.

No time is judged. Benchmarks cache what they prepare in the folder that they are started in, here one for all tests.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"
HELPERS = {"prepared_corpus", "pretraining", "process_tree", "profiling", "side_by_side"}
PRETRAINING = ["--encoder", "tiny", "--length", "64", "--tokens", "512", "--steps", "1"]
MODEL = ["--model", "{model}", "--data", "sample"]

ARGUMENTS: dict[str, list[str]] = {
    "evaluate": ["--tokens", "2000", "--rounds", "1"],
    "finetune_f1": [*MODEL, "--epochs", "1", "--seeds", "1"],
    "finetune_ner": [*MODEL, "--epochs", "1", "--without-defaults"],
    "gpu_equal": ["--device", "cpu", "--only", "bert"],
    "host": ["--steps", "60", "--work", "pretrain"],
    "ner_heads": [*MODEL, "--epochs", "1", "--seeds", "1", "--head_lrs", "1e-3"],
    "objectives": ["--rounds", "1", "--steps", "4"],
    "predict": ["--start", "{model}", "--data", "sample", "--texts", "16", "--rounds", "1"],
    "prepare": ["--documents", "300", "--rounds", "1"],
    "pretrain": [*PRETRAINING, "--rounds", "1"],
    "profile_pretrain": PRETRAINING,
    "scale_plan": [],
    "scaling": ["--encoder", "tiny", "--ranks", "1", "2", "--rows", "16", "--rounds", "1", "--steps", "4"],
    "shards": ["--tokens", "600000", "--kill-after", "2"],
    "training_length": [*MODEL, "--sizes", "60", "--held_out", "60", "--lengths", "1-epochs-of-32", "4-steps-of-16"],
}
OTHERS = {
    "min_score",
    "pipeline_f1",
    "pooler",
    "predict_agreement",
    "printed_text",
    "profile_finetune",
    "random_model",
    "replaced_entities",
    "soup",
}  # have no measurement of their own


CACHED = {"BENCHMARKS_CACHE": ""}  # the folder is set by `work`


def started(folder: Path, *command: str) -> str:
    """Output of a command that ends with exit code 0, started in a folder without real data."""
    path = os.pathsep.join([str(ROOT), str(BENCHMARKS)])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **CACHED}
    environment.pop("DOMAINBERT_DATA", None)
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from numbers(one)
    elif isinstance(value, float):
        yield value


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("benchmarks")
    CACHED["BENCHMARKS_CACHE"] = str(folder / "cache")
    return folder


@pytest.fixture(scope="session")
def model(work: Path) -> Path:
    """An encoder with random weights."""
    started(work, sys.executable, str(BENCHMARKS / "random_model.py"), str(work / "model"), "--encoder", "tiny")
    return work / "model"


def test_every_benchmark_is_started_here() -> None:
    assert {path.stem for path in BENCHMARKS.glob("*.py")} == {*ARGUMENTS, *HELPERS, *OTHERS}


@pytest.fixture
def imported(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Imports a benchmark."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


def test_only_benchmarks_with_the_defaults_of_run_ner_can_leave_them_out(imported: Callable[[str], Any]) -> None:
    with pytest.raises(SystemExit):
        imported("finetune_ner").parser_of("").parse_args(["--without-defaults"])


def test_what_a_student_needs_is_trained_before(imported: Callable[[str], Any]) -> None:
    benchmark = imported("pipeline_f1")
    seeds = {name: [1] if system.start == "base" else [1, 2] for name, system in benchmark.SYSTEMS.items()}
    student = "linear taught by crf"
    both = [("crf", "econ", 1), (student, "econ", 1), ("crf", "econ", 2), (student, "econ", 2)]
    assert benchmark.missing_jobs([student], ["econ"], seeds, set()) == both
    assert benchmark.missing_jobs(["crf", student], ["econ"], seeds, set(both)) == []
    assert benchmark.missing_jobs([student], ["econ"], seeds, set(both) - {both[1]}) == [both[0], both[1], both[2]]
    last = benchmark.missing_jobs(["linear continued from student"], ["ncbi"], seeds, set())
    teacher, middle = "base crf, 10 epochs of 16", "student crf of 10x16"
    assert last == [
        *[(name, "ncbi", 1) for name in (teacher, middle, "linear continued from student")],
        *[(name, "ncbi", 2) for name in (middle, "linear continued from student")],
    ]


def test_results_are_written_completely_or_not_at_all(
    imported: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, side_by_side = imported("pipeline_f1"), imported("side_by_side")
    rows, result = tmp_path / "rows.jsonl.gz", tmp_path / "result.json"
    pipeline.add_row(rows, {"seed": 1})
    pipeline.add_row(rows, {"seed": 2})
    side_by_side.write_result(result, {"f1": 0.5}, {}, (), {})
    assert pipeline.read_rows(rows) == [{"seed": 1}, {"seed": 2}] and json.loads(result.read_text())["f1"] == 0.5
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert before.keys() == {rows, result}

    def killed(path: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        pipeline.add_row(rows, {"seed": 3})
    with pytest.raises(KeyboardInterrupt):
        side_by_side.write_result(result, {"f1": 0.75}, {}, (), {})
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.slow
@pytest.mark.parametrize("name", ARGUMENTS)
def test_it_ends_and_writes_finite_numbers(name: str, work: Path, request: pytest.FixtureRequest) -> None:
    out = work / f"{name}.json"
    arguments = [request.getfixturevalue("model") if one == "{model}" else one for one in ARGUMENTS[name]]
    started(work, sys.executable, str(BENCHMARKS / f"{name}.py"), *arguments, "--out", str(out))
    written = json.loads(out.read_text())
    assert f"{name}.py" in written["command"]
    assert all(map(math.isfinite, numbers(written)))
    assert all(ratio > 0 for ratio in numbers(written.get("ratios", {})))


@pytest.mark.slow
def test_what_benchmarks_of_quality_use(work: Path, model: Path) -> None:
    """The pooler, the mean of seeds, the agreement of precisions and the profile of fine-tuning."""
    python = sys.executable
    finetune = [python, "-m", "domainbert", "finetune", "--model", str(model), "--task", "Ner", "--max_epochs", "1"]
    started(work, python, "-c", "from prepared_corpus import ner_file; ner_file('sample', 'train')")
    data = work / "cache/sample/data/ner"
    files = ["--train", str(data / "train.conll"), "--validation", str(data / "validation.conll")]
    started(work, *finetune, *files, "--seeds", "[1, 2]", "--out", "tagger")
    seeds = [str(work / f"tagger/seed-{number}") for number in (1, 2)]
    started(work, python, str(BENCHMARKS / "soup.py"), str(work / "soup"), str(data / "validation.conll"), *seeds)
    agreement = [python, str(BENCHMARKS / "predict_agreement.py"), seeds[0], str(data / "test.conll")]
    started(work, *agreement, "--out", "agreement.json")
    assert json.loads((work / "agreement.json").read_text())["sentences"] > 0
    pooled = [str(BENCHMARKS / "pooler.py"), str(work / "pooled"), "--model", str(model)]
    started(work, python, *pooled, "--fitted", "300", "--others", "50")
    assert (work / "pooled/model.safetensors").is_file() and (work / "soup").is_dir()
    replaced = [python, str(BENCHMARKS / "replaced_entities.py"), str(data / "train.conll"), "replaced.jsonl"]
    started(work, *replaced, "--replaced", "50", "--corpus", str(data / "test.conll"), "--sentences", "20")
    texts = [json.loads(line)["text"] for line in (work / "replaced.jsonl").read_text().splitlines()]
    assert len(set(texts)) == 70
    profile = [python, str(BENCHMARKS / "profile_finetune.py"), "--model", str(model), "--data", "sample"]
    started(work, *profile, "--steps", "2", "--out", "profile.json")


@pytest.mark.slow
def test_students_of_a_crf_in_a_pipeline(work: Path, model: Path) -> None:
    """A second call trains nothing again; the teacher is trained before its student."""
    pytest.importorskip("transformers")
    started(work, sys.executable, "-c", "from prepared_corpus import ner_file; ner_file('sample', 'train')")
    texts = (work / "cache/sample/data/corpus.jsonl").read_text(encoding="utf-8").splitlines()[:20]
    (work / "sample.jsonl").write_text("\n".join(texts) + "\n", encoding="utf-8")
    command = [sys.executable, str(BENCHMARKS / "pipeline_f1.py"), "--small", str(model), "--unlabelled", str(work)]
    command += ["--data", "sample", "--seeds", "1", "--systems", "crf", "linear taught by crf", "--out", "f1.jsonl.gz"]
    assert started(work, *command).count("validation F1") == 2
    out = started(work, *command)
    assert "validation F1" not in out and out.count("sample ") == 8  # 2 systems, 2 sets, 2 ways to decode
    printed = [
        sys.executable,
        str(BENCHMARKS / "printed_text.py"),
        "printed",
        "--sets",
        "sample",
        "--model",
        str(model),
    ]
    started(work, *printed, "--train", "900", "--test", "600", "--epochs", "1")
    row = json.loads((work / "printed/printed_text.jsonl").read_text())
    assert all(0 <= row[way] <= 100 for way in ("words", "recorded", "punctuation", "whitespace", "pipeline"))


@pytest.mark.slow
def test_the_dry_run_of_the_gpu_benchmarks(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON", sys.executable)
    out = started(ROOT, "bash", str(BENCHMARKS / "gpu.sh"), "--dry-run", "--out", str(tmp_path))
    assert out.count(": done in") == len(list(tmp_path.glob("*-cpu.json"))) == 9
