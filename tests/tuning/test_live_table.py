from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace

import optuna
from optuna.trial import TrialState, create_trial

from domainbert.tuning.config import Parameter, TuneConfig
from domainbert.tuning.live_table import LiveTable
from domainbert.tuning.results import closing_lines, summarise

CONFIG = TuneConfig(stage="learn", settings={}, space={"x": Parameter(0, 1)}, objective=("validation/f1",), trials=5)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def trial(number: int, state: TrialState, value: float | None = None, **changes: object) -> optuna.trial.FrozenTrial:
    made = create_trial(
        state=state,
        value=value,
        params={"x": 0.25},
        distributions={"x": optuna.distributions.FloatDistribution(0, 1)},
        **changes,
    )
    made.number = number
    return made


TRIALS = [
    trial(0, TrialState.COMPLETE, 0.5, user_attrs={"seconds": 10}, intermediate_values={1: 0.25, 4: 0.5}),
    trial(1, TrialState.PRUNED, user_attrs={"seconds": 4}, intermediate_values={1: 0.125}),
    trial(2, TrialState.COMPLETE, 0.75, user_attrs={"seconds": 10}),
    trial(3, TrialState.FAIL, user_attrs={"error": "out of memory", "seconds": 1}),
]


def test_the_table_counts_and_estimates() -> None:
    clock = [0.0]
    table = LiveTable(CONFIG, io.StringIO(), lambda: clock[0])
    table.count(TRIALS[:2])
    table.count(TRIALS)
    clock[0] = 60
    assert table.summary() == "4/5 done (1 pruned, 1 failed), 0 running, best 0.7500 (trial 2), 1m00s, 30s left"


def test_a_log_has_a_line_for_each_trial() -> None:
    stream = io.StringIO()
    table = LiveTable(CONFIG, stream)
    table.show([])
    for one in (TRIALS[0], TRIALS[1], TRIALS[3]):
        table.ended(one)
    assert stream.getvalue().splitlines() == [
        "trial 0: validation/f1 0.5000 in 10s; x 0.25",
        "trial 1: pruned at 0.1250 after 1 evaluations, 4s; x 0.25",
        "trial 3: failed: out of memory; x 0.25",
    ]


def test_a_terminal_is_rewritten_in_place() -> None:
    stream, clock = Terminal(), [0.0]
    table = LiveTable(CONFIG, stream, lambda: clock[0])
    table.count(TRIALS)
    plan, process = SimpleNamespace(stream=SimpleNamespace(values=[0.5, 0.625])), SimpleNamespace(started=-3.0)
    trial = SimpleNamespace(number=4)
    row = SimpleNamespace(trial=trial, values={"x": 0.5, "name": "muon"}, plan=plan, process=process)
    table.show([row])
    clock[0] = 0.1
    table.show([row])  # too soon
    first = stream.getvalue()
    assert first.splitlines()[1] == '  trial 4: 0.6250 after 2 evaluations, 3s; x 0.5, name "muon"'
    clock[0] = 1
    table.show([])
    assert stream.getvalue()[len(first) :].startswith("\x1b[2F\x1b[J4/5 done")


def test_the_end_says_what_was_spent_and_saved() -> None:
    summary = summarise(TRIALS, CONFIG)
    assert (summary["trials"], summary["pruned_share"]) == (4, 0.25)
    assert (summary["seconds"], summary["seconds_saved_by_pruning"]) == (25, 6)
    lines = closing_lines({**summary, "pareto_front": []}, Path("out"))
    assert lines[0] == (
        "4 trials: 2 complete, 1 pruned, 1 failed; 25s of trials, 6s (19%) saved by pruning (estimated)"
    )
    assert lines[1] == "1 of 5 trials are left: max_hours is over; run the same command to resume"
    assert lines[2] == "best: trial 2, validation/f1 0.7500; x 0.25"
