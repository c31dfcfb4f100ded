"""Sections of the report, from the verdict to the hashes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from domainbert.report import figures, provenance
from domainbert.report.data_card import data_tables, findings, fit_table, vocabulary_tables
from domainbert.report.evaluations import METRICS, Evaluation, evaluations
from domainbert.report.mistakes import MAX_MISTAKES, mistakes
from domainbert.report.page import Section
from domainbert.report.runs import Run, missing_messages
from domainbert.report.tables import confusions, further_table, label_tables, slice_tables, systems_table
from domainbert.report.trainings import curve_groups
from domainbert.report.verdict import comparison_table, run_summary, run_warnings, verdicts


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
    sentences = [{"title": e.title, "sentences": verdicts(e), "table": comparison_table(e)} for e in results]
    troubles = [*run_warnings(runs, results), *missing_messages(runs)]  # a missing file may change the verdict
    # whether a result of evaluate was left out, if no evaluation is shown
    left_out = any(stage.kind == "evaluate" for run in runs for stage in run.stages_with_file(METRICS))
    data = {"verdicts": sentences, "left_out": left_out, "troubles": troubles, "runs": run_summary(runs)}
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


def _groups(results: Sequence[Evaluation], name: str, content_of: Callable[[Evaluation], Any]) -> list[dict[str, Any]]:
    """Return the variables of each evaluation with content: its title, and the content under `name`."""
    groups = [{"title": evaluation.title, name: content_of(evaluation)} for evaluation in results]
    return [group for group in groups if group[name]]


def _picture_section(
    title: str, results: Sequence[Evaluation], draw: Callable[[str, Evaluation], Any], caption: str
) -> Iterator[Section]:
    name = title.lower().replace(" ", "-")
    pictures = [
        # the template needs `notes`, which only learning curves have
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
            pictures.append({"title": group.title, "picture": picture, "notes": group.not_finite_messages()})
    if pictures:
        caption = "Each training has a colour and each seed a line. A ring marks the evaluation of the saved model."
        yield Section("Learning curves", "pictures.html", {"pictures": pictures, "caption": caption})


def _detail_sections(results: Sequence[Evaluation]) -> Iterator[Section]:
    for title, tables_of in {"By label": label_tables, "Slices": slice_tables}.items():
        if groups := _groups(results, "tables", tables_of):
            yield Section(title, "tables.html", {"groups": groups})
    if groups := _groups(results, "matrices", confusions):
        yield Section("Confusion", "confusion.html", {"groups": groups})
    caption = (
        "Accuracy of predictions by confidence, in bins of equal size. On the dashed line the model is calibrated; "
        "below the line it is overconfident."
    )
    yield from _picture_section("Reliability", results, figures.reliability_diagrams, caption)


def _mistake_section(results: Sequence[Evaluation], max_mistakes: int) -> Iterator[Section]:
    if groups := _groups(results, "systems", partial(mistakes, max_mistakes=max_mistakes)):
        yield Section("Mistakes", "mistakes.html", {"groups": groups, "most": max_mistakes, "usual": MAX_MISTAKES})


def _data_sections(runs: Sequence[Run]) -> Iterator[Section]:
    if vocabulary := vocabulary_tables(runs):
        yield Section("Vocabulary", "tables.html", {"groups": [{"title": "", "tables": vocabulary}]})
    data = {"tables": data_tables(runs), "findings": findings(runs), "fit": fit_table(runs)}
    yield Section("Data", "data.html", data)


def _provenance_section(runs: Sequence[Run]) -> Section:
    data = {
        "settings": provenance.setting_tables(runs),
        "stages": [provenance.stages_table(run) for run in runs],
        "versions": provenance.versions_table(runs),
        "hashes": provenance.hashes_table(runs),
        "commands": provenance.commands(runs),
        "missing": missing_messages(runs),
    }
    return Section("How it was made", "making.html", data)
