"""Loaders with a precise return type: `load_tagger` and `load_classifier`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from domainbert.serving.predictor import load_as
from domainbert.training.config import Precision

if TYPE_CHECKING:
    from domainbert.tasks.classification.task import Classifier
    from domainbert.tasks.ner.tagger import Tagger


def load_tagger(path: Path | str, precision: Precision = "auto", max_length: int | None = None) -> Tagger:
    """Load and return a tagger, which labels words; for arguments and errors see `load_predictor`.

    >>> from domainbert import load_tagger
    >>> tagger = load_tagger("model")
    >>> tagger.labels, len(tagger.predict(["The court of law.", "An appeal."]))
    (('O', 'B-law', 'I-law'), 2)
    """
    from domainbert.tasks.ner.tagger import Tagger

    return load_as(Tagger, path, precision, max_length)


def load_classifier(path: Path | str, precision: Precision = "auto", max_length: int | None = None) -> Classifier:
    """Load and return a classifier with one class per text; for arguments and errors see `load_predictor`.

    >>> from domainbert import load_classifier
    >>> (prediction,) = load_classifier("classifier").predict(["The court of law."])
    >>> sorted(prediction.scores)
    ['civil', 'criminal']
    """
    from domainbert.tasks.classification.task import Classifier

    return load_as(Classifier, path, precision, max_length)
