"""Worst mistakes of each system, with gold and predicted labels marked in the text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from domainbert.report.evaluations import Evaluation, System

MAX_MISTAKES = 50
"""Maximum number of mistakes shown per system."""

_HUES = 6  # colours of labels in mistakes.css
_CORRECT = "correct"


@dataclass(frozen=True)
class Piece:
    """A part of a text: plain, or marked with a label."""

    text: str
    label: str = ""
    """Empty for plain text."""
    hue: int = 0
    """Index of the colour of the label."""
    kind: str = ""
    """Kind of mistake, or `correct`."""
    tip: str = ""
    """Tooltip."""

    @property
    def wrong(self) -> bool:
        """Whether the marked label is a mistake."""
        return bool(self.kind) and self.kind != _CORRECT


@dataclass(frozen=True)
class Side:
    """Gold or predicted labels of a text."""

    pieces: list[Piece]
    """The text, split at the marks; empty without marks."""
    labels: list[Piece]
    """Labels of the whole text, and marks that overlap an earlier mark."""


@dataclass(frozen=True)
class Mistake:
    """A text with a wrong prediction."""

    line: str
    """Line of the text in the test set."""
    text: str
    """The text if neither side marks a part of it; otherwise empty."""
    gold: Side
    predicted: Side
    pair: str
    """Second text, for tasks on pairs; otherwise empty."""
    kinds: list[str]
    labels: list[str]
    severity: float
    """Mistakes are sorted by it: usually the probability of the wrong prediction."""
    seeds: list[str]
    """Names of the seeds whose prediction is wrong."""


@dataclass(frozen=True)
class SystemMistakes:
    """Worst mistakes of a system."""

    system: str
    total: int
    """Number of texts with a wrong prediction of at least one seed."""
    num_seeds: int
    shown: list[Mistake]

    @property
    def kinds(self) -> list[str]:
        """Kinds of the shown mistakes, for the filter."""
        return sorted({kind for mistake in self.shown for kind in mistake.kinds})

    @property
    def labels(self) -> list[str]:
        """Labels of the shown mistakes, for the filter."""
        return sorted({label for mistake in self.shown for label in mistake.labels})


def mistakes(evaluation: Evaluation, max_mistakes: int = MAX_MISTAKES) -> list[SystemMistakes]:
    """Return the worst mistakes of each system.

    A text that is wrong for several seeds occurs once, with the worst seed.
    """
    systems = {system.name: _worst_rows(system) for system in evaluation.systems}
    labels = sorted({label for rows, _ in systems.values() for row in rows for label in _label_names(row)})
    hues = {label: number % _HUES for number, label in enumerate(labels)}
    return [
        SystemMistakes(name, len(rows), seeds, [_mistake(row, hues) for row in rows[:max_mistakes]])
        for name, (rows, seeds) in systems.items()
        if rows
    ]


def _worst_rows(system: System) -> tuple[list[dict[str, Any]], int]:
    """Return the mistakes, worst first, and the number of seeds.

    A text occurs once, with `seeds`, all seeds that fail on it.
    """
    files: list[Path] = sorted(system.folder.glob("*.jsonl"))
    if not system.run.is_intact(system.folder, "*.jsonl"):
        return [], 0
    merged: dict[Any, dict[str, Any]] = {}
    for file in files:
        for row in system.run.lines(file):
            key = row["item"] if "item" in row else (row.get("line"), row.get("text"))  # older versions wrote no item
            worst = merged.setdefault(key, {**row, "seeds": []})
            if row.get("severity", 0) > worst.get("severity", 0):
                merged[key] = {**row, "seeds": worst["seeds"]}
            merged[key]["seeds"].append(file.stem)
    return sorted(merged.values(), key=lambda row: -row.get("severity", 0)), len(files)


def _label_names(row: Mapping[str, Any]) -> Iterator[str]:
    yield from (str(mark.get("label", "")) for side in ("gold", "predicted") for mark in row.get(side, []))


def _mistake(row: Mapping[str, Any], hues: Mapping[str, int]) -> Mistake:
    text = str(row.get("text", ""))
    gold, predicted = (_split_at_marks(text, row.get(side, []), hues) for side in ("gold", "predicted"))
    return Mistake(
        line=str(row.get("line", "")),
        text="" if gold.pieces or predicted.pieces else text,
        gold=gold,
        predicted=predicted,
        pair=str(row.get("text_pair", "")),
        kinds=[str(kind) for kind in row.get("kinds", [])],
        labels=[str(label) for label in row.get("labels", [])],
        severity=float(row.get("severity", 0)),
        seeds=row["seeds"],
    )


def _split_at_marks(text: str, marks: Sequence[Mapping[str, Any]], hues: Mapping[str, int]) -> Side:
    """Return a text split at its marks, and the marks that overlap an earlier mark or have no position."""
    pieces: list[Piece] = []
    labels: list[Piece] = []
    end = 0
    for mark in sorted(marks, key=lambda mark: mark.get("start", -1)):
        covered = text[mark["start"] : mark["end"]] if "start" in mark else ""
        if "start" in mark and mark["start"] >= end:
            pieces += [Piece(text[end : mark["start"]]), _marked_piece(covered, mark, hues)]
            end = mark["end"]
        else:
            labels.append(_marked_piece(covered, mark, hues))
    return Side([*pieces, Piece(text[end:])] if pieces else [], labels)


def _marked_piece(text: str, mark: Mapping[str, Any], hues: Mapping[str, int]) -> Piece:
    label, kind = str(mark.get("label", "")), str(mark.get("kind", ""))
    head = f" of {mark['head']}" if mark.get("head") is not None else ""
    probability = f"probability {mark['score']:.3f}" if mark.get("score") is not None else ""
    tip = "\n".join(filter(None, [label + head, kind, probability]))
    return Piece(text, label + head, hues.get(label, 0), kind, tip)
