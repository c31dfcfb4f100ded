"""Create a study in its storage, or join an existing study with the same terms.

The terms are the settings and file hashes that all workers of a study have to share (`Search.terms`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import optuna
from optuna import Study
from optuna.storages import BaseStorage

from domainbert.base.errors import DomainbertError
from domainbert.base.freshness import Freshness, flatten, format_examples
from domainbert.tuning.config import TuneConfig
from domainbert.tuning.methods import build_pruner
from domainbert.tuning.space import optuna_value
from domainbert.tuning.trials import silence_optuna

_TERMS = "domainbert"  # user attribute with the terms, which all workers have to share
_JOIN_SECONDS = 10.0
_FIXED_FIELDS = ("choices", "log", "integer")
"""Fields of a dimension that cannot change within an Optuna study; low, high and step can."""


def open_study(config: TuneConfig, storage: BaseStorage, terms: dict[str, Any], extend: bool) -> Study:
    """Return a new study, or an existing study with equal terms. With `extend`, the terms may differ; trials are kept.

    Raises:
        DomainbertError: the terms differ, or differ in choices or range types, which Optuna cannot extend.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    pruner, name = build_pruner(config), config.study or ""
    try:
        study = optuna.create_study(storage=storage, study_name=name, directions=list(config.directions), pruner=pruner)
    except optuna.exceptions.DuplicatedStudyError:
        study = optuna.load_study(storage=storage, study_name=name, pruner=pruner)
        old_terms = _read_terms(study)
        if old_terms is not None and not _check_terms(study, old_terms, json.loads(json.dumps(terms)), extend):
            return study
    for point in config.enqueue:
        with silence_optuna():
            study.enqueue_trial({key: optuna_value(value) for key, value in point.items()}, skip_if_exists=True)
    study.set_user_attr(_TERMS, terms)
    return study


def _read_terms(study: Study) -> dict[str, Any] | None:
    """Return the terms of a study; None if the worker that created it died before it recorded them."""
    end = time.monotonic() + _JOIN_SECONDS
    while (terms := study.user_attrs.get(_TERMS)) is None and time.monotonic() < end:
        time.sleep(0.1)
    return terms


def _check_terms(study: Study, old_terms: dict[str, Any], new_terms: dict[str, Any], extend: bool) -> bool:
    """Return whether the terms have to be recorded again; raise `DomainbertError` if they must not change."""
    is_older = "inputs" not in old_terms and "inputs" in new_terms  # earlier versions did not record inputs
    optional = {name for name, fact in flatten(new_terms).items() if fact is None or name.startswith("inputs.")}
    changed = Freshness({**new_terms, "objective": None}, optional).changes({**old_terms, "objective": None})
    shared_keys = old_terms["space"].keys() & new_terms["space"].keys()
    fixed = tuple(f"space.{key}.{name}".replace(".init_args", "") for key in shared_keys for name in _FIXED_FIELDS)
    if conflicts := [words for name, words in changed.items() if name.startswith(fixed)]:
        reason = "Optuna can extend a range, but cannot change choices, log or integer of a setting, even with --extend"
        raise _incompatible(study, f"{format_examples(conflicts)}, but {reason}")
    changes = [*changed.values()]
    if changes and not extend:
        raise DomainbertError(
            f"study {study.study_name}: was started with other settings ({format_examples(changes)}); "
            "expected the same settings, or --extend to resume with new settings and keep the earlier trials"
        )
    before, now = old_terms["objective"], new_terms["objective"]
    if before != now:
        changes.insert(0, f"objective was {_format_objective(before)}, is now {_format_objective(now)}")
        has_values = any(trial.state.name in ("COMPLETE", "PRUNED") for trial in study.get_trials(deepcopy=False))
        if has_values or list(before.values()) != list(now.values()):  # a misspelt objective has no values yet
            raise _incompatible(study, f"its {changes[0]}")
    if changes:
        print(f"study {study.study_name}: extended ({format_examples(changes)})", flush=True)
    return bool(changes) or is_older


def _incompatible(study: Study, reason: str) -> DomainbertError:
    return DomainbertError(f"study {study.study_name}: {reason}; expected no change, or another folder in out")


def _format_objective(objective: Mapping[str, str]) -> str:
    return ", ".join(f"{name} ({direction})" for name, direction in objective.items())
