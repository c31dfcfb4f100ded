"""Several workers on one study, and what becomes of it when one of them is killed."""

from __future__ import annotations

import csv
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.forked import SECONDS

TRIALS = 7


def rows_of(fake: Any) -> list[dict[str, str]]:
    with open(fake.folder / "study" / "trials.csv", newline="") as file:
        return list(csv.DictReader(file))


def wait_for(condition: Any) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def beginning(fake: Any, worker: Any) -> bool:
    """Whether a trial of this worker has made its first evaluation, and no other."""
    for log in fake.folder.glob("study/trials/*/run/seed-1/logs/metrics.jsonl"):
        if log.read_text().count("\n") == 1 and worker.pid in parents_of(fake, log.parents[3].name):
            return True
    return False


def parents_of(fake: Any, trial: str) -> set[int]:
    """The processes that have started one for a trial; other tests may search at the same time."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            own = (folder / "cwd").resolve() == fake.folder.resolve()
            if own and f"trials/{trial}/run.yaml" in (folder / "cmdline").read_text():
                found.add(int((folder / "stat").read_text().rpartition(")")[2].split()[1]))
        except OSError:
            continue
    return found


def kill_in_the_middle(fake: Any) -> list[str]:
    """Two workers; the first is killed with a trial begun. Returns what the second said."""
    first = fake.start("tune", "-c", "tune.yaml")
    second = fake.start("tune", "-c", "tune.yaml")
    wait_for(lambda: beginning(fake, second))
    wait_for(lambda: beginning(fake, first))
    first.send_signal(signal.SIGKILL)  # it is not waited for here: a dead worker may be a zombie for long
    said, _ = second.communicate(timeout=SECONDS)
    first.communicate(timeout=SECONDS)
    assert second.returncode == 0, said
    return said.splitlines()


def check_nothing_lost(fake: Any, said: list[str]) -> None:
    """The requested number of trials; the killed one was run again with the same value; none was trained twice."""
    rows = rows_of(fake)
    states = Counter(row["state"] for row in rows)
    assert states == {"complete": TRIALS, "queued again": 1}
    assert len({row["x"] for row in rows if row["state"] == "complete"}) == TRIALS
    (lost,) = [row for row in rows if row["state"] == "queued again"]
    assert lost["x"] in {row["x"] for row in rows if row["state"] == "complete"}
    trained = [line for file in fake.folder.glob("study/trials/*/runs.txt") for line in file.read_text().split()]
    assert sorted(trained) == sorted(row["x"] for row in rows if row["state"] == "complete")
    assert f"trial {lost['trial']}: its worker died; queued again" in said
    assert any(line.startswith(f"trials: {TRIALS} ({TRIALS} complete") for line in said)


def settings(**storage: Any) -> dict[str, Any]:
    fine = {"heartbeat": 1, "grace": 3, **storage}
    return {"trials": TRIALS, "pruner": "none", "settings": {"epochs": 4, "seconds": 0.4}, "storage": fine}


@pytest.mark.slow
def test_two_commands_share_a_study_and_each_trial_runs_once_on_the_gpu_of_its_command(fake: Any) -> None:
    fake.config(trials=2, pruner="none", settings={"epochs": 2, "seconds": 0.3})
    gpu_of = {}
    for gpu in ("0", "1"):
        fake.environment["CUDA_VISIBLE_DEVICES"] = gpu
        gpu_of[fake.start("tune", "-c", "tune.yaml")] = gpu
    for worker in gpu_of:
        said, _ = worker.communicate(timeout=SECONDS)
        assert worker.returncode == 0 and "trials: 2 (2 complete" in said, said
    rows = rows_of(fake)
    assert [row["state"] for row in rows] == ["complete"] * 2 and len({row["x"] for row in rows}) == 2
    by_pid = {str(worker.pid): gpu for worker, gpu in gpu_of.items()}
    for number, row in enumerate(rows):
        folder = fake.folder / f"study/trials/{number:05d}"
        assert (folder / "runs.txt").read_text().split() == [row["x"]]
        assert (folder / "gpu.txt").read_text() == by_pid[row["worker"].partition(":")[2]]


@pytest.mark.slow
def test_a_killed_worker_loses_no_trial(fake: Any) -> None:
    fake.config(**settings())
    check_nothing_lost(fake, kill_in_the_middle(fake))


@pytest.mark.slow
def test_a_killed_worker_loses_no_trial_in_postgresql(fake: Any, postgresql: tuple[str, str]) -> None:
    url, password = postgresql
    fake.environment["PGPASSWORD"] = password
    fake.config(**settings(url=url), study="killed")
    said = kill_in_the_middle(fake)
    check_nothing_lost(fake, said)
    written = [path for path in fake.folder.rglob("*") if path.is_file() and path.suffix != ".svg"]
    assert written and not [path for path in written if password.encode() in path.read_bytes()]
    assert password not in "\n".join(said)


@pytest.mark.slow
def test_a_folder_that_is_still_written_is_waited_for(fake: Any) -> None:
    """The first worker falls silent, but not its trial, which the second one takes."""
    fake.config(trials=1, pruner="none", settings={"epochs": 30, "seconds": 0.4}, storage={"heartbeat": 1, "grace": 3})
    first = fake.start("tune", "-c", "tune.yaml")
    wait_for(lambda: beginning(fake, first))
    first.send_signal(signal.SIGSTOP)
    code, said = fake.run("tune", "-c", "tune.yaml")
    first.send_signal(signal.SIGCONT)
    said_by_first, _ = first.communicate(timeout=SECONDS)
    assert code == 0 and "trial 0: its worker died; queued again" in said, said
    assert first.returncode == 0 and "trial 0: another worker has taken it over" in said_by_first
    assert [row["state"] for row in rows_of(fake)] == ["queued again", "complete"]
    assert len((fake.folder / "study/trials/00000/runs.txt").read_text().split()) == 1


@pytest.mark.slow
def test_no_trial_outlives_its_worker(fake: Any) -> None:
    fake.config(settings={"epochs": 1000, "seconds": 0.2})
    worker = fake.start("tune", "-c", "tune.yaml")
    wait_for(lambda: parents_of(fake, "00000") == {worker.pid} and beginning(fake, worker))
    worker.kill()
    worker.communicate(timeout=SECONDS)
    wait_for(lambda: not parents_of(fake, "00000"))


@pytest.mark.slow
def test_two_workers_search_a_grid_whole(fake: Any) -> None:
    space = {"x": {"low": 0, "high": 1, "step": 0.25}, "optim.name": {"choices": ["adamw", "muon"]}}
    fake.config(sampler="grid", pruner="none", settings={"epochs": 1}, trials=20, space=space)
    workers = [fake.start("tune", "-c", "tune.yaml") for _ in range(2)]
    for worker in workers:
        said, _ = worker.communicate(timeout=SECONDS)
        assert worker.returncode == 0, said
    points = [(row["x"], row["optim.name"]) for row in rows_of(fake)]
    assert len(points) == len(set(points)) == 10


@pytest.mark.slow
def test_a_database_may_restart(fake: Any, postgresql: tuple[str, str], restart_postgresql: Any) -> None:
    url, fake.environment["PGPASSWORD"] = postgresql
    storage = {"url": url, "heartbeat": 1, "grace": 3}
    settings = {"epochs": 4, "seconds": 0.4}
    fake.config(trials=3, pruner="none", settings=settings, storage=storage, study="restarted")
    worker = fake.start("tune", "-c", "tune.yaml")
    for _ in range(2):  # at once, in the middle of something perhaps; and for longer than a sign of life may take
        wait_for(lambda: beginning(fake, worker))
        restart_postgresql(5)
    said, _ = worker.communicate(timeout=SECONDS)
    assert worker.returncode == 0, said
    assert "storage: connection lost" in said and "storage: connected again" in said
    assert [row["state"] for row in rows_of(fake)] == ["complete"] * 3


@pytest.mark.slow
def test_the_password_is_shown_nowhere(fake: Any, postgresql: tuple[str, str]) -> None:
    url, password = postgresql
    fake.config(trials=1, study="masked")
    fake.environment["DOMAINBERT_STORAGE_URL"] = url.replace("tuner@", f"tuner:{password}-wrong@")
    code, said = fake.run("tune", "-c", "tune.yaml")
    assert code == 2 and "password authentication failed" in said and password not in said
    fake.environment["DOMAINBERT_STORAGE_URL"] = url.replace("tuner@", f"tuner:{password}@")
    code, said = fake.run("tune", "-c", "tune.yaml")
    assert code == 0 and password not in said


@pytest.mark.slow
def test_workers_at_once_end_with_the_number_asked_for(fake: Any, postgresql: tuple[str, str]) -> None:
    url, fake.environment["PGPASSWORD"] = postgresql
    for name, storage in {"postgresql": {"url": url}, "sqlite": {}}.items():
        fake.config(out=name, study="crowd", trials=6, settings={"epochs": 1}, storage=storage)
        workers = [fake.start("tune", "-c", "tune.yaml") for _ in range(3)]
        for worker in workers:
            said, _ = worker.communicate(timeout=SECONDS)
            assert worker.returncode == 0, said
            assert "trials: 6 (" in said
        with open(fake.folder / name / "trials.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        ended = [row["x"] for row in rows if row["state"] in ("complete", "pruned")]
        assert len(ended) == len(rows) == 6
        trained = [line for file in fake.folder.glob(f"{name}/trials/*/runs.txt") for line in file.read_text().split()]
        assert len(trained) == len(set(trained)) == len(ended)
