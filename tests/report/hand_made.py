"""Run folders written by hand, as stages write them, without training anything."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from domainbert.base.freshness import flatten
from domainbert.base.run_record import RunRecord, read_record

CROOKED = "</script><img src=x onerror=alert(1)>"
"""A label, a text and a name that want to be more than text."""

METRIC = {"key": "f1", "name": "entity F1", "percent": True}
BINS = [{"confidence": 0.5, "accuracy": 0.25, "count": 40}, {"confidence": 0.9, "accuracy": 0.875, "count": 40}]


def put(path: Path, value: Any) -> None:
    """Write JSON, or lines of JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(one) for one in value] if path.suffix == ".jsonl" else [json.dumps(value)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def stage(folder: Path, kind: str, started: str = "2026-01-01T00:00:00+00:00", **record: Any) -> Path:
    """A stage that is done."""
    config = {"out": str(folder), **record.pop("config", {})}
    facts = {"key": "k" * 64, "made_from": flatten(config), "config": config, "started": started, "wall_seconds": 61.0}
    facts |= {"inputs": {"data/train.conll": "a" * 64}, "versions": {"torch": "2.13"}, "git_commit": "c" * 40}
    folder.mkdir(parents=True, exist_ok=True)
    RunRecord(kind, "done", **{**facts, **record}).write(folder)
    (folder / "config.yaml").write_text("out: x\n", encoding="utf-8")
    return folder


def record_again(folder: Path, **changes: Any) -> None:
    """Record the present files of a stage, with changes."""
    record = read_record(folder)
    assert record is not None
    replace(record, **changes).write(folder)


def training(folder: Path, values: Mapping[str, Sequence[float]], **record: Any) -> Path:
    """A fine-tuned folder: by seed the validation F1 after each epoch of 10 steps."""
    config = {"optim": {"name": "adamw"}, "task": {"class_path": "mine.Tags"}, **record.pop("config", {})}
    stage(folder, "finetune", config=config, **record)
    best = {seed: max(range(len(found)), key=found.__getitem__) for seed, found in values.items()}
    seeds = {seed: found[best[seed]] for seed, found in values.items()}
    put(folder / "seeds.json", {"metric": "validation/f1", "direction": "maximize", "validation_f1": seeds})
    for seed, found in values.items():
        rows = [{"step": 10 * (number + 1), "validation/f1": value} for number, value in enumerate(found)]
        put(folder / seed / "logs/metrics.jsonl", [{"step": 5, "train/loss": 2.5, "train/lr": 1e-3}, *rows])
        put(folder / seed / "training.json", {"validation": {"step": 10 * (best[seed] + 1)}})
    return folder


def system(f1: float, low: float, high: float) -> dict[str, Any]:
    """The scores of a system."""
    label = {"precision": f1, "recall": f1, "f1": f1, "support": 7}
    return {
        **{"f1": f1, "interval": [low, high], "seeds": 1, "precision": f1},
        "per_type": {"outcome": label, CROOKED: label},
        "by_novelty": {"seen": label, "unseen": label},
        "confusion": {"labels": ["outcome", CROOKED, "none"], "counts": [[6, 1, 0], [0, 7, 0], [0, 2.5, 0]]},
        "reliability": {"bins": BINS, "ece": 0.11, "brier": 0.2},
        "cost": {"parameters": 988_299, "latency_1": 0.0016, "words_per_second": 47_000.0, "pieces_per_word": 1.01},
    }


def evaluated(folder: Path, systems: Mapping[str, float], /, test: str = "test.conll 1234", **facts: Any) -> Path:
    """A folder of `evaluate`; the first system is compared with each other one, with an interval of 0.1."""
    config = {"test": test, "task": {"class_path": "mine.Tags"}}
    stage(folder, "evaluate", "2026-01-02T00:00:00+00:00", config=config)
    first = next(iter(systems))
    paired = [
        {"a": first, "b": name, "difference": (gap := systems[first] - f1), "interval": [gap - 0.05, gap + 0.05]}
        for name, f1 in systems.items()
        if name != first
    ]
    found = {"task": "tags", "metric": METRIC, "test": "data/test.conll", "gold": 14}
    found |= {"bootstrap": {"resamples": 100, "unit": "documents", "units": 5}}
    scores = {name: system(f1, f1 - 0.02, f1 + 0.02) for name, f1 in systems.items()}
    put(folder / "metrics.json", {**found, "systems": scores, "paired": paired, "warnings": [], **facts})
    return folder


def mistake(number: int = 1, kind: str = "boundary", label: str = "outcome", **more: Any) -> dict[str, Any]:
    """A mistake: gold is "school attendance", the model says "attendance"."""
    text = f"{number} transfers raised school attendance of girls."
    start = text.index("school")
    return {
        "line": number,
        "text": text,
        "gold": [{"label": label, "start": start, "end": start + 17, "kind": kind}],
        "predicted": [{"label": label, "start": start + 7, "end": start + 17, "score": 0.75, "kind": kind}],
        **{"kinds": [kind], "labels": [label], "severity": 1 / number, **more},
    }


def whole_run(folder: Path) -> Path:
    """A run with everything that the report shows, and crooked words wherever a text may come from."""
    stage(folder / "vocab", "vocab")
    word = {"word": CROOKED, "pieces": ["<", "/script"], "count": 3}
    ours = {"words": 10, "distinct_words": 5, "pieces_per_word": 1.25, "share_unknown": 0.0, "share_continued": 0.2}
    texts = {"corpus, train": {"ours": {**ours, "longest_split": [word]}}}
    put(folder / "vocab/report.json", {"vocab_size": 128, "texts": texts, "compared": None, "transfer": None})
    stage(folder / "prepare", "prepare")
    put(folder / "prepare/prepared.json", {"splits": {"train": {"documents": 3, "tokens": 99, "characters": 400}}})
    training(folder / "ours", {"seed-1": [0.2, 0.6, 0.5], "seed-2": [0.1, 0.4, 0.55]}, config={"init": "pretrained"})
    training(folder / "theirs", {"seed-1": [0.1, 0.3, 0.3]}, config={"init": "random"})
    evaluated(folder / "result", {"ours": 0.75, "theirs": 0.5})
    marks = [mistake(1), mistake(2, "missed", CROOKED, predicted=[]), mistake(3, text_pair=CROOKED)]
    put(folder / "result/mistakes/ours/seed-1.jsonl", marks)
    put(folder / "result/mistakes/ours/seed-2.jsonl", marks[:1])
    place = {"path": "train.conll", "line": 7, "text": CROOKED}
    finding = {"rule": "same-text", "severity": "error", "message": CROOKED, "count": 2, "places": [place]}
    finding["ignored"] = None
    put(stage(folder / "check", "check") / "check.json", {"findings": [finding], "data": {"train": {"texts": 4}}})
    return folder
