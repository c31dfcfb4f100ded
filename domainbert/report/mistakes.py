"""The worst mistakes of each system, with gold and prediction marked in the text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from domainbert.report.evaluations import Evaluation, System

MOST = 50
"""Mistakes of a system that are shown."""

_AROUND = 200
"""Characters kept on each side of what is marked, in a long text."""

_LONGEST = 2000
"""Characters of a text that are shown at most."""

_CHARACTERS = 700
"""Of a text without a place that is marked."""

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
    """What gold, or the model, says of a text."""

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
    merged: dict[tuple[str, str], dict[str, Any]] = {}
    for file in files:
        for row in system.run.lines(file):
            key = str(row.get("line", "")), str(row.get("text", ""))
            worst = merged.setdefault(key, {**row, "seeds": []})
            if row.get("severity", 0) > worst.get("severity", 0):
                merged[key] = {**row, "seeds": worst["seeds"]}
            merged[key]["seeds"].append(file.stem)
    return sorted(merged.values(), key=lambda row: -row.get("severity", 0)), len(files)


def _names(row: Mapping[str, Any]) -> Iterator[str]:
    yield from (str(mark.get("label", "")) for side in ("gold", "predicted") for mark in row.get(side, []))


def _mistake(row: Mapping[str, Any], hues: Mapping[str, int]) -> Mistake:
    text = str(row.get("text", ""))
    marks = [*row.get("gold", []), *row.get("predicted", [])]
    window = _window(text, [mark for mark in marks if mark.get("kind") != _RIGHT] or marks)
    gold, predicted = (_side(text, window, row.get(side, []), hues) for side in ("gold", "predicted"))
    plain = "" if gold.pieces or predicted.pieces else "".join(piece.text for piece in _cut(text, window, []))
    return Mistake(
        line=str(row.get("line", "")),
        text=plain,
        gold=gold,
        predicted=predicted,
        pair=str(row.get("text_pair", "")),
        kinds=[str(kind) for kind in row.get("kinds", [])],
        labels=[str(label) for label in row.get("labels", [])],
        severity=float(row.get("severity", 0)),
        seeds=row["seeds"],
    )


def _window(text: str, marks: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """The part of a text that is shown: all of it, or what lies around its marks."""
    placed = [mark for mark in marks if "start" in mark]
    if not placed:
        return 0, _CHARACTERS
    low, high = min(mark["start"] for mark in placed) - _AROUND, max(mark["end"] for mark in placed) + _AROUND
    return low, min(high, low + _LONGEST)


def _side(text: str, window: tuple[int, int], marks: Sequence[Mapping[str, Any]], hues: Mapping[str, int]) -> Side:
    placed: list[Mapping[str, Any]] = []
    beside: list[Piece] = []
    for mark in sorted(marks, key=lambda mark: mark.get("start", -1)):
        free = "start" in mark and (not placed or mark["start"] >= placed[-1]["end"])
        if free:
            placed.append(mark)
        else:
            beside.append(_marked(text[mark["start"] : mark["end"]] if "start" in mark else "", mark, hues))
    return Side(list(_cut(text, window, placed, hues)) if placed else [], beside)


def _cut(
    text: str, window: tuple[int, int], marks: Sequence[Mapping[str, Any]], hues: Mapping[str, int] | None = None
) -> Iterator[Piece]:
    """The pieces of a text inside a window; how much was left out is said."""
    low, high = max(window[0], 0), min(window[1], len(text))
    if low > 0:
        yield Piece(f"[{low:,} characters] … ")
    at = low
    for mark in marks:
        if mark["end"] <= low or mark["start"] >= high:
            continue
        if mark["start"] > at:
            yield Piece(text[at : mark["start"]])
        yield _marked(text[mark["start"] : mark["end"]], mark, hues or {})
        at = mark["end"]
    if at < high:
        yield Piece(text[at:high])
    if high < len(text):
        yield Piece(f" … [{len(text) - max(high, at):,} characters]")


def _marked(text: str, mark: Mapping[str, Any], hues: Mapping[str, int]) -> Piece:
    label, kind = str(mark.get("label", "")), str(mark.get("kind", ""))
    parts = [label, kind, f"probability {mark['score']:.3f}" if mark.get("score") is not None else ""]
    return Piece(text, label, hues.get(label, 0), kind, "\n".join(filter(None, parts)))
