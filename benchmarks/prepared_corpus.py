"""Corpus and labelled sentences of the benchmarks: real where there are any, else generated; made once and kept."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path
from typing import IO

from domainbert.base.files import hash_file
from domainbert.corpus.config import CorpusConfig, Source
from domainbert.data.prepared_facts import FORMAT_VERSION, PREPARED_FILE
from domainbert.stages.prepare import prepare
from domainbert.stages.sample import sample
from domainbert.stages.vocab import vocab

CACHE = Path(os.environ.get("BENCHMARKS_CACHE") or Path(__file__).parents[1] / "runs" / "benchmarks")
VOCAB_SIZE = 16384
SAMPLE_VOCAB_SIZE = 1024  # the generated text has few distinct words
_NER_FILES = {
    "econ": {"train": "econ/ner/train.conll", "validation": "econ/ner/dev.conll", "test": "econ/ner/test.conll"},
    "ncbi": {
        "train": "bio/ner/ncbi-disease/train.txt",
        "validation": "bio/ner/ncbi-disease/dev.txt",
        "test": "bio/ner/ncbi-disease/test.txt",
    },
    "sample": {split: f"ner/{split}.conll" for split in ("train", "validation", "test")},
}
NER_DATA = tuple(_NER_FILES)


def prepared_corpus() -> tuple[str, Path]:
    """The name of the corpus, `econ` or `sample`, and the folder that `prepare` wrote.

    `econ` is `$DOMAINBERT_DATA/econ/corpus.jsonl.gz`; without that variable `sample` is generated.
    """
    name, path = raw_corpus()
    if name == "econ":
        return name, _prepared(path, CACHE / f"econ-{hash_file(path)[:12]}", VOCAB_SIZE)
    return name, _prepared(path, CACHE / "sample", SAMPLE_VOCAB_SIZE)


def raw_corpus() -> tuple[str, Path]:
    """The name of the corpus and its file."""
    root = os.environ.get("DOMAINBERT_DATA")
    if root:
        return "econ", Path(root) / "econ" / "corpus.jsonl.gz"
    return "sample", _sample_data() / "corpus.jsonl"


def open_text(path: Path) -> IO[str]:
    """Open a corpus file, compressed or not, as text."""
    return gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")


def default_ner_data() -> str:
    """`econ` if `DOMAINBERT_DATA` is set, else `sample`."""
    return "econ" if os.environ.get("DOMAINBERT_DATA") else "sample"


def ner_file(data: str, split: str) -> Path:
    """Path of a labelled file of ECON-IE (`econ`), NCBI-disease (`ncbi`) or the generated set (`sample`).

    Raises:
        SystemExit: the data are real and `DOMAINBERT_DATA` is not set.
    """
    root = _sample_data() if data == "sample" else os.environ.get("DOMAINBERT_DATA")
    if not root:
        raise SystemExit(
            f"--data {data}: DOMAINBERT_DATA is not set; expected the folder with {_NER_FILES[data][split]}"
        )
    return Path(root) / _NER_FILES[data][split]


def _sample_data() -> Path:
    folder = CACHE / "sample" / "data"
    if not (folder / "README.md").is_file():  # it is written last
        sample(empty(folder))
    return folder


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
