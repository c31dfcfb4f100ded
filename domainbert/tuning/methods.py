"""Build samplers and pruners by name."""

from __future__ import annotations

import copy
from collections.abc import Callable

from optuna import Study, pruners, samplers
from optuna.trial import FrozenTrial

from domainbert.base.counter_random import random_bits
from domainbert.tuning.config import TuneConfig
from domainbert.tuning.trials import requeued_numbers, silence_optuna


class _Asha(pruners.SuccessiveHalvingPruner):
    """Pruner of Optuna that does not compare a trial that was queued again with its first attempt."""

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        study_without_requeued, requeued = copy.copy(study), requeued_numbers(study.get_trials(deepcopy=False))
        study_without_requeued.get_trials = lambda *args, **options: [  # type: ignore[method-assign]
            other for other in study.get_trials(*args, **options) if other.number not in requeued
        ]
        return super().prune(study_without_requeued, trial)


def build_sampler(config: TuneConfig, number: int) -> samplers.BaseSampler:
    """Return the sampler for trial `number`, which does not count attempts that were queued again.

    Each trial has a separate sampler with a seed from its number: two workers never sample the same sequence, and a
    study of a single worker is reproducible after interruptions (except with `hyperband`, which derives the bracket
    from the number in the storage). Samplers read earlier trials from the storage.
    """
    seed = int(random_bits(config.seed, number)) % 2**32  # hashed: with a sum, seed 1 would repeat trials of seed 0
    with silence_optuna():
        if config.sampler == "tpe":
            single = len(config.objective) == 1
            return samplers.TPESampler(seed=seed, multivariate=single, group=single, constant_liar=True)
        sampler_types: dict[str, Callable[..., samplers.BaseSampler]] = {
            "random": samplers.RandomSampler,
            "grid": samplers.BruteForceSampler,
            "cmaes": samplers.CmaEsSampler,
            "gp": samplers.GPSampler,
        }
        return sampler_types[config.sampler](seed=seed)


def build_pruner(config: TuneConfig) -> pruners.BasePruner:
    """Return the pruner; its steps are evaluations, starting at 1."""
    min_evaluations, reduction = config.min_evaluations, config.reduction
    if not config.prunes:
        return pruners.NopPruner()
    if config.pruner == "asha":
        return _Asha(min_resource=min_evaluations, reduction_factor=reduction)
    if config.pruner == "hyperband":
        return pruners.HyperbandPruner(min_resource=min_evaluations, reduction_factor=reduction)
    return pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=min_evaluations)
