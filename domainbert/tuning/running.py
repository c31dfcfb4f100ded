"""State of a trial while a worker runs it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from domainbert.tuning.objective_values import read_value
from domainbert.tuning.trial_plan import TrialPlan
from domainbert.tuning.trial_process import TrialProcess
from domainbert.tuning.trials import ALIVE

if TYPE_CHECKING:
    from optuna.trial import Trial


@dataclass
class Running:
    """A trial that this worker runs."""

    slot: int
    trial: Trial
    values: dict[str, Any]
    plan: TrialPlan
    process: TrialProcess
    alive: int = 0
    last_sign: float = field(default_factory=time.monotonic)
    reported: int = 0
    pruned: bool = False

    @property
    def seconds(self) -> float:
        """Seconds since its process was started."""
        return round(time.monotonic() - self.process.started, 3)

    def sign(self, every: float) -> None:
        """Give a sign of life, if the last one is at least this many seconds old."""
        if time.monotonic() - self.last_sign > every:
            self.alive, self.last_sign = self.alive + 1, time.monotonic()
            self.trial.set_user_attr(ALIVE, self.alive)

    def report(self, single: bool, ended: bool) -> None:
        """Report new values, and stop a trial that has to be pruned.

        A trial at its last evaluation is not pruned: no time would be saved, and its value would be lost.

        Args:
            single: whether there is one objective; Optuna keeps no evaluations of trials with several.
            ended: whether the process had ended before this call.

        Raises:
            NoSuchMetric: the stage does not measure an objective.
        """
        self.plan.stream.new_values()
        values = self.plan.stream.values
        while single and not self.pruned and self.reported < len(values):
            step = self.reported + 1
            self.trial.report(values[step - 1], step)
            last = step == self.plan.last or (ended and step == len(values))
            if not last and self.trial.should_prune():
                self.pruned = True
                self.process.stop()
            self.reported = step  # only after the storage has it: a lost storage is asked again

    def measured(self, objectives: Sequence[str]) -> list[float]:
        """The values of a finished trial.

        Raises:
            NoSuchMetric: the stage does not measure one of them.
        """
        return [read_value(name, self.plan.stage_outs, self.plan.cost_file) for name in objectives]
