"""Settings of a search: the space, the objectives, the budget, the storage. Free of Optuna and torch."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from domainbert.base.errors import DomainbertError, nearest
from domainbert.base.ranges import MOST_PROCESSES, Finite, Items, PositiveInt, Range, Seed
from domainbert.base.redact import redact
from domainbert.base.validation import check_fields

Direction = Literal["maximize", "minimize"]
COSTS = ("parameters", "folder_bytes", "pieces_per_word", "words_per_second", "latency_1", "latency_32")
"""The fields of `cost.Cost`, repeated here because that module needs torch."""
_LOWER_IS_BETTER = (
    *("loss", "bits_per_character", "perplexity"),
    *("ece", "nll", "brier"),  # how far probabilities are from what is right, also in front of calibration
    *(name for name in COSTS if name != "words_per_second"),
)
VALIDATION, COST = "validation/", "cost/"
URL = "DOMAINBERT_STORAGE_URL"
"""The environment variable with the URL of a database."""
Seconds = Annotated[int, Range(1, 86_400)]


@dataclass(frozen=True)
class Parameter:
    """The values a setting may take: a range, or a list."""

    low: Finite | None = None
    """Lowest value of a range; whole numbers only, where the setting is one."""

    high: Finite | None = None
    """Highest value of a range, included."""

    step: Annotated[float, Range(0, sys.float_info.max, above=True)] | None = None
    """Distance between the values of a range, counted from `low`."""

    log: bool = False
    """Draw from the range on a logarithmic scale."""

    choices: tuple[Any, ...] | None = None
    """The values of a list; mappings and lists may stand in it, too."""

    when: dict[str, Any] | None = None
    """Only vary this setting while other settings of the space have these values (a value or a list of them)."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.choices is not None:
            if self.low is not None or self.high is not None or self.step is not None or self.log:
                raise DomainbertError("choices: stands beside a range; expected either low and high, or choices")
            if not self.choices or any(one in self.choices[:number] for number, one in enumerate(self.choices)):
                raise DomainbertError("choices: expected one or more different values")
        elif self.low is None or self.high is None:
            raise DomainbertError("expected low and high, or choices")
        elif not self.low < self.high:
            raise DomainbertError(f"high: found {self.high}; expected more than low, which is {self.low}")
        elif self.log and (self.low <= 0 or self.step is not None):
            raise DomainbertError("log: a logarithmic range has no step and begins above 0; expected such a range")


