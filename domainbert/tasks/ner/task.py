"""Named entities: a linear head that gives every word an IOB2 tag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from domainbert.base.errors import DomainbertError
from domainbert.data.examples import Example, encode_words
from domainbert.encoders.crf import Crf, crf_of
from domainbert.metrics.entities import count_entities, entity_scores, surface
from domainbert.metrics.summary import GoldEntities, Resampling, Summary, summarize_entities
from domainbert.metrics.table import entity_lines
from domainbert.tasks.decoding import decode_words, iob2_field
from domainbert.tasks.labelled import Content, Labelled, label_set
from domainbert.tasks.ner.config import Ner
from domainbert.tasks.ner.conll import NerFile, Sentence
from domainbert.tasks.ner.tagger import Entity, TaggedWords, Tagger
from domainbert.tasks.ner.tags import are_iob2_labels, entity_types, iob2_labels, spans_from_tags
from domainbert.tasks.tagged_scoring import TaggedScoring
from domainbert.tasks.task import ADVICE, Batch, Task, scores_of_counts
from domainbert.tasks.word_losses import word_loss
from domainbert.tasks.words import aligned_contents
from domainbert.tokenization.align import align_words
from domainbert.tokenization.load import DomainTokenizer

if TYPE_CHECKING:
    from torchmetrics import Metric

_SCHEME = "domainbert_tags"  # key of config.json


class EntityScoring(TaggedScoring):
    """Sentences with entities; predictions are tags of words. `train` is for the slices of seen and unseen entities."""

    test: NerFile

    def __init__(self, config: Ner, test: NerFile, train: NerFile | None) -> None:
        super().__init__(config, test)
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
    def title(self) -> str:
        """See `Scoring.title`."""
        return f"strict entity F1 over {self.num_gold:,} gold entities"

    def score(self, system: str, seed: str, predictor: Any, path: Path) -> None:
        """See `Scoring.score`; repaired tags are counted."""
        super().score(system, seed, predictor, path)
        self._repaired[system] = self._repaired.get(system, 0) + predictor.num_repaired

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


class NerTask(Task[Sentence, list[Entity]]):
    """Tags words; `labels` are `O` and `B-X`, `I-X` for every type."""

    head = "tokens"
    counted = "num_targets"
    predictor = Tagger
    crf: Crf | None = None
    valid: Crf | None

    def __init__(self, labels: Sequence[str]) -> None:
        super().__init__(labels)
        self.valid = iob2_field(self.labels)

    @classmethod
    def of_training(cls, config: Ner, train: Labelled[Sentence]) -> NerTask:
        """The tags of the entity types of a training set, and the head that is asked for."""
        return (CrfNerTask if config.head == "crf" else cls)(iob2_labels(label_set(train.items)))

    @classmethod
    def of_folder(cls, labels: Sequence[str], fields: Mapping[str, Any]) -> NerTask:
        """The tags of a model folder; where it does not say that they are IOB2, all sequences of them are valid."""
        task = (CrfNerTask if fields.get("domainbert_head") == "crf" else cls)(labels)
        if fields.get(_SCHEME) != "IOB2":
            task.valid = None
        return task

    def folder_facts(self, scores: Mapping[str, float]) -> dict[str, Any]:
        """The tag scheme."""
        return {_SCHEME: "IOB2"} if are_iob2_labels(self.labels) else {}

    def encode(self, items: Sequence[Sentence], tokenizer: DomainTokenizer, max_length: int) -> list[Example]:
        """See `Task.encode`."""
        number = {label: index for index, label in enumerate(self.labels)}
        aligned = align_words(tokenizer, [sentence.words for sentence in items])
        tags = [[number[tag] for tag in sentence.tags] for sentence in items]
        return encode_words(aligned, tags, self.labels, max_length)

    def encode_contents(
        self, contents: Sequence[Content], tokenizer: DomainTokenizer, max_length: int
    ) -> list[Example]:
        """See `Task.encode_contents`; the words of a text are its pre-tokens."""
        aligned = aligned_contents(tokenizer, contents)
        return encode_words(aligned, None, self.labels, max_length)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Cross-entropy of the pre-tokens, or of a CRF its likelihood; see `word_loss`."""
        return word_loss(logits, batch, self.crf)

    def metric(self) -> Metric:
        """Strict entity F1."""
        return scores_of_counts(entity_scores, len(entity_types(self.labels)), 3)

    def update(self, metric: Metric, logits: Tensor, batch: Batch, items: Sequence[Sentence]) -> None:
        """See `Task.update`."""
        gold = [items[item].spans for item in batch["items"].tolist()]
        predicted = [spans_from_tags(tags) for tags, _ in self.decode(logits, batch)]
        metric.update(count_entities(gold, predicted, entity_types(self.labels)).sum(axis=0))

    def decode(self, logits: Tensor, batch: Batch) -> list[TaggedWords]:
        """The tag of each word, and its probability."""
        decoded = decode_words(logits, batch, self.crf, self.valid)
        return [([self.labels[label] for label in ids.tolist()], scores.tolist()) for ids, scores in decoded]

    def as_json(self, prediction: list[Entity]) -> dict[str, Any]:
        """See `Task.as_json`."""
        return {"entities": [asdict(entity) for entity in prediction]}

    def warnings(self, items: Sequence[Sentence], scores: Mapping[str, float]) -> list[str]:
        """A tagger that finds nothing."""
        entities = sum(len(sentence.spans) for sentence in items)
        found = f"finds none of the {entities:,} entities of the validation set; {ADVICE}"
        return [found] if entities and not scores["f1"] else []

    @classmethod
    def scoring(cls, config: Ner, test: Labelled[Any], train: Labelled[Any] | None) -> EntityScoring:
        """See `Task.scoring`."""
        assert isinstance(test, NerFile) and (train is None or isinstance(train, NerFile))
        return EntityScoring(config, test, train)


class CrfNerTask(NerTask):
    """The same with a CRF over the words."""

    head = "crf"

    def bind(self, head: nn.Module) -> None:
        """See `Task.bind`."""
        self.crf = crf_of(head)
        assert self.crf is not None
        self.crf.constrain(self.labels)
