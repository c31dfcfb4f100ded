"""Token classification: a linear or CRF head on the first piece of each word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from operator import eq, itemgetter
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from domainbert.base.fields import read_field
from domainbert.data.examples import word_example
from domainbert.data.packing import Example
from domainbert.labelled.char_spans import Stretch, join_words
from domainbert.labelled.items import label_counts
from domainbert.labelled.tagged_files import TaggedSentence
from domainbert.metrics.classification import count_classes, without_null_class
from domainbert.metrics.diagnostics import Pair
from domainbert.tasks.capabilities import TrainingHooks
from domainbert.tasks.config import NULL_LABEL_KEY
from domainbert.tasks.counted_scoring import NullLabelScoring
from domainbert.tasks.decoding import decode_labels, decode_words
from domainbert.tasks.mistakes import Mark, Mistake, compare_labels
from domainbert.tasks.task import ADVICE, Batch
from domainbert.tasks.token_labels.config import TokenLabels
from domainbert.tasks.word_task import TaggedScoring, TaggedWords, WordPredictor, WordTask
from domainbert.tokenization.align import AlignedWords, align_words
from domainbert.tokenization.load import DomainTokenizer

if TYPE_CHECKING:
    from torchmetrics import Metric


@dataclass(frozen=True)
class LabelledWord:
    """A word: characters `start` to `end` (exclusive), the substring `text`, its label, and the label's probability."""

    start: int
    end: int
    text: str
    label: str
    score: float


class WordLabeller(WordPredictor[LabelledWord]):
    """Predictor of labels for the pre-tokens of raw text, or for lists of words, which are joined by single spaces."""

    kind = "a token classifier with the labels"

    @override
    def build(self, text: str, offsets: Sequence[Stretch], tagged: TaggedWords) -> list[LabelledWord]:
        return [
            LabelledWord(start, end, text[start:end], label, score)
            for (start, end), label, score in zip(offsets, tagged.tags, tagged.scores, strict=True)
        ]

    @override
    def as_json(self, prediction: list[LabelledWord]) -> dict[str, Any]:
        return {"words": [asdict(word) for word in prediction]}


class WordScoring(TaggedScoring, NullLabelScoring):
    """Scoring of labels of words; the bootstrap resamples documents."""

    config: TokenLabels
    titles: ClassVar[Mapping[str, str]] = {"micro_f1": "micro F1"}  # macro F1 is the headline "mean token F1"

    @property
    @override
    def num_gold(self) -> int:
        """Return the number of words with a label other than the null label."""
        return sum(count for label, count in label_counts(self.test.items).items() if label != self.null_label)

    @property
    @override
    def title(self) -> str:
        return f"{self.headline.name} over {self.num_gold:,} of {self.test.num_words:,} words"

    @override
    def mistake(self, item: TaggedSentence, prediction: TaggedWords) -> Mistake | None:
        """Return the errors of a sentence, or None; adjacent words with the same two labels share a mark."""
        text, offsets = join_words(item.words)
        gold_marks, predicted_marks, severities = [], [], []
        words = zip(item.tags, prediction.tags, offsets, prediction.scores, strict=True)
        for (gold, predicted), group in groupby(words, key=itemgetter(0, 1)):  # by both labels
            _, _, ranges, scores = zip(*group, strict=True)
            kind, score = compare_labels(gold, predicted, self.null_label), max(scores)
            start, end = ranges[0][0], ranges[-1][1]  # from the first to the last word
            if gold != self.null_label:
                gold_marks.append(Mark(gold, start, end, kind=kind))
            if predicted != self.null_label:
                predicted_marks.append(Mark(predicted, start, end, score, kind))
            if gold != predicted:
                severities.append(score)
        return Mistake(text, gold_marks, predicted_marks, max(severities)) if severities else None

    @override
    def confusion_pairs(self, item: TaggedSentence, prediction: TaggedWords) -> Iterable[Pair]:
        return zip(item.tags, prediction.tags, strict=True)

    @override
    def confidences(self, item: TaggedSentence, prediction: TaggedWords) -> Iterable[tuple[float, bool]]:
        return zip(prediction.scores, map(eq, item.tags, prediction.tags), strict=True)

    @override
    def labels_of(self, prediction: TaggedWords) -> list[str]:
        return prediction.tags

    @override
    def count(self, predictions: Sequence[TaggedWords]) -> NDArray[Any]:
        """Return counts (sentences, ...), as `without_null_class` arranges them."""
        pairs = zip(self.test.items, predictions, strict=True)
        counts = [count_classes(item.tags, tagged.tags, self.classes).sum(axis=0) for item, tagged in pairs]
        return without_null_class(np.stack(counts), self.classes, self.null_label)


