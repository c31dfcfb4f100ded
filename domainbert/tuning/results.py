"""Write the results of a study: best settings as YAML, a table of trials, the cost of the search, plots as SVG."""

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

from domainbert.base.choices import allow_import_arguments
from domainbert.base.errors import DomainbertError, needs_package
from domainbert.base.files import folder_lock, read_json, write_json, write_text
from domainbert.base.progress import format_duration
from domainbert.settings.yaml_files import dump_yaml
from domainbert.tuning.config import TuneConfig
from domainbert.tuning.search import Search
from domainbert.tuning.space import Space
from domainbert.tuning.trial_log import best_trial, describe_values
from domainbert.tuning.trials import DIED, ERROR, SECONDS, SETTINGS, THREADS, WORKER, original_number, requeued_numbers

_MIN_TRIALS_FOR_IMPORTANCE, _MIN_TRIALS_FOR_PICTURES = 4, 2  # complete trials
_BEST, _SUMMARY = "best.yaml", "study.json"


def check_folder(config: TuneConfig, out: Path) -> None:
    """Raise `DomainbertError` if the folder holds another study, whose trials would be overwritten."""
    if not (out / _SUMMARY).is_file():
        return
    existing = read_json(out / _SUMMARY, "the summary of a search").get("study", config.study)
    if existing != config.study:
        raise DomainbertError(f"out: {out} has the study {existing}; expected another folder for {config.study}")


def write_results(study: Study, search: Search) -> dict[str, Any]:
    """Write `best.yaml`, `pareto/` (for several objectives), `trials.csv` and `study.json`; return the summary."""
    config, out = search.config, search.out
    with folder_lock(out):
        trials = study.get_trials(deepcopy=False)
        _write_table(trials, config, search.space, out / "trials.csv")
        best = best_trial(trials, config)
        if best is not None:
            _write_settings(best, config, out / _BEST)
        front = sorted(study.best_trials, key=lambda trial: trial.number) if len(config.objective) > 1 and best else []
        files = {out / "pareto" / f"trial-{trial.number:05d}.yaml": trial for trial in front}
        for file, trial in files.items():
            file.parent.mkdir(exist_ok=True)
            _write_settings(trial, config, file)
        for file in set(out.glob("pareto/trial-*.yaml")) - files.keys():
            file.unlink()  # the trial is no longer on the front
        summary = {"study": study.study_name, **summarise(trials, config)}
        summary |= {"pareto_front": [trial.number for trial in front], "importance": importance(study, config)}
        write_json(out / _SUMMARY, summary)
    return summary


def _importance_target(config: TuneConfig) -> Callable[[FrozenTrial], float] | None:
    """Return the function of a trial to minimize, for the first of several objectives; None for a single one."""
    if len(config.objective) == 1:
        return None
    sign = -1 if config.directions[0] == "maximize" else 1
    return lambda trial: sign * trial.values[0]


def importance(study: Study, config: TuneConfig) -> dict[str, float]:
    """Return the share of each setting in the importance for the first objective (PED-ANOVA, Watanabe et al. 2023).

    {} if there are too few complete trials, or Optuna cannot compute it.
    """
    if _num_complete(study) < _MIN_TRIALS_FOR_IMPORTANCE:
        return {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return optuna.importance.get_param_importances(study, target=_importance_target(config))
    except (ValueError, RuntimeError, ZeroDivisionError):
        return {}


def summarise(trials: Sequence[FrozenTrial], config: TuneConfig) -> dict[str, Any]:
    """Return the statistics of a study, the contents of `study.json` without the study's name.

    The time saved by pruning is estimated as the median time of a complete trial minus the time of each pruned trial.
    """
    states = ("COMPLETE", "PRUNED", "FAIL")
    by_state = {name: [trial for trial in trials if trial.state.name == name] for name in states}
    num_requeued = len(requeued_numbers(trials))
    num_failed = len(by_state["FAIL"]) - num_requeued
    spent: Counter[int] = Counter()  # seconds of all attempts, by the number of the first attempt
    for trial in trials:
        spent[original_number(trial)] += trial.user_attrs.get(SECONDS, 0)
    complete, pruned = ([spent[original_number(trial)] for trial in by_state[name]] for name in states[:2])
    median = statistics.median(complete or [0])
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
        "queued_again": num_requeued,
        "pruned_share": len(pruned) / finished if finished else 0.0,
        "seconds": sum(spent.values()),
        "seconds_saved_by_pruning": sum(max(0.0, median - seconds) for seconds in pruned) if complete else 0.0,
        "best": None if best is None else {"trial": best.number, "values": best.values, "settings": best.params},
    }


