"""A worker: takes trials, runs each as a process, follows, prunes and records them, until the study is complete.

Only the worker speaks to the storage, in a single thread.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from domainbert.base.errors import DomainbertError, TrainingStopped
from domainbert.base.redact import redact
from domainbert.base.signals import StopSignals
from domainbert.runner.claim import RUNNING, is_running
from domainbert.settings.tree import nearest
from domainbert.training.checkpoint_files import remove_progress
from domainbert.tuning import optuna_internals, slots, trials
from domainbert.tuning.config import TuneConfig
from domainbert.tuning.live_table import LiveTable
from domainbert.tuning.methods import build_sampler
from domainbert.tuning.objective_values import NoSuchMetric
from domainbert.tuning.patience import Patience
from domainbert.tuning.running import Running
from domainbert.tuning.space import Space
from domainbert.tuning.trial_plan import TrialPlan
from domainbert.tuning.trial_process import TrialProcess

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial, Trial

_POLL_SECONDS, _ASK_SECONDS = 0.1, 2.0  # between looks at the trials, and between questions to the storage


@dataclass(frozen=True)
class Surroundings:
    """Study, folder and locks of a worker."""

    study: Study
    out: Path
    plan: Callable[[dict[str, Any], Path], TrialPlan]
    """Maps the stage's settings and the folder of a trial to its plan."""
    lock: Callable[[], AbstractContextManager[Any]]
    """Held while a trial is taken and drawn, or queued again: one worker at a time."""
    table: LiveTable
    recorded: Callable[[], None]
    """Called after each trial."""


