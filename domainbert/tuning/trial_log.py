"""Print the progress of a study: a line for each trial that ends."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from optuna.trial import FrozenTrial

from domainbert.base.progress import format_duration
from domainbert.tuning.config import TuneConfig
from domainbert.tuning.trials import DIED, ERROR, SECONDS


class TrialLog:
    """Print finished, running, pruned and failed trials, the best value so far and the remaining time."""

    def __init__(self, config: TuneConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self.config, self.clock = config, clock
        self._start = clock()
        self._trials: Sequence[FrozenTrial] = ()
        self._num_finished_at_start: int | None = None

    def set_trials(self, trials: Sequence[FrozenTrial]) -> None:
        """Record the trials that count towards the budget (`trials`)."""
        self._trials = trials
        if self._num_finished_at_start is None:
            self._num_finished_at_start = sum(trial.state.is_finished() for trial in trials)

    def print_line(self, line: str) -> None:
        """Print a line."""
        print(line, flush=True)

    def print_outcome(self, trial: FrozenTrial) -> None:
        """Print a line about a trial that has ended."""
        self.print_line(
            f"trial {trial.number}: {_outcome(trial, self.config.objective)}; {describe_values(trial.params)}"
        )

    def summary(self) -> str:
        """Return `12/20 done (5 pruned, 1 failed), 2 running, best 0.5674 (trial 7), 1h02m, 40m00s left`."""
        states = [trial.state.name for trial in self._trials]
        done, running = sum(trial.state.is_finished() for trial in self._trials), states.count("RUNNING")
        text = f"{done}/{self.config.trials} done ({states.count('PRUNED')} pruned, {states.count('FAIL')} failed)"
        parts = [text, f"{running} running"]
        if (best := best_trial(self._trials, self.config)) is not None:
            parts.append(f"best {best.values[0]:.4f} (trial {best.number})")
        parts.append(format_duration(elapsed := self.clock() - self._start))
        new = done - (self._num_finished_at_start or 0)
        if new > 0 and done < self.config.trials:
            parts.append(f"{format_duration(elapsed / new * (self.config.trials - done))} left")
        return ", ".join(parts)


def best_trial(trials: Sequence[FrozenTrial], config: TuneConfig) -> FrozenTrial | None:
    """Return the complete trial with the best first objective, the earliest if several are equal; None without any."""
    sign = 1 if config.directions[0] == "minimize" else -1
    complete = [trial for trial in trials if trial.state.name == "COMPLETE"]
    return min(complete, key=lambda trial: (sign * trial.values[0], trial.number), default=None)


def _outcome(trial: FrozenTrial, objectives: Sequence[str]) -> str:
    """Return values and time of a complete trial, the last value of a pruned trial, or the error of a failed trial."""
    seconds = format_duration(trial.user_attrs.get(SECONDS, 0))
    if trial.state.name == "COMPLETE":
        values = zip(objectives, trial.values, strict=True)
        return ", ".join(f"{name} {value:.4f}" for name, value in values) + f" in {seconds}"
    if trial.state.name == "PRUNED":
        last_value = trial.intermediate_values[trial.last_step] if trial.last_step is not None else float("nan")
        return f"pruned at {last_value:.4f} after {trial.last_step} evaluations, {seconds}"
    return f"failed: {trial.user_attrs.get(ERROR, DIED)}"


def describe_values(values: Mapping[str, Any]) -> str:
    """Format settings as a line: `optim.lr 0.0003, batch_size 16`."""
    texts = {key: f"{value:.4g}" if isinstance(value, float) else json.dumps(value) for key, value in values.items()}
    return ", ".join(f"{key} {text}" for key, text in texts.items())
