"""Results of a study: the best settings as a YAML, all trials as a table, the cost of the search."""

from __future__ import annotations

import csv
import io
import statistics
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from domainbert.base.errors import DomainbertError
from domainbert.base.files import read_json, write_json, write_text
from domainbert.base.progress import format_duration
from domainbert.settings.choices import allow_import_words
from domainbert.settings.yaml_files import dump_yaml
from domainbert.tuning.config import TuneConfig
from domainbert.tuning.live_table import best_trial, describe_values
from domainbert.tuning.space import Space
from domainbert.tuning.trials import ERROR, LOST, SECONDS, SETTINGS, THREADS, WORKER, is_lost, origin

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

_FEWEST = 4  # complete trials below which importance says nothing
BEST, TRIALS, SUMMARY = "best.yaml", "trials.csv", "study.json"


def check_folder(config: TuneConfig, out: Path) -> None:
    """Raise `DomainbertError` if the folder holds another study, whose trials this one would overwrite."""
    if not (out / SUMMARY).is_file():
        return
    there = read_json(out / SUMMARY, "the summary of a search").get("study", config.study)
    if there != config.study:
        raise DomainbertError(f"out: {out} has the study {there}; expected another folder for {config.study}")


def write_results(study: Study, config: TuneConfig, space: Space, out: Path) -> dict[str, Any]:
    """Write `best.yaml` (with several objectives also `pareto/`), `trials.csv` and `study.json`; return the last.

    Args:
        study: the study.
        config: the settings of the search.
        space: names the columns of the table; settings that only older trials of an extended study have come last.
        out: the folder for the files.
    """
    out.mkdir(parents=True, exist_ok=True)
    trials = study.get_trials(deepcopy=False)
    _write_table(trials, config, space, out / TRIALS)
    best = best_trial(trials, config)
    if best is not None:
        _write_settings(best, config, out / BEST, out / "best")
    front = sorted(study.best_trials, key=lambda one: one.number) if len(config.objective) > 1 and best else []
    for trial in front:
        (out / "pareto").mkdir(exist_ok=True)
        name = f"trial-{trial.number:05d}"
        _write_settings(trial, config, out / "pareto" / f"{name}.yaml", out / "pareto" / name)
    summary = {"study": study.study_name, **summarise(trials, config), "pareto_front": [one.number for one in front]}
    summary["importance"] = importance(study, config)
    write_json(out / SUMMARY, summary)
    return summary


def goodness(config: TuneConfig) -> Callable[[FrozenTrial], float] | None:
    """The first of several objectives, in the form that importance needs: less is better. None if there is only one."""
    if len(config.objective) == 1:
        return None
    sign = -1 if config.directions[0] == "maximize" else 1
    return lambda trial: sign * trial.values[0]


def importance(study: Study, config: TuneConfig) -> dict[str, float]:
    """Importance of each setting for the first objective, as shares (PED-ANOVA, Watanabe et al. 2023).

    Empty where there are too few complete trials to tell.
    """
    import optuna

    if sum(one.state.name == "COMPLETE" for one in study.get_trials(deepcopy=False)) < _FEWEST:
        return {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return optuna.importance.get_param_importances(study, target=goodness(config))
    except (ValueError, RuntimeError, ZeroDivisionError):
        return {}


def summarise(trials: Sequence[FrozenTrial], config: TuneConfig) -> dict[str, Any]:
    """The numbers of a study.

    The time saved by pruning is an estimate: the time of the median complete trial less that of each pruned one.
    """
    by_state = {name: [one for one in trials if one.state.name == name] for name in ("COMPLETE", "PRUNED", "FAIL")}
    lost = [one for one in by_state["FAIL"] if is_lost(one)]
    failed = [one for one in by_state["FAIL"] if not is_lost(one)]
    spent = _seconds(trials)
    saved = _saved_seconds(by_state["COMPLETE"], by_state["PRUNED"], spent)
    best = best_trial(trials, config)
    finished = len(by_state["COMPLETE"]) + len(by_state["PRUNED"]) + len(failed)
    return {
        "objective": list(config.objective),
        "direction": list(config.directions),
        "trials": finished,
        "asked": config.trials,
        "complete": len(by_state["COMPLETE"]),
        "pruned": len(by_state["PRUNED"]),
        "failed": len(failed),
        "queued_again": len(lost),
        "pruned_share": len(by_state["PRUNED"]) / finished if finished else 0.0,
        "seconds": sum(spent.values()),
        "seconds_saved_by_pruning": saved,
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
        f"{out / BEST} has the settings. The best of {summary['trials']} trials on the same validation set is "
        "flattered by it; train with these settings, and run evaluate on the test set."
    )
    return lines


def _seconds(trials: Sequence[FrozenTrial]) -> Mapping[int, float]:
    """Seconds of each trial, with the time before it was queued again; by its first number."""
    spent: Counter[int] = Counter()
    for one in trials:
        spent[origin(one)] += one.user_attrs.get(SECONDS, 0)
    return spent


def _saved_seconds(complete: Sequence[FrozenTrial], pruned: Sequence[FrozenTrial], spent: Mapping[int, float]) -> float:
    if not complete:
        return 0.0
    usual = statistics.median(spent[origin(one)] for one in complete)
    return sum(max(0.0, usual - spent[origin(one)]) for one in pruned)


def _write_settings(trial: FrozenTrial, config: TuneConfig, file: Path, out: Path) -> None:
    """Write the settings that the trial ran with: the study may have been extended since."""
    values = ", ".join(f"{name} {value!r}" for name, value in zip(config.objective, trial.values, strict=True))
    folds = f" (mean of {config.k_folds} folds)" if config.k_folds else ""
    command = ["domainbert", config.stage, "-c", str(file), *allow_import_words()]
    if THREADS in trial.user_attrs:  # sums of floating-point numbers depend on it
        command.insert(0, f"OMP_NUM_THREADS={trial.user_attrs[THREADS]}")
    head = f"# Trial {trial.number} of study {config.study}: {values}{folds}.\n#   {' '.join(command)}\n"
    write_text(file, head + dump_yaml({"out": str(out), **trial.user_attrs[SETTINGS]}))


def _write_table(trials: Sequence[FrozenTrial], config: TuneConfig, space: Space, file: Path) -> None:
    keys = list(dict.fromkeys([*(one.key for one in space.dimensions), *(key for one in trials for key in one.params)]))
    stream = io.StringIO(newline="")
    writer = csv.writer(stream)
    writer.writerow(["trial", "state", *config.objective, *keys, "evaluations", "seconds", "worker", "error"])
    for one in trials:
        state = "queued again" if is_lost(one) else one.state.name.lower()
        values = one.values if one.state.name == "COMPLETE" else [""] * len(config.objective)
        point = {**one.params, **space.values_of(one.params)}
        error = one.user_attrs.get(ERROR, one.user_attrs.get(LOST, ""))
        facts = [one.last_step or 0, one.user_attrs.get(SECONDS, ""), one.user_attrs.get(WORKER, ""), error]
        writer.writerow([one.number, state, *values, *(point.get(key, "") for key in keys), *facts])
    write_text(file, stream.getvalue())