class Worker:
    """Runs trials until the study has the number that was asked for.

    Args:
        config: the settings of the search.
        space: the search space.
        around: the study, its folder and locks.
    """

    def __init__(self, config: TuneConfig, space: Space, around: Surroundings) -> None:
        self.config, self.space, self.around, self.study = config, space, around, around.study
        self.running: list[Running] = []
        self._watch, self._patience = trials.Watch(config.storage.grace), Patience(around.table.say)
        self._next_question = 0.0
        self._end = time.monotonic() + 3600 * config.max_hours if config.max_hours else float("inf")
        self._signals = StopSignals()

    def run(self) -> None:
        """Work until the study is complete, or the time is up.

        Raises:
            TrainingStopped: a signal came; the running trials are queued again.
            DomainbertError: the stage does not measure an objective.
        """
        from optuna.exceptions import StorageInternalError

        self._signals.install()
        done = False
        try:
            while not done:
                try:
                    done = self._done()
                except StorageInternalError as error:  # unfinished work is repeated in the next round
                    self._patience.wait(error)
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
        found = trials.counted(self.study.get_trials(deepcopy=False))
        self.around.table.count(found)
        self._patience.answered()
        return not self.running and (late or sum(one.state.is_finished() for one in found) >= self.config.trials)

    def _take(self) -> bool:
        """Begin a trial, if one more is wanted."""
        found = self._next()
        if found is None:
            return False
        trial, values = found
        try:
            plain = self.space.settings(values).plain
            plan = self.around.plan(plain, self._folder(trial))
        except DomainbertError as error:  # values that do not go together
            self._record(trial, "FAIL", error=str(error))
            return True
        trial.set_user_attr(trials.SETTINGS, redact(plain))  # those of the study may change later
        self._begin(trial, values, plan)
        return True

    def _next(self) -> tuple[Trial, dict[str, Any]] | None:
        """The next trial and its values; None also while a process of a worker believed dead still writes there."""
        with self.around.lock(), trials.quiet():
            trial = trials.take_trial(self.study, self.config.trials)
            if trial is None:
                return None
            try:
                if not any(is_running(marker.parent) for marker in self._folder(trial).glob(f"*/{RUNNING}")):
                    self.study.sampler = build_sampler(self.config, trials.place(self.study, trial))
                    return trial, self.space.draw(trial)
            except BaseException:
                trials.put_back(self.study, trial)
                raise
            trials.put_back(self.study, trial)
            return None

    def _begin(self, trial: Trial, values: dict[str, Any], plan: TrialPlan) -> None:
        slot = min(set(range(self.config.num_slots)) - {one.slot for one in self.running})
        environment = slots.slot_environment(slot, self.config.num_slots, self.config.gpus)
        if slots.THREADS in environment:
            trial.set_user_attr(trials.THREADS, environment[slots.THREADS])
        process = TrialProcess(plan.steps, self._folder(trial), plan.stream, environment)
        self.running.append(Running(slot, trial, values, plan, process))

    def _folder(self, trial: Trial) -> Path:
        return self.around.out / "trials" / f"{trials.origin(trial):05d}"

    def _follow(self, one: Running) -> None:
        """Report the new values of a trial, prune it, or record its end."""
        import optuna

        code = one.process.poll()
        try:
            if not one.pruned:
                one.report(len(self.config.objective) == 1, code is not None)
            if code is not None:
                self._end_of(one)
            else:
                one.sign(self.config.storage.heartbeat)
        except NoSuchMetric as missing:  # the trial is given back
            advice = nearest(missing.name, missing.names)
            raise DomainbertError(
                f"objective: {self.config.stage} does not measure {missing.name}; {advice}"
            ) from missing
        except optuna.exceptions.UpdateFinishedTrialError:  # by a worker that believed this one dead; or by this round
            one.process.kill()
            one.process.wait()
            self.running.remove(one)
            if trials.is_lost(found := optuna_internals.recorded(self.study, one.trial)):
                self.around.table.say(f"trial {one.trial.number}: another worker has taken it over")
            else:
                self.around.table.ended(found)

    def _end_of(self, one: Running) -> None:
        self._next_question = 0.0
        seconds: dict[str, Any] = {trials.SECONDS: one.seconds}
        if one.process.finished and not one.pruned:
            self._record(one.trial, "COMPLETE", one.measured(self.config.objective), **seconds)
        elif one.pruned:  # even if it has finished meanwhile: timing must not change a study
            self._record(one.trial, "PRUNED", **seconds)
            for out in filter(Path.is_dir, one.plan.stage_outs):
                remove_progress(out)
        elif one.process.interrupted:
            self._queue_again(one, "it was stopped by a signal")
        else:
            self._record(one.trial, "FAIL", error=one.process.error(), **seconds)
        self.running.remove(one)

    def _record(self, trial: Trial, state: str, values: Sequence[float] | None = None, **attributes: Any) -> None:
        from optuna.trial import TrialState

        if not all(map(math.isfinite, values or ())):
            error = f"an objective is not a finite number: {', '.join(map(str, values or ()))}"
            state, values, attributes = "FAIL", None, {**attributes, trials.ERROR: error}
        for name, value in attributes.items():
            trial.set_user_attr(name, value)
        with trials.quiet():
            optuna_internals.tell(self.study, trial, TrialState[state], values)
        self.around.table.ended(optuna_internals.recorded(self.study, trial))
        self.around.recorded()

    def _queue_dead_trials(self) -> None:
        from optuna.trial import TrialState

        own = {one.trial.number for one in self.running}
        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if trial.number in own:
                continue
            if trial.user_attrs.get(trials.WORKER) == trials.worker_name():
                self._put_again(trial, "the storage was lost when it began")
            elif self._watch.dead(trial):
                self._put_again(trial, "its worker died", blame=True)

    def _queue_again(self, one: Running, reason: str) -> None:
        one.trial.set_user_attr(trials.SECONDS, one.seconds)
        self._put_again(optuna_internals.recorded(self.study, one.trial), reason)

    def _put_again(self, trial: FrozenTrial, reason: str, blame: bool = False) -> None:
        with self.around.lock(), trials.quiet():
            taken = trials.queue_again(self.study, trial, reason, blame)
        if taken:
            self.around.table.say(f"trial {trial.number}: {reason}; queued again")

    def _give_back(self, reason: str) -> None:
        """End the running trials, and queue them again; if the storage cannot be reached, other workers find them."""
        from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError

        for one in self.running:
            one.process.stop()
        while any([one.process.poll() is None for one in self.running]):  # of all of them: each has its time
            with suppress(StorageInternalError, UpdateFinishedTrialError):
                for one in self.running:
                    one.sign(self.config.storage.heartbeat)
            time.sleep(_POLL_SECONDS)
        for one in self.running:
            with suppress(StorageInternalError, UpdateFinishedTrialError):
                self._queue_again(one, reason)
        self.running.clear()
