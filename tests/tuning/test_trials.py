from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from domainbert.tuning import trials
from domainbert.tuning.config import StorageConfig
from domainbert.tuning.storages import open_storage


@pytest.fixture(params=["sqlite", "journal"])
def study(request: pytest.FixtureRequest, tmp_path: Path) -> optuna.Study:
    storage = open_storage(StorageConfig(kind=request.param), tmp_path)
    return optuna.create_study(storage=storage, study_name="s")


def running(study: optuna.Study, **attributes: object) -> optuna.trial.FrozenTrial:
    trial = study.ask({"x": optuna.distributions.FloatDistribution(0, 1)})
    for name, value in attributes.items():
        trial.set_user_attr(name, value)
    return study.get_trials()[trial.number]


def test_no_more_trials_are_taken_than_were_asked_for(study: optuna.Study) -> None:
    taken = [trials.take_trial(study, 2) for _ in range(4)]
    assert [one.number if one else None for one in taken] == [0, 1, None, None]
    assert len(study.get_trials()) == 2
    assert study.get_trials()[0].user_attrs[trials.WORKER] == trials.worker_name()


def test_a_trial_is_queued_again_once_with_its_values(study: optuna.Study) -> None:
    trial = running(study)
    study._storage.set_trial_system_attr(trial._trial_id, "completed_rung_0", 0.5)
    trial = study.get_trials()[0]
    assert trials.queue_again(study, trial, "its worker died")
    assert not trials.queue_again(study, trial, "its worker died")  # another worker has seen the same
    old, new = study.get_trials()
    assert (old.state, old.user_attrs[trials.LOST]) == (TrialState.FAIL, "its worker died")
    assert (new.state, new.params) == (TrialState.WAITING, old.params)
    assert "completed_rung_0" not in new.system_attrs and trials.origin(new) == 0
    again = trials.take_trial(study, 1)
    assert again is not None and again.number == 1
    assert again.suggest_float("x", 0, 1) == old.params["x"]


@pytest.mark.parametrize("blame", [True, False])
def test_what_kills_its_workers_fails_for_good_and_what_is_only_stopped_never(study: optuna.Study, blame: bool) -> None:
    running(study)
    for number in range(4):
        trials.queue_again(study, study.get_trials()[number], "so it was", blame)
        assert (trials.take_trial(study, 1) is None) == (blame and number == 3)
    found = study.get_trials()
    if blame:
        assert len(found) == 4 and found[-1].user_attrs[trials.ERROR] == "so it was, 4 times"
    else:
        assert len(found) == 5 and found[-1].state == TrialState.RUNNING
    assert trials.counted(found) == [found[-1]] and trials.take_trial(study, 1) is None


def test_a_trial_that_ends_just_before_it_is_queued_again_counts(study: optuna.Study) -> None:
    seen = running(study)
    study.tell(0, 0.5)  # its worker was only slow
    assert not trials.queue_again(study, seen, "its worker died", blame=True)
    study._storage.set_trial_user_attr = lambda *_: None  # type: ignore[method-assign]
    assert not trials.queue_again(study, seen, "its worker died", blame=True)
    assert [one.state for one in trials.counted(study.get_trials())] == [TrialState.COMPLETE]


def test_a_place_does_not_depend_on_what_was_queued_again(study: optuna.Study) -> None:
    places = []
    for interrupted in (False, True, False, False):
        trial = trials.take_trial(study, 9)
        assert trial is not None
        places.append(trials.place(study, trial))
        if interrupted:
            trials.queue_again(study, study.get_trials()[trial.number], "its worker stopped")
    assert places == [0, 1, 1, 2]


def test_a_worker_of_this_machine_is_looked_up(study: optuna.Study) -> None:
    watch, machine = trials.Watch(1000), trials.machine_name()
    assert not watch.dead(running(study, worker=trials.worker_name()))
    assert watch.dead(running(study, worker=f"{machine}:{os.getpid()}:1"))  # the number is used again
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    name = f"{machine}:{process.pid}:{trials._start_of(process.pid)}"
    process.wait()
    assert watch.dead(running(study, worker=name))


def test_a_worker_of_another_machine_is_dead_when_its_sign_stands_still(
    study: optuna.Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(trials.time, "monotonic", lambda: clock[0])
    watch, trial = trials.Watch(10), running(study, worker="elsewhere:1:2", alive=3)
    signs = [(now, 3, False) for now in range(0, 10, 2)] + [(now, 4, now > 19) for now in range(9, 23, 2)]
    for now, alive, dead in signs:
        clock[0] = now
        study._storage.set_trial_user_attr(trial._trial_id, trials.ALIVE, alive)
        assert watch.dead(study.get_trials()[trial.number]) == dead, now


def test_a_worker_that_did_not_look_for_long_has_not_seen_others_die(
    study: optuna.Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(trials.time, "monotonic", lambda: clock[0])
    watch, trial = trials.Watch(10), running(study, worker="elsewhere:1:2", alive=3)
    for now in (0, 2, 1000, 1002, 1004):  # its database was away
        clock[0] = now
        assert not watch.dead(trial)
    clock[0] = 1007
    assert watch.dead(trial)


def test_a_line_that_was_not_finished_does_not_spoil_a_journal(tmp_path: Path) -> None:
    file = tmp_path / "study.journal"
    study = optuna.create_study(storage=open_storage(StorageConfig(kind="journal"), tmp_path), study_name="s")
    running(study)
    with open(file, "ab") as stream:
        stream.write(b'{"op_code": 4, "worker_id": "x"' + b" " * 10_000)  # a worker was killed here
    again = optuna.load_study(storage=open_storage(StorageConfig(kind="journal"), tmp_path), study_name="s")
    running(again)
    whole = optuna.load_study(storage=open_storage(StorageConfig(kind="journal"), tmp_path), study_name="s")
    assert [one.number for one in whole.get_trials()] == [0, 1]
    assert file.read_bytes().endswith(b"}\n") and b'"x" ' not in file.read_bytes()
