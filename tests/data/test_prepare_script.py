"""configs/cluster/prepare.py with datatrove's executors."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from domainbert.stages.merge import merge
from domainbert.stages.prepare import prepare
from domainbert.tokenization.load import DomainTokenizer
from tests.toy_corpus import WORDS

pytest.importorskip("datatrove")
SCRIPT = Path(__file__).parents[2] / "configs/cluster/prepare.py"


@pytest.mark.parametrize("executor", ["local", "ray"])
def test_the_parts_are_those_of_prepare_and_what_is_done_is_skipped(
    executor: str, toy_tokenizer: DomainTokenizer, tmp_path: Path
) -> None:
    if executor == "ray":
        pytest.importorskip("ray")
    (tmp_path / "text").mkdir()
    for number in range(3):
        lines = [" ".join(WORDS[place % 5 :]) + f" {number}" for place in range(20)]
        (tmp_path / f"text/{number}.txt").write_text("\n".join(lines))
    toy_tokenizer.save(tmp_path / "tokenizer")
    sources = [{"path": str(tmp_path / "text"), "documents": "line"}]
    corpus = {"sources": sources, "min_characters": 1, "validation_fraction": 0.2}
    settings = {"corpus": corpus, "tokenizer": str(tmp_path / "tokenizer"), "row_lengths": [16]}
    (tmp_path / "prepare.yaml").write_text(json.dumps(settings))
    out = tmp_path / "shards"
    options = ["--tasks", "2", "--workers", "1", "--num_workers", "0", "--executor", executor]
    command = [sys.executable, str(SCRIPT), str(tmp_path / "prepare.yaml"), str(out), *options]
    subprocess.run(command, check=True)
    prepare(tmp_path / "whole", **settings, num_workers=0)
    parts = {path.name: path for path in out.glob("[0-9]*/parts/*")}
    assert sorted(parts) == sorted(path.name for path in (tmp_path / "whole/parts").iterdir()) and len(parts) == 3
    for name, part in parts.items():
        files = {path.relative_to(part): path.read_bytes() for path in part.rglob("*") if path.is_file()}
        other = tmp_path / "whole/parts" / name
        assert files == {path.relative_to(other): path.read_bytes() for path in other.rglob("*") if path.is_file()}
    (tmp_path / "merged").mkdir()
    assert merge(tmp_path / "merged", prepared=[out / "1", out / "0"])["parts"] == 3
    shutil.rmtree(out / "1")  # datatrove knows it as done, and does not run it again
    (out / "logs/completions/00000").unlink()
    subprocess.run(command, check=True)
    assert (out / "0").is_dir() and not (out / "1").exists()
