"""A study in its storage: made, or joined by a worker that asks for the same."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from domainbert.errors import DomainbertError
from domainbert.runner.manifest import in_short
from domainbert.tuning.config import TuneConfig
from domainbert.tuning.methods import build_pruner
from domainbert.tuning.space import label
from domainbert.tuning.trials import quiet

if TYPE_CHECKING:
    from optuna import Study
    from optuna.storages import BaseStorage

TERMS = "domainbert"
"""User attribute of a study: what trials are made of, so that another worker does the same or is refused."""

_JOIN_SECONDS = 10.0


def open_study(config: TuneConfig, storage: BaseStorage, terms: dict[str, Any], extend: bool) -> Study:
    """Make the study, or join it if its terms are the same.

    Args:
        config: what is asked for.
        storage: where.
        terms: of the study: `{"space": ..., "objective": ..., "settings": ...}`.
        extend: go on with other terms; the trials there are stay.

    Raises:
        DomainbertError: the study has other terms, or other choices, which Optuna cannot extend.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    name = config.study or ""
    try:
        study = optuna.create_study(
            storage=storage, study_name=name, directions=list(config.directions), pruner=build_pruner(config)
        )
    except optuna.exceptions.DuplicatedStudyError:
        study = optuna.load_study(storage=storage, study_name=name, pruner=build_pruner(config))
        known = _known_terms(study)
        if known is not None and not _go_on(study, known, json.loads(json.dumps(terms)), extend):
            return study
    for point in config.enqueue:
        with quiet():
            study.enqueue_trial({key: label(value) for key, value in point.items()}, skip_if_exists=True)
    study.set_user_attr(TERMS, terms)
    return study


def _known_terms(study: Study) -> dict[str, Any] | None:
    """The terms of a study; None where the worker that has made it died before it said them."""
    end = time.monotonic() + _JOIN_SECONDS
    while (known := study.user_attrs.get(TERMS)) is None and time.monotonic() < end:
        time.sleep(0.1)
    return known


def _go_on(study: Study, known: dict[str, Any], plain: dict[str, Any], extend: bool) -> bool:
    """Whether a study is extended; `DomainbertError` where its terms are others and may not be."""
    if known["objective"] != plain["objective"]:
        raise DomainbertError(
            f"study {study.study_name}: its objective was {_shown(known['objective'])}, is now "
            f"{_shown(plain['objective'])}; expected the same, or another name under study:"
        )
    changes = _changes(known, plain)
    choices = [key for key, one in plain["space"].items() if _other_choices(known["space"].get(key), one)]
    if choices:
        raise DomainbertError(
            f"study {study.study_name}: the choices of {', '.join(choices)} were others; "
            "expected the same, or another name under study:"
        )
    if changes and not extend:
        raise DomainbertError(
            f"study {study.study_name}: was begun with other settings ({in_short(changes)}); "
            "expected the same, or --extend to go on with these beside the trials there are"
        )
    if changes:
        print(f"study {study.study_name}: extended ({in_short(changes)})", flush=True)
    return bool(changes)


def _other_choices(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> bool:
    return (
        old is not None
        and (old["choices"] is not None or new["choices"] is not None)
        and old["choices"] != new["choices"]
    )


def _changes(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """The differences of two nested mappings in words."""
    found = []
    for key in [*old, *(key for key in new if key not in old)]:
        before, after, name = old.get(key), new.get(key), f"{prefix}{key}"
        if isinstance(before, dict) and isinstance(after, dict):
            found += _changes(before, after, f"{name}.")
        elif before != after:
            found.append(f"{name} was {_shown(before)}, is now {_shown(after)}")
    return found


def _shown(value: Any) -> str:
    if value is None or (isinstance(value, (dict, list)) and not value):
        return "not set"
    text = "there" if isinstance(value, dict) else ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
