"""The vocabulary and the data of runs: what `vocab`, `prepare` and `check` have written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from domainbert.report.runs import Run, StageFolder
from domainbert.report.tables import Cell, Number, Table

_REPORT, _PREPARED, _CHECK = "report.json", "prepared.json", "check.json"
_WORDS = 10
_DEEPEST = 3


@dataclass(frozen=True)
class Finding:
    """What a rule of `check` found."""

    severity: str
    rule: str
    message: str
    count: int | None
    ignored: str
    places: list[str]


def vocabulary_tables(runs: Sequence[Run]) -> list[Table]:
    """Tables of how each vocabulary cuts each text, which words it cuts most, and what changes beside another
    vocabulary."""
    return [table for run in runs for stage in run.of_kind(_REPORT) for table in _vocabulary(run, stage, len(runs) > 1)]


def _vocabulary(run: Run, stage: StageFolder, named: bool) -> Iterator[Table]:
    report = run.json(stage.path / _REPORT, "a vocabulary report")
    if "texts" not in report:
        return
    name = f"{stage.name} ({run.name})" if named else stage.name
    rows: list[list[Cell]] = []
    for text, found in report["texts"].items():
        for whose, one in found.items():
            if isinstance(one, dict):
                rows.append([text, "this one" if whose == "ours" else "compared with", *_how_cut(one)])
    size = f"{report.get('vocab_size', 0):,} entries"
    heads = ["text", "vocabulary", "words", "distinct words", "pieces per word", "with [UNK], %", "cut, %"]
    yield Table(f"{name}, {size}", heads, rows)
    first: dict[str, Any] = next(iter(report["texts"].values()), {})
    longest = first.get("ours", {}).get("longest_split", [])[:_WORDS]
    if longest:
        cut = [[one["word"], " ".join(one["pieces"]), Number(f"{one['count']:,}", one["count"])] for one in longest]
        yield Table(f"{name}: words in most pieces", ["word", "pieces", "occurrences"], cut)
    fallen = (report.get("transfer") or {}).get("fallen", [])[:_WORDS]
    if fallen:
        changed = [
            [one["word"], " ".join(one["before"]), " ".join(one["after"]), Number(f"{one['count']:,}", one["count"])]
            for one in fallen
        ]
        yield Table(f"{name}: words that save most pieces", ["word", "before", "now", "occurrences"], changed)


def _how_cut(one: Mapping[str, Any]) -> list[Cell]:
    cells: list[Cell] = [Number(f"{one[key]:,}", one[key]) for key in ("words", "distinct_words")]
    cells.append(Number(f"{one['pieces_per_word']:.3f}", one["pieces_per_word"]))
    return cells + [Number(f"{100 * one[key]:.2f}", one[key]) for key in ("share_unknown", "share_continued")]


def data_tables(runs: Sequence[Run]) -> list[Table]:
    """Sizes of the prepared corpora, and the facts of corpora and labelled sets that `check` wrote down."""
    rows: list[list[Cell]] = []
    for run in runs:
        for stage in run.of_kind(_PREPARED):
            prepared = run.json(stage.path / _PREPARED, "a prepared corpus")
            for split, facts in prepared.get("splits", {}).items():
                counts = [facts.get(key, 0) for key in ("documents", "tokens", "characters")]
                rows.append([f"{stage.path}: {split}", *(Number(f"{one:,}", one) for one in counts)])
    tables = [Table("Prepared corpora", ["corpus", "documents", "tokens", "characters"], rows)] if rows else []
    return tables + [_facts(name, facts) for name, facts in _checked(runs, "data").items()]


def _facts(name: str, facts: Any) -> Table:
    return Table(name, ["fact", "value"], [[key, value] for key, value in _flat(facts)])


def _flat(value: Any, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Cell]]:
    """The facts of nested mappings, a line each."""
    if isinstance(value, dict) and depth < _DEEPEST:
        for key, one in value.items():
            yield from _flat(one, f"{prefix}, {key}".removeprefix(", ").replace("_", " "), depth + 1)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield prefix, Number(f"{value:,}" if isinstance(value, int) else f"{value:,.4g}", value)
    elif value is not None:
        yield prefix, ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _checked(runs: Sequence[Run], part: str) -> dict[str, Any]:
    """A part of every `check.json`; a part of several runs is told once if it is the same in them."""
    found: dict[str, Any] = {}
    for run in runs:
        for stage in run.of_kind(_CHECK):
            one = run.json(stage.path / _CHECK, "what check has found").get(part) or {}
            for name, value in (one if isinstance(one, dict) else {stage.name: one}).items():
                other = name in found and found[name] != value
                found[f"{name} ({run.name})" if other else name] = value
    return found


def fit_table(runs: Sequence[Run]) -> Table | None:
    """A table of how well the corpora cover the labelled texts, as far as `check` was asked."""
    rows = [[key, value] for key, value in _flat(_checked(runs, "fit"))]
    return Table("How well the corpus fits the task", ["fact", "value"], rows) if rows else None


def findings(runs: Sequence[Run]) -> list[Finding] | None:
    """The findings of `check`, errors first; None where no run has checked its data."""
    if not any(run.of_kind(_CHECK) for run in runs):
        return None
    listed = [one for found in _checked(runs, "findings").values() for one in found]
    return sorted(map(_finding, listed), key=lambda one: (bool(one.ignored), one.severity != "error", one.rule))


def _finding(found: Mapping[str, Any]) -> Finding:
    places = [
        f"{place.get('path', '')}:{place.get('line', '')}: {place.get('text', '')}" for place in found.get("places", [])
    ]
    return Finding(
        severity=str(found.get("severity", "")),
        rule=str(found.get("rule", "")),
        message=str(found.get("message", "")),
        count=found.get("count"),
        ignored=str(found.get("ignored") or ""),
        places=places,
    )