@dataclass(frozen=True)
class StorageConfig:
    """The storage of the trials."""

    url: str | None = None
    """URL of a database (`postgresql://user@host/database`), for workers on several machines; None takes SQLite's
    `study.db` in `out`, for the workers of one machine. It holds no password: that comes from PGPASSWORD or ~/.pgpass,
    or with the whole URL from DOMAINBERT_STORAGE_URL."""

    heartbeat: Seconds = 15
    """Seconds between the heartbeats of a trial."""

    grace: Seconds = 60
    """Seconds without a heartbeat after which a trial is considered dead and queued again."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.url is not None and redact(self.url) != self.url:
            raise DomainbertError(
                "url: holds a password; expected it in PGPASSWORD, ~/.pgpass or DOMAINBERT_STORAGE_URL"
            )
        if not self.heartbeat < self.grace:
            raise DomainbertError(f"grace: found {self.grace}; expected more than heartbeat, which is {self.heartbeat}")


@dataclass(frozen=True)
class TuneConfig:
    """Search over the settings of a stage, and write the best as a YAML that the stage takes.

    Every trial runs the stage as a process of its own. The same command resumes a study; several at a time, on any
    number of machines, work on the same study. The test set has no place here: run `evaluate` on it afterwards.
    """

    stage: str
    """The stage: `finetune`, `pretrain`, ..."""

    settings: dict[str, Any]
    """The settings of the stage, but for `out`; or a YAML file with them."""

    space: dict[str, Parameter]
    """Dotted keys of the stage's settings to the values they may take."""

    objective: tuple[str, ...] = ()
    """`validation/NAME`, a validation metric of the stage. None at all takes the task's headline, or what `select_by`
    names; where there is no task, `validation/loss`. Several are traded off against each other.
    `cost/parameters`, `cost/folder_bytes`, `cost/pieces_per_word`, `cost/latency_1`, `cost/latency_32` and
    `cost/words_per_second` work with `finetune` only, and are measured on the words of the validation set. With
    several objectives nothing is pruned, and the best trial is the best by the first."""

    direction: tuple[Direction, ...] | None = None
    """`maximize` or `minimize` for each objective. None takes the task's directions for its metrics, minimizes
    losses (everything that `distill` measures), sizes and latencies, and maximizes others."""

    trials: Annotated[int, Range(1, 1_000_000)] = 20
    """Number of trials in the study at the end, pruned and failed ones included; `grid` makes no more than it has
    points."""

    max_hours: Annotated[float, Range(0, 100_000, above=True)] | None = None
    """Start no further trial after this time, counted from the start of each command; those that run are finished."""

    sampler: Literal["tpe", "random", "grid", "cmaes", "gp"] = "tpe"
    """Method that chooses values. `grid` needs a step or choices everywhere; `cmaes` is for numbers only."""

    seed: Seed = 0
    """Seed of the sampler and of the folds. Trial number n draws from seed and n, whichever worker runs it. (Trials
    that were queued again are not counted twice.)"""

    pruner: Literal["asha", "hyperband", "median", "none"] = "asha"
    """Method that ends a trial early if it is worse than others were after as many evaluations. Where the stage keeps
    its best evaluation, the best so far is compared. With several seeds or folds the first one decides."""

    min_evaluations: PositiveInt = 1
    """Evaluations before a trial may be pruned."""

    reduction: Annotated[int, Range(2, 1000)] = 3
    """`asha` and `hyperband` let the best one in this many continue."""

    enqueue: tuple[dict[str, Any], ...] = ()
    """The first trials: dotted keys to values; other values are drawn."""

    parallel: Annotated[int, Range(1, MOST_PROCESSES)] | None = None
    """Trials at a time in this worker; None takes one for each of `gpus`, or one."""

    gpus: Annotated[tuple[Annotated[int, Range(0, 1023)], ...], Items()] | None = None
    """Numbers of the GPUs, among those of CUDA_VISIBLE_DEVICES where it is set; each trial of this worker gets one.
    None lets every trial see all of them."""

    k_folds: Annotated[int, Range(2, 1000)] | None = None
    """Split the training file of `finetune` into this many parts. Each part in turn validates training on the others,
    and the value is the mean. Parts of a document stay together, and so do sentences that share an entity of three
    words or more which no more than three have. Trials do not use the `validation` of the stage, which may be left
    out; a training with the best settings needs it."""

    study: str | None = None
    """Name of the study in the storage; None takes the name of the folder `out`."""

    storage: StorageConfig = StorageConfig()
    """Place where trials are recorded."""

    def __post_init__(self) -> None:
        check_fields(self)
        self._check_objectives()
        if not self.space:
            raise DomainbertError("space: empty; expected at least one setting to vary")

    def _check_objectives(self) -> None:
        kinds = (VALIDATION, COST)
        wrong = [name for name in self.objective if not name.startswith(kinds) or name in kinds]
        if wrong or len(set(self.objective)) != len(self.objective):
            raise DomainbertError(
                f"objective: found {list(self.objective)}; expected different names such as validation/f1"
            )
        costs = [name for name in self.objective if name.startswith(COST) and name.removeprefix(COST) not in COSTS]
        if costs:
            known_costs = [COST + one for one in COSTS]
            raise DomainbertError(f"objective: {costs[0]} is not measured; {nearest(costs[0], known_costs)}")
        if self.objective and not any(name.startswith(VALIDATION) for name in self.objective):
            raise DomainbertError("objective: none of them is a validation metric; expected validation/f1, say")
        if self.direction is not None and len(self.direction) != max(len(self.objective), 1):
            raise DomainbertError("direction: expected one for each objective")

    @property
    def directions(self) -> tuple[Direction, ...]:
        """One for each objective."""
        if self.direction is not None:
            return self.direction
        lower = [self.stage == "distill" or name.endswith(_LOWER_IS_BETTER) for name in self.objective]
        return tuple("minimize" if one else "maximize" for one in lower)

    @property
    def num_slots(self) -> int:
        """Trials that this worker runs at a time."""
        return self.parallel or len(self.gpus or ()) or 1

    @property
    def prunes(self) -> bool:
        """Whether trials are ended early: there is no order among trials with several objectives."""
        return self.pruner != "none" and len(self.objective) < 2


Values = Mapping[str, Any]
"""One point of a space: dotted keys to plain values."""