def closing_lines(summary: dict[str, Any], out: Path) -> list[str]:
    """Return the lines to print at the end of a search: numbers of trials, time, best trial, and what to do next."""
    counts = ", ".join(f"{summary[name]} {name}" for name in ("complete", "pruned", "failed"))
    spent, saved = summary["seconds"], summary["seconds_saved_by_pruning"]
    lines = [f"{summary['trials']} trials: {counts}; {format_duration(spent)} of trials"]
    if summary["pruned"] and saved:
        lines[0] += f", {format_duration(saved)} ({saved / (saved + spent):.0%}) saved by pruning (estimated)"
    total = summary["asked"]
    if (left := total - summary["trials"]) > 0:
        lines.append(f"{left} of {total} trials are left: max_hours is exceeded; run the same command to resume")
    best = summary["best"]
    if best is None:
        return [*lines, "no trial was completed"]
    values = ", ".join(f"{name} {value:.4f}" for name, value in zip(summary["objective"], best["values"], strict=True))
    lines.append(f"best: trial {best['trial']}, {values}; {describe_values(best['settings'])}")
    if summary["pareto_front"]:
        lines.append(f"Pareto front: trials {', '.join(map(str, summary['pareto_front']))}, in {out / 'pareto'}")
    lines.append(
        f"{out / _BEST} has the settings. The validation score of the best of {summary['trials']} trials is too high, "
        "because it was selected; train with these settings, and run evaluate on the test set."
    )
    return lines


def _write_settings(trial: FrozenTrial, config: TuneConfig, file: Path) -> None:
    """Write the settings of a trial as YAML for the stage; an extended study may have other settings now."""
    values = ", ".join(f"{name} {value!r}" for name, value in zip(config.objective, trial.values, strict=True))
    folds = f" (mean of {config.k_folds} folds)" if config.k_folds else ""
    settings = dict(trial.user_attrs[SETTINGS])
    words = ["domainbert", config.stage, "-c", str(file), *allow_import_arguments()]
    if config.k_folds and settings["validation"] == settings["train"]:  # a placeholder: the search had no validation
        del settings["validation"]
        words += ["--validation", "FILE"]
    command = shlex.join(words)
    if THREADS in trial.user_attrs:  # floating-point sums depend on the number of threads
        command = f"OMP_NUM_THREADS={trial.user_attrs[THREADS]} {command}"
    head = f"# Trial {trial.number} of study {config.study}: {values}{folds}.\n#   {command}\n"
    write_text(file, head + dump_yaml({"out": str(file.with_suffix("")), **settings}))


def _write_table(trials: Sequence[FrozenTrial], config: TuneConfig, space: Space, file: Path) -> None:
    """Write a CSV row per trial; settings that only older trials of an extended study have are the last columns."""
    old_keys = (key for trial in trials for key in trial.params)
    keys = list(dict.fromkeys([*(dimension.key for dimension in space.dimensions), *old_keys]))
    stream = io.StringIO(newline="")
    writer = csv.writer(stream)
    writer.writerow(["trial", "state", *config.objective, *keys, "evaluations", "seconds", "worker", "error"])
    requeued = requeued_numbers(trials)
    for trial in trials:
        state = "queued again" if trial.number in requeued else trial.state.name.lower()
        values = trial.values if trial.state.name == "COMPLETE" else [""] * len(config.objective)
        point = {**trial.params, **space.values_of(trial.params)}
        error = trial.user_attrs.get(ERROR, DIED if trial.state.name == "FAIL" else "")
        facts = [trial.last_step or 0, trial.user_attrs.get(SECONDS, ""), trial.user_attrs.get(WORKER, ""), error]
        writer.writerow([trial.number, state, *values, *(point.get(key, "") for key in keys), *facts])
    write_text(file, stream.getvalue())


def _num_complete(study: Study) -> int:
    return sum(trial.state.name == "COMPLETE" for trial in study.get_trials(deepcopy=False))


def draw_pictures(study: Study, search: Search) -> list[str]:
    """Write `history`, `importance`, `parallel`, `slice` and, with two or three objectives, `pareto`, each as `.svg`.

    Return a line for each plot that cannot be drawn. Plots of a single objective show the first objective.
    """
    try:
        import matplotlib
    except ImportError:
        return [f"no pictures: {needs_package('matplotlib', 'tune')}"]
    matplotlib.use("agg")  # Optuna measures texts with the renderer, which must not need a display
    if _num_complete(study) < _MIN_TRIALS_FOR_PICTURES:
        return ["no pictures: fewer than two trials are complete"]
    folder = search.out / "pictures"
    folder.mkdir(exist_ok=True)
    with folder_lock(search.out):
        pictures = _plots_by_name(study, search.config)
        return [line for name, draw in pictures.items() if (line := _save_picture(draw, folder / f"{name}.svg"))]


def _plots_by_name(study: Study, config: TuneConfig) -> dict[str, Callable[[], Any]]:
    """Return the functions that draw the plots, by name."""
    import optuna.visualization.matplotlib as plots

    name = config.objective[0]
    first = (lambda trial: trial.values[0]) if len(config.objective) > 1 else None
    plots_by_name: dict[str, Callable[[], Any]] = {
        "history": lambda: plots.plot_optimization_history(study, target=first, target_name=name),
        "importance": lambda: plots.plot_param_importances(study, target=_importance_target(config), target_name=name),
        "parallel": lambda: plots.plot_parallel_coordinate(study, target=first, target_name=name),
        "slice": lambda: plots.plot_slice(study, target=first, target_name=name),
    }
    if len(config.objective) in (2, 3):
        plots_by_name["pareto"] = lambda: plots.plot_pareto_front(study, target_names=list(config.objective))
    return plots_by_name


def _save_picture(draw: Callable[[], Any], file: Path) -> str | None:
    """Draw a plot into a file and return None, or the reason for a failure, such as equal values of all trials."""
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
