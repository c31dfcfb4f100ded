from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from domainbert.tuning import trials
from domainbert.tuning.config import StorageConfig
from domainbert.tuning.trials import open_storage


@pytest.fixture
def study(tmp_path: Path) -> optuna.Study:
    storage = open_storage(StorageConfig(), tmp_path, {})
    return optuna.create_study(storage=storage, study_name="s")


def running(study: optuna.Study) -> optuna.Trial:
    return study.ask({"x": optuna.distributions.FloatDistribution(0, 1)})


def test_a_trial_is_queued_again_with_its_values_and_without_its_rungs(study: optuna.Study) -> None:
    trial = running(study)
    trial.set_user_attr(trials.SECONDS, 3.0)
    study._storage.set_trial_system_attr(trial._trial_id, "completed_rung_0", 0.5)
    trials.queue_again(study, trial, "its worker stopped")
    old, new = study.get_trials()
    assert (old.state, old.user_attrs[trials.ERROR]) == (TrialState.FAIL, "its worker stopped")
    assert (new.state, new.params, new.user_attrs) == (TrialState.WAITING, old.params, {})
    assert "completed_rung_0" not in new.system_attrs and trials.original_number(new) == 0
    assert trials.requeued_numbers([old, new]) == {0} and trials.counted_trials([old, new]) == []
    again = study.ask()
    assert again.number == 1 and again.suggest_float("x", 0, 1) == old.params["x"]
    trials.queue_again(study, again, "its worker stopped")
    assert trials.original_number(study.get_trials()[2]) == 0 and trials.requeued_numbers(study.get_trials()) == {0, 1}


def test_what_kills_its_workers_fails_for_good_and_what_is_only_stopped_never(study: optuna.Study) -> None:
    storage: Any = study._storage
    retry = storage.get_heartbeat_stale_trial_callback()
    for stopped in (False, True):
        for _ in range(4):
            trial = running(study)
            if stopped:
                trials.queue_again(study, trial, "its worker stopped")
            else:
                study.tell(trial, state=TrialState.FAIL)
                retry(study, study.get_trials()[trial.number])
        waiting = [one for one in study.get_trials() if one.state == TrialState.WAITING]
        assert len(waiting) == stopped
        failed = trials.counted_trials(study.get_trials())
        assert [one.number for one in failed] == [3], "the fourth death"


def test_a_place_does_not_depend_on_what_was_queued_again(study: optuna.Study) -> None:
    places = []
    for interrupted in (False, True, False, False):
        trial = running(study)
        places.append(trials.number_without_retries(study, trial.number))
        if interrupted:
            trials.queue_again(study, trial, "its worker stopped")
    assert places == [0, 1, 1, 2]


def test_a_trial_that_waited_keeps_its_place_after_an_interruption(study: optuna.Study) -> None:
    for x in (0.25, 0.5, 0.75):
        study.enqueue_trial({"x": x})
    places = []
    for interrupted in (False, True, False, True, False, False):
        trial = running(study)
        places.append((trial.number, trials.number_without_retries(study, trial.number)))
        if interrupted:
            trials.queue_again(study, trial, "its worker stopped")
    assert places == [(0, 0), (1, 1), (2, 2), (3, 1), (4, 1), (5, 3)]


def test_an_orphan_that_two_workers_see_is_queued_again_once(study: optuna.Study) -> None:
    study.ask()
    (orphan,) = study.get_trials()
    for _ in range(2):
        trials.queue_again(study, orphan, trials.DIED)
    assert [trial.state.name for trial in study.get_trials()] == ["FAIL", "WAITING"]


def test_a_trial_that_its_worker_did_not_get_is_an_orphan_after_a_while(study: optuna.Study) -> None:
    first, second = running(study), running(study)
    second.set_user_attr(trials.WORKER, trials.worker_name())
    found = study.get_trials()
    assert [trials.is_orphan(one, 0.0) for one in found] == [True, False] and not trials.is_orphan(found[0], 60)
    assert first.number == 0
