"""Tables of the vocabulary and the data of runs, from the files of `vocab`, `prepare` and `check`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from domainbert.report.runs import Run, StageFolder
from domainbert.report.tables import Cell, Number, Table

_REPORT, _PREPARED, _CHECK = "report.json", "prepared.json", "check.json"
_WORDS = 10
_MAX_DEPTH = 3


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
    """Tables of each vocabulary: statistics by text, words with most pieces, and words changed by `transfer`."""
    return [
        table
        for run in runs
        for stage in run.stages_with_file(_REPORT)
        for table in _vocabulary(run, stage, len(runs) > 1)
    ]


def _vocabulary(run: Run, stage: StageFolder, named: bool) -> Iterator[Table]:
    report = run.json(stage.path / _REPORT, "a vocabulary report")
    if "texts" not in report:
        return
    name = f"{stage.name} ({run.name})" if named else stage.name
    rows: list[list[Cell]] = []
    for text, vocabularies in report["texts"].items():
        for side, statistics in vocabularies.items():
            if isinstance(statistics, dict):
                rows.append([text, "new" if side == "ours" else "compared with", *_statistics(statistics)])
    size = f"{report.get('vocab_size', 0):,} entries"
    heads = ["text", "vocabulary", "words", "distinct words", "pieces per word", "with [UNK], %", "split, %"]
    yield Table(f"{name}, {size}", heads, rows)
    first: dict[str, Any] = next(iter(report["texts"].values()), {})
    longest = first.get("ours", {}).get("longest_split", [])[:_WORDS]
    if longest:
        split = [[row["word"], " ".join(row["pieces"]), Number(f"{row['count']:,}", row["count"])] for row in longest]
        yield Table(f"{name}: words with most pieces", ["word", "pieces", "occurrences"], split)
    fallen = (report.get("transfer") or {}).get("fallen", [])[:_WORDS]
    if fallen:
        changed = [
            [row["word"], " ".join(row["before"]), " ".join(row["after"]), Number(f"{row['count']:,}", row["count"])]
            for row in fallen
        ]
        yield Table(f"{name}: words that save most pieces", ["word", "before", "now", "occurrences"], changed)


def _statistics(values: Mapping[str, Any]) -> list[Cell]:
    cells: list[Cell] = [Number(f"{values[key]:,}", values[key]) for key in ("words", "distinct_words")]
    cells.append(Number(f"{values['pieces_per_word']:.3f}", values["pieces_per_word"]))
    return cells + [Number(f"{100 * values[key]:.2f}", values[key]) for key in ("share_unknown", "share_continued")]


def data_tables(runs: Sequence[Run]) -> list[Table]:
    """Sizes of the prepared corpora, and the counts of corpora and labelled sets from `check`."""
    rows: list[list[Cell]] = []
    for run in runs:
        for stage in run.stages_with_file(_PREPARED):
            prepared = run.json(stage.path / _PREPARED, "a prepared corpus")
            parts = [part.get("splits", {}) for part in prepared.get("parts", [prepared])]
            for split in parts[0] if parts else ():
                totals = [
                    sum(part[split].get(key, 0) for part in parts) for key in ("documents", "tokens", "characters")
                ]
                rows.append([f"{stage.path}: {split}", *(Number(f"{total:,}", total) for total in totals)])
    tables = [Table("Prepared corpora", ["corpus", "documents", "tokens", "characters"], rows)] if rows else []
    return tables + [table for name, check in _checks(runs).items() for table in _facts(name, check.get("data") or {})]


def _facts(name: str, data: Mapping[str, Any]) -> Iterator[Table]:
    """Tables of the sets in a check, a column per set; sets with the same kinds of facts share a table."""
    for keys in dict.fromkeys(tuple(facts) for facts in data.values()):
        yield _side_by_side(name, {label: facts for label, facts in data.items() if tuple(facts) == keys})


def _side_by_side(title: str, columns: Mapping[str, Any]) -> Table:
    """Make a table with a row for each fact and the given columns."""
    flat = {name: dict(_flat(facts)) for name, facts in columns.items()}
    keys = dict.fromkeys(key for facts in flat.values() for key in facts)
    return Table(title, ["fact", *flat], [[key, *(facts.get(key, "") for facts in flat.values())] for key in keys])


def _flat(value: Any, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Cell]]:
    """Yield the facts in nested mappings and lists as (name, cell)."""
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        value = {str(number): item for number, item in enumerate(value, start=1)}
    if isinstance(value, dict) and depth < _MAX_DEPTH:
        for key, item in value.items():
            yield from _flat(item, f"{prefix}, {key}".removeprefix(", ").replace("_", " "), depth + 1)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield prefix, Number(f"{value:,}" if isinstance(value, int) else f"{value:,.4g}", value)
    elif value is not None:
        yield prefix, ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _checks(runs: Sequence[Run]) -> dict[str, Mapping[str, Any]]:
    """Contents of every `check.json`, by stage name (and run name if there are several runs), without duplicates."""
    checks: dict[str, Mapping[str, Any]] = {}
    for run in runs:
        for stage in run.stages_with_file(_CHECK):
            check = run.json(stage.path / _CHECK, "the result of check")
            if check not in checks.values():
                checks[f"{stage.name} ({run.name})" if len(runs) > 1 else stage.name] = check
    return checks


def fit_table(runs: Sequence[Run]) -> Table | None:
    """Table of how well the corpora fit the labelled texts, a column for each check with `fit`; None without any."""
    columns = {name: check["fit"] for name, check in _checks(runs).items() if check.get("fit")}
    return _side_by_side("How well the corpus fits the task", columns) if columns else None


def findings(runs: Sequence[Run]) -> list[Finding] | None:
    """Findings of `check`, errors first; None if no run has checked its data."""
    if not any(run.stages_with_file(_CHECK) for run in runs):
        return None
    rows = map(_finding, (row for check in _checks(runs).values() for row in check.get("findings", [])))
    return sorted(rows, key=lambda finding: (bool(finding.ignored), finding.severity != "error", finding.rule))


def _finding(row: Mapping[str, Any]) -> Finding:
    places = [
        f"{place.get('path', '')}:{place.get('line', '')}: {place.get('text', '')}" for place in row.get("places", [])
    ]
    return Finding(
        severity=str(row.get("severity", "")),
        rule=str(row.get("rule", "")),
        message=str(row.get("message", "")),
        count=row.get("count"),
        ignored=str(row.get("ignored") or ""),
        places=places,
    )
