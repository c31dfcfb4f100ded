"""A study in its storage: made, or joined by a worker that asks for the same."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import optuna
from optuna import Study
from optuna.storages import BaseStorage

from domainbert.base.errors import DomainbertError
from domainbert.base.freshness import Freshness, flatten, in_short
from domainbert.tuning.config import TuneConfig
from domainbert.tuning.methods import build_pruner
from domainbert.tuning.space import label
from domainbert.tuning.trials import quiet

_TERMS = "domainbert"  # user attribute: the terms of all trials, so that another worker uses the same or is refused
_JOIN_SECONDS = 10.0
_KINDS = ("choices", "log", "integer")
"""Fields of a dimension that Optuna does not let vary in one study; it does let low, high and step."""


def open_study(config: TuneConfig, storage: BaseStorage, terms: dict[str, Any], extend: bool) -> Study:
    """Make the study, or join it if its terms are the same; with `extend` also with others, and earlier trials stay.

    Raises:
        DomainbertError: the study has other terms, or other choices or kinds of ranges, which Optuna cannot extend.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    pruner, name = build_pruner(config), config.study or ""
    try:
        study = optuna.create_study(storage=storage, study_name=name, directions=list(config.directions), pruner=pruner)
    except optuna.exceptions.DuplicatedStudyError:
        study = optuna.load_study(storage=storage, study_name=name, pruner=pruner)
        known = _known_terms(study)
        if known is not None and not _go_on(study, known, json.loads(json.dumps(terms)), extend):
            return study
    for point in config.enqueue:
        with quiet():
            study.enqueue_trial({key: label(value) for key, value in point.items()}, skip_if_exists=True)
    study.set_user_attr(_TERMS, terms)
    return study


def _known_terms(study: Study) -> dict[str, Any] | None:
    """The terms of a study; None if the worker that made it died before it recorded them."""
    end = time.monotonic() + _JOIN_SECONDS
    while (known := study.user_attrs.get(_TERMS)) is None and time.monotonic() < end:
        time.sleep(0.1)
    return known


def _go_on(study: Study, known: dict[str, Any], plain: dict[str, Any], extend: bool) -> bool:
    """Whether a study is resumed with other terms, or more of them; `DomainbertError` where it may not."""
    is_older = "inputs" not in known and "inputs" in plain  # made by an earlier version, which did not record them
    optional = {name for name, fact in flatten(plain).items() if fact is None or name.startswith("inputs.")}
    changed = Freshness({**plain, "objective": None}, optional).changes({**known, "objective": None})
    both = known["space"].keys() & plain["space"].keys()
    fixed = tuple(f"space.{key}.{kind}".replace(".init_args", "") for key in both for kind in _KINDS)
    if found := [words for name, words in changed.items() if name.startswith(fixed)]:
        why = "Optuna can extend a range, but not change choices, log or integer of a setting, --extend or not"
        raise _refused(study, f"{in_short(found)}, but {why}")
    changes = [*changed.values()]
    if changes and not extend:
        raise DomainbertError(
            f"study {study.study_name}: was begun with other settings ({in_short(changes)}); "
            "expected the same, or --extend to resume with these and keep the earlier trials"
        )
    old, new = known["objective"], plain["objective"]
    if old != new:
        changes.insert(0, f"objective was {_named(old)}, is now {_named(new)}")
        valued = any(one.state.name in ("COMPLETE", "PRUNED") for one in study.get_trials(deepcopy=False))
        if valued or list(old.values()) != list(new.values()):  # one that was misspelt, say, has no value
            raise _refused(study, f"its {changes[0]}")
    if changes:
        print(f"study {study.study_name}: extended ({in_short(changes)})", flush=True)
    return bool(changes) or is_older


def _refused(study: Study, why: str) -> DomainbertError:
    return DomainbertError(f"study {study.study_name}: {why}; expected the same, or another folder under out:")


def _named(objective: Mapping[str, str]) -> str:
    return ", ".join(f"{name} ({direction})" for name, direction in objective.items())
