"""Results of a study: the best settings as a YAML, all trials as a table, the cost of the search, pictures as SVG."""

from __future__ import annotations

import csv
import io
import shlex
import statistics
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna import Study
from optuna.trial import FrozenTrial

from domainbert.base.choices import allow_import_words
from domainbert.base.errors import DomainbertError
from domainbert.base.files import folder_lock, read_json, write_json, write_text
from domainbert.base.progress import format_duration
from domainbert.settings.yaml_files import dump_yaml
from domainbert.tuning.config import TuneConfig
from domainbert.tuning.search import Search
from domainbert.tuning.space import Space
from domainbert.tuning.trial_log import best_trial, describe_values
from domainbert.tuning.trials import DIED, ERROR, SECONDS, SETTINGS, THREADS, WORKER, lost, origin

_FEWEST_FOR_IMPORTANCE, _FEWEST_FOR_PICTURES = 4, 2  # complete trials, below which they say nothing
_BEST, _SUMMARY = "best.yaml", "study.json"


def check_folder(config: TuneConfig, out: Path) -> None:
    """Raise `DomainbertError` if the folder holds another study, whose trials this one would overwrite."""
    if not (out / _SUMMARY).is_file():
        return
    there = read_json(out / _SUMMARY, "the summary of a search").get("study", config.study)
    if there != config.study:
        raise DomainbertError(f"out: {out} has the study {there}; expected another folder for {config.study}")


def write_results(study: Study, search: Search) -> dict[str, Any]:
    """Write `best.yaml` (with several objectives also `pareto/`), `trials.csv` and `study.json`; return the last."""
    config, out = search.config, search.out
    with folder_lock(out):
        trials = study.get_trials(deepcopy=False)
        _write_table(trials, config, search.space, out / "trials.csv")
        best = best_trial(trials, config)
        if best is not None:
            _write_settings(best, config, out / _BEST)
        front = sorted(study.best_trials, key=lambda one: one.number) if len(config.objective) > 1 and best else []
        files = {out / "pareto" / f"trial-{trial.number:05d}.yaml": trial for trial in front}
        for file, trial in files.items():
            file.parent.mkdir(exist_ok=True)
            _write_settings(trial, config, file)
        for file in set(out.glob("pareto/trial-*.yaml")) - files.keys():
            file.unlink()  # of a trial that another one has since beaten in everything
        summary = {"study": study.study_name, **summarise(trials, config)}
        summary |= {"pareto_front": [one.number for one in front], "importance": importance(study, config)}
        write_json(out / _SUMMARY, summary)
    return summary


def _goodness(config: TuneConfig) -> Callable[[FrozenTrial], float] | None:
    """The first of several objectives, in the form that importance needs: less is better. None if there is only one."""
    if len(config.objective) == 1:
        return None
    sign = -1 if config.directions[0] == "maximize" else 1
    return lambda trial: sign * trial.values[0]


