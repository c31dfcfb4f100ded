"""The worst mistakes of each system, with gold and prediction marked in the text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from domainbert.report.evaluations import Evaluation, System

MOST = 50
"""Mistakes of a system that are shown."""

_HUES = 6
_RIGHT = "correct"


@dataclass(frozen=True)
class Piece:
    """A part of a text: plain, or marked with a label."""

    text: str
    label: str = ""
    hue: int = 0
    kind: str = ""
    tip: str = ""

    @property
    def wrong(self) -> bool:
        """Whether it is a mistake."""
        return bool(self.kind) and self.kind != _RIGHT


@dataclass(frozen=True)
class Side:
    """Labels of a text, of gold or of the model."""

    pieces: list[Piece]
    """The text, cut at the marks; empty where nothing in it is marked."""
    labels: list[Piece]
    """Labels of the whole text, and marks that overlap others."""


@dataclass(frozen=True)
class Mistake:
    """A text that a system got wrong."""

    line: str
    text: str
    """Shown where neither side marks anything in it."""
    gold: Side
    predicted: Side
    pair: str
    kinds: list[str]
    labels: list[str]
    severity: float
    seeds: list[str]


@dataclass(frozen=True)
class MistakesOf:
    """The worst mistakes of a system."""

    system: str
    total: int
    """Texts that at least one of its models got wrong."""
    num_seeds: int
    shown: list[Mistake]

    @property
    def kinds(self) -> list[str]:
        """The kinds that occur, for the filter."""
        return sorted({kind for one in self.shown for kind in one.kinds})

    @property
    def labels(self) -> list[str]:
        """The labels that occur, for the filter."""
        return sorted({label for one in self.shown for label in one.labels})


def mistakes(evaluation: Evaluation, most: int = MOST) -> list[MistakesOf]:
    """The worst mistakes of each system; a text that several seeds got wrong is told once, by the worst of them."""
    read = {system.name: _read(system) for system in evaluation.systems}
    labels = sorted({label for rows, _ in read.values() for row in rows for label in _names(row)})
    hues = {label: number % _HUES for number, label in enumerate(labels)}
    return [
        MistakesOf(name, len(rows), seeds, [_mistake(row, hues) for row in rows[:most]])
        for name, (rows, seeds) in read.items()
        if rows
    ]


def _read(system: System) -> tuple[list[dict[str, Any]], int]:
    """The mistakes of all seeds, worst first, each text once with the `seeds` that got it wrong; and how many seeds."""
    files: list[Path] = sorted(system.folder.glob("*.jsonl"))
    if not system.run.is_intact(system.folder, "*.jsonl"):
        return [], 0
    merged: dict[Any, dict[str, Any]] = {}
    for file in files:
        for row in system.run.lines(file):
            key = row["item"] if "item" in row else (row.get("line"), row.get("text"))  # of an older version
            worst = merged.setdefault(key, {**row, "seeds": []})
            if row.get("severity", 0) > worst.get("severity", 0):
                merged[key] = {**row, "seeds": worst["seeds"]}
            merged[key]["seeds"].append(file.stem)
    return sorted(merged.values(), key=lambda row: -row.get("severity", 0)), len(files)


def _names(row: Mapping[str, Any]) -> Iterator[str]:
    yield from (str(mark.get("label", "")) for side in ("gold", "predicted") for mark in row.get(side, []))


def _mistake(row: Mapping[str, Any], hues: Mapping[str, int]) -> Mistake:
    text = str(row.get("text", ""))
    gold, predicted = (_side(text, row.get(side, []), hues) for side in ("gold", "predicted"))
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


def _side(text: str, marks: Sequence[Mapping[str, Any]], hues: Mapping[str, int]) -> Side:
    """The text cut at its marks; of marks that overlap, the later ones stand beside it."""
    pieces: list[Piece] = []
    beside: list[Piece] = []
    end = 0
    for mark in sorted(marks, key=lambda mark: mark.get("start", -1)):
        covered = text[mark["start"] : mark["end"]] if "start" in mark else ""
        if "start" in mark and mark["start"] >= end:
            pieces += [Piece(text[end : mark["start"]]), _marked(covered, mark, hues)]
            end = mark["end"]
        else:
            beside.append(_marked(covered, mark, hues))
    return Side([*pieces, Piece(text[end:])] if pieces else [], beside)


def _marked(text: str, mark: Mapping[str, Any], hues: Mapping[str, int]) -> Piece:
    label, kind = str(mark.get("label", "")), str(mark.get("kind", ""))
    head = f" of {mark['head']}" if mark.get("head") is not None else ""
    sure = f"probability {mark['score']:.3f}" if mark.get("score") is not None else ""
    tip = "\n".join(filter(None, [label + head, kind, sure]))
    return Piece(text, label + head, hues.get(label, 0), kind, tip)
