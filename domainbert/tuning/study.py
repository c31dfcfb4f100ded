"""Create a study in its storage, or join an existing study with the same terms; build samplers and pruners.

The terms are the settings and file hashes that all workers of a study have to share (`Search.terms`).
"""

from __future__ import annotations

import copy
import json
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import optuna
from optuna import Study, pruners, samplers
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial

from domainbert.base.counter_random import random_bits
from domainbert.base.errors import DomainbertError
from domainbert.base.freshness import Freshness, flatten, format_examples, is_below
from domainbert.tuning.config import TuneConfig
from domainbert.tuning.space import optuna_value
from domainbert.tuning.trials import ERROR, SETTINGS, VALUES, requeued_numbers

ID = "id"
"""User attribute that distinguishes studies of the same name in different storages."""

_TERMS = "domainbert"  # user attribute with the terms, which all workers have to share
_JOIN_SECONDS = 10.0
_FIXED_FIELDS = ("choices", "log", "integer")
"""Fields of a dimension that cannot change within an Optuna study; low, high and step can."""


def open_study(config: TuneConfig, storage: BaseStorage, terms: dict[str, Any], extend: bool) -> Study:
    """Return a new study, or the existing study of this name, whose terms must be equal.

    With `extend`, the terms of an existing study may differ; its trials are kept.

    Raises:
        DomainbertError: the terms differ without `extend`; or with `extend` in choices or range types, which Optuna
            cannot change; or the space differs with the sampler `grid`; or the value of a complete trial was changed in
            the storage.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = _open_study(config, storage, terms, extend)
    if ID not in study.user_attrs:
        study.set_user_attr(ID, uuid.uuid4().hex)
    return study


def _open_study(config: TuneConfig, storage: BaseStorage, terms: dict[str, Any], extend: bool) -> Study:
    pruner = build_pruner(config)
    name = config.study or ""
    try:
        study = optuna.create_study(storage=storage, study_name=name, directions=list(config.directions), pruner=pruner)
    except optuna.exceptions.DuplicatedStudyError:
        study = optuna.load_study(storage=storage, study_name=name, pruner=pruner)
        try:
            saved_trials, old_terms = study.get_trials(deepcopy=False), _read_terms(study)
        except (ValueError, KeyError, TypeError) as error:
            raise DomainbertError(f"study '{name}': this version of Optuna cannot read it ({error})") from error
        for trial in saved_trials:
            if trial.state.name == "COMPLETE" and trial.user_attrs.get(VALUES, trial.values) != trial.values:
                values = f"has the values {trial.values}, but its worker recorded {trial.user_attrs[VALUES]}"
                hint = "restore the storage, or use another study"
                raise DomainbertError(f"trial {trial.number} {values}", where="storage", hint=hint) from None
        new_terms = json.loads(json.dumps(terms))  # with lists for tuples, as in the storage
        if old_terms is not None and not _terms_changed(study, config, old_terms, new_terms, extend):
            return study
    for point in config.enqueue:  # `skip_if_exists`, because an extended study may have these trials
        study.enqueue_trial({key: optuna_value(value) for key, value in point.items()}, skip_if_exists=True)
    study.set_metric_names(list(config.objective))  # titles in dashboards and plots
    study.set_user_attr(_TERMS, terms)
    return study


def _read_terms(study: Study) -> dict[str, Any] | None:
    """Return the terms of a study; None if the worker that created the study died before it recorded the terms."""
    end = time.monotonic() + _JOIN_SECONDS
    while (terms := study.user_attrs.get(_TERMS)) is None and time.monotonic() < end:
        time.sleep(0.1)
    return terms


def _terms_changed(
    study: Study, config: TuneConfig, old_terms: dict[str, Any], new_terms: dict[str, Any], extend: bool
) -> bool:
    """Return whether the new terms have to be recorded; raise `DomainbertError` if a term must not change. With
    `extend`, the settings and the limits of ranges may change; the objective may change until it has values."""
    # facts that an earlier version may not have recorded: inputs, and new fields of `TuneConfig` and `Parameter`, whose
    # default is None; a null below `settings` was written by the user
    optional = {
        name
        for name, fact in flatten(new_terms).items()
        if name.startswith("inputs.") or (fact is None and not name.startswith("settings."))
    }
    # without the objective, which is compared at the end
    changed = Freshness({**new_terms, "objective": None}, optional).changes({**old_terms, "objective": None})
    if conflicts := _changes_of_fixed_fields(changed, old_terms["space"].keys() & new_terms["space"].keys()):
        reason = "which Optuna cannot change, even with --extend (it can change low, high and step)"
        raise _incompatible(study, f"{format_examples(conflicts)}, {reason}")
    if config.sampler == "grid" and (conflicts := _changes_of_space(changed, old_terms["space"], new_terms["space"])):
        reason = "which the sampler 'grid' cannot change, even with --extend: all its points have to be of one grid"
        raise _incompatible(study, f"{format_examples(conflicts)}, {reason}")
    changes = list(changed.values())
    if changes and not extend:
        raise DomainbertError(
            f"study '{study.study_name}': was started with other settings or inputs ({format_examples(changes)})",
            hint="undo the change, or use --extend to resume with the new settings and keep the earlier trials",
        )
    old, new = old_terms["objective"], new_terms["objective"]  # directions by name
    if old != new:
        changes.insert(0, f"objective was {_format_objective(old)}, is now {_format_objective(new)}")
        has_values = any(trial.state.name in ("COMPLETE", "PRUNED") for trial in study.get_trials(deepcopy=False))
        if has_values or list(old.values()) != list(new.values()):  # Optuna cannot change directions
            raise _incompatible(study, f"its {changes[0]}")
    if changes:
        print(f"study '{study.study_name}': extended ({format_examples(changes)})", flush=True)
    return bool(changes) or ("inputs" in new_terms and "inputs" not in old_terms)  # earlier versions recorded none


def _changes_of_fixed_fields(changes: Mapping[str, str], keys: Iterable[str]) -> list[str]:
    """Return the changes of fields of dimensions, given by their keys, that Optuna cannot change; `changes` by fact."""
    # `flatten` omits `.init_args` from the names of facts
    fixed = tuple(f"space.{key}.{name}".replace(".init_args", "") for key in keys for name in _FIXED_FIELDS)
    return [change for name, change in changes.items() if name.startswith(fixed)]


def _changes_of_space(changes: Mapping[str, str], old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the changes of the search space, also of the order of its keys; `changes` by fact."""
    found = [change for name, change in changes.items() if is_below(name, "space")]
    return found or ([] if list(old) == list(new) else [f"order of space was {list(old)}, is now {list(new)}"])


