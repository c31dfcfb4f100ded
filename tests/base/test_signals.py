from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from domainbert.base import process
from domainbert.base.errors import TrainingStopped
from domainbert.base.process import StopSignals, call_glibc, raise_if_stopped, record_signals
from tests.forked import SECONDS


def test_a_signal_that_no_step_was_left_for_stops_before_the_next_stage() -> None:
    StopSignals.received = signal.SIGTERM
    entered = []
    with pytest.raises(TrainingStopped, match="stopped by SIGTERM"), record_signals():
        entered.append(1)
    with record_signals():
        entered.append(2)
    assert entered == [2] and not StopSignals.received


def test_a_signal_is_obeyed_at_the_end_of_an_item_and_raises_nowhere_else() -> None:
    items = []
    with pytest.raises(TrainingStopped, match="stopped by SIGTERM"), record_signals():
        for item in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
            items.append(item)  # an import, or code of a library
            raise_if_stopped()
    assert items == [0] and not StopSignals.received


def test_a_training_obeys_at_the_end_of_its_step() -> None:
    with record_signals():
        signals = StopSignals()
        signals.install()
        os.kill(os.getpid(), signal.SIGTERM)
        raise_if_stopped()
        assert signals.received == signal.SIGTERM
        signals.clear()
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_the_deadline_counts_from_the_first_signal_whichever_handler_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(process.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(process, "_POLL_SECONDS", 3600)  # no exit

    def left_after_signal(second: float) -> float:
        clock[0] = second
        os.kill(os.getpid(), signal.SIGTERM)
        return process._seconds_left()

    try:
        with record_signals():
            assert process._seconds_left() == float("inf")
            assert left_after_signal(100.0) == 20.0
            signals = StopSignals()
            signals.has_deadline = True
            signals.install()
            clock[0] = 112.0
            assert process._seconds_left() == 8.0, "of the signal before the training"
            assert left_after_signal(115.0) == 5.0, "also after a second signal"
            signals.clear()
        with record_signals():
            assert process._seconds_left() == float("inf")
            signals.install()
            assert left_after_signal(200.0) == 20.0, "before the first step"
            signals.clear()
        with record_signals():
            signals.has_deadline = False
            signals.install()
            assert left_after_signal(300.0) == float("inf"), "a training ends its step first"
    finally:
        signals.clear()
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize("then", ["pass", "process.StopSignals().install()"])
def test_a_process_that_reaches_no_end_of_an_item_is_ended_with_the_code_that_requeues(then: str) -> None:
    """Also if a training installs its handlers meanwhile."""
    code = (
        "import os, signal, time; from domainbert.base import process; process._MAX_SECONDS = 0.5\n"
        "with process.record_signals():\n    os.kill(os.getpid(), signal.SIGTERM)\n"
        f"    {then}\n    time.sleep(9999)"
    )
    result = subprocess.run([sys.executable, "-c", code], timeout=SECONDS, check=False, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (75, "domainbert: stopped by SIGTERM\n")


@pytest.mark.skipif(not hasattr(os, "confstr") or "CS_GNU_LIBC_VERSION" not in os.confstr_names, reason="not glibc")
def test_freed_memory_between_small_blocks_is_returned_to_the_system() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    blocks = [(bytearray(60_000), bytearray(1_000)) for _ in range(2_000)]
    kept = [small for _, small in blocks]
    blocks.clear()
    before = resident()
    call_glibc("malloc_trim", 0)
    assert before - resident() > 50_000_000 and len(kept) == 2_000
