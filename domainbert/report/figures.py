"""Pictures of the report, drawn by matplotlib. Each `name` must be different on a page: ids in the SVG depend on it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from domainbert.metrics.headline import Headline
from domainbert.report.evaluations import Evaluation
from domainbert.report.svg import INK, SERIES, SOFT, picture, style_of
from domainbert.report.trainings import Curve, CurveGroup

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

_WIDTH = 9.0  # inches: the page's column
_ROW_HEIGHT = 0.34  # inches for each system pair
_TITLES = {"train/lr": "learning rate", "train/loss": "loss in training"}
# title and factor of each cost: seconds to milliseconds, number to millions
_COSTS = {"latency_1": ("latency of one text, ms", 1e3), "parameters": ("parameters, millions", 1e-6)}


def forest_plot(name: str, evaluation: Evaluation) -> Markup:
    """Return a picture of each paired difference with its interval, and a line at 0."""
    height = 0.75 + _ROW_HEIGHT * len(evaluation.pairs)
    label = f"Differences in {evaluation.metric.name} with their 95 % intervals"
    return picture(name, label, (_WIDTH, height), partial(_draw_forest_plot, evaluation))


def _draw_forest_plot(evaluation: Evaluation, figure: Figure) -> None:
    axes, metric, pairs = figure.subplots(), evaluation.metric, evaluation.pairs
    scale = 100 if metric.percent else 1
    axes.axvline(0, color=INK, linewidth=1)
    for row, pair in enumerate(pairs):
        # a hollow grey point: not significant
        colour, fill = (SERIES[0], SERIES[0]) if pair.is_significant else (SERIES[5], "none")
        if pair.interval is not None:
            bounds = [scale * bound for bound in pair.interval]
            axes.plot(bounds, [row, row], color=colour, linewidth=2)
        axes.plot(scale * pair.difference, row, "s", color=colour, markerfacecolor=fill, markersize=7)
    axes.set_yticks(range(len(pairs)), [f"{pair.a} minus {pair.b}" for pair in pairs], color=INK)
    axes.set_ylim(len(pairs) - 0.4, -0.6)  # the first pair is at the top
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(f"difference in {metric.name}" + (", points" if metric.percent else ""))


def learning_curves(name: str, group: CurveGroup) -> Markup:
    """Return a picture with a panel per metric, a colour per training, a line per seed; rings mark the saved models."""
    panels = [metric for metric in group.metrics if group.panel(metric)]
    columns = 3 if len(panels) == 3 else 2
    # in inches: title, rows of panels, and rows of the legend
    height = 0.35 + 2.3 * math.ceil(len(panels) / columns) + 0.2 * math.ceil(len(group.trainings) / 3)
    label = f"{group.title}: learning curves of {', '.join(group.trainings)}"
    return picture(name, label, (_WIDTH, height), partial(_draw_learning_curves, group, panels, columns))


def _draw_learning_curves(group: CurveGroup, panels: Sequence[str], columns: int, figure: Figure) -> None:
    grid = _panel_grid(figure, len(panels), columns)
    series_of_training = {training: series for series, training in enumerate(group.trainings)}
    for axes, metric in zip(grid, panels, strict=True):
        for curve in group.panel(metric):
            _draw_curve(axes, curve, series_of_training[curve.training])
        axes.set_title(_TITLES.get(metric, metric.replace("/", " ").replace("_", " ")), color=INK)
        axes.set_xlabel("step")
    first_line: dict[str, Line2D] = {}  # by training
    for line in (line for axes in grid for line in axes.get_lines()):
        first_line.setdefault(str(line.get_label()), line)
    handles = {training: first_line[training] for training in series_of_training if training in first_line}
    if len(handles) > 1:  # explicit labels: matplotlib omits automatic labels that begin with "_"
        figure.legend(list(handles.values()), list(handles), loc="outside lower left", ncols=3)


def _panel_grid(figure: Figure, num_panels: int, columns: int, share: bool = False) -> list[Axes]:
    rows = math.ceil(num_panels / columns)
    grid = list(figure.subplots(rows, columns, squeeze=False, sharex=share, sharey=share).flat)
    for axes in grid[num_panels:]:
        axes.set_visible(False)
    return grid[:num_panels]


def _draw_curve(axes: Axes, curve: Curve, series: int) -> None:
    style = style_of(series)
    has_label = any(line.get_label() == curve.training for line in axes.get_lines())
    has_few_points = len(curve.steps) < 8  # so that markers do not overlap
    axes.plot(
        curve.steps,
        curve.values,
        color=style["color"],
        linestyle=style["linestyle"],
        marker=style["marker"] if has_few_points else None,
        label="" if has_label else curve.training,
        alpha=0.9,
    )
    if curve.best in curve.steps:
        value = curve.values[curve.steps.index(curve.best)]
        axes.plot(curve.best, value, "o", color=style["color"], markerfacecolor="none", markersize=9, label="")


def score_and_cost(name: str, evaluation: Evaluation) -> Markup | None:
    """Return a picture of the score of each system by latency and by size, on log axes; None without measured costs."""
    metric = evaluation.metric
    scored = (system for system in evaluation.systems if system.scores[metric.key] is not None)
    measured = {system.name: system.scores for system in scored if system.scores.get("cost")}
    if not measured:
        return None
    label = f"{metric.name} against latency and against size"
    return picture(name, label, (_WIDTH, 3.1), partial(_draw_score_and_cost, metric, measured))


def _draw_score_and_cost(metric: Headline, measured: Mapping[str, dict[str, Any]], figure: Figure) -> None:
    scale = 100 if metric.percent else 1
    panels = figure.subplots(1, 2, sharey=True)
    points = {}  # a marker of each system, for the legend
    for axes, (key, (title, factor)) in zip(panels, _COSTS.items(), strict=True):
        costs = []
        for series, (name, scores) in enumerate(measured.items()):
            if not scores["cost"].get(key):
                continue
            score, cost, style = scores[metric.key], factor * scores["cost"][key], style_of(series)
            low, high = scores.get("interval") or [score, score]
            axes.plot([cost, cost], [scale * low, scale * high], color=style["color"], linewidth=1.2)
            (points[name],) = axes.plot(cost, scale * score, style["marker"], color=style["color"], markersize=7)
            costs.append(cost)
        axes.set_xscale("log")
        _plain_log_ticks(axes, costs)
        axes.set_xlabel(title)
    panels[0].set_ylabel(metric.name)
    figure.legend(list(points.values()), list(points), loc="outside lower left", ncols=4)


def _plain_log_ticks(axes: Axes, values: Sequence[float]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = min(values, default=1), max(values, default=1)
    if high < 3 * low:  # widen the range, so that the axis has at least two ticks
        middle = math.sqrt(low * high)
        axes.set_xlim(middle / 2, middle * 2)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def reliability_diagrams(name: str, evaluation: Evaluation) -> Markup | None:
    """Return reliability diagrams (accuracy by confidence), one per system; None if no system has confidence bins."""
    scores = {system.name: system.scores.get("reliability") or {} for system in evaluation.systems}
    binned = {system: values for system, values in scores.items() if values.get("bins")}
    if not binned:
        return None
    label = "Accuracy against confidence"
    rows = math.ceil(len(binned) / 3)
    return picture(name, label, (_WIDTH, 2.7 * rows), partial(_draw_reliability_diagrams, binned))


def _draw_reliability_diagrams(binned: Mapping[str, Mapping[str, Any]], figure: Figure) -> None:
    grid = _panel_grid(figure, len(binned), columns=3, share=True)
    for series, (axes, (system, values)) in enumerate(zip(grid, binned.items(), strict=True)):
        style, bins = style_of(series), values["bins"]
        axes.plot([0, 1], [0, 1], color=SOFT, linewidth=1, linestyle=(0, (2, 2)))  # a calibrated model
        confidences = [item["confidence"] for item in bins]
        accuracies = [item["accuracy"] for item in bins]
        axes.plot(confidences, accuracies, color=style["color"], marker=style["marker"])
        axes.set_title(f"{system}, ECE {values['ece']:.3f}" if "ece" in values else system, color=INK)
        axes.set_xlim(0, 1.02)
        axes.set_ylim(0, 1.02)
        axes.set_aspect("equal")
        axes.set_xlabel("confidence")
    grid[0].set_ylabel("accuracy")
