"""Sentences with entities as a test set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.labelled.entities import NerFile, Sentence
from domainbert.labelled.items import label_set
from domainbert.labelled.stretches import Stretch, joined_words
from domainbert.labelled.tag_schemes import Span, spans_from_tags, tags_from_spans
from domainbert.metrics.bootstrap import Statistic
from domainbert.metrics.confusion import Pair
from domainbert.metrics.counts import IntArray, micro_f1
from domainbert.metrics.entities import all_entity_scores, count_entities, judge_entities, surface
from domainbert.metrics.summary import Resampling, Summary, collapsed
from domainbert.metrics.table import entity_lines, raw_text_line
from domainbert.tasks.mistakes import CORRECT, Mark, Mistake
from domainbert.tasks.ner.config import Ner
from domainbert.tasks.ner.raw_text import raw_text_scores
from domainbert.tasks.ner.tagger import Tagger
from domainbert.tasks.scoring import CountedScoring
from domainbert.tasks.tagged_scoring import TaggedScoring
from domainbert.tasks.words import TaggedWords


class EntityScoring(TaggedScoring, CountedScoring):
    """Sentences with entities; predictions are tags of words. `train` is for the slices of seen and unseen entities."""

    config: Ner
    test: NerFile
    statistics: ClassVar[Mapping[str, Statistic]] = {"f1": micro_f1}

    def __init__(self, config: Ner, test: NerFile, train: NerFile | None = None) -> None:
        super().__init__(config, test, train)
        self._gold, self._seen = [sentence.spans for sentence in test.sentences], None
        if train is not None:
            print(train.describe())
            self._seen = {surface(sentence.words, span) for sentence in train.sentences for span in sentence.spans}
        self._repaired: Counter[str] = Counter()
        self._raw_text: dict[str, list[dict[str, float]]] = {}

    @property
    def num_gold(self) -> int:
        """The entities."""
        return self.test.num_spans

    @property
    @override
    def title(self) -> str:
        return f"strict entity F1 over {self.num_gold:,} gold entities"

    @override
    def predict(self, predictor: Any) -> list[TaggedWords]:
        """Entities of types that are not read are left out of the predictions, too."""
        found, keeps = super().predict(predictor), self.config.format.keeps
        if self.config.format.types is None:
            return found
        kept = [[span for span in spans if keeps(span[2])] for spans in _spans(found)]
        return [
            one._replace(tags=tags_from_spans(spans, len(one.tags))) for one, spans in zip(found, kept, strict=True)
        ]

    @override
    def score(self, system: str, seed: str, predictor: Any, path: Path) -> None:
        """Predict and remember, and count repaired tags."""
        super().score(system, seed, predictor, path)
        self._repaired[system] += predictor.num_repaired
        if isinstance(predictor, Tagger):
            predictor.on_predicted = None  # the items are counted
            tagged, keeps = self.predictions[system][seed], self.config.format.keeps
            scores = raw_text_scores(predictor, self.test.sentences, tagged, keeps)
            self._raw_text.setdefault(system, []).append(scores)

    @override
    def count(self, predictions: Sequence[TaggedWords]) -> IntArray:
        """Strict counts (sentences, types, 3)."""
        return count_entities(self._gold, _spans(predictions), self._types)

    @override
    def scores(self, predictions: Sequence[TaggedWords], totals: IntArray) -> dict[str, Any]:
        words = [sentence.words for sentence in self.test.sentences]
        return all_entity_scores(self._gold, _spans(predictions), totals, self._types, words, self._seen)

    def warnings(self) -> list[str]:
        """Models that find no entity, where there are some."""
        silent = collapsed(self.predictions, lambda found: not any(_spans(found)), "predicts no entity at all")
        return silent if self.num_gold else []

    @override
    def summary(self, resampling: Resampling) -> Summary:
        """Scores of all systems, after a check that all gold entities of the file were scored."""
        runs = (run for runs in self.predictions.values() for run in runs.values())
        found = {span[2] for run in runs for spans in _spans(run) for span in spans}
        self._types = sorted(found.union(label_set(self.test.items)))
        summary = super().summary(resampling)
        for name, system in summary["systems"].items():
            scored = sum(one["support"] for one in system["per_type"].values())
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
        """A missed entity is as bad as the model is sure that its words are in none."""
        judged = judge_entities(item.spans, spans_from_tags(prediction.tags))
        wrong = [one.predicted or one.gold for one in judged if one.kind != CORRECT]
        if not wrong:
            return None
        scores = prediction.scores
        severity = max(min(scores[slice(*span[:2])]) for span in wrong if span)
        text, places = joined_words(item.words)
        gold = [_mark(one.gold, places, one.kind) for one in judged if one.gold]
        found = [_mark(one.predicted, places, one.kind, scores) for one in judged if one.predicted]
        return Mistake(text, sorted(gold, key=attrgetter("start")), sorted(found, key=attrgetter("start")), severity)

    def confused(self, item: Sentence, prediction: TaggedWords) -> Iterator[Pair]:
        """The types of entities that are paired as those of error slices are."""
        for gold, predicted, _ in judge_entities(item.spans, spans_from_tags(prediction.tags)):
            yield gold and gold[2], predicted and predicted[2]

    def confidences(self, item: Sentence, prediction: TaggedWords) -> Iterator[tuple[float, bool]]:
        """The predicted entities."""
        gold = set(item.spans)
        return ((prediction.scores[span[0]], span in gold) for span in spans_from_tags(prediction.tags))

    @override
    def brief(self, system: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in super().brief(system).items() if key not in ("repaired_tags", "raw_text")}

    @override
    def lines(self, summary: Summary) -> list[str]:
        said = "stray I- tags in the predictions were read as B-"
        repaired = [f"{name}: {count:,} {said}" for name, count in self._repaired.items() if count]
        raw = [f"{name}: {raw_text_line(one)}" for name, one in summary["systems"].items() if "raw_text" in one]
        return [*entity_lines(summary), *([""] if raw or repaired else []), *raw, *repaired]


def _spans(predictions: Sequence[TaggedWords]) -> list[list[Span]]:
    """The entities of each sentence."""
    return [spans_from_tags(one.tags) for one in predictions]


def _mark(span: Span, places: Sequence[Stretch], kind: str, scores: Sequence[float] | None = None) -> Mark:
    """A span in words as a mark in characters."""
    first, last, label = span
    score = None if scores is None else scores[first]
    return Mark(label, places[first][0], places[last - 1][1], score, kind)
