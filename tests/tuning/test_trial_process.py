from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import psutil
import pytest

from domainbert.tuning.trial_process import TrialProcess, write_stage_yaml
from tests.forked import SECONDS


def process(folder: Path, *codes: str) -> TrialProcess:
    return TrialProcess([[sys.executable, "-c", code] for code in codes], folder, dict(os.environ))


def test_steps_follow_each_other_until_one_fails(tmp_path: Path) -> None:
    done = process(tmp_path, "print('one')", "print('two')")
    assert done.wait() == 0 and done.finished
    assert (tmp_path / "output.log").read_text() == "one\ntwo\n"
    failing = process(
        tmp_path, "import sys; print('domainbert: a.conll:3: bad\\n  word'); sys.exit(2)", "print('three')"
    )
    assert failing.wait() == 2 and not failing.finished
    assert failing.error() == "a.conll:3: bad   word"
    assert "three" not in (tmp_path / "output.log").read_text()


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "killed by SIGKILL, perhaps out of memory"),
        ("raise MemoryError('30 GiB')", "MemoryError: 30 GiB"),
        ("import sys; sys.exit(3)", "exit code 3"),
        ("print('postgresql://a:secret@b'); raise SystemExit(1)", "postgresql://a:***@b"),
    ],
)
def test_the_error_is_what_was_said_last(tmp_path: Path, code: str, error: str) -> None:
    failing = process(tmp_path, code)
    failing.wait()
    assert failing.error() == error


def test_who_is_told_to_stop_begins_no_further_step(tmp_path: Path) -> None:
    handler = "signal.signal(15, lambda *_: sys.exit(0))"
    waiting = f"import signal, sys, time; {handler}; print('ready', flush=True); time.sleep(9999)"
    stopped = process(tmp_path, waiting, "print('two')")
    while "ready" not in (tmp_path / "output.log").read_text():
        time.sleep(0.02)
    stopped.stop()
    assert stopped.wait() == 0 and not stopped.finished
    assert "two" not in (tmp_path / "output.log").read_text()


def test_a_yaml_for_the_stage(tmp_path: Path) -> None:
    out = tmp_path / "t/run"
    command = write_stage_yaml("finetune", {"lr": 1e-5}, out)
    assert (tmp_path / "t/run.yaml").read_text() == f"out: {tmp_path}/t/run\nlr: 1.0e-05\n"
    assert command[3:] == ["finetune", "-c", str(tmp_path / "t/run.yaml"), "--resume", "or-replace"]


def test_the_output_of_an_attempt_with_other_settings_is_deleted(tmp_path: Path) -> None:
    out = tmp_path / "t/run"
    write_stage_yaml("finetune", {"seeds": [1]}, out)
    log = out / "seed-1/logs/metrics.jsonl"
    log.parent.mkdir(parents=True)
    log.write_text("")
    (out.parent / "output.log").write_text("kept")
    write_stage_yaml("finetune", {"seeds": [1]}, out)
    assert log.exists()
    write_stage_yaml("finetune", {"seeds": [2]}, out)
    assert not out.exists() and sorted(path.name for path in out.parent.iterdir()) == ["output.log", "run.yaml"]


@pytest.mark.parametrize(("codes", "found"), [(("", "time.sleep(9999)"), True), (("time.sleep(9999)", ""), False)])
def test_the_first_process_may_have_finished_before_the_last(
    tmp_path: Path, codes: tuple[str, str], found: bool
) -> None:
    two = process(tmp_path, *(f"import time; print('ready', flush=True); {code}" for code in codes))
    while (tmp_path / "output.log").read_text().count("ready") < (2 if found else 1):
        assert two.poll() is None
        time.sleep(0.02)
    assert two.first_finished is found and not two.finished
    two.kill()
    two.wait()
    assert two.first_finished is found


def test_what_a_process_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    child = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(9999)'])"
    done = process(tmp_path, f"import subprocess, sys; print({child}.pid, flush=True)", "print('two')")
    assert done.wait() == 0
    left = int((tmp_path / "output.log").read_text().split()[0])
    end = time.monotonic() + SECONDS
    while psutil.pid_exists(left) and psutil.Process(left).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < end
        time.sleep(0.02)


def test_the_error_is_not_that_of_an_earlier_attempt(tmp_path: Path) -> None:
    process(tmp_path, "print('domainbert: of the first attempt'); raise SystemExit(2)").wait()
    again = process(tmp_path, "raise SystemExit(3)")
    assert again.wait() == 3 and again.error() == "exit code 3"


@pytest.mark.parametrize("code", ["os.kill(os.getpid(), 15)", "sys.exit(75)"])
def test_a_stop_is_no_failure_even_before_the_stage_listens(tmp_path: Path, code: str) -> None:
    stopped = process(tmp_path, f"import os, sys; {code}")
    stopped.wait()
    assert stopped.interrupted and not stopped.finished
