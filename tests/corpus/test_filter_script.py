"""configs/cluster/filter.py on planted faults, with datatrove's local executor."""

from __future__ import annotations

import gzip
import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from domainbert.stages.prepare import prepare
from domainbert.tokenization.bert import SPECIAL_TOKENS, bert_backend
from domainbert.tokenization.load import DomainTokenizer

pytest.importorskip("datatrove")
ROOT = Path(__file__).parents[2]
GOOD, COPIES, ALIKE, TESTED, SHORT, REPEATED, MAILS = 60, 3, 4, 5, 6, 2, 7
RARE = "Épargne rose by four percent after the committee had met again in the old town hall"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("filter_script", ROOT / "configs" / "cluster" / "filter.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def planted(generator: np.random.Generator) -> dict[str, list[str]]:
    """Documents by what is to become of them."""
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
    found["tested"] = [f"{text()}\nHere {RARE}, they say.\n{sentence()}" for _ in range(TESTED)]
    found["short"] = [" ".join(sentence() for _ in range(3)) for _ in range(SHORT)]
    found["repeated"] = ["\n".join([sentence()] * 12) for _ in range(REPEATED)]
    return found


@pytest.fixture(scope="module")
def filtered(script: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, documents = tmp_path_factory.mktemp("filter"), planted(np.random.default_rng(0))
    (folder / "raw").mkdir()
    named = [(f"{kind}-{number}", text) for kind, texts in documents.items() for number, text in enumerate(texts)]
    for number in range(3):
        with gzip.open(folder / "raw" / f"{number}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps({"id": name, "text": text}) + "\n" for name, text in named[number::3])
    tags = "".join(f"{word} O\n" for word in RARE.split())
    (folder / "test.conll").write_text(f"{tags}\nToo O\nshort O\n", encoding="utf-8")
    words = ["--text", f"{folder}/raw", "--out", f"{folder}/out", "--without", f"{folder}/test.conll"]
    script.main([*words, "--tasks", "3", "--workers", "1"])
    return folder / "out"


def kept(out: Path) -> dict[str, str]:
    lines: list[bytes] = []
    for file in (out / "text").glob("*.jsonl.gz"):
        lines += gzip.decompress(file.read_bytes()).splitlines()
    return {row["id"]: row["text"] for row in map(json.loads, lines)}


def test_counts_are_as_planted(script: ModuleType, filtered: Path) -> None:
    everything = GOOD + COPIES + ALIKE + TESTED + SHORT + REPEATED
    assert script.counts(filtered) == {
        "Gopher Repetition": (everything, REPEATED),
        "Gopher Quality": (everything - REPEATED, SHORT),
        "FineWeb Quality": (everything - REPEATED - SHORT, 0),
        "without labelled texts": (everything - REPEATED - SHORT, TESTED),
        "MinHash stage 4": (GOOD + COPIES + ALIKE, COPIES + ALIKE),
    }


def test_one_of_each_group_of_copies_stays_and_nothing_else_is_lost(filtered: Path) -> None:
    found = kept(filtered)
    assert len(found) == GOOD
    assert {name.split("-")[0] for name in found} <= {"good", "copies", "alike"}
    apart = {f"good-{number}" for number in range(GOOD)} - {f"good-{n}" for n in [*range(10, 13), *range(20, 24)]}
    assert apart <= found.keys()
    assert not any("@bank.example" in text for text in found.values())
    assert sum("email@example.com" in t or "firstname.lastname@example.org" in t for t in found.values()) == MAILS


def test_prepare_reads_what_is_left(filtered: Path, tmp_path: Path) -> None:
    vocab = {token: number for number, token in enumerate([*SPECIAL_TOKENS.values(), "the", "of"])}
    DomainTokenizer(bert_backend(vocab, {})).save(tmp_path / "tokenizer", 512)
    corpus = {"sources": [str(filtered / "text")], "validation_fraction": 0.1}
    how = {"tokenizer": tmp_path / "tokenizer", "row_lengths": [64], "num_workers": 0}
    metrics = prepare(tmp_path / "out", corpus=corpus, **how)
    assert metrics["parts"] == 3
    assert sum(split["documents"] for split in metrics["splits"].values()) == GOOD


def test_the_steps_wait_for_each_other_on_a_cluster(script: ModuleType, tmp_path: Path) -> None:
    asked: list[Any] = []

    class Submitted:
        def __init__(self, **how: Any) -> None:
            asked.append(how)

    import datatrove.executor

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datatrove.executor, "SlurmPipelineExecutor", Submitted)
        patch.setattr(datatrove.executor, "RayPipelineExecutor", Submitted, raising=False)
        patch.setattr(Submitted, "run", lambda one: None, raising=False)
        words = ["--text", str(tmp_path), "--out", f"{tmp_path}/out", "--tasks", "512", "--workers", "64"]
        script.main([*words, "--executor", "slurm", "--partition", "long", "--time", "01:00:00"])
        slurm, asked = asked, []
        assert [(one["tasks"], one["job_name"]) for one in slurm] == [
            (512, "filter-filters"),
            (512, "filter-signatures"),
            (14, "filter-buckets"),
            (1, "filter-clusters"),
            (512, "filter-duplicates"),
        ]
        assert {(one["partition"], one["time"], one["mem_per_cpu_gb"], one["workers"]) for one in slurm} == {
            ("long", "01:00:00", 4, 64)
        }
        assert slurm[0]["depends"] is None and all(isinstance(one["depends"], Submitted) for one in slurm[1:])
