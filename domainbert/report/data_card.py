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
    """Finding of a rule of `check`."""

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
            parts = [one.get("splits", {}) for one in prepared.get("parts", [prepared])]
            for split in parts[0] if parts else ():
                counts = [sum(one[split].get(key, 0) for one in parts) for key in ("documents", "tokens", "characters")]
                rows.append([f"{stage.path}: {split}", *(Number(f"{one:,}", one) for one in counts)])
    tables = [Table("Prepared corpora", ["corpus", "documents", "tokens", "characters"], rows)] if rows else []
    return tables + [table for name, one in _checks(runs).items() for table in _facts(name, one.get("data") or {})]


def _facts(name: str, data: Mapping[str, Any]) -> Iterator[Table]:
    """Tables of the sets that a check has read, a column each: those with the same kinds of facts stand in one."""
    for kinds in dict.fromkeys(tuple(facts) for facts in data.values()):
        yield _side_by_side(name, {one: facts for one, facts in data.items() if tuple(facts) == kinds})


def _side_by_side(title: str, columns: Mapping[str, Any]) -> Table:
    """A table with a row for each fact, and a column for each of those that it is told of."""
    told = {name: dict(_flat(facts)) for name, facts in columns.items()}
    keys = dict.fromkeys(key for facts in told.values() for key in facts)
    return Table(title, ["fact", *told], [[key, *(facts.get(key, "") for facts in told.values())] for key in keys])


def _flat(value: Any, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Cell]]:
    """The facts of nested mappings and lists of them, a line each."""
    if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
        value = {str(number): one for number, one in enumerate(value, start=1)}
    if isinstance(value, dict) and depth < _DEEPEST:
        for key, one in value.items():
            yield from _flat(one, f"{prefix}, {key}".removeprefix(", ").replace("_", " "), depth + 1)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield prefix, Number(f"{value:,}" if isinstance(value, int) else f"{value:,.4g}", value)
    elif value is not None:
        yield prefix, ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _checks(runs: Sequence[Run]) -> dict[str, Mapping[str, Any]]:
    """Every `check.json`, by the name of its stage, with that of its run among several; the same one is told once."""
    found: dict[str, Mapping[str, Any]] = {}
    for run in runs:
        for stage in run.of_kind(_CHECK):
            one = run.json(stage.path / _CHECK, "what check has found")
            if one not in found.values():
                found[f"{stage.name} ({run.name})" if len(runs) > 1 else stage.name] = one
    return found


def fit_table(runs: Sequence[Run]) -> Table | None:
    """A table of how well the corpora cover the labelled texts, a column for each check that was asked."""
    columns = {name: one["fit"] for name, one in _checks(runs).items() if one.get("fit")}
    return _side_by_side("How well the corpus fits the task", columns) if columns else None


def findings(runs: Sequence[Run]) -> list[Finding] | None:
    """The findings of `check`, errors first; None where no run has checked its data."""
    if not any(run.of_kind(_CHECK) for run in runs):
        return None
    listed = [finding for one in _checks(runs).values() for finding in one.get("findings", [])]
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
