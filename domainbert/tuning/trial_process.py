"""Run a trial as a sequence of processes; each process runs the stage with a resolved YAML in a separate folder.

trials/00007/run.yaml       settings of the stage
trials/00007/run/           output folder of the stage; fold-1, fold-2, ... with folds
trials/00007/output.log     output of the processes
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
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

from domainbert.base.choices import allow_import_arguments
from domainbert.base.process import TRY_AGAIN
from domainbert.base.redact import redact
from domainbert.metrics.headline import Headline
from domainbert.runner.stage_table import Stage
from domainbert.settings.yaml_files import dump_yaml
from domainbert.tuning.config import COST, STORAGE_URL_VARIABLE, VALIDATION
from domainbert.tuning.trial_values import MetricStream, read_value

COMMAND = (sys.executable, "-m", "domainbert.cli")
"""Command that runs a stage in a separate process."""

THREADS = "OMP_NUM_THREADS"
_LAUNCHER_VARIABLES = re.compile(
    "(SLURM_|TORCHELASTIC_|DOMAINBERT_LAUNCH$|MASTER_(ADDR|PORT)$|((LOCAL|GROUP|ROLE)_)?(RANK|WORLD_SIZE)$|NODE_RANK$)"
)
_WORKER_VARIABLES = {STORAGE_URL_VARIABLE, "PGPASSWORD"}  # trials do not connect to the storage
_KILL_SECONDS = 60.0  # time for a training to finish its step and write a checkpoint
_MAX_ERROR_LENGTH = 500  # characters of an error


def trial_environment() -> dict[str, str]:
    """Return the environment variables of a trial.

    Variables of srun and torchrun are removed: a trial is a separate launch, not a rank of the workers' launch.
    """
    names = (name for name in os.environ if name not in _WORKER_VARIABLES and not _LAUNCHER_VARIABLES.match(name))
    environment = {name: os.environ[name] for name in names}
    environment["PYTHONIOENCODING"] = "utf-8:backslashreplace"  # of the log; a console may have another encoding
    if not {"", os.getcwd()} & set(sys.path):  # this process does not import modules from the current folder
        environment["PYTHONSAFEPATH"] = "1"  # `python -m` would import them
    return environment


@dataclass(frozen=True)
class TrialPlan:
    """Commands of a trial, and the folders and files that they write."""

    commands: list[list[str]]  # command of each process
    stage_outs: list[Path]  # output folders of the stage
    cost_file: Path
    stream: MetricStream  # metrics in the first folder
    trains_once: bool  # whether the trial is a single training: one seed, and no folds


def make_plan(
    stage: Stage,
    objectives: Sequence[str],
    folds: Mapping[str, Mapping[str, Any]],
    headline: Headline | None,
    plain: Mapping[str, Any],
    folder: Path,
) -> TrialPlan:
    """Write the YAML files of a trial into its folder, and return its plan.

    `folds` has the changed settings by fold; if it is empty, the stage runs once. `headline` is the metric that selects
    the best evaluation of the stage; None if the stage keeps the last. `plain` are the settings of the stage.
    """
    changes = folds or {"run": {}}  # by the name of the folder
    changes_by_folder = {folder / name: change for name, change in changes.items()}
    commands = [write_stage_yaml(stage.name, {**plain, **change}, out) for out, change in changes_by_folder.items()]
    outs, cost_file = list(changes_by_folder), folder / "cost.json"
    if any(name.startswith(COST) for name in objectives):
        files = [str(outs[0].with_suffix(".yaml")), str(cost_file)]
        commands.append([sys.executable, "-m", "domainbert.tuning.trial_values", *files, *allow_import_arguments()])
    stream = MetricStream(outs[0], [name for name in objectives if name.startswith(VALIDATION)], headline)
    trains_once = len(outs) == 1 and len(plain.get("seeds") or [1]) == 1
    return TrialPlan(commands, outs, cost_file, stream, trains_once)


def write_stage_yaml(stage: str, plain: Mapping[str, Any], out: Path) -> list[str]:
    """Write the YAML of a run of the stage; return the command of the run, which resumes or replaces an earlier run.

    Delete the output of an earlier attempt with other settings: the stage would keep its seeds if nothing but `seeds`
    had changed, and its log would be taken for the log of this attempt.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    config, text = out.with_suffix(".yaml"), dump_yaml({"out": str(out), **plain})
    if config.exists() and config.read_bytes() != text.encode("utf-8") and out.exists():
        shutil.rmtree(out)
    config.write_text(text, encoding="utf-8")
    return [*COMMAND, stage, "-c", str(config), "--resume", "or-replace", *allow_import_arguments()]


