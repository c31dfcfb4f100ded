"""The relation between two marked entities: a linear head on [CLS], or on the markers before the entities."""

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
from domainbert.data.examples import Example, Window
from domainbert.data.types import IGNORED
from domainbert.labelled.contents import Content, UnreadableContents, text_in
from domainbert.labelled.items import Labelled, label_set
from domainbert.tasks.capabilities import Comparing, Explaining, Fitting, Inputs, Showing, Teaching
from domainbert.tasks.claims import Claim
from domainbert.tasks.nothing import nothing_fact, nothing_of_folder
from domainbert.tasks.predictor import Predictor
from domainbert.tasks.relations.config import Relations
from domainbert.tasks.relations.files import RelatedEntities
from domainbert.tasks.relations.marked import MarkedText, find_markers, marked_text
from domainbert.tasks.relations.outputs import classes_of, outputs_at_starts
from domainbert.tasks.relations.reading import Reading
from domainbert.tasks.relations.scoring import Relation, RelationScoring
from domainbert.tasks.relations.windows import places_of, relation_example
from domainbert.tasks.task import ADVICE, Batch
from domainbert.tasks.text_task import TextTask
from domainbert.tokenization.align import align_text
from domainbert.tokenization.load import DomainTokenizer

if TYPE_CHECKING:
    from torchmetrics import Metric


class RelationClassifier(Predictor[Relation]):
    """Tells the relation between two entities of a text."""

    kind = "a relation classifier with the outputs"

    def predict_rows(self, rows: Iterable[Mapping[str, Any]], text_key: str = "text") -> list[Relation]:
        """The relation in each row, laid out as those of the training set: a text with markers around two entities, or
        with the characters of both."""
        rows = [rows] if isinstance(rows, Mapping) else list(rows)
        if wrong := {n: type(row).__name__ for n, row in enumerate(rows) if not isinstance(row, Mapping)}:
            raise UnreadableContents({n: f"found {name}; expected a mapping" for n, name in wrong.items()})
        return self.predict([self.task.inputs.content_of(self.task, row, text_key) for row in rows])


def class_logits_at_cls(logits: Tensor, batch: Batch) -> Tensor:
    """Return logits (texts, classes) in fp32 of a head on [CLS]: a text has one window."""
    return torch.zeros(len(batch["items"]), logits.shape[-1], device=logits.device).index_add(
        0, batch["example"], logits.float()
    )


def class_logits_at_starts(logits: Tensor, batch: Batch) -> Tensor:
    """Return logits (texts, classes) from logits (2 x texts, 2 x classes) at the head's and the tail's marker."""
    halves, place = logits.unflatten(-1, (2, -1)), torch.arange(len(logits), device=logits.device)
    return class_logits_at_cls(halves[place, place % 2], batch)  # of each text the head's marker, then the tail's


class MarkedInputs(Inputs["RelationsTask"]):
    """Texts with two entities, as in the training set: marked in the text, or given as characters."""

    @override
    def kinds(self, task: RelationsTask) -> tuple[str, ...]:
        """Return the markers too: a teacher that was trained with other markers cannot read these."""
        return (f"texts with {' '.join(task.reading.markers)} around the entities",)

    @override
    def content_of(self, task: RelationsTask, row: Mapping[str, Any], text_key: str) -> MarkedText:
        return marked_text(row, text_key, task.reading.format)

    @override
    def added_tokens(self, task: RelationsTask) -> Sequence[str]:
        return task.reading.added_tokens


class RelationFitting(Fitting["RelationsTask"]):
    """Warns about a model that is no better than one that always gives the same relation."""

    @override
    def warnings(self, task: RelationsTask, items: Sequence[RelatedEntities], scores: Mapping[str, float]) -> list[str]:
        (label, count), *others = Counter(item.label for item in items).most_common()
        share = count / len(items)
        if not others or scores["accuracy"] > share:
            return []
        found = f"accuracy {100 * scores['accuracy']:.1f} on validation, while {label} for every text gets"
        return [f"{found} {100 * share:.1f}; {ADVICE}"]


class StartsTeaching(Teaching["StartsRelationsTask"]):
    """Compares the classes, from both markers together."""

    @override
    def num_outputs(self, task: StartsRelationsTask) -> int:
        return len(task.classes)

    @override
    def teacher_logits(self, task: StartsRelationsTask, head: nn.Module, logits: Tensor, batch: Batch) -> Tensor:
        return class_logits_at_starts(logits, batch)


class RelationExplaining(Explaining["RelationsTask"]):
    """Explains the relation in a text."""

    @override
    def text_read(self, task: RelationsTask, text: str) -> str:
        """Return the text with the markers that the model reads."""
        return task.reading.written(task.find_markers(text))[0]

    @override
    def explanations(self, task: RelationsTask, logits: Tensor, batch: Batch) -> list[Claim]:
        def strengths(logits: Tensor) -> Tensor:
            return torch.log_softmax(task.class_logits(logits, batch)[0].double(), dim=-1)

        best = int(strengths(logits).argmax())
        return [Claim(task.classes[best], lambda changed: strengths(changed)[best])]


class RelationShowing(Showing["RelationsTask"]):
    """Shows the relation, at each place that the head reads."""

    @override
    def notes(self, task: RelationsTask, item: RelatedEntities, window: Window) -> list[tuple[str, str]]:
        notes = super().notes(task, item, window)
        entities = ("the first entity", "the second entity") if task.at_starts else ("the whole text",)
        return [(name, target) for name, (_, target) in zip(entities, notes, strict=True)]

    @override
    def shown_target(self, task: RelationsTask, target: Any) -> str:
        return task.classes[int(target)]


