"""A worker: takes trials, runs each as a process, follows, prunes and records them, until the study is complete.

Only the worker speaks to the storage, in a single thread.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from optuna import Study
from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError
from optuna.storages import RDBStorage, fail_stale_trials
from optuna.trial import FrozenTrial, Trial, TrialState

from domainbert.base.errors import DomainbertError, TrainingStopped, nearest
from domainbert.base.files import folder_lock
from domainbert.base.redact import redact
from domainbert.base.signals import StopSignals
from domainbert.runner.claim import RUNNING, is_running
from domainbert.training.checkpoint_files import remove_progress
from domainbert.tuning import slots, trials
from domainbert.tuning.methods import build_sampler
from domainbert.tuning.results import write_results
from domainbert.tuning.search import Search
from domainbert.tuning.storages import Patience
from domainbert.tuning.trial_log import TrialLog
from domainbert.tuning.trial_process import Running, TrialPlan, TrialProcess, make_plan
from domainbert.tuning.trial_values import NoSuchMetric

_POLL_SECONDS, _ASK_SECONDS = 0.1, 2.0  # between looks at the trials, and between questions to the storage


class Worker:
    """Runs trials until the study has the number that was asked for; `folds` are the settings that change, by fold."""

    def __init__(
        self, search: Search, study: Study, storage: RDBStorage, folds: Mapping[str, Mapping[str, Any]]
    ) -> None:
        self.search, self.config, self.space = search, search.config, search.space
        self.study, self.storage, self.log = study, storage, TrialLog(self.config)
        self._plan = partial(make_plan, self.space.stage, self.config.objective, folds, search.headline)
        self._running: list[Running] = []
        self._patience, self._lost = Patience(self.log.say), trials.lost(study.get_trials(deepcopy=False))
        self._next_question = 0.0
        self._end = time.monotonic() + 3600 * (self.config.max_hours or float("inf"))
        self._signals = StopSignals()

    def run(self) -> None:
        """Work until the study is complete, or the time is up.

        Raises:
            TrainingStopped: a signal came; the running trials are queued again.
            DomainbertError: the stage does not measure an objective.
        """
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
            self._give_back()
            raise
        self.log.say(self.log.summary())

    def _done(self) -> bool:
        """One round."""
        if self._signals.received:
            raise TrainingStopped(f"stopped by {signal.Signals(self._signals.received).name}")
        for one in list(self._running):
            self._follow(one)
        if time.monotonic() < self._next_question:
            return False
        self._next_question = time.monotonic() + min(_ASK_SECONDS, self.config.storage.heartbeat)
        self._queue_dead_trials()
        self._tell_lost()
        late = time.monotonic() > self._end
        while not late and len(self._running) < self.config.num_slots and self._take():
            pass
        found = trials.counted(self.study.get_trials(deepcopy=False))
        self.log.count(found)
        self._patience.answered()
        return not self._running and (late or sum(one.state.is_finished() for one in found) >= self.config.trials)

    def _take(self) -> bool:
        """Begin a trial, if one more is wanted."""
        found = self._next()
        if found is None:
            return False
        trial, values = found
        try:
            plain = self.space.settings(values).plain
            plan = self._plan(plain, self._folder(trial.number))
        except DomainbertError as error:  # values that do not go together
            self._record(trial, TrialState.FAIL, error=str(error))
            return True
        except OSError:  # a full disk: nothing that the trial could help
            with suppress(StorageInternalError, UpdateFinishedTrialError):
                self._queue_again(trial, "its worker could not begin it")
            raise
        trial.set_user_attr(trials.SETTINGS, redact(plain))  # those of the study may change later
        self._begin(trial, values, plan)
        return True

    def _next(self) -> tuple[Trial, dict[str, Any]] | None:
        """The next trial and its values; None also while a process of a worker believed dead still writes there."""
        with folder_lock(self.search.out):  # so that workers of one folder make no trial too many, and no point twice
            known = self.study.get_trials(deepcopy=False)
            waiting = [one for one in known if one.state == TrialState.WAITING]
            if len(trials.counted(known)) >= self.config.trials or any(map(self._is_written, waiting)):
                return None
            with trials.quiet():
                trial = self.study.ask()
            trials.record_heartbeat(self.storage, trial)
            trial.set_user_attr(trials.WORKER, trials.worker_name())
            with trials.quiet():
                self.study.sampler = build_sampler(self.config, trials.place(self.study, trial.number))
                return trial, self.space.draw(trial)

    def _is_written(self, trial: FrozenTrial) -> bool:
        return any(is_running(marker.parent) for marker in self._folder(trial.number).glob(f"*/{RUNNING}"))

    def _begin(self, trial: Trial, values: dict[str, Any], plan: TrialPlan) -> None:
        slot = min(set(range(self.config.num_slots)) - {one.slot for one in self._running})
        environment = slots.slot_environment(slot, self.config.num_slots, self.config.gpus)
        if slots.THREADS in environment:
            trial.set_user_attr(trials.THREADS, environment[slots.THREADS])
        process = TrialProcess(plan.commands, self._folder(trial.number), environment)
        self._running.append(Running(slot, trial, values, plan, process))

    def _folder(self, number: int) -> Path:
        return self.search.out / "trials" / f"{trials.origin(self._recorded(number)):05d}"

    def _recorded(self, number: int) -> FrozenTrial:
        return self.study.get_trials(deepcopy=False)[number]

    def _follow(self, one: Running) -> None:
        """Report the new values of a trial, prune it, or record its end."""
        code = one.process.poll()
        try:
            if not one.pruned:
                one.report(len(self.config.objective) == 1, code is not None)
            if code is not None:
                self._end_of(one)
            else:
                self._beat(one)
        except NoSuchMetric as missing:  # the trial is given back
            found = f"{self.config.stage} does not measure {missing.name}; {nearest(missing.name, missing.names)}"
            raise DomainbertError(f"objective: {found}") from missing
        except UpdateFinishedTrialError:  # by a worker that believed this one dead; or by this round
            one.process.kill()
            one.process.wait()
            self._running.remove(one)
            if one.trial.number in trials.lost(self.study.get_trials(deepcopy=False)):
                self.log.say(f"trial {one.trial.number}: another worker has taken it over")
            else:
                self.log.ended(self._recorded(one.trial.number))

    def _beat(self, one: Running) -> None:
        """Record the heartbeat of a trial, if it is time."""
        if time.monotonic() - one.last_heartbeat > self.config.storage.heartbeat:
            trials.record_heartbeat(self.storage, one.trial)
            one.last_heartbeat = time.monotonic()

    def _end_of(self, one: Running) -> None:
        self._next_question = 0.0
        seconds: dict[str, Any] = {trials.SECONDS: one.seconds}
        if one.process.finished and not one.pruned:
            self._record(one.trial, TrialState.COMPLETE, one.measured(self.config.objective), **seconds)
        elif one.pruned:  # even if it has finished meanwhile: timing must not change a study
            self._record(one.trial, TrialState.PRUNED, **seconds)
            for out in filter(Path.is_dir, one.plan.stage_outs):
                remove_progress(out)
        elif one.process.interrupted:
            self._stopped(one, "it was stopped by a signal")
        else:
            self._record(one.trial, TrialState.FAIL, error=one.process.error(), **seconds)
        self._running.remove(one)

    def _record(
        self, trial: Trial, state: TrialState, values: Sequence[float] | None = None, **attributes: Any
    ) -> None:
        if not all(map(math.isfinite, values or ())):
            error = f"an objective is not a finite number: {', '.join(map(str, values or ()))}"
            state, values, attributes = TrialState.FAIL, None, {**attributes, trials.ERROR: error}
        for name, value in attributes.items():
            trial.set_user_attr(name, value)
        with trials.quiet(), _suppress_stop():
            self.study.tell(trial, list(values) if values is not None else None, state)
        self.log.ended(self._recorded(trial.number))
        write_results(self.study, self.search)

    def _queue_dead_trials(self) -> None:
        with trials.quiet():
            fail_stale_trials(self.study)
        own = {one.trial.number for one in self._running}
        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if trial.number not in own and trials.is_orphan(trial, self.config.storage.grace):
                trials.queue_again(self.study, trial, trials.DIED)

    def _tell_lost(self) -> None:
        lost = trials.lost(self.study.get_trials(deepcopy=False))
        for number in sorted(lost - self._lost):
            reason = self._recorded(number).user_attrs.get(trials.ERROR, trials.DIED)
            self.log.say(f"trial {number}: {reason}; queued again")
        self._lost = lost

    def _stopped(self, one: Running, reason: str) -> None:
        one.trial.set_user_attr(trials.SECONDS, one.seconds)
        self._queue_again(one.trial, reason)

    def _queue_again(self, trial: Trial, reason: str) -> None:
        trials.queue_again(self.study, trial, reason)
        self._tell_lost()

    def _give_back(self) -> None:
        """End the running trials, and queue them again; if the storage cannot be reached, other workers find them."""
        for one in self._running:
            one.process.stop()
        while any([one.process.poll() is None for one in self._running]):  # of all of them: each has its time
            with suppress(StorageInternalError, UpdateFinishedTrialError):
                for one in self._running:
                    self._beat(one)
            time.sleep(_POLL_SECONDS)
        for one in self._running:
            with suppress(StorageInternalError, UpdateFinishedTrialError):
                self._stopped(one, "its worker stopped")
        self._running.clear()


@contextmanager
def _suppress_stop() -> Iterator[None]:
    """Suppress the error of a grid sampler that has seen all its points: it calls the study's `stop`, which is for
    Optuna's own loop."""
    try:
        yield
    except RuntimeError as error:
        if "Study.stop" not in str(error):
            raise
