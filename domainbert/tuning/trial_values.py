"""Read the values of a trial's objectives, while its process runs and after it has ended.

Costs are measured in a separate process: `python -m domainbert.tuning.trial_values RUN.yaml OUT.json [--allow-import
NAMES]`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from domainbert.base.choices import allow_imports
from domainbert.base.errors import DomainbertError, Problems
from domainbert.base.files import read_json, write_json
from domainbert.base.redact import redact
from domainbert.base.run_record import RunRecord, read_record
from domainbert.labelled.sets import read_set
from domainbert.metrics.headline import Headline
from domainbert.runner.claim import CONFIG
from domainbert.runner.stage_table import load_stage
from domainbert.settings.reader import read_settings
from domainbert.settings.yaml_files import load_yaml
from domainbert.tuning.config import COST, VALIDATION

_LOG_FILES = ("logs/metrics.jsonl", "*/logs/metrics.jsonl")


class NoSuchMetric(Exception):
    """Raised if the stage does not measure an objective; `names` lists the measured metrics."""

    def __init__(self, name: str, names: Sequence[str]) -> None:
        super().__init__(name)
        self.name, self.names = name, list(names)


def read_value(objective: str, stage_outs: Sequence[Path], cost_file: Path) -> float:
    """Return the value of `validation/NAME` (the mean over folds and seeds) or `cost/NAME` (written by `measure_cost`).

    Raises:
        NoSuchMetric: the objective was not measured.
    """
    prefix, _, name = objective.partition("/")
    if objective.startswith(COST):
        rows = [read_json(cost_file, "the costs of a model")]
    else:
        rows = [row for out in stage_outs for row in _validation_metrics(out)]
    if not rows or any(name not in row for row in rows):
        measured = [key for row in rows[:1] for key in row if key != "step"]  # all rows have the same metrics
        raise NoSuchMetric(objective, [f"{prefix}/{key}" for key in measured])
    return sum(float(row[name]) for row in rows) / len(rows)


def _validation_metrics(out: Path) -> list[dict[str, float]]:
    metrics = (read_record(out) or RunRecord()).metrics
    trainings = metrics["seeds"] if isinstance(metrics.get("seeds"), list) else [metrics]
    return [training["validation"] for training in trainings if isinstance(training.get("validation"), dict)]


class MetricStream:
    """Follow the first `metrics.jsonl` in a stage's folder: the value of the stage if it ended now. Create the stream
    before the process of the stage.

    If a stage trains several seeds, only the first training is followed. Later trainings begin after a different number
    of evaluations in each trial, so that trials cannot be compared there.

    Args:
        out: output folder of the stage.
        metrics: names such as `validation/f1`. The first metric is followed; the others only have to exist.
        selection_metric: metric that selects the best evaluation of the stage; None if the stage keeps the last.
    """

    def __init__(self, out: Path, metrics: Sequence[str], selection_metric: Headline | None = None) -> None:
        self.out, self.metrics, self.selection_metric = out, metrics, selection_metric
        self.values: list[float] = []
        """Value after each evaluation. Evaluations are counted, because their steps depend on the batch size."""
        self.num_continued = 0
        """Number of evaluations, from the first, after which the training has logged a later step."""
        self._config_before = _stamp(out / CONFIG)
        self._file: Path | None = None
        self._last_stamp: tuple[int, int, int] | None = None

    @property
    def has_started(self) -> bool:
        """Whether the stage has written its settings since the stream was created. Before, the folder may have the log
        of an earlier attempt, which the stage deletes if its settings or inputs have changed."""
        return _stamp(self.out / CONFIG) != self._config_before

    def new_values(self) -> list[float]:
        """Append the values measured since the last call to `values`, and return them. Raise `NoSuchMetric` if the
        stage does not measure a metric."""
        if self._file is None:
            files = [file for pattern in _LOG_FILES for file in self.out.glob(pattern)]
            self._file = min(files, key=lambda file: file.stat().st_mtime_ns, default=None)
        stamp = None if self._file is None else _stamp(self._file)
        if self._file is None or stamp in (None, self._last_stamp):  # missing, or unchanged since the last call
            return []
        self._last_stamp = stamp
        evaluations, last_step = _read_evaluations(self._file)
        # `max`, because the log of a process that goes on from a checkpoint is shorter at first
        self.num_continued = max(self.num_continued, sum(row["step"] < last_step for row in evaluations))
        added = self._kept_values(evaluations)[len(self.values) :]
        self.values += added
        return added

    def _kept_values(self, evaluations: Sequence[dict[str, float]]) -> list[float]:
        """Return for each evaluation the value of the followed metric if the stage ended after this evaluation. The
        stage keeps its best evaluation by `selection_metric`, or without `selection_metric` its last evaluation."""
        values: list[float] = []
        kept = None
        best = self.selection_metric.worst if self.selection_metric else 0.0
        for metrics in evaluations:
            missing = [name for name in self.metrics if name not in metrics]
            if missing:
                raise NoSuchMetric(missing[0], [name for name in metrics if name.startswith(VALIDATION)])
            if self.selection_metric is None:
                kept = metrics
            elif self.selection_metric.is_better(metrics[self.selection_metric.monitor], best):  # not if equal
                kept = metrics
                best = metrics[self.selection_metric.monitor]
            values.append(float((kept or metrics)[self.metrics[0]]))  # nothing is kept while all values are NaN
        return values


def _stamp(file: Path) -> tuple[int, int, int] | None:
    """Return inode, size and time of a file, of which one is new after each change; None if it does not exist."""
    try:
        status = file.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _read_evaluations(file: Path) -> tuple[list[dict[str, float]], float]:
    """Return the rows with validation metrics, and the last step of the log."""
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    complete = [line for line in lines if line.endswith("\n")]  # the last line may be incomplete
    rows = (json.loads(line) for line in complete if VALIDATION in line)
    evaluations = [row for row in rows if any(name.startswith(VALIDATION) for name in row)]
    return evaluations, json.loads(complete[-1])["step"] if complete else 0


def measure_cost(config: Path, cost_file: Path) -> None:
    """Measure the best model of a `finetune` run on the validation set, and write the fields of `serving.cost.Cost`.
    `config` is the YAML of the run, and `cost_file` the JSON file to write."""
    from domainbert.serving.cost import measure_costs
    from domainbert.serving.predictor import load_predictor

    tree, problems = load_yaml(config), Problems(str(config))
    arguments = read_settings(load_stage("finetune").function, tree.without("out"), problems).arguments
    problems.raise_if_any()
    contents = read_set(arguments["task"], arguments["validation"]).contents
    out = Path(str(tree.value["out"].value))
    folder = out / json.loads((out / "seeds.json").read_text(encoding="utf-8"))["best"]
    (cost,) = measure_costs([(load_predictor(folder, "32-true"), folder)], contents)
    write_json(cost_file, asdict(cost))


def main(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit code: 2 after an error, which is printed, otherwise 0."""
    try:  # arguments: RUN.yaml OUT.json, and perhaps --allow-import NAMES
        allow_imports(arguments[3] if len(arguments) > 3 else None)
        measure_cost(Path(arguments[0]), Path(arguments[1]))
    except DomainbertError as error:
        sys.stderr.write(f"domainbert: {redact(str(error))}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
