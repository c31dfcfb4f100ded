"""Tables of the vocabulary and the data of runs, from the files of `vocab`, `prepare` and `check`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from domainbert.base.table import Cell, Table, number_cell
from domainbert.report.runs import Run, StageFolder

_REPORT, _PREPARED, _CHECK = "report.json", "prepared.json", "check.json"
_SIZES = ("documents", "tokens", "characters")
_MAX_WORDS = 10  # rows of a table of words
_MAX_DEPTH = 3  # mappings nested more deeply are shown as text


def vocabulary_tables(runs: Sequence[Run]) -> list[Table]:
    """Return the tables of each vocabulary: statistics by text, words with most pieces, words changed by `transfer`."""
    return [
        table for run in runs for stage in run.stages_with_file(_REPORT) for table in _tables_of_vocabulary(run, stage)
    ]


def _tables_of_vocabulary(run: Run, stage: StageFolder) -> Iterator[Table]:
    report = run.json(stage.path / _REPORT, "a vocabulary report")
    if "texts" not in report:
        return
    name = stage.name + run.suffix
    rows: list[list[Cell]] = []
    for text, vocabularies in report["texts"].items():
        for side, statistics in vocabularies.items():  # "ours", and a vocabulary for comparison
            if isinstance(statistics, dict):
                rows.append([text, "new" if side == "ours" else "compared with", *_statistics_cells(statistics)])
    size = f"{report.get('vocab_size', 0):,} entries"
    heads = ["text", "vocabulary", "words", "distinct words", "pieces per word", "with [UNK], %", "split, %"]
    yield Table(heads, rows, f"{name}, {size}")

    first_text: dict[str, Any] = next(iter(report["texts"].values()), {})
    longest = first_text.get("ours", {}).get("longest_split", [])[:_MAX_WORDS]
    if longest:
        rows = [[word["word"], " ".join(word["pieces"]), number_cell(word["count"])] for word in longest]
        yield Table(["word", "pieces", "occurrences"], rows, f"{name}: words with most pieces")

    transfer = report.get("transfer") or {}
    changed = transfer.get("shortened_words", transfer.get("fallen", []))[:_MAX_WORDS]  # `fallen`: earlier versions
    if changed:
        rows = [
            [word["word"], " ".join(word["before"]), " ".join(word["after"]), number_cell(word["count"])]
            for word in changed
        ]
        yield Table(["word", "before", "now", "occurrences"], rows, f"{name}: words that save most pieces")


def _statistics_cells(values: Mapping[str, Any]) -> list[Cell]:
    cells: list[Cell] = [number_cell(values[key]) for key in ("words", "distinct_words")]
    cells.append(number_cell(values["pieces_per_word"], "{:.3f}"))
    return cells + [number_cell(values[key], "{:.2f}", 100) for key in ("share_unknown", "share_continued")]


def data_tables(runs: Sequence[Run]) -> list[Table]:
    """Return a table of the sizes of prepared corpora, and the tables of corpora and labelled sets from `check`."""
    rows = [row for run in runs for stage in run.stages_with_file(_PREPARED) for row in _corpus_rows(run, stage)]
    tables = [Table(["corpus", *_SIZES], rows, "Prepared corpora")] if rows else []
    for name, check in _check_results(runs).items():
        data = check.get("data") or {}
        # labelled sets have equal names of facts, and share a table; the corpus has other facts
        for keys in dict.fromkeys(tuple(facts) for facts in data.values()):
            columns = {data_set: facts for data_set, facts in data.items() if tuple(facts) == keys}
            tables.append(_fact_table(name, columns))
    return tables


def _corpus_rows(run: Run, stage: StageFolder) -> Iterator[list[Cell]]:
    prepared = run.json(stage.path / _PREPARED, "a prepared corpus")
    # a corpus prepared in parts lists them under `parts`; otherwise the corpus is the only part
    splits_of_parts = [part.get("splits", {}) for part in prepared.get("parts", [prepared])]
    for split in splits_of_parts[0] if splits_of_parts else ():  # all parts have the same splits
        sizes = [sum(splits[split].get(key, 0) for splits in splits_of_parts) for key in _SIZES]
        yield [f"{stage.path}: {split}", *map(number_cell, sizes)]


def _fact_table(caption: str, columns: Mapping[str, Any]) -> Table:
    """`columns` has the nested facts of each column by its head."""
    flat = {head: dict(_flat_facts(facts)) for head, facts in columns.items()}
    names = dict.fromkeys(name for facts in flat.values() for name in facts)  # of all columns, each once
    rows = [[name, *(facts.get(name, "") for facts in flat.values())] for name in names]
    return Table(["fact", *flat], rows, caption)


def _flat_facts(value: Any, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Cell]]:
    """Yield the facts in nested mappings and lists as pairs of a name and a cell: {"a": {"b": 1}} as `a, b` and 1.

    Mappings in a list are numbered: [{"b": 1}] as `1, b` and 1. None is left out.
    """
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        value = {str(number): item for number, item in enumerate(value, start=1)}
    if isinstance(value, dict) and depth < _MAX_DEPTH:
        for key, item in value.items():
            name = key.replace("_", " ")
            yield from _flat_facts(item, f"{prefix}, {name}" if prefix else name, depth + 1)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield prefix, number_cell(value, "{:,}" if isinstance(value, int) else "{:,.4g}")
    elif value is not None:
        yield prefix, ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _check_results(runs: Sequence[Run]) -> dict[str, Mapping[str, Any]]:
    checks: dict[str, Mapping[str, Any]] = {}
    for run in runs:
        for stage in run.stages_with_file(_CHECK):
            check = run.json(stage.path / _CHECK, "the result of check")
            if check and check not in checks.values():  # {} if the file is damaged or missing
                checks[stage.name + run.suffix] = check
    return checks


def fit_table(runs: Sequence[Run]) -> Table | None:
    """Return a table of how well the corpora fit the labelled texts, a column per check; None if no check has
    measured the fit."""
    columns = {name: check["fit"] for name, check in _check_results(runs).items() if check.get("fit")}
    return _fact_table("How well the corpus fits the task", columns) if columns else None


def findings(runs: Sequence[Run]) -> list[dict[str, Any]] | None:
    """Return the findings in `check.json`, errors first, ignored findings last; None without a readable file."""
    if not (checks := _check_results(runs)):
        return None
    rows = [finding for check in checks.values() for finding in check.get("findings", [])]
    return sorted(rows, key=lambda row: (row["ignored"] is not None, row["severity"] != "error", row["rule"]))
