"""Sections of the report, from the verdict to the hashes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from domainbert.report import figures, provenance
from domainbert.report.data_card import data_tables, findings, fit_table, vocabulary_tables
from domainbert.report.evaluations import Evaluation, evaluations
from domainbert.report.mistakes import MAX_MISTAKES, mistakes
from domainbert.report.page import Section
from domainbert.report.runs import Run
from domainbert.report.tables import confusions, further_table, label_tables, slice_tables, systems_table
from domainbert.report.trainings import curve_groups
from domainbert.report.verdict import run_summary, run_warnings, verdicts


def sections(runs: Sequence[Run], max_mistakes: int = MAX_MISTAKES) -> list[Section]:
    """Return all sections that have content; messages about unreadable files are in the last section."""
    evaluated = evaluations(runs)
    parts = [_verdict_section(runs, evaluated)]
    parts += _score_sections(evaluated)
    parts += _curve_section(runs)
    parts += _detail_sections(evaluated)
    parts += _mistake_section(evaluated, max_mistakes)
    parts += _data_sections(runs)
    parts.append(_provenance_section(runs))
    return parts


def _verdict_section(runs: Sequence[Run], results: Sequence[Evaluation]) -> Section:
    sentences = [{"title": result.title, "sentences": verdicts(result), "facts": result.facts} for result in results]
    data = {"verdicts": sentences, "troubles": run_warnings(runs, results), "runs": run_summary(runs)}
    return Section("Verdict", "verdict.html", data)


def _score_sections(results: Sequence[Evaluation]) -> Iterator[Section]:
    if not results:
        return
    tables = [
        {"title": evaluation.title, "systems": systems_table(evaluation), "further": further_table(evaluation)}
        for evaluation in results
    ]
    yield Section("Systems", "systems.html", {"evaluations": tables})
    compared = [evaluation for evaluation in results if evaluation.pairs]
    caption = (
        "Each point is the difference between two systems on the same test documents, with its 95 % interval. A hollow "
        "point is not a significant difference: its interval contains 0 or is unknown."
    )
    yield from _picture_section("Differences", compared, figures.forest_plot, caption)
    caption = (
        "Score with its 95 % interval against latency and size, on logarithmic axes. Systems further left are faster "
        "or smaller."
    )
    yield from _picture_section("Score against cost", results, figures.score_and_cost, caption)


def _picture_section(
    title: str, results: Sequence[Evaluation], draw: Callable[[str, Evaluation], Any], caption: str
) -> Iterator[Section]:
    """Yield a section with the pictures that `draw` returns; no section if it returns None for all evaluations."""
    name = title.lower().replace(" ", "-")
    pictures = [
        {"title": evaluation.title, "picture": draw(f"{name}-{number}", evaluation), "notes": []}
        for number, evaluation in enumerate(results)
    ]
    pictures = [entry for entry in pictures if entry["picture"]]
    if pictures:
        yield Section(title, "pictures.html", {"pictures": pictures, "caption": caption})


def _curve_section(runs: Sequence[Run]) -> Iterator[Section]:
    pictures = []
    for number, group in enumerate(curve_groups(runs)):
        if any(group.panel(metric) for metric in group.metrics):
            picture = figures.learning_curves(f"curves-{number}", group)
            pictures.append({"title": group.title, "picture": picture, "notes": group.not_finite()})
    caption = "Each training has a colour and each seed a line. A ring marks the evaluation of the saved model."
    if pictures:
        yield Section("Learning curves", "pictures.html", {"pictures": pictures, "caption": caption})


def _detail_sections(results: Sequence[Evaluation]) -> Iterator[Section]:
    for title, tables_of in {"By label": label_tables, "Slices": slice_tables}.items():
        tables = [{"title": evaluation.title, "tables": tables_of(evaluation)} for evaluation in results]
        tables = [entry for entry in tables if entry["tables"]]
        if tables:
            yield Section(title, "tables.html", {"groups": tables})
    matrices = [{"title": evaluation.title, "matrices": confusions(evaluation)} for evaluation in results]
    matrices = [entry for entry in matrices if entry["matrices"]]
    if matrices:
        yield Section("Confusion", "confusion.html", {"groups": matrices})
    caption = (
        "Accuracy of predictions by confidence, in bins of equal size. On the dashed line the model is calibrated; "
        "below the line it is overconfident."
    )
    yield from _picture_section("Reliability", results, figures.reliability_diagrams, caption)


def _mistake_section(results: Sequence[Evaluation], max_mistakes: int) -> Iterator[Section]:
    groups = [{"title": evaluation.title, "systems": mistakes(evaluation, max_mistakes)} for evaluation in results]
    groups = [group for group in groups if group["systems"]]
    if groups:
        yield Section("Mistakes", "mistakes.html", {"groups": groups, "most": max_mistakes, "usual": MAX_MISTAKES})


def _data_sections(runs: Sequence[Run]) -> Iterator[Section]:
    vocabulary = vocabulary_tables(runs)
    if vocabulary:
        yield Section("Vocabulary", "tables.html", {"groups": [{"title": "", "tables": vocabulary}]})
    fit = fit_table(runs)
    data = {"tables": data_tables(runs), "findings": findings(runs), "fit": fit}
    yield Section("Data", "data.html", data)


def _provenance_section(runs: Sequence[Run]) -> Section:
    data = {
        "settings": provenance.setting_tables(runs),
        "stages": [provenance.stages_table(run) for run in runs],
        "versions": provenance.versions_table(runs),
        "hashes": provenance.hashes_table(runs),
        "commands": provenance.commands(runs),
        "missing": list(dict.fromkeys(line for run in runs for line in run.missing)),
    }
    return Section("How it was made", "making.html", data)