class RelationsTask(TextTask[RelatedEntities, Relation]):
    """Gives each text one of `classes`, from its pooled [CLS].

    Attributes:
        classes: the relations.
        reading: what stands around entities in files, and what the model reads there.
        nothing: the one that means no relation, if there is one.
    """

    predictor = RelationClassifier
    scoring = RelationScoring
    comparing = Comparing(class_logits_at_cls)
    explaining = RelationExplaining()
    fitting = RelationFitting()
    inputs = MarkedInputs()
    showing = RelationShowing()
    teaching: ClassVar[Teaching[Any]] = Teaching()
    at_starts = False

    def __init__(self, labels: Sequence[str], reading: Reading, nothing: str | None = None) -> None:
        super().__init__(labels)
        self.classes, self.reading, self.nothing = classes_of(labels), reading, nothing

    @classmethod
    @override
    def of_training(cls, config: Relations, train: Labelled[RelatedEntities]) -> RelationsTask:
        """`DomainbertError` if no text has the `negative` label."""
        classes = label_set(train.items)
        config.check_labels(classes)
        reading = Reading.of(config)
        if config.head == "starts":
            return StartsRelationsTask(outputs_at_starts(classes), reading, config.negative)
        return cls(classes, reading, config.negative)

    @classmethod
    @override
    def of_folder(cls, labels: Sequence[str], fields: Mapping[str, Any]) -> RelationsTask:
        kind = cls if classes_of(labels) == tuple(labels) else StartsRelationsTask
        return kind(labels, Reading.of_folder(fields), nothing_of_folder(fields))

    def folder_facts(self, scores: Mapping[str, float]) -> dict[str, Any]:
        """The markers and the relation that is none, and the `problem_type` for `transformers`."""
        return {"problem_type": "single_label_classification", **self._facts()}

    @override
    def target(self, item: RelatedEntities) -> int:
        return self.classes.index(item.label)

    @override
    def encode(self, items: Sequence[RelatedEntities], tokenizer: DomainTokenizer, max_length: int) -> list[Example]:
        """`DomainbertError` names the texts whose entities do not fit into a window."""
        targets = [self.target(item) for item in items]
        return self._examples([item.content for item in items], targets, tokenizer, max_length)

    @override
    def encode_contents(
        self, contents: Sequence[Content], tokenizer: DomainTokenizer, max_length: int
    ) -> list[Example]:
        """A text that is no `MarkedText` has the markers of the training set in it."""
        texts, problems = [], {}
        for number, content in enumerate(contents):
            try:
                texts.append(content if isinstance(content, MarkedText) else self.find_markers(content))
            except DomainbertError as error:
                problems[number] = str(error)
        if problems:
            raise UnreadableContents(problems)
        return self._examples(texts, [IGNORED] * len(texts), tokenizer, max_length)

    def _facts(self) -> dict[str, Any]:
        """The markers that are read around entities, and the relation that is none."""
        return {**self.reading.folder_facts(), **nothing_fact(self.nothing)}

    def find_markers(self, content: Content) -> MarkedText:
        """Read a text with the markers of the training set in it."""
        return find_markers(text_in(content), self.reading.format.markers)

    def _examples(
        self, texts: Sequence[MarkedText], targets: Sequence[int], tokenizer: DomainTokenizer, max_length: int
    ) -> list[Example]:
        problems: dict[int, str] = {}
        examples = []
        self.reading.check(tokenizer, texts)
        aligned = align_text(tokenizer, [self.reading.written(text)[0] for text in texts])
        entries = [ids[0] for ids in tokenizer.encode(self.reading.added_tokens)]
        for number, (text, words, target) in enumerate(zip(texts, aligned, targets, strict=True)):
            try:
                places = places_of(text, self.reading, words, entries)
                examples.append(relation_example(words, places, target, self.at_starts, max_length))
            except DomainbertError as error:
                problems[number] = str(error)
        if problems:
            raise UnreadableContents(problems)
        return examples

    def class_logits(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return logits (texts, classes), whatever the head reads."""
        return self.comparing.outputs(logits, batch)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Cross-entropy, summed over the texts."""
        return functional.cross_entropy(self.class_logits(logits, batch), self.targets(batch), reduction="sum")

    def metric(self) -> Metric:
        """Micro and macro F1 and accuracy."""
        from domainbert.metrics.modules import LabelScores

        return LabelScores(self.classes, self.nothing)

    @override
    def update(self, metric: Metric, logits: Tensor, batch: Batch, items: Sequence[RelatedEntities]) -> None:
        gold = np.array([self.target(items[item]) for item in batch["items"].tolist()])
        metric.update(self.class_logits(logits, batch).argmax(dim=-1), gold)

    def decode(self, logits: Tensor, batch: Batch) -> list[Relation]:
        """The relation of each text, and the probabilities of all."""
        rows = torch.softmax(self.class_logits(logits, batch), dim=-1).tolist()
        return [Relation(self.classes[row.index(max(row))], dict(zip(self.classes, row, strict=True))) for row in rows]


class StartsRelationsTask(RelationsTask):
    """The same from the states of the two markers before the entities.

    A linear layer on both states, one beside the other, is the sum of one for either. So a head on tokens with two
    outputs for each class does it, the first half read at the head and the second at the tail.
    """

    head = "tokens"
    at_starts = True
    comparing = Comparing(class_logits_at_starts)
    teaching = StartsTeaching()

    def folder_facts(self, scores: Mapping[str, float]) -> dict[str, Any]:
        """The same without a `problem_type`: the head is none of `transformers`' for classes."""
        return self._facts()
