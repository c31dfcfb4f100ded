"""Length and batch size of a fine-tuning on small training sets: fixed epochs against a number of optimiser steps.

    python benchmarks/training_length.py [--model FOLDER] [--lr 3e-4] [--data econ ncbi] [--sizes 500 1000 2000]
        [--lengths 5-epochs-of-32 10-epochs-of-32 300-steps-of-16 600-steps-of-16 1200-steps-of-16] [--seeds 1]
        [--student FOLDER --student_lr 4e-4 --teach "5-epochs-of-32 > 10-epochs-of-32" ...] [--processes 1]

Each training set is a sample of the training and validation files of ECON-IE or NCBI-disease: blocks of ten
consecutive sentences, because the files mark no documents. A quarter as many sentences choose the best epoch; 2,000
others, the same for all sizes and lengths of a seed, give the F1 by which lengths are compared. The test files are not
read. The JSON is written after each training. Trainings in the JSON are skipped, and a later call with another model
adds to it. `--report` prints the tables without training.

`--teach "A > B"` distils the model that was trained for length A into `--student` for length B, by the losses of
configs/presets/best-small-model.yaml; `--unlabelled FOLDER` has text without labels, as DATA.jsonl, of which a step
reads as many sentences as are labelled.
"""

from __future__ import annotations

import argparse
import random
import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from itertools import count, product
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from finetune_f1 import kept
from finetune_ner import PACKAGES, PUBLISHED, data_files
from prepared_corpus import NER_DATA
from side_by_side import write_result

from domainbert.base.paths import resolve_path
from domainbert.labelled.entities import Sentence
from domainbert.labelled.formats import NerFormat
from domainbert.tasks.ner.config import Ner
from domainbert.tasks.ner.files import read_ner

BLOCK, HELD_OUT, VALIDATION_SHARE = 10, 2000, 0.25
RESAMPLES = 2000
BASELINE = "5-epochs-of-32"  # the teacher of configs/presets/best-small-model.yaml
TAUGHT_BASELINE = f"{BASELINE} > 10-epochs-of-32"  # its student
LENGTHS = (BASELINE, "10-epochs-of-32", "300-steps-of-16", "600-steps-of-16", "1200-steps-of-16")
LOSSES = [
    {"class_path": "SoftTargets", "init_args": {"temperature": 1.0}},
    {"class_path": "HardTargets", "init_args": {"weight": 0.5}},
]
TASK = Ner(head="crf", format=NerFormat(repair=True))  # ECON-IE has a few stray I- tags
_NEVER = 10**9  # steps between checkpoints

Row = dict[str, Any]
"""One training: its settings and scores."""


