"""Prepares a corpus in parts with datatrove, on this machine, a SLURM cluster or Ray: reads, filters, tokenizes, packs.

    pip install 'domainbert[datatrove]'
    python configs/cluster/prepare.py prepare.yaml runs/law/prepare --tasks 64
    python configs/cluster/prepare.py prepare.yaml runs/law/prepare --tasks 64 --executor slurm --partition cpu
    python configs/cluster/prepare.py prepare.yaml runs/law/prepare --tasks 64 --filters en fr

Without `--filters` the folder equals the output of `domainbert prepare` with these settings: the corpus is equal byte
for byte, and a recipe whose stage has these settings and this folder skips the stage. With it documents are dropped
by language, repetition and quality (Gopher, FineWeb), and near duplicates over all files (MinHash of runs of five
words, from a Jaccard similarity of 0.72 on); e-mail and IP addresses are replaced. The corpus is then read twice, and
a recipe takes the folder by its path, `prepared: runs/law/prepare`. Texts of labelled sets are left out by
`corpus.exclude` of the settings.

The same command again runs the tasks that failed or met their time limit. What datatrove notes of the tasks stands in
`runs/law/prepare.datatrove`. Paths must be valid on all machines.

A starting point to be adapted: filters and their thresholds are datatrove's, and a line each below.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from datatrove.data import Document, DocumentsPipeline
from datatrove.pipeline.base import PipelineStep
from datatrove.pipeline.dedup import MinhashDedupCluster, MinhashDedupFilter, MinhashDedupSignature
from datatrove.pipeline.dedup.minhash import MinhashConfig, MinhashDedupBuckets
from datatrove.pipeline.filters import (
    FineWebQualityFilter,
    GopherQualityFilter,
    GopherRepetitionFilter,
    LanguageFilter,
)
from datatrove.pipeline.formatters import PIIFormatter
from datatrove.utils.hashing import HashConfig
from datatrove.utils.word_tokenizers import WordTokenizer

from domainbert.base.choices import as_plain
from domainbert.base.errors import DomainbertError, Problems
from domainbert.base.files import HASHES, hash_json
from domainbert.corpus.config import CorpusConfig
from domainbert.corpus.documents import Document as CorpusDocument
from domainbert.corpus.documents import read_documents
from domainbert.corpus.ngrams import words_of_text
from domainbert.corpus.report import CorpusReport
from domainbert.data.parallel_encoding import encode_documents
from domainbert.data.parts_writer import PlannedPart, plan_parts, read_parts, write_part
from domainbert.data.prepared_facts import read_facts
from domainbert.data.preparing import bind_corpus
from domainbert.runner.claim import CONFIG, LOCK
from domainbert.runner.job_state import make_job
from domainbert.runner.jobs import run_job
from domainbert.runner.stage_table import load_stage
from domainbert.settings.reader import Settings, read_settings
from domainbert.settings.yaml_files import load_yaml
from domainbert.stages.prepare import Prepare
from domainbert.tokenization.load import load_tokenizer

MINHASH = MinhashConfig(hash_config=HashConfig(precision=64, hash_fc="sha1"))


class Words(WordTokenizer):
    """Words as domainbert counts them: datatrove's own need a package for each language."""

    def word_tokenize(self, text: str) -> list[str]:
        """The words."""
        return words_of_text(text)

    def sent_tokenize(self, text: str) -> list[str]:
        """The lines."""
        return [line.strip() for line in text.splitlines() if line.strip()]

    def span_tokenize(self, text: str) -> list[tuple[int, int]]:
        """Not needed by these filters."""
        raise NotImplementedError


class Read(PipelineStep):
    """Reads every `world_size`-th file of a corpus as `prepare` does: cleaned, without duplicates, split."""

    type, name = "domainbert", "read"

    def __init__(self, corpus: CorpusConfig, parts: Sequence[PlannedPart]) -> None:
        super().__init__()
        self.corpus, self.parts = corpus, parts
        self.reports: dict[int, CorpusReport] = {}  # by number of the file; complete when the next file is begun

    def run(self, data: DocumentsPipeline, rank: int = 0, world_size: int = 1) -> DocumentsPipeline:
        """Yield the documents of a rank, file by file."""
        for file in [part.file for part in self.parts[rank::world_size]]:
            report = self.reports[file.number] = CorpusReport()
            for document in read_documents(self.corpus, report, files=[file]):
                self.stat_update("documents")
                metadata = {"file": file.number, "split": document.split, "boundary": document.boundary}
                yield Document(document.text, document.id, metadata=metadata)