def _incompatible(study: Study, reason: str) -> DomainbertError:
    return DomainbertError(
        f"study '{study.study_name}': {reason}",
        hint="undo the change, or start a new study (another out and study name)",
    )


def _format_objective(objective: Mapping[str, str]) -> str:
    return ", ".join(f"{name} ({direction})" for name, direction in objective.items())


class _Asha(pruners.SuccessiveHalvingPruner):
    """ASHA pruner that ignores attempts that were queued again."""

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        return super().prune(_hide_requeued(copy.copy(study), of=study), trial)


class _Hyperband(pruners.HyperbandPruner):
    """Hyperband pruner that ignores attempts that were queued again."""

    def _create_bracket_study(self, study: Study, bracket_id: int) -> Study:
        return _hide_requeued(super()._create_bracket_study(study, bracket_id), of=study)


def _hide_requeued(view: Study, of: Study) -> Study:
    """Change and return a view of the study `of`: `get_trials` leaves out attempts that were queued again."""
    get_trials, requeued = view.get_trials, requeued_numbers(of.get_trials(deepcopy=False))

    def get_counted_trials(*args: Any, **options: Any) -> list[FrozenTrial]:
        return [trial for trial in get_trials(*args, **options) if trial.number not in requeued]

    view.get_trials = get_counted_trials  # type: ignore[method-assign]
    return view


class _Grid(samplers.BruteForceSampler):
    """Grid sampler for `Study.ask` and `Study.tell`."""

    @classmethod
    def _populate_tree(cls, tree: Any, trials: Iterable[FrozenTrial], params: dict[str, Any]) -> None:
        """Add the points of the trials to the tree. Skip a trial whose worker died before it had drawn all values:
        Optuna would take its values for a whole point."""
        # a worker records the settings or an error as soon as it has drawn all values
        drawn = [trial for trial in trials if trial.state.name != "FAIL" or {SETTINGS, ERROR} & trial.user_attrs.keys()]
        super()._populate_tree(tree, drawn, params)

    def after_trial(self, *args: Any) -> None:
        """Do nothing: the base class would call `Study.stop` after the last point, which fails without `optimize`."""


def build_sampler(config: TuneConfig, number: int) -> samplers.BaseSampler:
    """Return the sampler of a trial; its `number` does not count attempts that were queued again.

    Each trial has a separate sampler with a seed from its number: two workers never sample the same sequence, and a
    study of a single worker is reproducible after interruptions (except with `hyperband`, which derives the bracket
    from the number in the storage). Samplers read earlier trials from the storage.
    """
    seed = int(random_bits(config.seed, number)) % 2**32  # hashed: with a sum, seed 1 would repeat trials of seed 0
    if config.sampler == "tpe":
        is_single = len(config.objective) == 1
        return samplers.TPESampler(seed=seed, multivariate=is_single, group=is_single, constant_liar=True)
    sampler_types: dict[str, Callable[..., samplers.BaseSampler]] = {
        "random": samplers.RandomSampler,
        "grid": _Grid,
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
        return _Hyperband(min_resource=min_evaluations, reduction_factor=reduction)
    return pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=min_evaluations)
