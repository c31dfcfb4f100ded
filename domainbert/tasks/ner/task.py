"""Named entities: a linear head or a CRF that gives every word a tag of IOB2 or BIOES."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, nn

from domainbert.base.errors import DomainbertError
from domainbert.data.examples import Example, encode_words
from domainbert.encoders.crf import Crf, WordGrid, crf_of
from domainbert.metrics.entities import count_entities, entity_scores, surface
from domainbert.metrics.summary import GoldEntities, Resampling, Summary, summarize_entities
from domainbert.metrics.table import entity_lines
from domainbert.tasks.claims import Claim
from domainbert.tasks.decoding import decode_labels, valid_field
from domainbert.tasks.labelled import Content, Labelled, label_set
from domainbert.tasks.ner.confidence import Lattice, entity_claims
from domainbert.tasks.ner.config import Ner
from domainbert.tasks.ner.conll import NerFile, Sentence
from domainbert.tasks.ner.pretokens import pretoken_tags, split_words, word_tags
from domainbert.tasks.ner.tagger import Entity, TaggedWords, Tagger
from domainbert.tasks.ner.tags import (
    ModelScheme,
    entity_types,
    labels_of_types,
    scheme_of_labels,
    spans_from_tags,
)
from domainbert.tasks.tagged_scoring import TaggedScoring
from domainbert.tasks.task import ADVICE, Batch, Task, scores_of_counts
from domainbert.tasks.word_losses import word_loss
from domainbert.tasks.words import aligned_contents
from domainbert.tokenization.align import AlignedWords, align_words
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
    """Tags words; `labels` are `O` and `B-X`, `I-X` for every type, in BIOES `E-X` and `S-X` too.

    Attributes:
        scheme: of the tags; None where a folder does not say it, so that all sequences of them are valid.
        crf: the CRF, of a head that has one.
        valid: what decodes a linear head into valid tags.
    """

    head = "tokens"
    counted = "num_targets"
    predictor = Tagger
    scheme: ModelScheme | None
    crf: Crf | None = None
    valid: Crf | None

    def __init__(self, labels: Sequence[str]) -> None:
        super().__init__(labels)
        self.scheme, self.valid = scheme_of_labels(labels) or "IOB2", valid_field(self.labels)
        self._tokenizer: DomainTokenizer | None = None

    @classmethod
    def of_training(cls, config: Ner, train: Labelled[Sentence]) -> NerTask:
        """The tags of the entity types of a training set, and the head that is asked for."""
        labels = labels_of_types(label_set(train.items), config.scheme)
        return (CrfNerTask if config.head == "crf" else cls)(labels)

    @classmethod
    def of_folder(cls, labels: Sequence[str], fields: Mapping[str, Any]) -> NerTask:
        """The tags of a model folder; where it does not say their scheme, all sequences of them are valid."""
        task = (CrfNerTask if fields.get("domainbert_head") == "crf" else cls)(labels)
        if fields.get(_SCHEME) not in ("IOB2", "BIOES"):
            task.scheme = task.valid = None
        return task

    def folder_facts(self, scores: Mapping[str, float]) -> dict[str, Any]:
        """The tag scheme."""
        scheme = scheme_of_labels(self.labels)
        return {_SCHEME: scheme} if scheme else {}

    def encode(self, items: Sequence[Sentence], tokenizer: DomainTokenizer, max_length: int) -> list[Example]:
        """See `Task.encode`."""
        self._tokenizer = tokenizer
        aligned = align_words(tokenizer, [sentence.words for sentence in items])
        tags = [sentence.tags for sentence in items]
        if self.scheme == "BIOES":
            split = [split_words(words) for words in aligned]
            aligned = [words for words, _ in split]
            tags = [
                pretoken_tags(sentence.spans, firsts, len(words.first_piece))
                for sentence, (words, firsts) in zip(items, split, strict=True)
            ]
        number = {label: index for index, label in enumerate(self.labels)}
        return encode_words(aligned, [[number[tag] for tag in one] for one in tags], self.labels, max_length)

    def encode_contents(
        self, contents: Sequence[Content], tokenizer: DomainTokenizer, max_length: int
    ) -> list[Example]:
        """See `Task.encode_contents`; the words of a text are its pre-tokens."""
        return self.encode_aligned(aligned_contents(tokenizer, contents), max_length)

    def encode_aligned(self, aligned: Sequence[AlignedWords], max_length: int) -> list[Example]:
        """Words to predict, whose outputs are their tags, of BIOES those of their pre-tokens; see `of_words`."""
        if self.scheme == "BIOES":
            aligned = [split_words(words)[0] for words in aligned]
        return encode_words(aligned, None, self.labels, max_length)

    def of_words(self, tagged: TaggedWords, words: AlignedWords) -> TaggedWords:
        """Tags and scores of words, of those that `decode` gives of a sentence's outputs."""
        if self.scheme != "BIOES":
            return tagged
        (tags, scores), (_, firsts) = tagged, split_words(words)
        return word_tags(tags, firsts), [scores[first] for first in firsts]

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Cross-entropy of the pre-tokens, or of a CRF its likelihood; see `word_loss`."""
        return word_loss(logits, batch, self.crf)

    def metric(self) -> Metric:
        """Strict entity F1."""
        return scores_of_counts(entity_scores, len(entity_types(self.labels)), 3)

    def update(self, metric: Metric, logits: Tensor, batch: Batch, items: Sequence[Sentence]) -> None:
        """See `Task.update`; the entities are those in words, as `evaluate` counts them."""
        sentences = [items[item] for item in batch["items"].tolist()]
        tags = self._tags(logits, batch)
        if self.scheme == "BIOES":
            assert self._tokenizer is not None  # `encode` has noted it
            aligned = align_words(self._tokenizer, [sentence.words for sentence in sentences])
            tags = [word_tags(one, split_words(words)[1]) for one, words in zip(tags, aligned, strict=True)]
        gold, predicted = [sentence.spans for sentence in sentences], [spans_from_tags(one) for one in tags]
        metric.update(count_entities(gold, predicted, entity_types(self.labels)).sum(axis=0))

    def decode(self, logits: Tensor, batch: Batch) -> list[TaggedWords]:
        """The tag of each output, and the probability of the entity that it is in."""
        tags = self._tags(logits, batch)
        found = [number for number, one in enumerate(tags) if set(one) - {"O"}]
        scores = [[0.0] * len(one) for one in tags]
        if found:
            sentences = WordGrid(batch["example"], batch["outputs"])
            rows = np.cumsum([bool(one) for one in tags])[found] - 1  # a sentence without words has none
            field = self.crf or self.valid or Crf(len(self.labels))
            emissions, lengths = sentences.fill(logits.float())[rows], sentences.lengths[rows]
            lattice = Lattice(field, emissions, lengths, self.labels)
            for row, number in enumerate(found):
                scores[number] = lattice.entities(row, tags[number])
        return list(zip(tags, scores, strict=True))

    def claims(self, logits: Tensor, batch: Batch) -> list[Claim]:
        """See `Task.claims`: each entity, as probable as its score says."""
        (tags,) = self._tags(logits, batch)
        return entity_claims(self.crf or self.valid or Crf(len(self.labels)), self.labels, tags, batch)

    def _tags(self, logits: Tensor, batch: Batch) -> list[list[str]]:
        decoded = decode_labels(logits, batch, self.crf, self.valid)
        return [[self.labels[label] for label in ids.tolist()] for ids in decoded]

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