@dataclass(frozen=True)
class Run:
    """One training of the grid."""

    model: str
    lr: float
    head_lr: float
    data: str
    size: int
    seed: int
    length: str
    held_out: int
    teacher: str = ""
    teacher_length: str = ""
    unlabelled: str = ""

    @property
    def key(self) -> str:
        """Name of the training in the JSON."""
        return f"{system_of(asdict(self))}, {self.data}, {self.size}, seed {self.seed}, {length_of(asdict(self))}"

    @property
    def batch_size(self) -> int:
        """Sentences of an optimiser step."""
        return self._parsed[2]

    @property
    def epochs(self) -> int:
        """Passes over the training set, at least 1; a number of steps is rounded to whole passes."""
        amount, unit, batch_size = self._parsed
        return amount if unit == "epochs" else max(1, round(amount / -(-self.size // batch_size)))

    @property
    def _parsed(self) -> tuple[int, str, int]:
        match = re.fullmatch(r"(\d+)-(epochs|steps)-of-(\d+)", self.length)
        if match is None:
            raise SystemExit(f"--lengths: found {self.length!r}; expected for example 5-epochs-of-32")
        return int(match[1]), match[2], int(match[3])


def system_of(row: Row) -> str:
    """Model with its learning rates, and its teacher: what two lengths have in common when they are compared."""
    taught = f" taught by {row['teacher']}" if row.get("teacher") else ""
    text = " with unlabelled text" if row.get("unlabelled") else ""
    return f"{row['model']}{taught}{text}, lr {row['lr']:g}, head_lr {row['head_lr']:g}"


def length_of(row: Row) -> str:
    """Length of a training, with the length of its teacher before it."""
    return f"{row['teacher_length']} > {row['length']}" if row.get("teacher") else str(row["length"])


def sample(sentences: Sequence[Sentence], size: int, seed: int, held_out: int) -> dict[str, list[Sentence]]:
    """Draw training, validation and held-out sentences; a smaller training set is a part of a larger one."""
    blocks = [sentences[start : start + BLOCK] for start in range(0, len(sentences), BLOCK)]
    random.Random(seed).shuffle(blocks)
    drawn = [sentence for block in blocks for sentence in block]
    num_validation = round(VALIDATION_SHARE * size)
    if held_out + size + num_validation > len(drawn):
        raise SystemExit(
            f"--sizes: found {size}; expected at most {(len(drawn) - held_out) / (1 + VALIDATION_SHARE):.0f}"
        )
    train = drawn[held_out : held_out + size]
    return {"train": train, "validation": drawn[-num_validation:], "held-out": drawn[:held_out]}


def write_sample(folder: Path, run: Run) -> dict[str, Path]:
    """Write the sampled sentences as CoNLL files and return their paths by part."""
    sentences = [sentence for path in data_files(run.data) for sentence in read_ner(path, TASK.format).sentences]
    paths = {}
    for part, drawn in sample(sentences, run.size, run.seed, run.held_out).items():
        rows = ["".join(f"{word} {tag}\n" for word, tag in zip(one.words, one.tags, strict=True)) for one in drawn]
        paths[part] = folder / f"{part}.conll"
        paths[part].write_text("\n".join(rows), encoding="utf-8")
    return paths


def train(run: Run, folder: Path, teacher: Path | None = None) -> Row:
    """Train with `finetune`, or with `distill-task` and a teacher, and score on the held-out sentences."""
    from domainbert.stages.distill_task import distill_task
    from domainbert.stages.finetune import finetune

    folder.mkdir()
    files, out, start = write_sample(folder, run), folder / "model", time.perf_counter()
    if teacher is None:
        result = finetune(out, model=resolve_path(run.model), **_settings(run, files))
    else:
        result = distill_task(
            out,
            model=resolve_path(run.model),
            teachers=[model_of(run, teacher)],
            losses=LOSSES,
            unlabelled={"sources": [{"path": run.unlabelled}]} if run.unlabelled else None,
            unlabelled_batch_size=run.batch_size,
            cache=str(folder / "soft-labels"),
            **_settings(run, files),
        )
    return _scored(run, result, files, model_of(run, folder), time.perf_counter() - start)


def model_of(run: Run, folder: Path) -> Path:
    """The model that `train` wrote in its folder."""
    return folder / "model" / f"seed-{run.seed}"


def _settings(run: Run, files: dict[str, Path]) -> dict[str, Any]:
    """What the two stages have in common."""
    return {
        "task": TASK,
        "train": files["train"],
        "validation": files["validation"],
        "batch_size": run.batch_size,
        "max_epochs": run.epochs,
        "optim": {"lr": run.lr, "head_lr": run.head_lr},
        "seeds": [run.seed],
        "loggers": ["jsonl"],
        "checkpoint_every": _NEVER,
    }


def _scored(run: Run, result: Row, files: dict[str, Path], model: Path, seconds: float) -> Row:
    """The row of a training: F1 on validation and on the held-out sentences, of the best epoch."""
    from domainbert.metrics.summary import Resampling
    from domainbert.serving.predictor import load_predictor
    from domainbert.stages.evaluate import read_test_set

    trained, scoring = result["seeds"][0], read_test_set(TASK, files["held-out"], None)
    scoring.add_model("model", "1", load_predictor(model, "auto"), files["held-out"].with_suffix(".predicted"))
    held_out = scoring.summary(Resampling(100, 0))["systems"]["model"]
    return asdict(run) | {
        "batch_size": run.batch_size,
        "epochs": run.epochs,
        "steps": run.epochs * -(-run.size // run.batch_size),
        "best_epoch": trained["best_epoch"],
        "validation_f1": [row["f1"] for row in trained["history"]],
        "held_out": {name: held_out[name] for name in ("f1", "precision", "recall")},
        "seconds": round(seconds, 1),
    }


Cell = tuple[str, int, int]
"""Set, size of the training set, and seed: what two lengths have in common when they are compared."""


def scores_by_cell(rows: Sequence[Row]) -> dict[str, dict[Cell, dict[str, float]]]:
    """Held-out F1 by model with its learning rates, by cell, and by length."""
    scores: dict[str, dict[Cell, dict[str, float]]] = {}
    for row in rows:
        cells = scores.setdefault(system_of(row), {})
        cells.setdefault((row["data"], row["size"], row["seed"]), {})[length_of(row)] = row["held_out"]["f1"]
    return scores


def mean_and_bootstrap(differences: Sequence[float]) -> Row:
    """Mean of paired differences and its 95 % interval from resampling the cells; no interval with less than three."""
    values, interval = np.array(differences), None
    if len(values) > 2:
        draws = np.random.default_rng(0).choice(values, (RESAMPLES, len(values))).mean(axis=1)
        interval = [float(bound) for bound in np.quantile(draws, (0.025, 0.975))]
    return {"mean": float(values.mean()), "interval": interval, "cells": len(values)}


def summary(rows: Sequence[Row]) -> Row:
    """For each model: held-out F1 of each length minus its baseline, by size, over the cells that have both."""
    tables: Row = {}
    for model, cells in scores_by_cell(rows).items():
        differences = {}
        sizes = sorted({size for _, size, _ in cells})
        lengths = sorted({length for scores in cells.values() for length in scores}, key=_order)
        baseline = TAUGHT_BASELINE if TAUGHT_BASELINE in lengths else BASELINE
        for length in [length for length in lengths if length != baseline]:
            for name, wanted in {**{str(size): [size] for size in sizes}, "all": sizes}.items():
                pairs = [s for (_, size, _), s in cells.items() if size in wanted and {length, baseline} <= s.keys()]
                if pairs:
                    differences[f"{length}, {name}"] = mean_and_bootstrap([s[length] - s[baseline] for s in pairs])
        tables[model] = {f"minus {baseline}": differences}
    return tables


def _order(length: str) -> tuple[int, str]:
    return (LENGTHS.index(length) if length in LENGTHS else len(LENGTHS), length)


def print_report(rows: Sequence[Row]) -> None:
    """Print the held-out F1 of each training and the differences of `summary`, in percent."""
    tables = summary(rows)
    for model, cells in scores_by_cell(rows).items():
        print(f"\n{model}: F1 on held-out sentences")
        for (data, size, seed), scores in sorted(cells.items()):
            listed = [f"{length} {100 * scores[length]:.2f}" for length in sorted(scores, key=_order)]
            print(f"{data} {size:5} seed {seed}: {', '.join(listed)}")
        for minus, differences in tables[model].items():
            for name, row in differences.items():
                low, high = row["interval"] or (None, None)
                interval = f", 95 % interval [{100 * low:+.2f}, {100 * high:+.2f}]" if low is not None else ""
                print(f"{name:22} {minus}: {100 * row['mean']:+6.2f}, {row['cells']} cells{interval}")


def main() -> None:
    """Run the trainings that are missing, and report."""
    parser = argparse.ArgumentParser(description="Length and batch size of a fine-tuning on small training sets")
    parser.add_argument("--model", default=PUBLISHED, help="model folder to start from")
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--head_lr", type=float, default=1e-3)
    parser.add_argument("--data", nargs="+", choices=NER_DATA, default=["econ", "ncbi"])
    parser.add_argument("--sizes", type=int, nargs="+", default=[500, 1000, 2000])
    parser.add_argument("--lengths", nargs="+", default=LENGTHS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--held_out", type=int, default=HELD_OUT, help="sentences that compare the lengths")
    parser.add_argument("--teach", nargs="+", default=[], help='lengths of teacher and student, as "A > B"')
    parser.add_argument("--student", default=PUBLISHED, help="model folder that a student starts from")
    parser.add_argument("--student_lr", type=float, default=4e-4)
    parser.add_argument("--student_head_lr", type=float, default=3e-3)
    parser.add_argument("--unlabelled", type=Path, help="folder with DATA.jsonl, text that students read beside")
    parser.add_argument("--processes", type=int, default=1, help="trainings at the same time")
    parser.add_argument("--report", action="store_true", help="print the tables, train nothing")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "training_length.json")
    options = parser.parse_args()
    settings = {"block": BLOCK, "held_out": options.held_out, "validation_share": VALIDATION_SHARE, "head": "crf"}
    trained = kept(options.out, settings, "trainings")
    missing = [] if options.report else list(missing_trainings(options, set(trained)))
    running: dict[Future[Row], tuple[Run, Path]] = {}
    with TemporaryDirectory() as root, ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        numbers, students = count(), dict(missing)

        def start(run: Run, teacher: Path | None = None) -> None:
            folder = Path(root) / str(next(numbers))
            running[pool.submit(train, run, folder, teacher)] = run, folder

        for run in students:
            start(run)
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                run, folder = running.pop(future)
                trained[run.key] = row = future.result()
                print(f"{run.key}: held-out F1 {100 * row['held_out']['f1']:.2f}, {row['seconds']:.0f} s", flush=True)
                found = summary(list(trained.values()))
                write_result(options.out, {"differences": found}, settings, PACKAGES, {"trainings": trained})
                for student in students.get(run, []):
                    start(student, folder)
    print_report(list(trained.values()))


def missing_trainings(options: argparse.Namespace, trained: set[str]) -> Iterator[tuple[Run, list[Run]]]:
    """The trainings that the JSON lacks, each with its students; the model of a missing student is trained again."""
    for seed, size, data, length in product(options.seeds, options.sizes, options.data, options.lengths):
        run = Run(options.model, options.lr, options.head_lr, data, size, seed, length, options.held_out)
        text = str(options.unlabelled / f"{data}.jsonl") if options.unlabelled else ""
        taught = replace(run, model=options.student, lr=options.student_lr, head_lr=options.student_head_lr)
        taught = replace(taught, teacher=options.model, teacher_length=length, unlabelled=text)
        pairs = [pair.split(" > ") for pair in options.teach]
        students = [replace(taught, length=after) for before, after in pairs if before == length]
        students = [student for student in students if student.key not in trained]
        if run.key not in trained or students:
            yield run, students


if __name__ == "__main__":
    main()
