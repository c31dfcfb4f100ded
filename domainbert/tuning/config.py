"""Settings of a search: space, objectives, budget and storage. Imports neither Optuna nor torch."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from domainbert.base.errors import DomainbertError, suggest_name
from domainbert.base.fields import Finite, PositiveInt, Range, Seed, check_fields
from domainbert.base.redact import redact

Direction = Literal["maximize", "minimize"]
COSTS = ("parameters", "folder_bytes", "pieces_per_word", "words_per_second", "latency_1", "latency_32")
"""Fields of `cost.Cost`, repeated here because its module imports torch."""
_LOWER_IS_BETTER = (
    *("loss", "bits_per_character", "perplexity"),
    *("ece", "nll", "brier"),  # calibration errors, also before calibration
    *(name for name in COSTS if name != "words_per_second"),
)
VALIDATION, COST = "validation/", "cost/"
"""Prefixes of objectives."""
STORAGE_URL_VARIABLE = "DOMAINBERT_STORAGE_URL"
"""Environment variable with the URL of a database."""
Seconds = Annotated[int, Range(1, 86_400)]


@dataclass(frozen=True)
class Parameter:
    """Possible values of a setting: a range, or a list of choices."""

    low: Finite | None = None
    """Lowest value of a range. Only integers are drawn if the setting is an integer."""

    high: Finite | None = None
    """Highest value of a range, inclusive."""

    step: Annotated[float, Range(0, sys.float_info.max, exclude_low=True)] | None = None
    """Distance between the values of a range, starting at `low`."""

    log: bool = False
    """Sample from the range on a logarithmic scale."""

    choices: tuple[Any, ...] | None = None
    """List of values, which may be mappings or lists."""

    when: dict[str, Any] | None = None
    """Vary this setting only while other settings of the space have these values (a value or a list of values)."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.choices is not None:
            if self.low is not None or self.high is not None or self.step is not None or self.log:
                raise DomainbertError(
                    where="choices",
                    found="together with low, high, step or log",
                    hint="remove choices, or the other keys",
                )
            # compared one by one, because a mapping or list cannot be in a set
            has_duplicates = any(value in self.choices[:number] for number, value in enumerate(self.choices))
            if not self.choices or has_duplicates:
                raise DomainbertError(
                    where="choices", found=list(self.choices), expected="one or more values, each once"
                )
        elif self.low is None or self.high is None:
            raise DomainbertError(found="neither choices nor both low and high", expected="a range or choices")
        elif not self.low < self.high:
            raise DomainbertError(where="high", found=self.high, expected=f"more than {self.low}, the value of low")
        elif self.log and (self.low <= 0 or self.step is not None):
            raise DomainbertError(where="log", found=f"low {self.low:g}", expected="low above 0 and no step")


