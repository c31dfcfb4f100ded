"""Filters a large corpus with datatrove, on this machine, a SLURM cluster or Ray: then `prepare` reads what is left.

    pip install 'domainbert[datatrove]'
    python configs/cluster/filter.py --text raw --out filtered --without ner/test.conll --without stance/test.jsonl
    python configs/cluster/filter.py ... --executor slurm --partition cpu --time 08:00:00 --tasks 512
    python configs/cluster/filter.py ... --executor ray --tasks 512 --workers 64

`raw` holds JSON Lines (perhaps .gz or .zst) or Parquet. In this order: language, repetition and quality (Gopher,
FineWeb), texts of labelled sets, near duplicates (MinHash of runs of five words, from a Jaccard similarity of 0.72
on), e-mail and IP addresses. What is left stands in `filtered/text`, a file for each task, and the counts in
`filtered/logs`. The same command again goes on where it was; never with another number of tasks.

A starting point to be adapted: steps and their thresholds are datatrove's, and a line each below.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from datatrove.data import Document
from datatrove.pipeline.base import PipelineStep
from datatrove.pipeline.dedup import MinhashDedupCluster, MinhashDedupFilter, MinhashDedupSignature
from datatrove.pipeline.dedup.minhash import MinhashConfig, MinhashDedupBuckets
from datatrove.pipeline.filters import (
    FineWebQualityFilter,
    GopherQualityFilter,
    GopherRepetitionFilter,
    LanguageFilter,
)
from datatrove.pipeline.filters.base_filter import BaseFilter
from datatrove.pipeline.formatters import PIIFormatter
from datatrove.pipeline.readers import JsonlReader, ParquetReader
from datatrove.pipeline.writers import JsonlWriter
from datatrove.utils.hashing import HashConfig
from datatrove.utils.word_tokenizers import WordTokenizer

from domainbert.corpus.config import Source
from domainbert.corpus.ngrams import hash_ngrams, hash_words, words_of
from domainbert.corpus.report import SourceReport
from domainbert.corpus.sources import read_source

RUN = 13  # words in a row that a document may not share with a labelled set (Brown et al. 2020, appendix C)
SHORTEST = 6  # a shorter labelled text is no sign of anything


class Words(WordTokenizer):
    """Words as domainbert counts them: datatrove's own need a package for each language."""

    def word_tokenize(self, text: str) -> list[str]:
        """The words."""
        return words_of(text)

    def sent_tokenize(self, text: str) -> list[str]:
        """The lines."""
        return [line.strip() for line in text.splitlines() if line.strip()]

    def span_tokenize(self, text: str) -> list[tuple[int, int]]:
        """Not needed by these filters."""
        raise NotImplementedError


class WithoutLabelledTexts(BaseFilter):
    """Drops documents that hold `RUN` words in a row of a labelled text, or the whole of a shorter one.

    Args:
        files: labelled sets, in any format that `prepare` reads; of JSON Lines the texts under `text`.
    """

    name = "without labelled texts"

    def __init__(self, files: Sequence[Path]) -> None:
        super().__init__()
        self.files = list(files)
        self.known: dict[int, np.ndarray] = {}  # hashes of runs, sorted, by their number of words

    def filter(self, doc: Document) -> bool:
        """Whether the document is kept."""
        hashes = hash_words(words_of(doc.text))
        return not any(np.isin(hash_ngrams(hashes, size), runs).any() for size, runs in self._runs().items())

    def _runs(self) -> dict[int, np.ndarray]:
        if not self.known:
            found: dict[int, list[np.ndarray]] = {}
            for file in self.files:
                for _, text, *_ in read_source(Source(str(file)), SourceReport(str(file))):
                    words = words_of(text)
                    if (size := min(len(words), RUN)) >= SHORTEST:
                        found.setdefault(size, []).append(hash_ngrams(hash_words(words), size))
            self.known = {size: np.unique(np.concatenate(runs)) for size, runs in found.items()}
        return self.known


