"""Print the progress of a study, and write its results: best settings, table of trials, cost of the search, plots."""

from __future__ import annotations

import csv
import io
import json
import shlex
import statistics
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import optuna
from optuna import Study
from optuna.trial import FrozenTrial

from domainbert.base.choices import allow_import_arguments
from domainbert.base.errors import DomainbertError
from domainbert.base.files import folder_lock, read_json, write_json, write_text
from domainbert.base.progress import format_duration
from domainbert.base.run_record import RunRecord, read_record
from domainbert.settings.yaml_files import dump_yaml
from domainbert.tuning.config import TuneConfig
from domainbert.tuning.search import Search
from domainbert.tuning.space import Space
from domainbert.tuning.study import ID
from domainbert.tuning.trials import DIED, ERROR, SECONDS, SETTINGS, THREADS, WORKER, original_number, requeued_numbers

_MIN_TRIALS_FOR_IMPORTANCE, _MIN_TRIALS_FOR_PICTURES = 4, 2  # complete trials
_BEST, _SUMMARY = "best.yaml", "study.json"


def progress_line(trials: Sequence[FrozenTrial], config: TuneConfig, num_new: int, seconds: float) -> str:
    """Return `12/20 done (5 pruned, 1 failed), 2 running, best 0.5674 (trial 7), 1h02m, 40m00s left`.

    `trials` are the trials that count towards `config.trials`; `num_new` of them were finished in the last `seconds`,
    from which the remaining time is estimated.
    """
    states = [trial.state.name for trial in trials]
    done = sum(trial.state.is_finished() for trial in trials)
    line = f"{done}/{config.trials} done ({states.count('PRUNED')} pruned, {states.count('FAIL')} failed)"
    line += f", {states.count('RUNNING')} running"
    if (best := best_trial(trials, config)) is not None:
        line += f", best {best.values[0]:.4f} (trial {best.number})"
    line += f", {format_duration(seconds)}"
    if num_new > 0 and done < config.trials:
        line += f", {format_duration(seconds / num_new * (config.trials - done))} left"
    return line


def best_trial(trials: Sequence[FrozenTrial], config: TuneConfig) -> FrozenTrial | None:
    """Return the complete trial with the best first objective, or None; of equal trials, the earliest."""
    complete = [trial for trial in trials if trial.state.name == "COMPLETE"]
    return min(complete, key=lambda trial: (_cost(trial, config), trial.number), default=None)


def _cost(trial: FrozenTrial, config: TuneConfig) -> float:
    """Return the first objective of a complete trial, negated if it is maximized, so that a lower value is better."""
    value: float = trial.values[0]
    return value if config.directions[0] == "minimize" else -value


def print_outcome(trial: FrozenTrial, objectives: Sequence[str], space: Space) -> None:
    """Print a line about a trial that has ended: its values or the reason for its end, and its settings."""
    seconds = format_duration(trial.user_attrs.get(SECONDS, 0))
    if trial.state.name == "COMPLETE":
        values = zip(objectives, trial.values, strict=True)
        outcome = ", ".join(f"{name} {value:.4f}" for name, value in values) + f" in {seconds}"
    elif trial.state.name == "PRUNED":
        last_value = trial.intermediate_values[trial.last_step] if trial.last_step is not None else float("nan")
        outcome = f"pruned at {last_value:.4f} after evaluation {trial.last_step}, {seconds}"
    else:
        outcome = f"failed: {trial.user_attrs.get(ERROR, DIED)}"
    print(f"trial {trial.number}: {outcome}; {describe_values(space.values_of(trial.params))}", flush=True)


def describe_values(values: Mapping[str, Any]) -> str:
    """Format settings as a line: `optim.lr 0.0003, batch_size 16`."""
    texts = {key: f"{value:.4g}" if isinstance(value, float) else json.dumps(value) for key, value in values.items()}
    return ", ".join(f"{key} {text}" for key, text in texts.items())


def check_folder(config: TuneConfig, out: Path) -> None:
    """Raise `DomainbertError` if the folder holds another study, whose trials would be overwritten."""
    if not (out / _SUMMARY).is_file():
        return
    existing = read_json(out / _SUMMARY, "the summary of a search").get("study", config.study)
    if existing != config.study:
        raise DomainbertError(
            f"{out} holds the study '{existing}'", where="out", hint=f"use another out for '{config.study}'"
        )


def check_study(study: Study, out: Path) -> None:
    """Raise `DomainbertError` if the folder holds a study of the same name from another storage."""
    summary = read_json(out / _SUMMARY, "the summary of a search") if (out / _SUMMARY).is_file() else {}
    if summary.get("id", study.user_attrs[ID]) not in (None, study.user_attrs[ID]):
        found = f"holds the study '{study.study_name}' of another storage"
        raise DomainbertError(found, file=out, hint="use another out, another study, or the earlier storage")