class TrialProcess:
    """Processes that run the commands of a trial one after another; their output is written to `output.log`."""

    def __init__(self, commands: Sequence[Sequence[str]], folder: Path, environment: Mapping[str, str]) -> None:
        self.environment = environment
        self.started = time.monotonic()
        self._stopping = self._children_killed = False
        self._kill_at = float("inf")
        self._waiting_commands = list(commands)
        self._num_later_commands = len(commands) - 1
        self._log = folder / "output.log"
        self._log_start = self._log.stat().st_size if self._log.exists() else 0  # after output of earlier attempts
        self._process = self._start_next()

    def poll(self) -> int | None:
        """Return the exit code of the last process, or of the process that failed or was stopped; None before.

        If a process has succeeded, start the next process. Kill a process that does not stop in time, and the children
        of a process that has ended.
        """
        code = self._process.poll()
        if code is None:
            if time.monotonic() > self._kill_at:
                self.kill()
            return None
        if not self._children_killed:
            self.kill()  # the process has ended, but not all processes of its group
            self._children_killed = True
        if code == 0 and self._waiting_commands and not self._stopping:
            self._process, self._children_killed = self._start_next(), False
            return None
        return code

    def stop(self) -> None:
        """Send SIGTERM, so that the process saves its state and ends; `poll` kills it if it does not end in time."""
        if not self._stopping:
            self._stopping, self._kill_at = True, time.monotonic() + _KILL_SECONDS
            self._process.terminate()

    def kill(self) -> None:
        """Kill the process and all its child processes."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Wait until the last process has ended, or a process has failed or was stopped; return its exit code."""
        while (code := self.poll()) is None:
            time.sleep(0.05)
        return code

    @property
    def finished(self) -> bool:
        """Whether all processes have succeeded."""
        return not self._waiting_commands and self._process.poll() == 0

    @property
    def first_finished(self) -> bool:
        """Whether the first process has succeeded."""
        return len(self._waiting_commands) < self._num_later_commands or self.finished

    @property
    def interrupted(self) -> bool:
        """Whether a signal stopped the process, so that it can be resumed."""
        return self._process.poll() in (TRY_AGAIN, -signal.SIGTERM)

    def error(self) -> str:
        """Return the reason for the failure of the last process: a signal, or its last output."""
        code = self._process.poll()
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            return f"killed by {name}" + (", perhaps out of memory" if name == "SIGKILL" else "")
        output = self._log.read_bytes()[self._log_start :].decode(errors="replace")
        lines = [line for line in output.splitlines() if line.strip()]
        message_starts = [number for number, line in enumerate(lines) if line.startswith("domainbert: ")]
        # the last message of domainbert, perhaps of several lines, or the last line of a traceback
        message_lines = lines[message_starts[-1] :] if message_starts else lines[-1:]
        message = " ".join(message_lines).removeprefix("domainbert: ")
        return str(redact(message[:_MAX_ERROR_LENGTH])) or f"exit code {code}"

    def _start_next(self) -> subprocess.Popen[bytes]:
        command = self._waiting_commands.pop(0)
        with open(self._log, "ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=dict(self.environment),
                start_new_session=True,  # Ctrl-C reaches only the worker, which stops its trials
                preexec_fn=partial(_die_with_worker, os.getpid()) if sys.platform == "linux" else None,
            )


_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def _die_with_worker(worker: int) -> None:
    """Let the kernel kill this process if the worker dies: the worker that resumes the trial writes the same folder."""
    assert _LIBC is not None
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != worker:  # the worker died before the call
        os._exit(1)


@dataclass
class RunningTrial:
    """A running trial of this worker."""

    trial: Trial
    plan: TrialPlan
    process: TrialProcess
    last_heartbeat: float = field(default_factory=time.monotonic)
    num_reported: int = 0  # number of values that were reported to Optuna
    pruned: bool = False

    @property
    def seconds(self) -> float:
        """Seconds since the start of the trial."""
        return round(time.monotonic() - self.process.started, 3)

    def report(self, single_objective: bool, ended: bool) -> None:
        """Report new values to Optuna, and stop the trial if it has to be pruned.

        A single training is not pruned at its last evaluation: this would save no time and lose its value. Therefore
        its newest value is reported only after a later step, or at its end. Optuna supports intermediate values only
        for a `single_objective`. `ended` is whether the process had ended before this call.
        """
        stream = self.plan.stream
        if stream.has_started or self.process.first_finished:  # finished without a start: it was up to date
            stream.new_values()  # adds to `values`
        num_continued = stream.num_continued if self.plan.trains_once else len(stream.values) - ended
        num_known = len(stream.values) if ended else num_continued
        # Optuna decides on pruning right after each value, so that the decision does not depend on timing
        while single_objective and not self.pruned and self.num_reported < num_known:
            step = self.num_reported + 1
            self.trial.report(stream.values[step - 1], step)
            if step <= num_continued and self.trial.should_prune():
                self.pruned = True
                self.process.stop()
            self.num_reported = step  # last, so that the step is repeated if the storage was lost

    def objective_values(self, objectives: Sequence[str]) -> list[float]:
        """Return the values of a finished trial; raise `NoSuchMetric` if the stage does not measure an objective."""
        return [read_value(name, self.plan.stage_outs, self.plan.cost_file) for name in objectives]
