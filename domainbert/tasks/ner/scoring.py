"""Sentences with entities as a test set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.metrics.slices import surface
from domainbert.metrics.summary import GoldEntities, Resampling, Summary, summarize_entities
from domainbert.metrics.table import entity_lines
from domainbert.tasks.labelled import label_set
from domainbert.tasks.ner.config import Ner
from domainbert.tasks.ner.conll import NerFile, Sentence
from domainbert.tasks.ner.tags import spans_from_tags
from domainbert.tasks.scoring import Scoring


class EntityScoring(Scoring):
    """Sentences with entities; predictions are tags of words. `train` is for the slices of seen and unseen entities."""

    test: NerFile

    def __init__(self, config: Ner, test: NerFile, train: NerFile | None) -> None:
        super().__init__(config, test)
        self.suffix = f".{test.kind}"
        self._seen = None
        if train is not None:
            print(train.describe())
            self._seen = {surface(sentence.words, span) for sentence in train.sentences for span in sentence.spans}
        self._repaired: dict[str, int] = {}

    @property
    def num_gold(self) -> int:
        """The entities."""
        return self.test.num_spans

    @property
    def num_units(self) -> int:
        """The documents."""
        return self.test.num_documents

    @property
    def title(self) -> str:
        """See `Scoring.title`."""
        return f"strict entity F1 over {self.num_gold:,} gold entities"

    def score(self, system: str, seed: str, predictor: Any, path: Path) -> None:
        """See `Scoring.score`; repaired tags are counted."""
        super().score(system, seed, predictor, path)
        self._repaired[system] = self._repaired.get(system, 0) + predictor.num_repaired

    def predict(self, predictor: Any) -> list[list[str]]:
        """Tags of every sentence; one without words has none and is not shown to the model."""
        sentences = self.test.sentences
        remaining = iter(predictor.predict_words([sentence.words for sentence in sentences if sentence.words]))
        tags: list[list[str]] = [next(remaining, []) if sentence.words else [] for sentence in sentences]
        for sentence, one in zip(sentences, tags, strict=True):
            if len(sentence.words) != len(one):
                raise DomainbertError(
                    f"{self.test.path}:{sentence.line}: {len(sentence.words)} words but {len(one)} tags predicted"
                )
        return tags

    def row(self, item: Sentence, prediction: list[str]) -> dict[str, Any]:
        """See `Scoring.row`."""
        return {"tokens": item.words, "gold": item.tags, "predicted": prediction}

    def write(self, path: Path, predictions: Sequence[list[str]]) -> None:
        """As the test set is: JSONL, or CoNLL with the columns that conlleval reads: word, gold, predicted."""
        if self.test.kind == "jsonl":
            return super().write(path, predictions)
        document = -1
        with path.open("w", encoding="utf-8", newline="\n") as stream:
            for sentence, tags in zip(self.test.sentences, predictions, strict=True):
                if self.test.marks and sentence.document != document:
                    document = sentence.document
                    stream.write("-DOCSTART-\tO\tO\n\n")
                for row in zip(sentence.words, sentence.tags, tags, strict=True):
                    stream.write("\t".join(row) + "\n")
                stream.write("\n")

    def summary(self, resampling: Resampling) -> Summary:
        """The scores of all systems, after a check that all gold entities of the file were scored."""
        sentences = self.test.sentences
        systems = {
            name: {seed: [spans_from_tags(one) for one in tags] for seed, tags in runs.items()}
            for name, runs in self.predictions.items()
        }
        found = {span[2] for runs in systems.values() for run in runs.values() for one in run for span in one}
        gold = GoldEntities(
            spans=[sentence.spans for sentence in sentences],
            words=[sentence.words for sentence in sentences],
            documents=[sentence.document for sentence in sentences],
            types=sorted(found.union(label_set(sentences))),
            seen=self._seen,
        )
        summary = summarize_entities(gold, systems, resampling)
        for name, system in summary["systems"].items():
            scored = sum(one["support"] for one in system["per_type"].values())
            if scored != self.num_gold:
                raise DomainbertError(
                    f"{self.test.path}: {self.num_gold:,} gold entities, but {scored:,} scored for {name}"
                )
            system["repaired_tags"] = self._repaired[name]
        return summary

    def brief(self, system: Mapping[str, Any]) -> dict[str, Any]:
        """See `Scoring.brief`."""
        return {key: value for key, value in super().brief(system).items() if key != "repaired_tags"}

    def lines(self, summary: Summary) -> list[str]:
        """See `Scoring.lines`."""
        said = "stray I- tags in the predictions were read as B-"
        repaired = [f"{name}: {count:,} {said}" for name, count in self._repaired.items() if count]
        return [*entity_lines(summary), *([""] if repaired else []), *repaired]
