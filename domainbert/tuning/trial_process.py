"""A trial: processes one after another, each a stage in its own folder, from a resolved YAML.

trials/00007/run.yaml       the settings of the stage
trials/00007/run/           what it writes; fold-1, fold-2, ... where there are folds
trials/00007/output.log     what its processes print
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from optuna.trial import Trial

from domainbert.base.choices import allow_import_words
from domainbert.base.redact import redact
from domainbert.metrics.headline import Headline
from domainbert.runner.stage_table import Stage
from domainbert.settings.yaml_files import dump_yaml
from domainbert.tuning.config import COST, VALIDATION
from domainbert.tuning.trial_values import MetricStream, read_value

COMMAND = (sys.executable, "-m", "domainbert.cli")
"""The command that runs a stage in a process of its own."""

_KILL_SECONDS = 60.0  # a training that has to stop finishes its step and writes a checkpoint
_TO_BE_CONTINUED = 75
_SHOWN = 500  # characters of an error


@dataclass(frozen=True)
class TrialPlan:
    """The processes of a trial, and the folders and files that they write."""

    commands: list[list[str]]
    """One for each process."""
    stage_outs: list[Path]
    """The folders of the stage."""
    cost_file: Path
    stream: MetricStream
    """Follows the first folder."""
    last: int | None
    """The last evaluation of the trial, if it is known: after it there is nothing left to prune."""


def make_plan(
    stage: Stage,
    objectives: Sequence[str],
    folds: Mapping[str, Mapping[str, Any]],
    headline: Headline | None,
    plain: Mapping[str, Any],
    folder: Path,
) -> TrialPlan:
    """Write the YAMLs of a trial into its folder.

    Args:
        stage: the stage to run.
        objectives: their names.
        folds: the settings that change, by fold; without folds the stage runs once.
        headline: the metric by which the stage keeps its best evaluation; None where it keeps the last.
        plain: the stage's settings.
        folder: the trial's.
    """
    changes = {folder / name: change for name, change in (folds or {"run": {}}).items()}
    commands = [stage_command(stage.name, {**plain, **change}, out) for out, change in changes.items()]
    outs, cost_file = list(changes), folder / "cost.json"
    if any(name.startswith(COST) for name in objectives):
        files = [str(outs[0].with_suffix(".yaml")), str(cost_file)]
        commands.append([sys.executable, "-m", "domainbert.tuning.measure", *files, *allow_import_words()])
    once = len(outs) == 1 and len(plain.get("seeds") or [0]) == 1
    stream = MetricStream(outs[0], [name for name in objectives if name.startswith(VALIDATION)], headline)
    return TrialPlan(commands, outs, cost_file, stream, plain.get("max_epochs") if once else None)


def stage_command(stage: str, plain: Mapping[str, Any], out: Path) -> list[str]:
    """Write the YAML of a run of the stage, which resumes what an earlier process has left in its folder, or replaces
    it if it was made from other settings or inputs, as after `--extend` or from a deleted study."""
    out.parent.mkdir(parents=True, exist_ok=True)
    config = out.with_suffix(".yaml")
    config.write_text(dump_yaml({"out": str(out), **plain}), encoding="utf-8")
    return [*COMMAND, stage, "-c", str(config), "--resume", "or-replace", *allow_import_words()]


class TrialProcess:
    """Runs the commands of a trial, one after another; what they print goes into its folder."""

    def __init__(self, commands: Sequence[Sequence[str]], folder: Path, environment: Mapping[str, str]) -> None:
        self.environment = environment
        self.started = time.monotonic()
        self._stopping = self._swept = False
        self._kill_at = float("inf")
        self._waiting = list(commands)
        self._log = folder / "output.log"
        self._said = self._log.stat().st_size if self._log.exists() else 0  # by an earlier process of the same trial
        self._process = self._start()

    def poll(self) -> int | None:
        """Start the next process when one is done; return the exit code of the last or of a failed one, None before."""
        code = self._process.poll()
        if (code is not None and not self._swept) or (code is None and time.monotonic() > self._kill_at):
            self.kill()
            self._swept = code is not None
        if code == 0 and self._waiting and not self._stopping:
            self._process = self._start()
            return None
        return code

    def stop(self) -> None:
        """Ask the process to save its state and end; it is killed if it does not."""
        if not self._stopping:
            self._stopping, self._kill_at = True, time.monotonic() + _KILL_SECONDS
            self._process.terminate()

    def kill(self) -> None:
        """End the process at once, with the processes that it has started and may have left behind."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Wait for the end of a process that was told to stop."""
        while (code := self.poll()) is None:
            time.sleep(0.05)
        return code

    @property
    def finished(self) -> bool:
        """Whether all processes have done their work."""
        return not self._waiting and self._process.poll() == 0

    @property
    def interrupted(self) -> bool:
        """Whether it was told to stop from outside, before or after it could react: then it can be resumed."""
        return self._process.poll() in (_TO_BE_CONTINUED, -signal.SIGTERM)

    def error(self) -> str:
        """The reason why the last process failed: its last output."""
        code = self._process.poll()
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            return f"killed by {name}" + (", perhaps out of memory" if name == "SIGKILL" else "")
        lines = self._log.read_bytes()[self._said :].decode(errors="replace").splitlines()
        said = [line for line in lines if line.strip()]
        own = [number for number, line in enumerate(said) if line.startswith("domainbert: ")]
        text = " ".join(said[own[-1] :]).removeprefix("domainbert: ") if own else "".join(said[-1:])
        return str(redact(text[:_SHOWN])) or f"exit code {code}"

    def _start(self) -> subprocess.Popen[bytes]:
        command, self._swept = self._waiting.pop(0), False
        with open(self._log, "ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=dict(self.environment),
                start_new_session=True,  # Ctrl-C is for the worker, which tells its trials
                preexec_fn=partial(_end_with, os.getpid()) if sys.platform == "linux" else None,
            )


_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def _end_with(worker: int) -> None:
    """Have this process killed when the worker dies: another worker may resume the trial in the same folder."""
    assert _LIBC is not None
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != worker:  # it died before this was set
        os._exit(1)


@dataclass
class Running:
    """A trial that this worker runs."""

    slot: int
    trial: Trial
    values: dict[str, Any]
    plan: TrialPlan
    process: TrialProcess
    last_heartbeat: float = field(default_factory=time.monotonic)
    reported: int = 0
    pruned: bool = False

    @property
    def seconds(self) -> float:
        """Seconds since its process was started."""
        return round(time.monotonic() - self.process.started, 3)

    def report(self, single: bool, ended: bool) -> None:
        """Report new values, and stop a trial that has to be pruned.

        A trial at its last evaluation is not pruned: no time would be saved, and its value would be lost.

        Args:
            single: whether there is one objective; Optuna keeps no evaluations of trials with several.
            ended: whether the process had ended before this call.

        Raises:
            NoSuchMetric: the stage does not measure an objective.
        """
        self.plan.stream.new_values()
        values = self.plan.stream.values
        while single and not self.pruned and self.reported < len(values):
            step = self.reported + 1
            self.trial.report(values[step - 1], step)
            last = step == self.plan.last or (ended and step == len(values))
            if not last and self.trial.should_prune():
                self.pruned = True
                self.process.stop()
            self.reported = step  # only after the storage has it: a lost storage is asked again

    def measured(self, objectives: Sequence[str]) -> list[float]:
        """The values of a finished trial; `NoSuchMetric` if the stage does not measure one of them."""
        return [read_value(name, self.plan.stage_outs, self.plan.cost_file) for name in objectives]