class Pack(PipelineStep):
    """Tokenizes the documents of each file and packs them into its part; an error fails the task.

    Args:
        read: the step that reads the files.
        settings: settings of `prepare`.
    """

    type, name = "domainbert", "pack"

    def __init__(self, read: Read, settings: Prepare) -> None:
        super().__init__()
        self.read, self.settings = read, settings

    def run(self, data: DocumentsPipeline, rank: int = 0, world_size: int = 1) -> DocumentsPipeline:
        """Write the parts of a rank, also of files without documents."""
        tokenizer = load_tokenizer(self.settings.tokenizer)
        groups = groupby(data, key=lambda document: document.metadata["file"])
        number, group = next(groups, (None, ()))
        for part in self.read.parts[rank::world_size]:
            found, report = part.file.number == number, self.read.reports[part.file.number]
            documents = self._kept(group if found else (), report)
            batches = encode_documents(documents, tokenizer, num_workers=0)
            write_part(part, batches, tokenizer, report, self.settings.row_lengths or ())
            if found:
                number, group = next(groups, (None, ()))
        return data

    def _kept(self, documents: Iterable[Document], report: CorpusReport) -> Iterator[CorpusDocument]:
        """The documents as the tokenizer takes them; the report counts what the steps in between have dropped."""
        kept, characters = Counter[str](), Counter[str]()
        for document in documents:
            split, boundary = document.metadata["split"], document.metadata["boundary"]
            kept[split] += 1
            characters[split] += len(document.text)
            yield CorpusDocument(document.id, document.text, split, boundary=boundary)
        source = report.sources[0]
        if dropped := sum(source.documents.values()) - sum(kept.values()):
            source.dropped["filters of datatrove"] = dropped
        source.documents, source.characters = kept, characters


class Bind(PipelineStep):
    """Checks that every file has its part, undamaged, and makes the parts a corpus.

    Without filters the stage `prepare` does it, so that its folder serves a recipe.
    """

    type, name = "domainbert", "bind"

    def __init__(self, out: Path, settings: Settings, parts: Sequence[PlannedPart], filtered: bool) -> None:
        super().__init__()
        self.out, self.settings, self.parts, self.filtered = out, settings, parts, filtered

    def run(self, data: DocumentsPipeline, rank: int = 0, world_size: int = 1) -> DocumentsPipeline:
        """Write `prepared.json`; print what was prepared."""
        settings: Prepare = self.settings.instance
        tokenizer = load_tokenizer(settings.tokenizer)
        parts = read_parts(part.folder for part in self.parts)
        if not self.filtered:
            planned = plan_parts(self.out, settings.corpus, tokenizer, settings.row_lengths or ())
            if [part.made_from.key for part in planned] != [part.made_from.key for part in self.parts]:
                raise DomainbertError(f"{self.out}: files of the corpus have changed meanwhile; run the command again")
            (self.out / LOCK).touch()  # `prepare` was begun here, and finds its parts done
            command = shlex.join(["domainbert", "prepare", "-c", str(self.out / CONFIG)])
            run_job(make_job(load_stage("prepare"), self.settings, self.out, HASHES, keys={}), command, resume=True)
            return data
        summary = bind_corpus(self.out, settings.corpus, tokenizer, parts)
        print("\n".join(summary.lines()))
        return data


def read_config(file: Path, filtered: bool) -> Settings:
    """The settings of `prepare` in a YAML file, which must have `row_lengths`; without what filters break."""
    problems = Problems(str(file))
    read = read_settings(Prepare, load_yaml(file), problems)
    problems.raise_if_any()
    settings: Prepare = read.instance
    if settings.row_lengths is None:
        problems.add(f"{file}: no row_lengths; expected the max_length of trainings")
    for number, source in enumerate(settings.corpus.sources if filtered else ()):
        if source.weight > 1 or source.translation is not None or source.translation_key is not None:
            found = f"corpus.sources[{number}] has a weight above 1 or translations"
            problems.add(f"{file}: {found}, beside --filters; expected single texts, each of them once")
    problems.raise_if_any()
    return read


def begun(out: Path, parts: Sequence[PlannedPart], tasks: int, settings: list[Any]) -> Path:
    """The folder for notes of this work; an error if what is done is of other work, or of files that have changed."""
    files = [str(part.file.path) for part in parts]
    notes = out.with_name(f"{out.name}.datatrove") / hash_json([*settings, files, tasks])[:12]
    if (out.exists() and not notes.is_dir()) or ((notes / "logs").is_dir() and not out.exists()):
        found = "of other settings, files, filters or tasks, or without the other one"
        raise DomainbertError(f"{out} or {notes.parent}: {found}; remove both to begin anew")
    problems = Problems(str(out))
    for place, part in enumerate(parts):
        done = (notes / f"logs/parts/completions/{place % tasks:05d}").is_file()
        if done and (reason := part.made_from.stale_reason(read_facts(part.folder)["made_from"])):
            problems.add(f"{part.folder}: {reason} since it was written; remove {out} and {notes.parent} to begin anew")
    problems.raise_if_any()
    return notes


