"""Labelled test sets that collect the predictions of several models and score them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from domainbert.base.errors import DomainbertError
from domainbert.metrics.slices import Surface, surface
from domainbert.metrics.summary import GoldEntities, Resampling, Summary, summarize_classes, summarize_entities
from domainbert.metrics.table import classification_lines, entity_lines
from domainbert.tasks.classification.config import ClassificationFormat
from domainbert.tasks.labelled import check_labels_known, read_classification, read_ner
from domainbert.tasks.ner.config import NerFormat
from domainbert.tasks.ner.conll import NerFile
from domainbert.tasks.ner.tags import Span, entity_types, spans_from_tags


class TextPrediction(Protocol):
    """The class of a text and the score of every class."""

    label: str
    scores: dict[str, float]


class WordPredictor(Protocol):
    """What a test set of entities needs of a fine-tuned model."""

    labels: Sequence[str]
    num_repaired: int

    def predict_words(self, sentences: list[list[str]]) -> list[list[str]]:
        """IOB2 tags of each word."""


class TextPredictor(Protocol):
    """What a test set of texts needs of a fine-tuned model."""

    labels: Sequence[str]

    def predict_texts(self, texts: list[str]) -> Sequence[TextPrediction]:
        """The class of each text."""


class Scoring(Protocol):
    """Gold labels, to which the predictions of one model after the other are added."""

    unit: str
    """What the bootstrap draws, in the plural."""
    num_units: int
    num_gold: int
    suffix: str
    """Of the files of predictions."""
    words: list[list[str]]
    """Of each text, as far as it has any."""

    def score(self, system: str, seed: str, predictor: Any, path: Path) -> None:
        """Predict, write gold and predictions to `path`, and remember them."""

    def summary(self, resampling: Resampling) -> Summary:
        """The scores of all systems."""

    def lines(self, summary: Summary) -> list[str]:
        """The summary for a person."""


class EntityScoring:
    """Sentences with entities.

    Args:
        path: the test set.
        train: the training set, for the slices of seen and unseen entities.
        format: how both hold words and tags.

    Raises:
        DomainbertError: a file that `read_ner` refuses.
    """

    def __init__(self, path: Path, train: Path | None, format: NerFormat) -> None:
        self.path = path
        self.file = read_ner(path, format)
        print(self.file.describe())
        self.spans = [sentence.spans for sentence in self.file.sentences]
        self.num_gold = self.file.num_spans
        self.unit = "documents" if self.file.marks_documents else "sentences"
        self.num_units = len({sentence.document for sentence in self.file.sentences})
        self.suffix = f".{self.file.kind}"
        self.words = [sentence.words for sentence in self.file.sentences if sentence.words]
        self._seen = _surfaces(train, format) if train else None
        self._predicted: dict[str, dict[str, list[list[Span]]]] = {}
        self._repaired: dict[str, int] = {}

    def score(self, system: str, seed: str, predictor: WordPredictor, path: Path) -> None:
        """Tag all words, write them beside the gold tags, and remember the spans.

        Raises:
            DomainbertError: the file has entity types that the model does not know.
        """
        check_labels_known(self.file.sentences, entity_types(predictor.labels), self.path)
        tags = self._predict(predictor)
        self._predicted.setdefault(system, {})[seed] = [spans_from_tags(one) for one in tags]
        self._repaired[system] = self._repaired.get(system, 0) + predictor.num_repaired
        path.parent.mkdir(parents=True, exist_ok=True)
        write = _write_jsonl_tags if self.suffix == ".jsonl" else _write_conll_tags
        write(path, self.file, tags)

    def _predict(self, predictor: WordPredictor) -> list[list[str]]:
        """Tags of every sentence; one without words has none and is not shown to the model."""
        sentences = self.file.sentences
        predicted = predictor.predict_words([sentence.words for sentence in sentences if sentence.words])
        remaining = iter(predicted)
        tags = [next(remaining, []) if sentence.words else [] for sentence in sentences]
        for sentence, one in zip(sentences, tags, strict=True):
            if len(sentence.words) != len(one):
                raise DomainbertError(
                    f"{self.path}:{sentence.line}: {len(sentence.words)} words but {len(one)} tags predicted"
                )
        return tags

    def summary(self, resampling: Resampling) -> Summary:
        """The scores of all systems.

        Raises:
            DomainbertError: the number of gold entities that were scored is not that of the file.
        """
        sentences = self.file.sentences
        predicted_types = {
            span[2] for runs in self._predicted.values() for run in runs.values() for one in run for span in one
        }
        gold = GoldEntities(
            spans=self.spans,
            words=[sentence.words for sentence in sentences],
            documents=[sentence.document for sentence in sentences],
            types=sorted(predicted_types | {span[2] for one in self.spans for span in one}),
            seen=self._seen,
        )
        summary = summarize_entities(gold, self._predicted, resampling)
        for name, system in summary["systems"].items():
            scored = sum(one["support"] for one in system["per_type"].values())
            if scored != self.num_gold:
                raise DomainbertError(f"{self.path}: {self.num_gold:,} gold entities, but {scored:,} scored for {name}")
            system["repaired_tags"] = self._repaired[name]
        return summary

    def lines(self, summary: Summary) -> list[str]:
        """The summary for a person."""
        repaired = [
            f"{name}: {count:,} stray I- tags in the predictions were read as B-"
            for name, count in self._repaired.items()
            if count
        ]
        return [*entity_lines(summary), *([""] if repaired else []), *repaired]


class ClassScoring:
    """Texts with one class each.

    Args:
        path: the test set.
        format: how it holds texts and classes.

    Raises:
        DomainbertError: a file that `read_classification` refuses.
    """

    unit = "texts"
    suffix = ".jsonl"

    def __init__(self, path: Path, format: ClassificationFormat) -> None:
        self.path = path
        file = read_classification(path, format)
        print(file.describe())
        self.texts = file.texts
        self.num_gold = self.num_units = len(self.texts)
        self.words = [words for text in self.texts if (words := text.text.split())]
        self._labels: set[str] = set()
        self._predicted: dict[str, dict[str, list[str]]] = {}

    def score(self, system: str, seed: str, predictor: TextPredictor, path: Path) -> None:
        """Classify all texts, write them beside the gold classes, and remember the predictions.

        Raises:
            DomainbertError: the file has classes that the model does not know.
        """
        check_labels_known(self.texts, predictor.labels, self.path)
        self._labels.update(predictor.labels)
        predictions = predictor.predict_texts([text.text for text in self.texts])
        if len(predictions) != len(self.texts):
            raise DomainbertError(f"{self.path}: {len(self.texts):,} texts, but {len(predictions):,} predictions")
        self._predicted.setdefault(system, {})[seed] = [prediction.label for prediction in predictions]
        rows = [
            {"text": text.text, "gold": text.label, "predicted": prediction.label, "scores": prediction.scores}
            for text, prediction in zip(self.texts, predictions, strict=True)
        ]
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_jsonl(path, rows)

    def summary(self, resampling: Resampling) -> Summary:
        """The scores of all systems."""
        gold = [text.label for text in self.texts]
        return summarize_classes(gold, self._predicted, sorted(self._labels), resampling)

    def lines(self, summary: Summary) -> list[str]:
        """The summary for a person."""
        return classification_lines(summary)


def _surfaces(train: Path, format: NerFormat) -> set[Surface]:
    file = read_ner(train, format)
    print(file.describe())
    return {surface(sentence.words, span) for sentence in file.sentences for span in sentence.spans}


def _write_conll_tags(path: Path, file: NerFile, predicted: Sequence[Sequence[str]]) -> None:
    """Word, gold, predicted, separated by tabs: the columns that the conlleval script reads."""
    document = -1
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        for sentence, tags in zip(file.sentences, predicted, strict=True):
            if file.marks_documents and sentence.document != document:
                document = sentence.document
                stream.write("-DOCSTART-\tO\tO\n\n")
            for row in zip(sentence.words, sentence.tags, tags, strict=True):
                stream.write("\t".join(row) + "\n")
            stream.write("\n")


def _write_jsonl_tags(path: Path, file: NerFile, predicted: Sequence[Sequence[str]]) -> None:
    pairs = zip(file.sentences, predicted, strict=True)
    _write_jsonl(path, [{"tokens": one.words, "gold": one.tags, "predicted": tags} for one, tags in pairs])


def _write_jsonl(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        stream.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
