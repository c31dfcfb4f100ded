from __future__ import annotations

import signal

import pytest

from domainbert.base.errors import TrainingStopped
from domainbert.base.signals import StopSignals, stopping_at_once


def test_a_signal_that_no_step_was_left_for_stops_before_the_next_stage() -> None:
    StopSignals.received = signal.SIGTERM
    entered = []
    with pytest.raises(TrainingStopped, match="stopped by SIGTERM"), stopping_at_once():
        entered.append(1)
    with stopping_at_once():
        entered.append(2)
    assert entered == [2] and not StopSignals.received
