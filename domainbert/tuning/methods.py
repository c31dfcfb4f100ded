"""Samplers and pruners by name, and the queued trials that come first."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING

from domainbert.base.errors import DomainbertError, Problems
from domainbert.settings.tree import nearest
from domainbert.settings.yaml_files import Node
from domainbert.tuning.config import TuneConfig, Values
from domainbert.tuning.space import Dimension, Space
from domainbert.tuning.trials import is_lost, quiet

if TYPE_CHECKING:
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler
    from optuna.study import Study
    from optuna.trial import FrozenTrial


def method_problems(config: TuneConfig, space: Space, where: str, problems: Problems) -> None:
    """Check that the sampler can draw from the space, that it is installed, and that there is a metric to prune by."""
    for one in space.dimensions:
        continuous = one.parameter.choices is None and not one.integer and one.parameter.step is None
        if config.sampler == "grid" and continuous:
            problems.add(
                f"{one.node.where}: space.{one.key}: is a range without steps; expected a step for sampler: grid"
            )
        if config.sampler == "cmaes" and one.parameter.choices is not None:
            problems.add(f"{one.node.where}: space.{one.key}: has choices; expected ranges only for sampler: cmaes")
    if config.sampler == "cmaes" and len(config.objective) > 1:
        problems.add(f"{where}: sampler: cmaes has one objective; expected another sampler, or one objective")
    try:
        build_sampler(config, 0)
    except ImportError as error:
        problems.add(
            f"{where}: sampler: {config.sampler} needs what is not installed ({error}); pip install 'domainbert[tune]'"
        )


def enqueued_problems(space: Space, enqueue: Sequence[Values], nodes: Node, problems: Problems) -> None:
    """Check the points of `enqueue`."""
    dimensions = {one.key: one for one in space.dimensions}
    for number, point in enumerate(enqueue):
        for key, value in point.items():
            where = nodes.at([str(number), key]).where
            if key not in dimensions:
                problems.add(
                    f"{where}: enqueue[{number}]: '{key}' is not in the space; {nearest(key, list(dimensions))}"
                )
            elif (message := dimensions[key].problem_of(value)) is not None:
                problems.add(f"{where}: enqueue[{number}].{key}: {message}")
            elif (other := dimensions[key].excluded_by(point)) is not None:
                problems.add(f"{where}: enqueue[{number}].{key}: does not vary where {other} is {point[other]!r}")


def build_sampler(config: TuneConfig, number: int) -> BaseSampler:
    """The sampler for trial `number`, counted without those that were queued again.

    Each trial has its own, seeded by its number: workers never draw the same, and the study of one worker comes out the
    same whether it was interrupted or not (but for `hyperband`, which takes the bracket of a trial from the number that
    it has in the storage). What samplers know of earlier trials, they read from there.
    """
    import optuna.samplers as samplers

    from domainbert.base.counter_random import random_bits

    seed = int(random_bits(config.seed, number)) % 2**32  # a sum would make seed 1 repeat all but the first of seed 0
    with quiet():
        if config.sampler == "tpe":
            single = len(config.objective) == 1
            return samplers.TPESampler(seed=seed, multivariate=single, group=single, constant_liar=True)
        if config.sampler == "random":
            return samplers.RandomSampler(seed=seed)
        if config.sampler == "grid":
            return samplers.BruteForceSampler(seed=seed)
        if config.sampler == "cmaes":
            return samplers.CmaEsSampler(seed=seed)
        return samplers.GPSampler(seed=seed)


def build_pruner(config: TuneConfig) -> BasePruner:
    """The pruner; it counts evaluations, from 1."""
    import optuna.pruners as pruners

    first, reduction = config.min_evaluations, config.reduction
    if not config.prunes:
        return pruners.NopPruner()
    if config.pruner == "asha":
        return _asha(first, reduction)
    if config.pruner == "hyperband":
        return pruners.HyperbandPruner(min_resource=first, reduction_factor=reduction)
    return pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=first - 1)


def _asha(first: int, reduction: int) -> BasePruner:
    """Optuna's pruner with one change: a trial that was queued again does not compete with its copy."""
    from optuna.pruners import SuccessiveHalvingPruner

    class Asha(SuccessiveHalvingPruner):
        """Successive halving among the trials that count."""

        def prune(self, study: Study, trial: FrozenTrial) -> bool:
            """See Optuna."""
            among = copy.copy(study)
            among.get_trials = lambda *how, **more: [one for one in study.get_trials(*how, **more) if not is_lost(one)]  # type: ignore[method-assign]
            return super().prune(among, trial)

    return Asha(min_resource=first, reduction_factor=reduction)


def grid_size(space: Space) -> int:
    """Points of a grid over a space; settings that do not vary at a point do not multiply it.

    Raises:
        DomainbertError: there are more than a million, too many for a search.
    """
    points: list[dict[str, object]] = [{}]
    for one in space.dimensions:
        points = [
            {**point, **({one.key: value} if one.applies(point) else {})}
            for point in points
            for value in (_grid_values(one) if one.applies(point) else [None])
        ]
        if len(points) > 1_000_000:
            raise DomainbertError("space: more than a million points; expected fewer for sampler: grid")
    return len(points)


def _grid_values(one: Dimension) -> list[object]:
    parameter = one.parameter
    if parameter.choices is not None:
        return list(parameter.choices)
    assert parameter.low is not None and parameter.high is not None
    step = parameter.step or 1
    return [parameter.low + number * step for number in range(int((parameter.high - parameter.low) / step + 1e-9) + 1)]