def pipelines(options: argparse.Namespace) -> list[tuple[str, int, list[PipelineStep]]]:
    """The steps that follow each other: a name, how many tasks, and what each task does."""
    out, words = options.out, Words()
    config = MinhashConfig(hash_config=HashConfig(precision=64, hash_fc="sha1"))
    pattern = "*.parquet" if any(Path(options.text).rglob("*.parquet")) else "*.jsonl*"
    reader = ParquetReader if pattern == "*.parquet" else JsonlReader
    filters: list[PipelineStep] = [GopherRepetitionFilter(language=words), GopherQualityFilter(language=words)]
    filters += [FineWebQualityFilter(language=words), WithoutLabelledTexts(options.without)]
    if options.language:  # fetches fastText's model of 176 languages, so it needs a network once
        filters.insert(0, LanguageFilter(options.language))
    read = reader(options.text, glob_pattern=pattern, text_key=options.text_key)
    kept = str(out / "kept")
    signatures, buckets, removed = (str(out / "minhash" / name) for name in ("signatures", "buckets", "removed"))
    return [
        ("filters", options.tasks, [read, *filters, JsonlWriter(kept)]),
        ("signatures", options.tasks, [JsonlReader(kept), MinhashDedupSignature(signatures, config, words)]),
        ("buckets", config.num_buckets, [MinhashDedupBuckets(signatures, buckets, config=config)]),
        ("clusters", 1, [MinhashDedupCluster(buckets, removed, config)]),
        (
            "duplicates",
            options.tasks,
            [
                JsonlReader(kept),
                MinhashDedupFilter(removed),
                PIIFormatter(),
                JsonlWriter(str(out / "text"), "${rank}.jsonl.gz"),
            ],
        ),
    ]


def executors(options: argparse.Namespace) -> list[Any]:
    """An executor for each step, which waits for the one before it."""
    found: list[Any] = []
    for name, tasks, steps in pipelines(options):
        how = {"pipeline": steps, "tasks": tasks, "logging_dir": str(options.out / "logs" / name)}
        before = found[-1] if found else None
        if options.executor == "local":
            from datatrove.executor import LocalPipelineExecutor

            found.append(LocalPipelineExecutor(**how, workers=min(options.workers, tasks), depends=before))
        elif options.executor == "slurm":
            from datatrove.executor import SlurmPipelineExecutor

            cluster = {"partition": options.partition, "time": options.time, "mem_per_cpu_gb": options.memory}
            job = {"job_name": f"filter-{name}", "depends": before, "workers": options.workers}
            found.append(SlurmPipelineExecutor(**how, **cluster, **job))
        else:
            from datatrove.executor import RayPipelineExecutor

            found.append(RayPipelineExecutor(**how, workers=options.workers, depends=before))
    return found


def counts(out: Path) -> dict[str, tuple[int, int]]:
    """The documents that each filter was given, and those that it dropped, from the logs of a finished run."""
    found = {}
    for name in ("filters", "duplicates"):
        for step in json.loads((out / "logs" / name / "stats.json").read_text()):
            if "forwarded" in step["stats"]:  # a filter
                plain = re.sub(r"[^ -~]", "", step["name"]).rpartition(":")[2].strip()
                found[plain] = (step["stats"]["total"], step["stats"].get("dropped", 0))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the steps, or submit them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True, help="folder of the raw text; any URL that fsspec reads")
    parser.add_argument("--out", type=Path, required=True, help="folder that all tasks see")
    parser.add_argument("--text_key", default="text")
    parser.add_argument("--without", type=Path, action="append", default=[], help="a labelled set; may be repeated")
    parser.add_argument("--language", action="append", default=[], help="keep these languages: en; may be repeated")
    parser.add_argument("--tasks", type=int, default=8, help="shares of the work, at most one a file")
    parser.add_argument("--workers", type=int, default=2, help="tasks at a time")
    parser.add_argument("--executor", choices=("local", "slurm", "ray"), default="local")
    parser.add_argument("--partition", default="cpu", help="of SLURM")
    parser.add_argument("--time", default="08:00:00", help="of a SLURM task")
    parser.add_argument("--memory", type=int, default=4, help="gigabytes of a SLURM task")
    options = parser.parse_args(arguments)
    executors(options)[-1].run()  # the ones before it first
    if options.executor == "local":
        for name, (given, dropped) in counts(options.out).items():
            print(f"{name}: {given:,} documents, {dropped:,} dropped")


if __name__ == "__main__":
    main()
