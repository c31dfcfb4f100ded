"""The predictors of tasks that have a name of their own in Python: `load_tagger`, `load_classifier`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from domainbert.base.errors import DomainbertError
from domainbert.models.folder import open_model
from domainbert.serving.predictor import load_predictor
from domainbert.tasks.classification.classifier import Classifier
from domainbert.tasks.ner.tagger import Tagger
from domainbert.tasks.predictor import Predictor
from domainbert.tasks.task import task_of_folder
from domainbert.training.config import Precision

_SHOWN_LABELS = 10

AnyPredictor = TypeVar("AnyPredictor", bound=Predictor[Any])


def load_tagger(path: Path | str, precision: Precision = "32-true", max_length: int | None = None) -> Tagger:
    """A model folder for entities; see `load_predictor`."""
    return _load(Path(path), precision, max_length, Tagger)


def load_classifier(path: Path | str, precision: Precision = "32-true", max_length: int | None = None) -> Classifier:
    """A model folder for one class a text; see `load_predictor`."""
    return _load(Path(path), precision, max_length, Classifier)


def _load(path: Path, precision: Precision, max_length: int | None, wanted: type[AnyPredictor]) -> AnyPredictor:
    """`DomainbertError` where a folder holds a model of another kind, which it names."""
    folder = open_model(path)
    found = task_of_folder(folder).predictor
    if not issubclass(found, wanted):
        labels = ", ".join(folder.labels[:_SHOWN_LABELS]) + (", ..." if len(folder.labels) > _SHOWN_LABELS else "")
        raise DomainbertError(f"{folder.path}: is {found.kind} {labels}; {found.loader} reads it")
    predictor = load_predictor(path, precision, max_length)
    assert isinstance(predictor, wanted)
    return predictor
