"""Scoring of named entity recognition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.labelled.char_spans import Stretch, join_words
from domainbert.labelled.entities import NerFile, Sentence
from domainbert.labelled.items import label_set
from domainbert.labelled.tag_schemes import Span, spans_from_tags, tags_from_spans
from domainbert.metrics.bootstrap import Statistic
from domainbert.metrics.counts import IntArray, micro_f1
from domainbert.metrics.diagnostics import Pair
from domainbert.metrics.entities import all_entity_scores, count_entities, judge_entities, surface
from domainbert.metrics.summary import Resampling, Summary, collapse_warnings
from domainbert.metrics.table import Breakdown, error_lines, raw_text_line
from domainbert.tasks.mistakes import CORRECT, Mark, Mistake
from domainbert.tasks.ner.config import Ner
from domainbert.tasks.ner.raw_text import raw_text_scores
from domainbert.tasks.ner.tagger import Tagger
from domainbert.tasks.scoring import CountedScoring
from domainbert.tasks.word_task import TaggedScoring, TaggedWords


class EntityScoring(TaggedScoring, CountedScoring):
    """Scoring with strict entity F1; predictions are tags of words. `train` defines seen and unseen entities."""

    config: Ner
    test: NerFile
    statistics: ClassVar[Mapping[str, Statistic]] = {"f1": micro_f1}
    titles: ClassVar[Mapping[str, str]] = {"f1": "F1"}
    further: ClassVar[Mapping[str, str]] = {
        "precision": "precision",
        "recall": "recall",
        "macro_f1": "macro F1",
        "lenient.f1": "lenient F1",
        "partial.f1": "partial F1",
    }
    breakdowns = (
        Breakdown("by type", "per_type"),
        Breakdown("F1 by words", "by_length", only_f1=True),
        Breakdown("F1 by surface in training", "by_novelty", only_f1=True),
    )

    def __init__(self, config: Ner, test: NerFile, train: NerFile | None = None) -> None:
        super().__init__(config, test, train)
        self._gold, self._seen = [sentence.spans for sentence in test.sentences], None
        if train is not None:
            print(train.describe())
            self._seen = {surface(sentence.words, span) for sentence in train.sentences for span in sentence.spans}
        self._repaired: Counter[str] = Counter()
        self._raw_text: dict[str, list[dict[str, float]]] = {}

    @property
    @override
    def num_gold(self) -> int:
        return self.test.num_spans

    @property
    @override
    def title(self) -> str:
        return f"strict entity F1 over {self.num_gold:,} gold entities"

    @override
    def predict(self, predictor: Any) -> list[TaggedWords]:
        """Return the tags of each sentence, without entities of types that `format.types` does not select."""
        predictions, format = super().predict(predictor), self.config.format
        if format.types is None:
            return predictions
        selected = [[span for span in spans if format.keeps(span[2])] for spans in _spans(predictions)]
        return [
            tagged._replace(tags=tags_from_spans(spans, len(tagged.tags)))
            for tagged, spans in zip(predictions, selected, strict=True)
        ]

    @override
    def score(self, system: str, seed: str, predictor: Any, path: Path) -> None:
        """Predict all items, count repaired tags, and score raw text."""
        super().score(system, seed, predictor, path)
        self._repaired[system] += predictor.num_repaired
        if isinstance(predictor, Tagger):
            predictor.on_predicted = None  # the progress has counted the items already
            tagged, keeps = self.predictions[system][seed], self.config.format.keeps
            scores = raw_text_scores(predictor, self.test.sentences, tagged, keeps)
            self._raw_text.setdefault(system, []).append(scores)

    @override
    def count(self, predictions: Sequence[TaggedWords]) -> IntArray:
        """Return strict true positives, false positives and false negatives: (sentences, types, 3)."""
        return count_entities(self._gold, _spans(predictions), self._types)

    @override
    def scores(self, predictions: Sequence[TaggedWords], totals: IntArray) -> dict[str, Any]:
        words = [sentence.words for sentence in self.test.sentences]
        return all_entity_scores(self._gold, _spans(predictions), totals, self._types, words, self._seen)

    def warnings(self) -> list[str]:
        """Return warnings about models that predict no entity although gold has entities; otherwise []."""
        gold, description = label_set(self.test.items), "predicts no entity at all"
        return collapse_warnings(
            self.predictions, lambda tagged: spans_from_tags(tagged.tags), gold, description, max_values=0
        )

    @override
    def summary(self, resampling: Resampling) -> Summary:
        """Return the scores of all systems; raise `DomainbertError` if the file has another number of gold entities."""
        runs = (run for runs in self.predictions.values() for run in runs.values())
        predicted_types = {span[2] for run in runs for spans in _spans(run) for span in spans}
        self._types = sorted(predicted_types.union(label_set(self.test.items)))
        summary = super().summary(resampling)
        for name, system in summary["systems"].items():
            scored = sum(type_scores["support"] for type_scores in system["per_type"].values())
            if scored != self.num_gold:
                raise DomainbertError(
                    f"{self.test.path}: {self.num_gold:,} gold entities, but {scored:,} scored for {name}"
                )
            system["repaired_tags"] = self._repaired[name]
            if (seeds := self._raw_text.get(name)) and system["f1"] is not None:
                system["raw_text"] = {key: sum(seed[key] for seed in seeds) / len(seeds) for key in seeds[0]}
        return summary

    @override
    def mistake(self, item: Sentence, prediction: TaggedWords) -> Mistake | None:
        """Return the errors of a sentence, or None; the severity of a missed entity is its words' probability of O."""
        pairs = judge_entities(item.spans, spans_from_tags(prediction.tags))
        wrong_spans = [pair.predicted or pair.gold for pair in pairs if pair.kind != CORRECT]
        if not wrong_spans:
            return None
        scores = prediction.scores  # all words of an entity have the score of the entity
        severity = max(min(scores[span[0] : span[1]]) for span in wrong_spans if span)
        text, offsets = join_words(item.words)
        gold = [_mark(pair.gold, offsets, pair.kind) for pair in pairs if pair.gold]
        predicted = [_mark(pair.predicted, offsets, pair.kind, scores) for pair in pairs if pair.predicted]
        by_start = attrgetter("start")
        return Mistake(text, sorted(gold, key=by_start), sorted(predicted, key=by_start), severity)

    @override
    def confusion_pairs(self, item: Sentence, prediction: TaggedWords) -> Iterator[Pair]:
        """Yield the (gold, predicted) types of entities paired by `judge_entities`; None for an unpaired entity."""
        for gold, predicted, _ in judge_entities(item.spans, spans_from_tags(prediction.tags)):
            yield gold and gold[2], predicted and predicted[2]

    @override
    def confidences(self, item: Sentence, prediction: TaggedWords) -> Iterator[tuple[float, bool]]:
        gold = set(item.spans)
        return ((prediction.scores[span[0]], span in gold) for span in spans_from_tags(prediction.tags))

    @override
    def manifest_scores(self, system: Mapping[str, Any]) -> dict[str, Any]:
        return {
            key: value
            for key, value in super().manifest_scores(system).items()
            if key not in ("repaired_tags", "raw_text")
        }

    @override
    def lines(self, summary: Summary) -> list[str]:
        systems = summary["systems"]
        notes = [f"{name}: {raw_text_line(system)}" for name, system in systems.items() if "raw_text" in system]
        repair_note = "stray I- tags in the predictions were read as B-"
        notes += [f"{name}: {count:,} {repair_note}" for name, count in self._repaired.items() if count]
        return [*super().lines(summary), *error_lines(systems), *(["", *notes] if notes else [])]


def _spans(predictions: Sequence[TaggedWords]) -> list[list[Span]]:
    return [spans_from_tags(tagged.tags) for tagged in predictions]


def _mark(span: Span, offsets: Sequence[Stretch], kind: str, scores: Sequence[float] | None = None) -> Mark:
    """Return the mark in characters of a span in words, given the character ranges of the words."""
    first, end, label = span
    score = None if scores is None else scores[first]
    return Mark(label, offsets[first][0], offsets[end - 1][1], score, kind)