def importance(study: Study, config: TuneConfig) -> dict[str, float]:
    """Importance of each setting for the first objective, as shares (PED-ANOVA, Watanabe et al. 2023).

    Empty where there are too few complete trials to tell.
    """
    if _num_complete(study) < _FEWEST_FOR_IMPORTANCE:
        return {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return optuna.importance.get_param_importances(study, target=_goodness(config))
    except (ValueError, RuntimeError, ZeroDivisionError):
        return {}


def summarise(trials: Sequence[FrozenTrial], config: TuneConfig) -> dict[str, Any]:
    """The numbers of a study.

    The time saved by pruning is an estimate: the time of the median complete trial less that of each pruned one.
    """
    by_state = {name: [one for one in trials if one.state.name == name] for name in ("COMPLETE", "PRUNED", "FAIL")}
    num_lost = len(lost(trials))
    num_failed = len(by_state["FAIL"]) - num_lost
    spent: Counter[int] = Counter()  # by the first number of a trial: with the time before it was queued again
    for one in trials:
        spent[origin(one)] += one.user_attrs.get(SECONDS, 0)
    complete, pruned = ([spent[origin(one)] for one in by_state[name]] for name in ("COMPLETE", "PRUNED"))
    usual = statistics.median(complete or [0])
    best = best_trial(trials, config)
    finished = len(complete) + len(pruned) + num_failed
    return {
        "objective": list(config.objective),
        "direction": list(config.directions),
        "trials": finished,
        "asked": config.trials,
        "complete": len(complete),
        "pruned": len(pruned),
        "failed": num_failed,
        "queued_again": num_lost,
        "pruned_share": len(pruned) / finished if finished else 0.0,
        "seconds": sum(spent.values()),
        "seconds_saved_by_pruning": sum(max(0.0, usual - seconds) for seconds in pruned) if complete else 0.0,
        "best": None if best is None else {"trial": best.number, "values": best.values, "settings": best.params},
    }


def closing_lines(summary: dict[str, Any], out: Path) -> list[str]:
    """The lines that are printed at the end."""
    counts = ", ".join(f"{summary[name]} {name}" for name in ("complete", "pruned", "failed"))
    spent, saved = summary["seconds"], summary["seconds_saved_by_pruning"]
    lines = [f"{summary['trials']} trials: {counts}; {format_duration(spent)} of trials"]
    if summary["pruned"] and saved:
        lines[0] += f", {format_duration(saved)} ({saved / (saved + spent):.0%}) saved by pruning (estimated)"
    if (left := summary["asked"] - summary["trials"]) > 0:
        lines.append(f"{left} of {summary['asked']} trials are left: max_hours is over; run the same command to resume")
    best = summary["best"]
    if best is None:
        return [*lines, "no trial was completed"]
    values = ", ".join(f"{name} {value:.4f}" for name, value in zip(summary["objective"], best["values"], strict=True))
    lines.append(f"best: trial {best['trial']}, {values}; {describe_values(best['settings'])}")
    if summary["pareto_front"]:
        lines.append(f"Pareto front: trials {', '.join(map(str, summary['pareto_front']))}, in {out / 'pareto'}")
    lines.append(
        f"{out / _BEST} has the settings. The best of {summary['trials']} trials on the same validation set is "
        "flattered by it; train with these settings, and run evaluate on the test set."
    )
    return lines


def _write_settings(trial: FrozenTrial, config: TuneConfig, file: Path) -> None:
    """Write the settings that the trial ran with: the study may have been extended since."""
    values = ", ".join(f"{name} {value!r}" for name, value in zip(config.objective, trial.values, strict=True))
    folds = f" (mean of {config.k_folds} folds)" if config.k_folds else ""
    settings = dict(trial.user_attrs[SETTINGS])
    words = ["domainbert", config.stage, "-c", str(file), *allow_import_words()]
    if config.k_folds and settings["validation"] == settings["train"]:  # the search had no other
        del settings["validation"]
        words += ["--validation", "FILE"]
    command = shlex.join(words)
    if THREADS in trial.user_attrs:  # sums of floating-point numbers depend on it
        command = f"OMP_NUM_THREADS={trial.user_attrs[THREADS]} {command}"
    head = f"# Trial {trial.number} of study {config.study}: {values}{folds}.\n#   {command}\n"
    write_text(file, head + dump_yaml({"out": str(file.with_suffix("")), **settings}))


def _write_table(trials: Sequence[FrozenTrial], config: TuneConfig, space: Space, file: Path) -> None:
    """Settings that only older trials of an extended study have come last."""
    keys = list(dict.fromkeys([*(one.key for one in space.dimensions), *(key for one in trials for key in one.params)]))
    stream = io.StringIO(newline="")
    writer = csv.writer(stream)
    writer.writerow(["trial", "state", *config.objective, *keys, "evaluations", "seconds", "worker", "error"])
    again = lost(trials)
    for one in trials:
        state = "queued again" if one.number in again else one.state.name.lower()
        values = one.values if one.state.name == "COMPLETE" else [""] * len(config.objective)
        point = {**one.params, **space.values_of(one.params)}
        error = one.user_attrs.get(ERROR, DIED if one.state.name == "FAIL" else "")
        facts = [one.last_step or 0, one.user_attrs.get(SECONDS, ""), one.user_attrs.get(WORKER, ""), error]
        writer.writerow([one.number, state, *values, *(point.get(key, "") for key in keys), *facts])
    write_text(file, stream.getvalue())


def _num_complete(study: Study) -> int:
    return sum(one.state.name == "COMPLETE" for one in study.get_trials(deepcopy=False))


def draw_pictures(study: Study, search: Search) -> list[str]:
    """Write `history`, `importance`, `parallel`, `slice` and, with two or three objectives, `pareto`, each as `.svg`.

    Those of one objective show the first. Returns lines that name what could not be drawn, and why.
    """
    try:
        import matplotlib
    except ImportError:
        return ["no pictures: matplotlib is not installed; pip install 'domainbert[tune]'"]
    matplotlib.use("agg")  # Optuna asks it how wide a text is
    if _num_complete(study) < _FEWEST_FOR_PICTURES:
        return ["no pictures: fewer than two trials are complete"]
    folder = search.out / "pictures"
    folder.mkdir(exist_ok=True)
    with folder_lock(search.out):
        pictures = _pictures(study, search.config)
        return [line for name, draw in pictures.items() if (line := _draw(draw, folder / f"{name}.svg"))]


def _pictures(study: Study, config: TuneConfig) -> dict[str, Callable[[], Any]]:
    import optuna.visualization.matplotlib as plots

    name = config.objective[0]
    first = (lambda trial: trial.values[0]) if len(config.objective) > 1 else None
    found: dict[str, Callable[[], Any]] = {
        "history": lambda: plots.plot_optimization_history(study, target=first, target_name=name),
        "importance": lambda: plots.plot_param_importances(study, target=_goodness(config), target_name=name),
        "parallel": lambda: plots.plot_parallel_coordinate(study, target=first, target_name=name),
        "slice": lambda: plots.plot_slice(study, target=first, target_name=name),
    }
    if len(config.objective) in (2, 3):
        found["pareto"] = lambda: plots.plot_pareto_front(study, target_names=list(config.objective))
    return found


def _draw(draw: Callable[[], Any], file: Path) -> str | None:
    """Draw a picture; return None, or why it cannot be drawn (such as importance, if all trials are equally good)."""
    from matplotlib import pyplot

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            draw()
            pyplot.savefig(file, bbox_inches="tight", metadata={"Date": None})
    except (ValueError, RuntimeError, ZeroDivisionError) as error:
        return f"no {file.name}: {error}"
    finally:
        pyplot.close("all")
    return None
