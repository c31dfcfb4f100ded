"""Worst mistakes of each system, with gold and predicted labels marked in the text."""

from __future__ import annotations

from collections import defaultdict
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


def mistakes(evaluation: Evaluation, max_mistakes: int = MAX_MISTAKES) -> list[dict[str, Any]]:
    """Return the worst mistakes of each system, as variables of `mistakes.html`.

    A text that is wrong for several seeds occurs once, with the worst seed. `total` is the number of texts with a wrong
    prediction of at least one seed; `kinds` and `labels` are the choices of the filters.
    """
    worst = {system.name: _worst_rows(system) for system in evaluation.systems}
    labels = sorted({label for rows, _ in worst.values() for row in rows for label in _label_names(row)})
    hues = {label: number % _HUES for number, label in enumerate(labels)}
    systems = []
    for name, (rows, num_seeds) in worst.items():
        if rows:
            shown = [_mistake_variables(row, hues) for row in rows[:max_mistakes]]
            systems.append(
                {
                    "system": name,
                    "total": len(rows),
                    "num_seeds": num_seeds,
                    "shown": shown,
                    "kinds": sorted({kind for mistake in shown for kind in mistake["kinds"]}),
                    "labels": sorted({label for mistake in shown for label in mistake["labels"]}),
                }
            )
    return systems


def _worst_rows(system: System) -> tuple[list[dict[str, Any]], int]:
    """Return a row per wrong text, the worst first, with its wrong seeds as `seeds`; and the number of all seeds."""
    files: list[Path] = sorted(system.folder.glob("*.jsonl"))
    if not system.run.is_intact(system.folder, "*.jsonl"):
        return [], 0
    worst: dict[Any, dict[str, Any]] = {}  # by text
    seeds: dict[Any, list[str]] = defaultdict(list)  # by text
    for file in files:
        for row in system.run.lines(file):
            key = row["item"] if "item" in row else (row.get("line"), row.get("text"))  # older versions wrote no item
            seeds[key].append(file.stem)
            if key not in worst or row.get("severity", 0) > worst[key].get("severity", 0):
                worst[key] = row
    rows = [{**row, "seeds": seeds[key]} for key, row in worst.items()]
    return sorted(rows, key=lambda row: -row.get("severity", 0)), len(files)


def _label_names(row: Mapping[str, Any]) -> Iterator[str]:
    for side in ("gold", "predicted"):
        yield from (str(mark.get("label", "")) for mark in row.get(side, []))


def _mistake_variables(row: Mapping[str, Any], hues: Mapping[str, int]) -> dict[str, Any]:
    """Variables of a mistake in `mistakes.html`, from a row that `evaluate` wrote."""
    text = str(row.get("text", ""))
    gold, predicted = (_split_at_marks(text, row.get(side, []), hues) for side in ("gold", "predicted"))
    return {
        "line": str(row.get("line", "")),
        "text": "" if gold["pieces"] or predicted["pieces"] else text,  # otherwise the pieces show the text
        "gold": gold,
        "predicted": predicted,
        "pair": str(row.get("text_pair", "")),  # second text of a task on pairs
        "kinds": [str(kind) for kind in row.get("kinds", [])],
        "labels": [str(label) for label in row.get("labels", [])],
        "severity": float(row.get("severity", 0)),  # usually the probability of the wrong prediction
        "seeds": row["seeds"],
    }


def _split_at_marks(text: str, marks: Sequence[Mapping[str, Any]], hues: Mapping[str, int]) -> dict[str, list[Piece]]:
    """Return the `pieces` of a text, split at its marks, and as `labels` the marks that cannot be shown in the text.

    A mark cannot be shown if it overlaps an earlier mark or has no position. Without a mark that can be shown, `pieces`
    is empty.
    """
    pieces: list[Piece] = []
    labels: list[Piece] = []
    end = 0  # of the last piece
    for mark in sorted(marks, key=lambda mark: mark.get("start", -1)):
        has_position = "start" in mark
        marked_text = text[mark["start"] : mark["end"]] if has_position else ""
        marked = _marked_piece(marked_text, mark, hues)
        if has_position and mark["start"] >= end:
            pieces += [Piece(text[end : mark["start"]]), marked]
            end = mark["end"]
        else:
            labels.append(marked)
    return {"pieces": [*pieces, Piece(text[end:])] if pieces else [], "labels": labels}


def _marked_piece(text: str, mark: Mapping[str, Any], hues: Mapping[str, int]) -> Piece:
    label, kind = str(mark.get("label", "")), str(mark.get("kind", ""))
    shown_label = label if mark.get("head") is None else f"{label} of {mark['head']}"
    probability = f"probability {mark['score']:.3f}" if mark.get("score") is not None else ""
    tip = "\n".join(filter(None, [shown_label, kind, probability]))
    return Piece(text, shown_label, hues.get(label, 0), kind, tip)
