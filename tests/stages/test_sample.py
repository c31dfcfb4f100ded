from __future__ import annotations

import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

from domainbert.stages.sample import sample
from tests.refusals import refused

SMALL = {
    "corpus_documents": 60,
    "train_sentences": 50,
    "validation_sentences": 20,
    "test_sentences": 30,
    "train_texts": 40,
    "validation_texts": 20,
    "test_texts": 30,
}
FILES = {"README.md", "corpus.jsonl"} | {
    name
    for split in ("train", "validation", "test")
    for name in (f"ner/{split}.conll", f"classification/{split}.jsonl")
}


def _digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): sha256(path.read_bytes()).hexdigest() for path in files}


def test_files_and_counts(tmp_path):
    facts = sample(tmp_path, seed=5, **SMALL)
    assert set(_digests(tmp_path)) == FILES
    rows = [json.loads(line) for line in (tmp_path / "corpus.jsonl").read_text().splitlines()]
    assert len(rows) == facts["documents"] == 60 and set(rows[0]) == {"id", "text"}
    assert len({row["id"] for row in rows}) == 60
    conll = (tmp_path / "ner/train.conll").read_text()
    assert conll.count("-DOCSTART-") == facts["ner"]["train"]["abstracts"]
    lines = [line for line in conll.splitlines() if line and not line.startswith("-DOCSTART-")]
    assert len(lines) == facts["ner"]["train"]["words"] and all(line.count("\t") == 1 for line in lines)
    assert sum("\tB-" in line for line in lines) == sum(facts["ner"]["train"]["entities"].values())
    blocks = [block for block in conll.split("\n\n") if block.strip() and not block.startswith("-DOCSTART-")]
    assert len(blocks) == 50
    texts = [json.loads(line) for line in (tmp_path / "classification/test.jsonl").read_text().splitlines()]
    assert len(texts) == 30 and {text["label"] for text in texts} == {"positive", "negative", "null"}
    assert "synthetic" in (tmp_path / "README.md").read_text()
    json.dumps(facts)


def test_same_bytes_whatever_the_hash_seed(tmp_path):
    code = (
        f"from pathlib import Path; from domainbert.stages.sample import sample; sample(Path('.'), seed=1, **{SMALL})"
    )
    for hash_seed in ("0", "1"):
        folder = tmp_path / hash_seed
        folder.mkdir()
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, check=True, capture_output=True)
    assert _digests(tmp_path / "0") == _digests(tmp_path / "1")
    sample(tmp_path, seed=2, **SMALL)
    assert (tmp_path / "corpus.jsonl").read_bytes() != (tmp_path / "0" / "corpus.jsonl").read_bytes()


def test_sizes_below_one_are_listed_together(tmp_path):
    for where, found, expected in (("train_sentences", 0, "... from 1 ..."), ("test_texts", -1, "...")):
        with refused(where=where, found=found, expected=expected):
            sample(tmp_path, **{**SMALL, "train_sentences": 0, "test_texts": -1})
    assert not list(tmp_path.iterdir())
