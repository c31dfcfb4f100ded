"""Run, follow, prune and record trials until the study is complete; each trial is a separate process.

Only the worker connects to the storage, in a single thread.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from optuna import Study
from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError
from optuna.storages import RDBStorage, fail_stale_trials
from optuna.trial import FrozenTrial, Trial, TrialState

from domainbert.base.errors import DomainbertError, TrainingStopped, suggest_name
from domainbert.base.files import folder_lock
from domainbert.base.process import StopSignals
from domainbert.base.redact import redact
from domainbert.runner.claim import LOCK, is_running
from domainbert.training.checkpoint_files import remove_checkpoints
from domainbert.tuning import trials
from domainbert.tuning.results import print_outcome, progress_line, write_results
from domainbert.tuning.search import Search
from domainbert.tuning.study import build_sampler
from domainbert.tuning.trial_process import (
    THREADS,
    RunningTrial,
    TrialPlan,
    TrialProcess,
    make_plan,
    trial_environment,
)
from domainbert.tuning.trial_values import NoSuchMetric

_POLL_SECONDS, _QUERY_SECONDS = 0.1, 2.0  # intervals between polls of the processes, and between storage queries


class Worker:
    """Run trials until the study is complete; `folds` has the changed settings by name of the fold."""

    def __init__(
        self, search: Search, study: Study, storage: RDBStorage, folds: Mapping[str, Mapping[str, Any]]
    ) -> None:
        self.search, self.config, self.space = search, search.config, search.space
        self.study, self.storage = study, storage
        self._make_plan = partial(make_plan, self.space.stage, self.config.objective, folds, search.headline)
        self._running: RunningTrial | None = None
        self._storage_wait = trials.StorageWait()
        existing = study.get_trials(deepcopy=False)
        self._requeued, self._counted = trials.requeued_numbers(existing), trials.counted_trials(existing)
        self._num_finished_at_start = self._num_finished
        self._next_query = 0.0
        self._started = time.monotonic()
        self._deadline = self._started + 3600 * (self.config.max_hours or float("inf"))
        self._signals = StopSignals()

    def run(self) -> None:
        """Run trials until the study is complete or `max_hours` is over. A signal or an error queues the running trial
        again."""
        self._signals.install()
        done = False
        try:
            while not done:
                try:
                    done = self._run_round()
                except StorageInternalError as error:  # unfinished work is repeated in the next round
                    self._storage_wait.wait(error)
                time.sleep(_POLL_SECONDS)
        except BaseException:
            self._requeue_running()
            raise
        num_new, seconds = self._num_finished - self._num_finished_at_start, time.monotonic() - self._started
        print(progress_line(self._counted, self.config, num_new, seconds), flush=True)

    @property
    def _num_finished(self) -> int:
        """Number of finished trials of all workers in the last query of the storage."""
        return sum(trial.state.is_finished() for trial in self._counted)

    def _run_round(self) -> bool:
        """Update the running trial and start a new trial; return whether no trial runs and none will start."""
        if self._signals.received:
            raise TrainingStopped(f"stopped by {signal.Signals(self._signals.received).name}")
        if self._running is not None:
            self._follow(self._running)
        if time.monotonic() < self._next_query:
            return False
        self._next_query = time.monotonic() + min(_QUERY_SECONDS, self.config.storage.heartbeat)
        self._queue_dead_trials()
        self._report_requeued()
        time_is_up = time.monotonic() > self._deadline
        can_start = not time_is_up
        while can_start and self._running is None:
            can_start = self._start_next()
        self._counted = trials.counted_trials(self.study.get_trials(deepcopy=False))
        self._storage_wait.end()
        return self._running is None and (time_is_up or self._num_finished >= self.config.trials)

    def _start_next(self) -> bool:
        """Record incompatible values as a failure of the trial; return False if no trial can be started now."""
        next_trial = self._next_trial()
        if next_trial is None:
            return False
        trial, values = next_trial
        try:
            plain = self.space.settings(values).plain
            plan = self._make_plan(plain, self._folder(trial.number))
        except DomainbertError as error:  # incompatible values
            self._record(trial, TrialState.FAIL, error=str(error))
            return True
        except OSError:  # such as a full disk, which is not a failure of the trial
            with suppress(StorageInternalError, UpdateFinishedTrialError):
                self._queue_again(trial, "its worker could not start it")
            raise
        trial.set_user_attr(trials.SETTINGS, redact(plain))  # the settings of the study may change later
        self._start(trial, plan)
        return True

    def _next_trial(self) -> tuple[Trial, dict[str, Any]] | None:
        """Return the next trial and the values of its settings, or None if no trial can be started now.

        No trial can be started in two cases: all trials have been started; or a trial was queued again, because its
        worker was lost, but a process of this worker still writes the folder of the trial.
        """
        with folder_lock(self.search.out):  # prevents workers from starting too many trials, or a point twice
            existing = self.study.get_trials(deepcopy=False)
            waiting = [trial for trial in existing if trial.state == TrialState.WAITING]
            if len(trials.counted_trials(existing)) >= self.config.trials or any(map(self._is_being_written, waiting)):
                return None
            trial = self.study.ask()  # a waiting trial, or else a new trial
            trials.record_heartbeat(self.storage, trial)
            trial.set_user_attr(trials.WORKER, trials.worker_name())
            # after `ask`, which returns the number: the seed of the sampler depends on it
            number = trials.number_without_retries(self.study, trial.number)
            self.study.sampler = build_sampler(self.config, number)
            return trial, self.space.draw(trial)

    def _is_being_written(self, trial: FrozenTrial) -> bool:
        """Return whether a process of an earlier attempt is still running in the folder of a trial."""
        return any(is_running(marker.parent) for marker in self._folder(trial.number).glob(f"*/{LOCK}"))

    def _start(self, trial: Trial, plan: TrialPlan) -> None:
        environment = trial_environment()
        if THREADS in environment:
            trial.set_user_attr(trials.THREADS, environment[THREADS])
        process = TrialProcess(plan.commands, self._folder(trial.number), environment)
        self._running = RunningTrial(trial, plan, process)

    def _folder(self, number: int) -> Path:
        """All attempts of a trial share its folder."""
        return self.search.out / "trials" / f"{trials.original_number(self._stored_trial(number)):05d}"

    def _stored_trial(self, number: int) -> FrozenTrial:
        """Trials are numbered from 0 without gaps."""
        return self.study.get_trials(deepcopy=False)[number]

    def _print_outcome(self, trial: Trial) -> None:
        print_outcome(self._stored_trial(trial.number), self.config.objective, self.space)

    def _follow(self, running: RunningTrial) -> None:
        code = running.process.poll()
        try:
            if not running.pruned:
                running.report(single_objective=len(self.config.objective) == 1, ended=code is not None)
            if code is not None:
                self._end_trial(running)
        except NoSuchMetric as missing:
            facts = suggest_name(missing.name, missing.names, none="it has no validation metrics")
            problem = f"the stage {self.config.stage} does not measure '{missing.name}'"
            raise DomainbertError(problem, where="objective", **facts) from missing
        except UpdateFinishedTrialError:  # recorded in this round, or by a worker that considered this one dead
            running.process.kill()
            running.process.wait()
            self._running = None
            if running.trial.number in trials.requeued_numbers(self.study.get_trials(deepcopy=False)):
                print(f"trial {running.trial.number}: another worker has taken it over", flush=True)
            else:
                self._print_outcome(running.trial)

    def _send_heartbeat(self, running: RunningTrial) -> None:
        if time.monotonic() - running.last_heartbeat > self.config.storage.heartbeat:
            trials.record_heartbeat(self.storage, running.trial)
            running.last_heartbeat = time.monotonic()

    def _end_trial(self, running: RunningTrial) -> None:
        self._next_query = 0.0  # so that `_run_round` queries the storage now and starts the next trial
        seconds: dict[str, Any] = {trials.SECONDS: running.seconds}
        if running.process.finished and not running.pruned:
            self._record(running.trial, TrialState.COMPLETE, running.objective_values(self.config.objective), **seconds)
        elif running.pruned:  # even if it has finished in the meantime: results must not depend on timing
            self._record(running.trial, TrialState.PRUNED, **seconds)
            for out in filter(Path.is_dir, running.plan.stage_outs):
                remove_checkpoints(out)
        elif running.process.interrupted:
            self._requeue_stopped(running, "it was stopped by a signal")
        else:
            self._record(running.trial, TrialState.FAIL, error=running.process.error(), **seconds)
        self._running = None

    def _record(
        self, trial: Trial, state: TrialState, values: Sequence[float] | None = None, **attributes: Any
    ) -> None:
        recorded_values = None if values is None else list(values)
        if values is not None and not all(map(math.isfinite, values)):
            error = f"an objective is not finite: {dict(zip(self.config.objective, values, strict=True))}"
            attributes[trials.ERROR] = error
            state, recorded_values = TrialState.FAIL, None
        attributes[trials.VALUES] = recorded_values
        for name, value in attributes.items():
            trial.set_user_attr(name, value)
        self.study.tell(trial, recorded_values, state)
        self._print_outcome(trial)
        write_results(self.study, self.search)

    def _queue_dead_trials(self) -> None:
        if self._running is not None:  # first, because the machine may have been suspended for longer than `grace`
            trials.record_heartbeat(self.storage, self._running.trial)
        fail_stale_trials(self.study)  # trials without heartbeats; calls `Retry` for each of them
        running_number = None if self._running is None else self._running.trial.number
        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if trial.number != running_number and trials.is_orphan(trial, self.config.storage.grace):
                trials.queue_again(self.study, trial, trials.DIED)

    def _report_requeued(self) -> None:
        requeued = trials.requeued_numbers(self.study.get_trials(deepcopy=False))
        for number in sorted(requeued - self._requeued):
            reason = self._stored_trial(number).user_attrs.get(trials.ERROR, trials.DIED)
            print(f"trial {number}: {reason}; queued again", flush=True)
        self._requeued = requeued

    def _requeue_stopped(self, running: RunningTrial, reason: str) -> None:
        running.trial.set_user_attr(trials.SECONDS, running.seconds)
        self._queue_again(running.trial, reason)

    def _queue_again(self, trial: Trial, reason: str) -> None:
        trials.queue_again(self.study, trial, reason)
        self._report_requeued()

    def _requeue_running(self) -> None:
        """If the storage is lost, another worker queues the trial again later."""
        if self._running is None:
            return
        running = self._running
        running.process.stop()
        while running.process.poll() is None:
            with suppress(StorageInternalError, UpdateFinishedTrialError):
                self._send_heartbeat(running)
            time.sleep(_POLL_SECONDS)
        with suppress(StorageInternalError, UpdateFinishedTrialError):
            self._requeue_stopped(running, "its worker stopped")
        self._running = None