def pipelines(options: argparse.Namespace) -> tuple[Path, list[tuple[str, int, list[PipelineStep]]]]:
    """A folder for notes, and the pipelines that follow each other: a name, how many tasks, and the steps of a task.

    A changed file moves the documents behind it, by whose numbers near duplicates are known: filters begin anew.
    """
    filtered, words = options.filters is not None, Words()
    config = read_config(options.config, filtered)
    settings: Prepare = config.instance
    tokenizer, names = load_tokenizer(settings.tokenizer), ["datatrove", *options.filters] if filtered else []
    parts = plan_parts(options.out, settings.corpus, tokenizer, settings.row_lengths or (), names)
    names += [part.made_from.key for part in parts] if filtered else []
    tasks = min(options.tasks, len(parts))
    notes = begun(options.out, parts, tasks, [as_plain(settings), tokenizer.fingerprint, *names])
    read = Read(settings.corpus, parts)
    last = [("parts", tasks, [read, Pack(read, settings)]), ("corpus", 1, [Bind(options.out, config, parts, filtered)])]
    if not filtered:
        return notes, last
    signatures, buckets, removed = (str(notes / name) for name in ("signatures", "buckets", "removed"))
    filters: list[PipelineStep] = [GopherRepetitionFilter(language=words), GopherQualityFilter(language=words)]
    filters.append(FineWebQualityFilter(language=words))
    if options.filters:  # fetches fastText's model of 176 languages, so it needs a network once
        filters.insert(0, LanguageFilter(options.filters))
    last[0][2][1:1] = [*filters, MinhashDedupFilter(removed), PIIFormatter()]
    return notes, [
        ("signatures", tasks, [read, *filters, MinhashDedupSignature(signatures, MINHASH, words)]),
        ("buckets", MINHASH.num_buckets, [MinhashDedupBuckets(signatures, buckets, config=MINHASH)]),
        ("clusters", 1, [MinhashDedupCluster(buckets, removed, MINHASH)]),
        *last,
    ]


def submit(options: argparse.Namespace, notes: Path, steps: Iterable[tuple[str, int, list[PipelineStep]]]) -> None:
    """Run each pipeline when the one before it is done, or submit them all to SLURM; an error if tasks failed."""
    job = None
    for name, tasks, pipeline in steps:
        how = {"pipeline": pipeline, "tasks": tasks, "logging_dir": str(notes / "logs" / name)}
        how["workers"] = min(options.workers, tasks)
        if options.executor == "slurm":
            import dill
            from datatrove.executor import SlurmPipelineExecutor

            # jobs get the steps of this script with what they import; dill cannot follow functions that call each other
            dill.settings["recurse"] = True
            cluster = {"partition": options.partition, "time": options.time, "mem_per_cpu_gb": options.memory}
            job = SlurmPipelineExecutor(**how, **cluster, job_name=f"prepare-{name}", depends=job)
            job.run()
            continue
        if options.executor == "local":
            from datatrove.executor import LocalPipelineExecutor as Executor
        else:
            from datatrove.executor import RayPipelineExecutor as Executor

            how["mem_per_cpu_gb"] = options.memory
        executor = Executor(**how)
        executor.run()
        if ranks := executor.get_incomplete_ranks():
            raise SystemExit(f"{notes / 'logs' / name}: tasks {ranks} failed; the same command runs them again")


def counts(notes: Path) -> dict[str, tuple[int, int]]:
    """The documents that each filter was given, and those that it dropped, from the logs of a finished run."""
    found = {}
    for step in json.loads((notes / "logs/parts/stats.json").read_text()):
        if "forwarded" in step["stats"]:  # a filter
            plain = re.sub(r"[^ -~]", "", step["name"]).rpartition(":")[2].strip()
            found[plain] = (step["stats"]["total"], step["stats"].get("dropped", 0))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the pipelines, or submit them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path, help="settings of prepare, with row_lengths")
    parser.add_argument("out", type=Path, help="folder of the corpus, which all tasks see")
    parser.add_argument("--filters", nargs="*", metavar="LANGUAGE", help="filter; keep these languages, by default all")
    parser.add_argument("--tasks", type=int, default=8, help="shares of the files, at most one a file")
    parser.add_argument("--workers", type=int, default=2, help="tasks at a time, each of one process")
    parser.add_argument("--executor", choices=("local", "slurm", "ray"), default="local")
    parser.add_argument("--partition", default="cpu", help="of SLURM")
    parser.add_argument("--time", default="08:00:00", help="of a SLURM task")
    parser.add_argument("--memory", type=int, default=4, help="gigabytes of a task")
    options = parser.parse_args(arguments)
    options.out = options.out.resolve()
    try:
        notes, steps = pipelines(options)
    except DomainbertError as error:
        raise SystemExit(str(error)) from error
    for folder in (notes, options.out):
        folder.mkdir(parents=True, exist_ok=True)
    submit(options, notes, steps)
    if options.executor != "slurm":
        for name, (given, dropped) in counts(notes).items():
            print(f"{name}: {given:,} documents, {dropped:,} dropped")


if __name__ == "__main__":
    main()
