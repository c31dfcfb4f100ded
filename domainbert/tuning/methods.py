"""Samplers and pruners by name."""

from __future__ import annotations

import copy
from collections.abc import Callable

from optuna import Study, pruners, samplers
from optuna.trial import FrozenTrial

from domainbert.base.counter_random import random_bits
from domainbert.tuning.config import TuneConfig
from domainbert.tuning.trials import lost, quiet


class _Asha(pruners.SuccessiveHalvingPruner):
    """Optuna's pruner with one change: a trial that was queued again does not compete with its copy."""

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        among, left_out = copy.copy(study), lost(study.get_trials(deepcopy=False))
        among.get_trials = lambda *how, **more: [  # type: ignore[method-assign]
            one for one in study.get_trials(*how, **more) if one.number not in left_out
        ]
        return super().prune(among, trial)


def build_sampler(config: TuneConfig, number: int) -> samplers.BaseSampler:
    """The sampler for trial `number`, counted without those that were queued again.

    Each trial has its own, seeded by its number: workers never draw the same, and the study of one worker comes out the
    same whether it was interrupted or not (but for `hyperband`, which takes the bracket of a trial from the number that
    it has in the storage). What samplers know of earlier trials, they read from there.
    """
    seed = int(random_bits(config.seed, number)) % 2**32  # a sum would make seed 1 repeat all but the first of seed 0
    with quiet():
        if config.sampler == "tpe":
            single = len(config.objective) == 1
            return samplers.TPESampler(seed=seed, multivariate=single, group=single, constant_liar=True)
        kinds: dict[str, Callable[..., samplers.BaseSampler]] = {
            "random": samplers.RandomSampler,
            "grid": samplers.BruteForceSampler,
            "cmaes": samplers.CmaEsSampler,
            "gp": samplers.GPSampler,
        }
        return kinds[config.sampler](seed=seed)


def build_pruner(config: TuneConfig) -> pruners.BasePruner:
    """The pruner; it counts evaluations, from 1."""
    first, reduction = config.min_evaluations, config.reduction
    if not config.prunes:
        return pruners.NopPruner()
    if config.pruner == "asha":
        return _Asha(min_resource=first, reduction_factor=reduction)
    if config.pruner == "hyperband":
        return pruners.HyperbandPruner(min_resource=first, reduction_factor=reduction)
    return pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=first)