@dataclass(frozen=True)
class StorageConfig:
    """Database that records the trials."""

    url: str | None = None
    """URL of a database (`postgresql://user@host/database`) for workers on several machines; None uses the SQLite file
    `study.db` in `out`, for workers on a single machine. The URL must not contain the password: set PGPASSWORD or
    ~/.pgpass, or the whole URL in DOMAINBERT_STORAGE_URL."""

    heartbeat: Seconds = 15
    """Seconds between heartbeats of a trial."""

    grace: Seconds = 60
    """Seconds without a heartbeat after which a trial is considered dead and queued again."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.url is not None and redact(self.url) != self.url:
            raise DomainbertError(
                "contains a password",
                where="url",
                hint="move the password to PGPASSWORD or ~/.pgpass, or the whole URL to the environment "
                "variable DOMAINBERT_STORAGE_URL",
            )
        if not self.heartbeat < self.grace:
            raise DomainbertError(
                where="grace", found=self.grace, expected=f"more than the heartbeat, {self.heartbeat}"
            )


@dataclass(frozen=True)
class TuneConfig:
    """Search over the settings of a stage, and write the best settings as a YAML file for the stage.

    Each trial runs the stage in a separate process, one at a time. The same command resumes a study; several commands,
    such as one per GPU, also on several machines, work on the same study in parallel. The test set is never used: run
    `evaluate` afterwards.
    """

    stage: str
    """Name of the stage: `finetune`, `pretrain`, ..."""

    settings: dict[str, Any]
    """Settings of the stage without `out`, or a YAML file with the settings."""

    space: dict[str, Parameter]
    """Search space: dotted keys of the stage's settings to their possible values."""

    objective: tuple[str, ...] = ()
    """Metrics to optimise: `validation/NAME` is a validation metric of the stage. Default: the headline metric of the
    task or the metric of `select_by`; without a task, `validation/loss`. `cost/parameters`, `cost/folder_bytes`,
    `cost/pieces_per_word`, `cost/latency_1`, `cost/latency_32` and `cost/words_per_second` require `finetune` and are
    measured on the validation set. Several objectives give a Pareto front: no trial is pruned, and the best trial is
    the best by the first objective."""

    direction: tuple[Direction, ...] | None = None
    """`maximize` or `minimize` for each objective. None uses the task's directions for its metrics, minimizes losses
    (including all metrics of `distill`), sizes and latencies, and maximizes other metrics."""

    trials: Annotated[int, Range(1, 1_000_000)] = 20
    """Total number of trials in the study, including pruned and failed trials. `grid` is limited to the number of its
    points."""

    max_hours: Annotated[float, Range(0, 100_000, exclude_low=True)] | None = None
    """Start no new trial after this time, measured from the start of the command; running trials are finished."""

    sampler: Literal["tpe", "random", "grid", "cmaes", "gp"] = "tpe"
    """Method that samples values. `grid` requires a step or choices for each setting; `cmaes` supports numbers only."""

    seed: Seed = 0
    """Seed of the sampler and of the folds. Trial number n is sampled from the seed and n, on any worker. (Retries of
    a trial do not count.)"""

    pruner: Literal["asha", "hyperband", "median", "none"] = "asha"
    """Method that stops a trial if it is worse than other trials after the same number of evaluations. If the stage
    keeps its best evaluation, the best value so far is compared. With several seeds or folds, the first is compared."""

    min_evaluations: PositiveInt = 1
    """Number of evaluations before a trial can be pruned."""

    reduction: Annotated[int, Range(2, 1000)] = 3
    """Reduction factor of `asha` and `hyperband`: the best 1 / `reduction` of the trials continue."""

    enqueue: tuple[dict[str, Any], ...] = ()
    """First trials: dotted keys to values; missing values are sampled."""

    k_folds: Annotated[int, Range(2, 1000)] | None = None
    """Cross-validate `finetune` with this number of folds of the training file; the value is the mean over the folds.
    A document is never divided between folds, nor are copies of a text, nor sentences that share a rare entity (at
    least three words, in at most three sentences). Trials ignore the `validation` of the stage, which may be omitted;
    a training with the best settings needs it."""

    study: str | None = None
    """Name of the study in the storage; None uses the name of the folder `out`."""

    storage: StorageConfig = StorageConfig()
    """Database that records the trials."""

    def __post_init__(self) -> None:
        check_fields(self)
        self._check_objectives()
        if not self.space:
            raise DomainbertError(
                "no settings", where="space", expected="one or more, such as optim.lr: {low: 1e-5, high: 1e-3}"
            )

    def _check_objectives(self) -> None:
        prefixes = (VALIDATION, COST)
        # a name has to continue after its prefix
        invalid = [name for name in self.objective if not name.startswith(prefixes) or name in prefixes]
        if invalid or len(set(self.objective)) != len(self.objective):
            raise DomainbertError(
                where="objective",
                found=list(self.objective),
                expected="names that begin with validation/ or cost/, such as validation/f1, and each name only once",
            )
        cost_names = [COST + cost for cost in COSTS]
        for name in self.objective:
            if name.startswith(COST) and name not in cost_names:
                raise DomainbertError(f"{name!r} is not measured", where="objective", **suggest_name(name, cost_names))
        if self.objective and not any(name.startswith(VALIDATION) for name in self.objective):
            raise DomainbertError(
                "has no validation metric", where="objective", expected="at least one, such as validation/f1"
            )
        num_objectives = max(len(self.objective), 1)  # without objectives, the stage's metric is the objective
        if self.direction is not None and len(self.direction) != num_objectives:
            expected = f"one for each objective, in total {num_objectives}"
            raise DomainbertError(where="direction", found=list(self.direction), expected=expected)

    @property
    def directions(self) -> tuple[Direction, ...]:
        """Direction of each objective: `direction`, or a default that depends on its name."""
        if self.direction is not None:
            return self.direction
        lower_is_better = [self.stage == "distill" or name.endswith(_LOWER_IS_BETTER) for name in self.objective]
        return tuple("minimize" if is_lower else "maximize" for is_lower in lower_is_better)

    @property
    def prunes(self) -> bool:
        """Whether trials are pruned; trials with several objectives cannot be ranked."""
        return self.pruner != "none" and len(self.objective) < 2
