"""Relation classification: a linear head on [CLS], or on the markers before the entities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.base.fields import read_field
from domainbert.data.packing import IGNORE_INDEX, Example, Window
from domainbert.labelled.contents import Content, UnreadableContents, map_contents, text_in
from domainbert.tasks.capabilities import (
    DistillationTargets,
    ExampleFormatter,
    Inputs,
    TrainingHooks,
)
from domainbert.tasks.config import NULL_LABEL_KEY
from domainbert.tasks.decoding import mean_over_windows
from domainbert.tasks.predictor import Predictor
from domainbert.tasks.relations.config import Relations, classes_of, outputs_at_starts
from domainbert.tasks.relations.files import RelatedEntities
from domainbert.tasks.relations.marked import MarkedText, find_markers, marked_text
from domainbert.tasks.relations.reading import MarkerReading, locate_entities, relation_example
from domainbert.tasks.relations.scoring import Relation, RelationScoring
from domainbert.tasks.task import ADVICE, Batch
from domainbert.tasks.text_task import TextTask
from domainbert.tokenization.align import AlignedText, align_text
from domainbert.tokenization.load import DomainTokenizer

if TYPE_CHECKING:
    from torchmetrics import Metric


class RelationClassifier(Predictor[Relation]):
    """Predictor of the relation between two entities of a text."""

    kind = "a relation classifier with the outputs"

    def predict_rows(self, rows: Iterable[Mapping[str, Any]], text_key: str = "text") -> list[Relation]:
        """Return the relation of each row in the format of the training set: entities are given by markers in the text
        or by character offsets. A mapping is a single row."""
        rows = [rows] if isinstance(rows, Mapping) else list(rows)
        problems = {
            index: DomainbertError(found=type(row).__name__, expected=f"a dict with the text under {text_key!r}")
            for index, row in enumerate(rows)
            if not isinstance(row, Mapping)
        }
        if problems:
            raise UnreadableContents(problems)
        return self.predict([self.task.inputs.content_of(self.task, row, text_key) for row in rows])


def class_logits_at_starts(logits: Tensor, batch: Batch) -> Tensor:
    """Return logits (texts, classes), the sum of the logits at both markers, from logits (2 x texts, 2 x classes).

    Even rows are the markers of heads, which use the first half of the columns; odd rows are the markers of tails.
    """
    halves = logits.float().unflatten(-1, (2, -1))  # (2 x texts, 2, classes)
    row = torch.arange(len(logits), device=logits.device)
    marker_logits = halves[row, row % 2]  # (2 x texts, classes)
    zeros = marker_logits.new_zeros(len(batch["items"]), marker_logits.shape[-1])
    return zeros.index_add(0, batch["example"], marker_logits)


class MarkedInputs(Inputs["RelationsTask"]):
    """Texts with two entities in the format of the training set: markers or character offsets."""

    @override
    def kinds(self, task: RelationsTask) -> tuple[str, ...]:
        """Return one kind, which names the markers, as a teacher with other markers cannot read these texts."""
        return (f"texts with {' '.join(task.reading.markers)} around the entities",)

    @override
    def content_of(self, task: RelationsTask, row: Mapping[str, Any], text_key: str) -> MarkedText:
        return marked_text(row, text_key, task.reading.format)

    @override
    def call(self, task: RelationsTask) -> str:
        before_head, after_head, before_tail, after_tail = task.reading.format.markers
        text = f"{before_head} Loans {after_head} raise {before_tail} prices {after_tail}."
        return f"predict_rows([{{'text': {text!r}}}])"

    @override
    def added_tokens(self, task: RelationsTask) -> Sequence[str]:
        return task.reading.added_tokens


class RelationTrainingHooks(TrainingHooks["RelationsTask"]):
    """Warns about a model that is no better than the majority class."""

    @override
    def warnings(self, task: RelationsTask, items: Sequence[RelatedEntities], scores: Mapping[str, float]) -> list[str]:
        (label, count), *others = Counter(item.label for item in items).most_common()
        share = count / len(items)  # the accuracy of the most frequent relation for every text
        if not others or scores["accuracy"] > share:
            return []
        achieved = f"accuracy {100 * scores['accuracy']:.1f} on validation"
        return [f"{achieved}, while predicting {label!r} for every text gets {100 * share:.1f}; {ADVICE}"]


class StartsDistillationTargets(DistillationTargets["StartsRelationsTask"]):
    """Compares class logits, the sum over both markers."""

    @override
    def num_outputs(self, task: StartsRelationsTask) -> int:
        return len(task.classes)

    @override
    def teacher_logits(self, task: StartsRelationsTask, head: nn.Module, logits: Tensor, batch: Batch) -> Tensor:
        return class_logits_at_starts(logits, batch)


class RelationFormatter(ExampleFormatter["RelationsTask"]):
    """Shows the relation at each position that the head reads."""

    @override
    def notes(self, task: RelationsTask, item: RelatedEntities, window: Window) -> list[tuple[str, str]]:
        positions = ("the first entity", "the second entity") if task.at_markers else ("the whole text",)
        return [(name, task.classes[int(target)]) for name, target in zip(positions, window.targets, strict=True)]


class RelationsTask(TextTask[RelatedEntities, Relation]):
    """Relation classification on the pooled [CLS].

    Attributes:
        classes: the relations.
        reading: markers around entities in files and in the model's input.
        null_label: the null label, the negative class; None if there is none.
    """

    predictor = RelationClassifier
    scoring = RelationScoring
    training_hooks = RelationTrainingHooks()
    inputs = MarkedInputs()
    example_formatter = RelationFormatter()
    distillation_targets: ClassVar[DistillationTargets[Any]] = DistillationTargets()
    at_markers = False

    def __init__(self, labels: Sequence[str], reading: MarkerReading, null_label: str | None = None) -> None:
        super().__init__(labels)
        self.classes, self.reading, self.null_label = classes_of(labels), reading, null_label

    @classmethod
    @override
    def from_labels(cls, config: Relations, labels: Sequence[str]) -> RelationsTask:
        reading = MarkerReading(config.markers, config.format)
        if config.head == "starts":
            return StartsRelationsTask(outputs_at_starts(labels), reading, config.negative)
        return cls(labels, reading, config.negative)

    @classmethod
    @override
    def from_model_folder(cls, labels: Sequence[str], fields: Mapping[str, Any]) -> RelationsTask:
        has_output_per_class = classes_of(labels) == tuple(labels)  # otherwise two, at the markers
        task = cls if has_output_per_class else StartsRelationsTask
        return task(labels, MarkerReading.from_model_folder(fields), read_field(fields, NULL_LABEL_KEY, str | None))

    def model_config_fields(self, scores: Mapping[str, float]) -> dict[str, Any]:
        """Return `config.json` entries: markers, null label, and `problem_type` unless the head reads markers."""
        facts = {**self.reading.model_config_fields(), NULL_LABEL_KEY: self.null_label}
        if self.at_markers:  # `transformers` has no such head
            return facts
        return {"problem_type": "single_label_classification", **facts}

    @override
    def target(self, item: RelatedEntities) -> int:
        return self.classes.index(item.label)

    @override
    def encode(self, items: Sequence[RelatedEntities], tokenizer: DomainTokenizer, max_length: int) -> list[Example]:
        targets = [self.target(item) for item in items]
        return self._encode_marked([item.content for item in items], targets, tokenizer, max_length)

    @override
    def encode_contents(
        self, contents: Sequence[Content], tokenizer: DomainTokenizer, max_length: int
    ) -> list[Example]:
        """Return contents as token ids, for prediction; a content other than a `MarkedText` must contain markers."""
        texts = map_contents(self.find_markers, contents)
        return self._encode_marked(texts, [IGNORE_INDEX] * len(texts), tokenizer, max_length)

    def find_markers(self, content: Content) -> MarkedText:
        """Return a text with the markers of the training set located; a `MarkedText` is returned unchanged."""
        if isinstance(content, MarkedText):
            return content
        return find_markers(text_in(content), self.reading.format.markers)

    def _encode_marked(
        self, texts: Sequence[MarkedText], targets: Sequence[int], tokenizer: DomainTokenizer, max_length: int
    ) -> list[Example]:
        self.reading.check(tokenizer, texts)
        aligned = align_text(tokenizer, [self.reading.text_to_read(text)[0] for text in texts])
        marker_ids = [ids[0] for ids in tokenizer.encode(self.reading.added_tokens)]  # each is one token

        def encode(text: MarkedText, words: AlignedText, target: int) -> Example:
            positions = locate_entities(text, self.reading, words, marker_ids)
            return relation_example(words, positions, target, self.at_markers, max_length)

        return map_contents(encode, texts, aligned, targets)

    def class_logits(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return one row of logits per text, (texts, classes), from the logits at the positions that the head reads."""
        return mean_over_windows(logits, batch)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the cross-entropy summed over the texts."""
        return functional.cross_entropy(self.class_logits(logits, batch), self.targets(batch), reduction="sum")

    def metric(self) -> Metric:
        """Return the metric of micro F1, macro F1 and accuracy."""
        from domainbert.metrics.modules import LabelScores  # imports torchmetrics, which takes seconds

        return LabelScores(self.classes, self.null_label if self.null_label in self.classes else None)

    @override
    def update(self, metric: Metric, logits: Tensor, batch: Batch, items: Sequence[RelatedEntities]) -> None:
        gold = np.array([self.target(item) for item in items])
        metric.update(self.class_logits(logits, batch).argmax(dim=-1), gold)

    def decode(self, logits: Tensor, batch: Batch) -> list[Relation]:
        """Return the relation of each text, and all probabilities."""
        rows = torch.softmax(self.class_logits(logits, batch), dim=-1).tolist()
        text_scores = [dict(zip(self.classes, row, strict=True)) for row in rows]
        return [Relation(max(scores, key=scores.__getitem__), scores) for scores in text_scores]


class StartsRelationsTask(RelationsTask):
    """Relation classification on the states of the two markers before the entities.

    A linear layer on the concatenated states is a sum of two linear layers. A token head with two outputs per class
    computes both: the first half is read at the head, the second half at the tail.
    """

    head = "tokens"
    at_markers = True
    distillation_targets = StartsDistillationTargets()

    @override
    def class_logits(self, logits: Tensor, batch: Batch) -> Tensor:
        return class_logits_at_starts(logits, batch)