class WordTrainingHooks(TrainingHooks["TokenLabelsTask"]):
    """Warns about a model that is no better than the majority label."""

    @override
    def warnings(
        self, task: TokenLabelsTask, items: Sequence[TaggedSentence], scores: Mapping[str, float]
    ) -> list[str]:
        """Return a warning if macro F1 is no better than with the majority label for every word; otherwise []."""
        counts = Counter(label for item in items for label in item.labels)
        label, count = counts.most_common(1)[0]
        share = count / sum(counts.values())
        f1_of_label = 2 * share / (1 + share)  # if every word gets the label: precision is `share`, recall is 1
        baseline = 0.0 if label == task.null_label else f1_of_label / len(counts.keys() - {task.null_label})
        if share == 1 or scores["macro_f1"] > baseline:  # share 1: all words have this label
            return []
        achieved = f"mean token F1 {100 * scores['macro_f1']:.1f} on validation"
        return [f"{achieved}, while predicting {label!r} for every word gets {100 * baseline:.1f}; {ADVICE}"]


class TokenLabelsTask(WordTask[TaggedSentence, LabelledWord]):
    """Token classification with a linear head."""

    predictor = WordLabeller
    scoring = WordScoring
    training_hooks = WordTrainingHooks()

    def __init__(self, labels: Sequence[str], null_label: str | None = None) -> None:
        super().__init__(labels)
        self.null_label = null_label

    @classmethod
    @override
    def from_labels(cls, config: TokenLabels, labels: Sequence[str]) -> TokenLabelsTask:
        return (CrfTokenLabelsTask if config.head == "crf" else cls)(labels, config.outside)

    @classmethod
    @override
    def from_model_folder(cls, labels: Sequence[str], fields: Mapping[str, Any]) -> TokenLabelsTask:
        kind = CrfTokenLabelsTask if fields.get("domainbert_head") == "crf" else cls
        return kind(labels, read_field(fields, NULL_LABEL_KEY, str | None))

    def model_config_fields(self, scores: Mapping[str, float]) -> dict[str, Any]:
        """Return the `config.json` entry with the null label, which test scores depend on."""
        return {NULL_LABEL_KEY: self.null_label}

    @override
    def encode(self, items: Sequence[TaggedSentence], tokenizer: DomainTokenizer, max_length: int) -> list[Example]:
        label_id = {label: index for index, label in enumerate(self.labels)}
        aligned = align_words(tokenizer, [sentence.words for sentence in items])
        labels = [[label_id[tag] for tag in sentence.tags] for sentence in items]
        later_label = np.arange(len(self.labels))  # later pre-tokens of a word have the label of its first one
        pairs = zip(aligned, labels, strict=True)
        return [word_example(words, label_ids, inside=later_label, max_length=max_length) for words, label_ids in pairs]

    @override
    def encode_aligned(self, aligned: Sequence[AlignedWords], max_length: int) -> list[Example]:
        """Return sentences as examples without labels, for prediction."""
        later_label = np.arange(len(self.labels))  # unused without labels
        return [word_example(words, labels=None, inside=later_label, max_length=max_length) for words in aligned]

    def metric(self) -> Metric:
        """Return the metric of macro F1 and micro F1 without the null label, and accuracy."""
        from domainbert.metrics.modules import LabelScores

        return LabelScores(self.labels, self.null_label if self.null_label in self.labels else None)

    @override
    def update(self, metric: Metric, logits: Tensor, batch: Batch, items: Sequence[TaggedSentence]) -> None:
        label_id = {label: index for index, label in enumerate(self.labels)}
        gold = np.array([label_id[tag] for item in items for tag in item.tags], dtype=np.int64)
        predicted = np.concatenate(decode_labels(logits, batch, self.crf))
        metric.update(predicted, gold)

    def decode(self, logits: Tensor, batch: Batch) -> list[TaggedWords]:
        """Return the labels of the words of each example, and their probabilities."""
        decoded = decode_words(logits, batch, self.crf)
        return [TaggedWords([self.labels[label] for label in ids.tolist()], scores.tolist()) for ids, scores in decoded]


class CrfTokenLabelsTask(TokenLabelsTask):
    """Token classification with a CRF head, in which any label may follow any other."""

    head = "crf"
