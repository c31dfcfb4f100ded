"""The sections of the report, from the verdict down to the hashes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from domainbert.report import figures, making
from domainbert.report.data_card import data_tables, findings, fit_table, vocabulary_tables
from domainbert.report.evaluations import Evaluation, evaluations
from domainbert.report.mistakes import MOST, mistakes
from domainbert.report.page import Section
from domainbert.report.runs import Run
from domainbert.report.tables import confusions, further_table, label_tables, slice_tables, systems_table
from domainbert.report.trainings import groups
from domainbert.report.verdict import in_short, troubles, verdicts


def sections(runs: Sequence[Run], most_mistakes: int = MOST) -> list[Section]:
    """All sections that there is something to say in; what could not be read is told at the end."""
    found = evaluations(runs)
    made = [_verdict(runs, found)]
    made += _scores(found)
    made += _curves(runs)
    made += _details(found)
    made += _mistakes(found, most_mistakes)
    made += _data(runs)
    made.append(_making(runs))
    return made


def _verdict(runs: Sequence[Run], found: Sequence[Evaluation]) -> Section:
    told = [{"title": one.title, "sentences": verdicts(one), "facts": one.facts} for one in found]
    return Section(
        "Verdict", "verdict.html", {"verdicts": told, "troubles": troubles(runs, found), "runs": in_short(runs)}
    )


def _scores(found: Sequence[Evaluation]) -> Iterator[Section]:
    if not found:
        return
    tables = [{"title": one.title, "systems": systems_table(one), "further": further_table(one)} for one in found]
    yield Section("Systems", "systems.html", {"evaluations": tables})
    compared = [one for one in found if one.pairs]
    caption = (
        "Each point is the difference of two systems on the same test documents, with its 95 % interval. Where the "
        "interval crosses the line at 0, or is not known, the point is hollow: no difference can be told."
    )
    yield from _pictures("Differences", compared, lambda name, one: figures.forest(name, one), caption)
    caption = "Further left is faster or smaller; the bar is the 95 % interval. Both axes of cost are logarithmic."
    yield from _pictures("Score against cost", found, figures.score_and_cost, caption)


def _pictures(
    title: str, found: Sequence[Evaluation], draw: Callable[[str, Evaluation], Any], caption: str
) -> Iterator[Section]:
    """A section with a picture of each evaluation that has one."""
    name = title.lower().replace(" ", "-")
    drawn = [
        {"title": one.title, "picture": draw(f"{name}-{number}", one), "notes": []} for number, one in enumerate(found)
    ]
    drawn = [one for one in drawn if one["picture"]]
    if drawn:
        yield Section(title, "pictures.html", {"pictures": drawn, "caption": caption})


def _curves(runs: Sequence[Run]) -> Iterator[Section]:
    drawn = []
    for number, group in enumerate(groups(runs)):
        if any(group.panel(metric) for metric in group.metrics):
            picture = figures.learning_curves(f"curves-{number}", group)
            drawn.append({"title": group.title, "picture": picture, "notes": group.not_finite()})
    caption = (
        "A colour for each training, a line for each of its seeds; a ring marks the evaluation whose model was kept."
    )
    if drawn:
        yield Section("Learning curves", "pictures.html", {"pictures": drawn, "caption": caption})


def _details(found: Sequence[Evaluation]) -> Iterator[Section]:
    for title, tables_of in {"By label": label_tables, "Slices": slice_tables}.items():
        tables = [{"title": one.title, "tables": tables_of(one)} for one in found]
        tables = [one for one in tables if one["tables"]]
        if tables:
            yield Section(title, "tables.html", {"groups": tables})
    matrices = [{"title": one.title, "matrices": confusions(one)} for one in found]
    matrices = [one for one in matrices if one["matrices"]]
    if matrices:
        yield Section("Confusion", "confusion.html", {"groups": matrices})
    caption = (
        "Predictions in bins of equal number: how often those of a confidence are right. On the dashed line a "
        "probability means what it says; below it the model is too sure of itself."
    )
    yield from _pictures("Reliability", found, figures.reliability, caption)


def _mistakes(found: Sequence[Evaluation], most: int) -> Iterator[Section]:
    groups = [{"title": one.title, "systems": mistakes(one, most)} for one in found]
    groups = [group for group in groups if group["systems"]]
    if groups:
        yield Section("Mistakes", "mistakes.html", {"groups": groups, "most": most, "usual": MOST})


def _data(runs: Sequence[Run]) -> Iterator[Section]:
    vocabulary = vocabulary_tables(runs)
    if vocabulary:
        yield Section("Vocabulary", "tables.html", {"groups": [{"title": "", "tables": vocabulary}]})
    fit = fit_table(runs)
    data = {"tables": data_tables(runs), "findings": findings(runs), "fit": fit}
    yield Section("Data", "data.html", data)


def _making(runs: Sequence[Run]) -> Section:
    data = {
        "settings": making.setting_tables(runs),
        "stages": [making.stages_table(run) for run in runs],
        "versions": making.versions_table(runs),
        "hashes": making.hashes_table(runs),
        "commands": making.commands(runs),
        "missing": list(dict.fromkeys(line for run in runs for line in run.missing)),
    }
    return Section("How it was made", "making.html", data)
