"""All code that relies on what Optuna does not promise: its private names, and the texts that it writes.

Looked up in Optuna 5.0. With another version, look here first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optuna import Study
from optuna.trial import FrozenTrial, Trial, TrialState

_RUNG = "completed_rung_"  # in the system attributes: the rungs that a trial has reached in ASHA


def recorded(study: Study, trial: Trial) -> FrozenTrial:
    """A trial as the storage has it."""
    return study._storage.get_trial(trial._trial_id)


def set_state(study: Study, trial: Trial | FrozenTrial, state: TrialState) -> bool:
    """Set the state of a trial that may belong to another worker; False if that worker was first."""
    return study._storage.set_trial_state_values(trial._trial_id, state)


def set_attribute(study: Study, trial: FrozenTrial, name: str, text: str) -> None:
    """Set a user attribute of a trial that may belong to another worker."""
    study._storage.set_trial_user_attr(trial._trial_id, name, text)


def without_rungs(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """System attributes for a trial that is run again: ASHA starts it from the beginning."""
    return {key: value for key, value in attributes.items() if not key.startswith(_RUNG)}


def tell(study: Study, trial: Trial, state: TrialState, values: Sequence[float] | None) -> None:
    """Record the end of a trial.

    A grid sampler that has seen all its points calls the study's `stop`, which is for Optuna's own loop.
    """
    try:
        study.tell(trial, list(values) if values is not None else None, state)
    except RuntimeError as error:
        if "Study.stop" not in str(error):
            raise
