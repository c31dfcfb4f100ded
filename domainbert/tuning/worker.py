"""A worker: takes trials, runs each as a process, follows, prunes and records them, until the study has its number.

Only the worker speaks to the storage, in a single thread.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from domainbert.errors import DomainbertError, TrainingStopped
from domainbert.settings.tree import nearest
from domainbert.signals import StopSignals
from domainbert.training.checkpoint_files import remove_progress
from domainbert.tuning import trials
from domainbert.tuning.config import TuneConfig
from domainbert.tuning.live_table import LiveTable
from domainbert.tuning.methods import build_sampler
from domainbert.tuning.objectives import NoSuchMetric, read_value
from domainbert.tuning.space import Space
from domainbert.tuning.trial_process import Step, TrialProcess, slot_environment

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial, Trial, TrialState

_POLL_SECONDS = 0.1
_ASK_SECONDS = 2.0  # between questions to the storage while there is nothing to do but wait for other workers

Planner = Callable[[int, dict[str, Any], Path], tuple[list[Step], list[Path], Path]]
"""Trial number, values and folder to the processes, the folders that the stage writes, and the file of the cost."""


@dataclass
class Running:
    """A trial that this worker runs."""

    slot: int
    trial: Trial
    values: dict[str, Any]
    process: TrialProcess
    stage_outs: list[Path]
    cost_file: Path
    alive: int = 0
    last_sign: float = field(default_factory=time.monotonic)
    pruned: bool = False


@dataclass(frozen=True)
class Surroundings:
    """What a worker works with."""

    study: Study
    out: Path
    plan: Planner
    lock: Callable[[], AbstractContextManager[Any]]
    """Held while trials are taken or queued again, where the storage itself does not keep workers apart."""
    table: LiveTable
    recorded: Callable[[], None]
    """Called after each trial."""


class Worker:
    """Runs trials until the study has as many as were asked for.

    Args:
        config: what is asked for.
        space: what is searched.
        around: the study and what else there is.
    """

    def __init__(self, config: TuneConfig, space: Space, around: Surroundings) -> None:
        self.config, self.space, self.around, self.study = config, space, around, around.study
        self.running: list[Running] = []
        self._watch = trials.Watch(config.storage.grace)
        self._next_question = 0.0
        self._end = time.monotonic() + 3600 * config.max_hours if config.max_hours else float("inf")
        self._signals = StopSignals()

    def run(self) -> None:
        """Work until the study is complete, or the time is over.

        Raises:
            TrainingStopped: a signal; the trials that ran are queued again.
            DomainbertError: the stage does not measure what is asked for.
        """
        self._signals.install()
        try:
            while not self._done():
                time.sleep(_POLL_SECONDS)
        except BaseException:
            self._give_back("its worker stopped")
            raise

    def _done(self) -> bool:
        """One round."""
        if self._signals.received:
            raise TrainingStopped(f"stopped by {signal.Signals(self._signals.received).name}")
        for one in list(self.running):
            self._follow(one)
        self.around.table.show(self.running)
        if time.monotonic() < self._next_question:
            return False
        self._next_question = time.monotonic() + min(_ASK_SECONDS, self.config.storage.heartbeat)
        self._queue_dead_trials()
        late = time.monotonic() > self._end
        while not late and len(self.running) < self.config.num_slots and self._take():
            pass
        self.around.table.count(trials.counted(self.study.get_trials(deepcopy=False)))
        return not self.running and (late or self._complete())

    def _complete(self) -> bool:
        found = trials.counted(self.study.get_trials(deepcopy=False))
        return sum(one.state.is_finished() for one in found) >= self.config.trials

    def _take(self) -> bool:
        """Begin a trial, if one more is wanted."""
        with self.around.lock(), trials.quiet():
            trial = trials.take_trial(self.study, self.config.trials)
        if trial is None:
            return False
        self.study.sampler = build_sampler(self.config, trial.number)
        with trials.quiet():
            values = self.space.draw(trial)
        folder = self.around.out / "trials" / f"{trials.origin(trial):05d}"
        try:
            steps, outs, cost_file = self.around.plan(trial.number, values, folder)
        except DomainbertError as error:  # values that do not go together
            self._record(trial, "FAIL", error=str(error))
            return True
        slot = min(set(range(self.config.num_slots)) - {one.slot for one in self.running})
        environment = slot_environment(slot, self.config.num_slots, self.config.gpus)
        process = TrialProcess(steps, folder, self.config.objective[0], environment)
        self.running.append(Running(slot, trial, values, process, outs, cost_file))
        return True

    def _follow(self, one: Running) -> None:
        """Report what is new of a trial, prune it, or record its end."""
        import optuna

        code = one.process.poll()
        try:
            if not one.pruned:
                self._report(one)
            if code is not None:
                self._end_of(one)
            elif time.monotonic() - one.last_sign > self.config.storage.heartbeat:
                one.alive, one.last_sign = one.alive + 1, time.monotonic()
                one.trial.set_user_attr(trials.ALIVE, one.alive)
        except optuna.exceptions.UpdateFinishedTrialError:  # this worker was silent for too long, and taken for dead
            one.process.kill()
            one.process.wait()
            self.running = [other for other in self.running if other is not one]
            self.around.table.say(f"trial {one.trial.number}: another worker has taken it over")

    def _report(self, one: Running) -> None:
        first = len(one.process.stream.values) + 1
        for step, value in enumerate(one.process.stream.new_values(), first):
            if len(self.config.objective) > 1:
                continue  # Optuna keeps no evaluations then
            one.trial.report(value, step)
            if one.trial.should_prune():
                one.pruned = True
                one.process.stop()
                return

    def _end_of(self, one: Running) -> None:
        self.running.remove(one)
        self._next_question = 0.0
        seconds: dict[str, Any] = {trials.SECONDS: round(time.monotonic() - one.process.started, 3)}
        if one.process.finished and not one.pruned:
            self._record(one.trial, "COMPLETE", self._values(one), **seconds)
        elif one.pruned:  # even if it has finished meanwhile: a study does not depend on who was quicker
            self._record(one.trial, "PRUNED", **seconds)
            for out in filter(Path.is_dir, one.stage_outs):
                remove_progress(out)
        elif one.process.interrupted:
            self._queue_again(self._frozen(one.trial), "it was stopped by a signal")
        else:
            self._record(one.trial, "FAIL", error=one.process.error(), **seconds)

    def _values(self, one: Running) -> list[float]:
        try:
            return [read_value(name, one.stage_outs, one.cost_file) for name in self.config.objective]
        except NoSuchMetric as missing:
            self._queue_again(self._frozen(one.trial), "an objective was not measured")
            advice = nearest(missing.name, missing.names)
            raise DomainbertError(
                f"objective: {self.config.stage} does not measure {missing.name}; {advice}"
            ) from missing

    def _record(self, trial: Trial, state: str, values: Sequence[float] | None = None, **attributes: Any) -> None:
        from optuna.trial import TrialState

        finite = values is None or all(value == value for value in values)
        if not finite:
            state, values, attributes = "FAIL", None, {**attributes, trials.ERROR: "an objective is not a number"}
        for name, value in attributes.items():
            trial.set_user_attr(name, value)
        with trials.quiet():
            self._tell(trial, TrialState[state], values)
        self.around.table.ended(self._frozen(trial))
        self.around.recorded()

    def _tell(self, trial: Trial, state: TrialState, values: Sequence[float] | None) -> None:
        """A grid sampler that has seen all its points calls the study's `stop`, which is for Optuna's own loop."""
        try:
            self.study.tell(trial, list(values) if values is not None else None, state)
        except RuntimeError as error:
            if "Study.stop" not in str(error):
                raise

    def _frozen(self, trial: Trial) -> FrozenTrial:
        return self.study._storage.get_trial(trial._trial_id)

    def _queue_dead_trials(self) -> None:
        from optuna.trial import TrialState

        own = {one.trial.number for one in self.running}
        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if trial.number not in own and self._watch.dead(trial):
                self._queue_again(trial, "its worker died")

    def _queue_again(self, trial: FrozenTrial, reason: str) -> None:
        with self.around.lock(), trials.quiet():
            taken = trials.queue_again(self.study, trial, reason)
        if taken:
            self.around.table.say(f"trial {trial.number}: {reason}; queued again")

    def _give_back(self, reason: str) -> None:
        """End what runs, and queue it again; where the storage is out of reach, other workers find out."""
        from optuna.exceptions import StorageInternalError

        for one in self.running:
            one.process.stop()
        for one in self.running:
            one.process.wait()
            with suppress(StorageInternalError):
                self._queue_again(self._frozen(one.trial), reason)
        self.running.clear()
