"""The corpus that benchmarks train on: real where there is any, else generated; made once and kept."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from domainbert.base.hashes import hash_file
from domainbert.corpus.config import CorpusConfig, Source
from domainbert.data.prepared_facts import FORMAT_VERSION, PREPARED_FILE
from domainbert.stages.prepare import prepare
from domainbert.stages.sample import sample
from domainbert.stages.vocab import vocab

CACHE = Path(__file__).parents[1] / "runs" / "benchmarks"
VOCAB_SIZE = 16384
_SAMPLE_VOCAB_SIZE = 1024  # the generated text has few distinct words


def prepared_corpus() -> tuple[str, Path]:
    """The name of the corpus, `econ` or `sample`, and the folder that `prepare` wrote.

    `econ` is `$DOMAINBERT_DATA/econ/corpus.jsonl.gz`; without that variable `sample` is generated.
    """
    name, path = raw_corpus()
    if name == "econ":
        return name, _prepared(path, CACHE / f"econ-{hash_file(path)[:12]}", VOCAB_SIZE)
    return name, _prepared(path, CACHE / "sample", _SAMPLE_VOCAB_SIZE)


def raw_corpus() -> tuple[str, Path]:
    """The name of the corpus and its file."""
    root = os.environ.get("DOMAINBERT_DATA")
    if root:
        return "econ", Path(root) / "econ" / "corpus.jsonl.gz"
    path = CACHE / "sample" / "data" / "corpus.jsonl"
    if not path.is_file():
        sample(empty(path.parent))
    return "sample", path


def _prepared(path: Path, folder: Path, vocab_size: int) -> Path:
    prepared = folder / f"prepared-{FORMAT_VERSION}"  # one of an older format would be refused
    if not (prepared / PREPARED_FILE).is_file():  # it is written last
        corpus = CorpusConfig([Source(str(path))])
        vocab(empty(folder / "vocab"), corpus=corpus, vocab_size=vocab_size)
        prepare(empty(prepared), corpus=corpus, tokenizer=folder / "vocab")
    return prepared


def empty(folder: Path) -> Path:
    """The folder, made anew."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