def write_results(study: Study, search: Search) -> dict[str, Any]:
    """Write `best.yaml`, `pareto/` (for several objectives), `trials.csv` and `study.json`; return the summary."""
    config, out = search.config, search.out
    with folder_lock(out):
        trials = study.get_trials(deepcopy=False)
        _write_table(trials, config, search.space, out / "trials.csv")
        best = best_trial(trials, config)
        if best is not None:
            _write_settings(best, config, out / _BEST)
        has_front = best is not None and len(config.objective) > 1
        front = sorted(study.best_trials, key=lambda trial: trial.number) if has_front else []
        files = {out / "pareto" / f"trial-{trial.number:05d}.yaml": trial for trial in front}
        for file, trial in files.items():
            file.parent.mkdir(exist_ok=True)
            _write_settings(trial, config, file)
        for file in set(out.glob("pareto/trial-*.yaml")) - files.keys():
            file.unlink()  # the trial is no longer on the front
        summary = {"study": study.study_name, "id": study.user_attrs.get(ID), **summarise(trials, config, search.space)}
        summary |= {"pareto_front": [trial.number for trial in front], "importance": importance(study, config)}
        write_json(out / _SUMMARY, summary)
    return summary


def _importance_target(config: TuneConfig) -> Callable[[FrozenTrial], float] | None:
    """Return the function whose value Optuna's importance analyses; None (the objective) for a single objective."""
    return partial(_cost, config=config) if len(config.objective) > 1 else None


