"""Pictures of a study as SVG: history of the best value, importance of settings, location of good trials."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from domainbert.tuning.config import TuneConfig
from domainbert.tuning.results import goodness

if TYPE_CHECKING:
    from optuna import Study

_MISSING = "no pictures: matplotlib is not installed; pip install 'domainbert[tune]'"
_FEWEST = 2  # complete trials that a picture needs


def draw_pictures(study: Study, config: TuneConfig, folder: Path) -> list[str]:
    """Write `history`, `importance`, `parallel`, `slice` and, with two or three objectives, `pareto`, each as `.svg`.

    Args:
        study: the study.
        config: the settings of the search; pictures of one objective show the first.
        folder: the folder for the files.

    Returns:
        Lines that name what could not be drawn, and why.
    """
    try:
        import matplotlib
    except ImportError:
        return [_MISSING]
    matplotlib.use("agg")  # Optuna asks it how wide a text is
    complete = [one for one in study.get_trials(deepcopy=False) if one.state.name == "COMPLETE"]
    if len(complete) < _FEWEST:
        return ["no pictures: fewer than two trials are complete"]
    folder.mkdir(parents=True, exist_ok=True)
    return [line for name, draw in _pictures(config).items() if (line := _draw(name, draw, study, folder))]


def _pictures(config: TuneConfig) -> dict[str, Callable[[Study], Any]]:
    import optuna.visualization.matplotlib as plots

    several = len(config.objective) > 1
    of_first = {"target": lambda trial: trial.values[0], "target_name": config.objective[0]}
    target = of_first if several else {"target_name": config.objective[0]}
    of_importance = {"target": goodness(config)} if several else {}
    found: dict[str, Callable[[Study], Any]] = {
        "history": lambda study: plots.plot_optimization_history(study, **target),
        "importance": lambda study: plots.plot_param_importances(study, **target | of_importance),
        "parallel": lambda study: plots.plot_parallel_coordinate(study, **target),
        "slice": lambda study: plots.plot_slice(study, **target),
    }
    if len(config.objective) in (2, 3):
        found["pareto"] = lambda study: plots.plot_pareto_front(study, target_names=list(config.objective))
    return found


def _draw(name: str, draw: Callable[[Study], Any], study: Study, folder: Path) -> str | None:
    """Draw one picture; return None, or why it cannot be drawn (such as importance, if all trials are equally good)."""
    from matplotlib import pyplot

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            draw(study)
            pyplot.savefig(folder / f"{name}.svg", bbox_inches="tight", metadata={"Date": None})
    except (ValueError, RuntimeError, ZeroDivisionError) as error:
        return f"no {name}.svg: {error}"
    finally:
        pyplot.close("all")
    return None
