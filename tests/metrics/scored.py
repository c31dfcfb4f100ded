"""Test sets of classes and of entities with predictions that no model made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from domainbert.labelled.conll import Mark
from domainbert.labelled.entities import NerFile, Sentence
from domainbert.labelled.tag_schemes import tags_from_spans
from domainbert.metrics.entities import Span
from domainbert.tasks.classification.config import Classification, ClassificationFormat
from domainbert.tasks.classification.files import ClassFile, LabelledText
from domainbert.tasks.classification.scoring import ClassScoring, TextPrediction
from domainbert.tasks.ner.config import Ner
from domainbert.tasks.ner.scoring import EntityScoring
from domainbert.tasks.word_task import TaggedWords

PATH = Path("données.jsonl")
Classes = Mapping[str, Mapping[str, Sequence[str]]]
Spans = Sequence[Sequence[Span]]


def classes(
    gold: Sequence[str],
    systems: Classes,
    labels: Sequence[str],
    languages: Sequence[str] | None = None,
    mean: bool = False,
) -> ClassScoring:
    """Texts with one class each; with a slice for each language, and their mean as the headline."""
    by = ("language",) if languages else ()
    config = Classification(format=ClassificationFormat(slice_keys=by), mean_over="language" if mean else None)
    items = [
        LabelledText("naïve text", label, line, slices={"language": language} if languages else {})
        for line, (label, language) in enumerate(zip(gold, languages or gold, strict=True), 1)
    ]
    scoring = ClassScoring(config, ClassFile(PATH, items, "jsonl"))
    scoring.labels = set(labels)
    scoring.predictions = {
        name: {seed: [TextPrediction(label, {}) for label in run] for seed, run in runs.items()}
        for name, runs in systems.items()
    }
    return scoring


def entities(
    gold: Spans, systems: Mapping[str, Mapping[str, Spans]], documents: list[int] | None = None
) -> EntityScoring:
    """Sentences of eight words with entities, perhaps in documents."""

    def tags(spans: Sequence[Span]) -> list[str]:
        return tags_from_spans(spans, 8)

    numbered = enumerate(zip(gold, documents or range(len(gold)), strict=True), 1)
    items = [Sentence(["w"] * 8, tags(spans), line, document) for line, (spans, document) in numbered]
    test = NerFile(PATH, items, "jsonl", "", [Mark(1, None, "")] if documents else [], "IOB2")
    scoring = EntityScoring(Ner(), test, None)
    scoring.predictions = {
        name: {seed: [TaggedWords(tags(spans), [1.0] * 8) for spans in run] for seed, run in runs.items()}
        for name, runs in systems.items()
    }
    return scoring