def importance(study: Study, config: TuneConfig) -> dict[str, float]:
    """Return the importance of each setting for the first objective (PED-ANOVA, Watanabe et al. 2023); the sum is 1.
    Return {} if there are too few complete trials, or if Optuna cannot compute the importance."""
    if _num_complete(study) < _MIN_TRIALS_FOR_IMPORTANCE:
        return {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return optuna.importance.get_param_importances(study, target=_importance_target(config))
    except (ValueError, RuntimeError, ZeroDivisionError):
        return {}


def summarise(trials: Sequence[FrozenTrial], config: TuneConfig, space: Space) -> dict[str, Any]:
    """Return the statistics of a study, the contents of `study.json` without the study's name.

    The time saved by pruning is estimated as the median time of a complete trial minus the time of each pruned trial.
    """
    seconds: Counter[int] = Counter()  # sum over the attempts of a trial, by the number of its first attempt
    for trial in trials:
        seconds[original_number(trial)] += trial.user_attrs.get(SECONDS, 0)
    complete = [seconds[original_number(trial)] for trial in trials if trial.state.name == "COMPLETE"]
    pruned = [seconds[original_number(trial)] for trial in trials if trial.state.name == "PRUNED"]
    median = statistics.median(complete or [0])
    num_requeued = len(requeued_numbers(trials))  # attempts that were queued again, which are recorded as failed
    num_failed = sum(trial.state.name == "FAIL" for trial in trials) - num_requeued
    num_finished = len(complete) + len(pruned) + num_failed
    best = best_trial(trials, config)
    starts = [trial.datetime_start.astimezone().isoformat() for trial in trials if trial.datetime_start]
    return {
        "objective": list(config.objective),
        "direction": list(config.directions),
        "trials": num_finished,
        "requested_trials": config.trials,
        "complete": len(complete),
        "pruned": len(pruned),
        "failed": num_failed,
        "queued_again": num_requeued,
        "pruned_share": len(pruned) / num_finished if num_finished else 0.0,
        "started": min(starts, default=None),
        "seconds": sum(seconds.values()),
        "seconds_saved_by_pruning": sum(max(0.0, median - spent) for spent in pruned) if complete else 0.0,
        "best": best and {"trial": best.number, "values": best.values, "settings": space.values_of(best.params)},
    }


def closing_lines(summary: dict[str, Any], out: Path) -> list[str]:
    """Return the lines to print at the end of a search, from its summary: trials, time, best trial, next steps."""
    counts = ", ".join(f"{summary[name]} {name}" for name in ("complete", "pruned", "failed"))
    spent, saved = summary["seconds"], summary["seconds_saved_by_pruning"]
    lines = [f"trials: {summary['trials']} ({counts}), {format_duration(spent)} of trial time"]
    if summary["pruned"] and saved:
        lines[0] += f", {format_duration(saved)} ({saved / (saved + spent):.0%}) saved by pruning (estimated)"
    total = summary["requested_trials"]
    if (left := total - summary["trials"]) > 0:
        lines.append(f"{left} of {total} trials are left: max_hours is exceeded; run the same command to resume")
    best = summary["best"]
    if best is None:
        return [*lines, "no trial was completed"]
    values = ", ".join(f"{name} {value:.4f}" for name, value in zip(summary["objective"], best["values"], strict=True))
    lines.append(f"best: trial {best['trial']}, {values}; {describe_values(best['settings'])}")
    if summary["pareto_front"]:
        lines.append(f"Pareto front: trials {', '.join(map(str, summary['pareto_front']))}, in {out / 'pareto'}")
    if best["values"][0] == 0 and summary["direction"][0] == "maximize":
        reason = f"no trial has a {summary['objective'][0]} above 0, so none learned the task"
        return [*lines, f"{reason}; try other values of optim.lr, or more epochs"]
    lines.append(
        f"{out / _BEST} has the settings. The validation score of the best trial is too high, "
        "because it was selected; train with these settings, and run evaluate on the test set."
    )
    return lines


def best_trial_warnings(study: Study, search: Search) -> list[str]:
    """Return the warnings of the stage in the best trial, such as a training that learned nothing; [] if the folder of
    the trial is on another machine."""
    best = best_trial(study.get_trials(deepcopy=False), search.config)
    if best is None:
        return []
    texts: list[str] = []
    for folder in sorted((search.out / "trials" / f"{original_number(best):05d}").glob("*")):
        with suppress(DomainbertError):  # a damaged file
            texts += (read_record(folder) or RunRecord()).metrics.get("warnings", [])
    return [f"warning: trial {best.number}: {text}" for text in dict.fromkeys(texts)]


def _write_settings(trial: FrozenTrial, config: TuneConfig, file: Path) -> None:
    """Write the settings of a trial as a YAML of the stage, with its values and the command to train in a comment."""
    settings = dict(trial.user_attrs[SETTINGS])
    words = ["domainbert", config.stage, "-c", str(file), *allow_import_arguments()]
    # a search with folds needs no validation set; without one, `_build_search` has put the training set in its place
    if config.k_folds and settings["validation"] == settings["train"]:
        del settings["validation"]
        words += ["--validation", "FILE"]
    command = shlex.join(words)
    if THREADS in trial.user_attrs:  # floating-point sums depend on the number of threads
        command = f"OMP_NUM_THREADS={trial.user_attrs[THREADS]} {command}"
    values = ", ".join(f"{name} {value!r}" for name, value in zip(config.objective, trial.values, strict=True))
    folds = f" (mean of {config.k_folds} folds)" if config.k_folds else ""
    comment = f"# Trial {trial.number} of study {config.study}: {values}{folds}.\n#   {command}\n"
    write_text(file, comment + dump_yaml({"out": str(file.with_suffix("")), **settings}))


def _write_table(trials: Sequence[FrozenTrial], config: TuneConfig, space: Space, file: Path) -> None:
    """Write a row for each trial. Lists and mappings are JSON. Settings that only an earlier space has come last."""
    recorded_keys = (key for trial in trials for key in trial.params)
    keys = list(dict.fromkeys([*(dimension.key for dimension in space.dimensions), *recorded_keys]))
    stream = io.StringIO(newline="")
    writer = csv.writer(stream)
    writer.writerow(["trial", "state", *config.objective, *keys, "evaluations", "seconds", "worker", "error"])
    requeued = requeued_numbers(trials)
    for trial in trials:
        state = "queued again" if trial.number in requeued else trial.state.name.lower()
        values = trial.values if trial.state.name == "COMPLETE" else [""] * len(config.objective)
        error = trial.user_attrs.get(ERROR, DIED if trial.state.name == "FAIL" else "")
        facts = [trial.last_step or 0, trial.user_attrs.get(SECONDS, ""), trial.user_attrs.get(WORKER, ""), error]
        writer.writerow([trial.number, state, *values, *(trial.params.get(key, "") for key in keys), *facts])
    write_text(file, stream.getvalue())


def _num_complete(study: Study) -> int:
    return sum(trial.state.name == "COMPLETE" for trial in study.get_trials(deepcopy=False))


def draw_pictures(study: Study, search: Search) -> list[str]:
    """Write `history`, `importance`, `parallel`, `slice` and, with two or three objectives, `pareto`, each as `.svg`.
    Return a line for each plot that cannot be drawn. All plots but `pareto` show the first objective."""
    import matplotlib

    matplotlib.use("agg")  # Optuna measures texts with the renderer, which must not need a display
    if _num_complete(study) < _MIN_TRIALS_FOR_PICTURES:
        return ["no pictures: fewer than two trials are complete"]
    import optuna.visualization.matplotlib as plots

    config, folder = search.config, search.out / "pictures"
    name = config.objective[0]
    is_single = len(config.objective) == 1  # the objective is then the default target
    options: dict[str, Any] = {"target": None if is_single else lambda trial: trial.values[0], "target_name": name}
    pictures: dict[str, Callable[[], Any]] = {
        "history": partial(plots.plot_optimization_history, study, **options),
        "importance": partial(plots.plot_param_importances, study, target=_importance_target(config), target_name=name),
        "parallel": partial(plots.plot_parallel_coordinate, study, **options),
        "slice": partial(plots.plot_slice, study, **options),
    }
    if len(config.objective) in (2, 3):
        pictures["pareto"] = partial(plots.plot_pareto_front, study, target_names=list(config.objective))
    folder.mkdir(exist_ok=True)
    with folder_lock(search.out):
        problems = [_save_picture(draw, folder / f"{picture}.svg") for picture, draw in pictures.items()]
    return [problem for problem in problems if problem]


def _save_picture(draw: Callable[[], Any], file: Path) -> str:
    """Return "", or the reason for a failure, such as equal values of all trials."""
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
    return ""
