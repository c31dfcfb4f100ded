"""Named entities: a linear head that gives every word an IOB2 tag."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torchmetrics import Metric

from domainbert.data.conll import Sentence
from domainbert.data.examples import Example, word_example
from domainbert.data.labelled import check_labels_known, label_set, read_ner
from domainbert.data.masking import IGNORED
from domainbert.data.tags import entity_types, iob2_labels, spans_from_tags
from domainbert.metrics.entities import EntityF1
from domainbert.objectives.task import Batch, Task, TaskFiles
from domainbert.objectives.task_config import Ner
from domainbert.tokenization.align import AlignedWords, align_words
from domainbert.tokenization.load import DomainTokenizer


class NerTask(Task):
    """Tags words; `labels` are `O` and `B-X`, `I-X` for every type."""

    head = "tokens"

    def encode(self, items: Sequence[Sentence], tokenizer: DomainTokenizer, max_length: int) -> list[Example]:
        """See `Task.encode`."""
        number = {label: index for index, label in enumerate(self.labels)}
        aligned = align_words(tokenizer, [sentence.words for sentence in items])
        tags = [[number[tag] for tag in sentence.tags] for sentence in items]
        return encode_words(aligned, tags, self.labels, max_length)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Cross-entropy, averaged over the pre-tokens of the global batch."""
        summed = functional.cross_entropy(logits.float(), batch["targets"], ignore_index=IGNORED, reduction="sum")
        return summed / batch["num_targets"]

    def metric(self) -> Metric:
        """Strict entity F1."""
        return EntityF1(entity_types(self.labels))

    def update(self, metric: Metric, logits: Tensor, batch: Batch, items: Sequence[Sentence]) -> None:
        """See `Task.update`."""
        predicted = decode_words(logits, batch)
        gold = [items[item].spans for item in batch["items"].tolist()]
        metric.update(gold, [spans_from_tags([self.labels[i] for i in ids.tolist()]) for ids, _ in predicted])


class Files(TaskFiles):
    """CoNLL or JSONL files of tagged sentences."""

    def __init__(self, config: Ner) -> None:
        self.config = config

    def read(self, path: Path) -> list[Sentence]:
        """See `TaskFiles.read`."""
        file = read_ner(path, self.config.format)
        print(file.describe())
        return file.sentences

    def task(self, train: Sequence[Sentence]) -> NerTask:
        """See `TaskFiles.task`."""
        return NerTask(iob2_labels(label_set(train)))

    def check(self, items: Sequence[Sentence], task: Task, path: Path) -> None:
        """See `TaskFiles.check`."""
        check_labels_known(items, entity_types(task.labels), path)


def encode_words(
    aligned: Sequence[AlignedWords], tags: Sequence[Sequence[int]] | None, labels: Sequence[str], max_length: int
) -> list[Example]:
    """Sentences as examples.

    Args:
        aligned: the pieces of each sentence.
        tags: label ids of each sentence's words, or None when they are to be predicted.
        labels: label names; decides what goes on with B-X.
        max_length: the longest window, special tokens included.
    """
    number = {label: index for index, label in enumerate(labels)}
    going_on = ["I-" + label[2:] if label.startswith("B-") else label for label in labels]
    inside = np.asarray([number[label] for label in going_on], dtype=np.int64)
    of_sentence = tags if tags is not None else [None] * len(aligned)
    return [word_example(words, ids, inside, max_length) for words, ids in zip(aligned, of_sentence, strict=True)]


def decode_words(logits: Tensor, batch: Batch) -> list[tuple[np.ndarray, np.ndarray]]:
    """The best label of every word: for each example its label ids and their probabilities, both (words,).

    Args:
        logits: (N, labels) at the batch's `positions`.
        batch: with `items`, `example` and `outputs`.
    """
    scores, best = torch.softmax(logits.float(), dim=-1).max(dim=-1)
    outputs, owners = batch["outputs"].cpu().numpy(), batch["example"].cpu().numpy()
    decides = outputs >= 0
    ids, probabilities = best.cpu().numpy()[decides], scores.cpu().numpy()[decides]
    order = np.lexsort((outputs[decides], owners[decides]))
    ends = np.cumsum(np.bincount(owners[decides], minlength=len(batch["items"])))
    return list(zip(np.split(ids[order], ends[:-1]), np.split(probabilities[order], ends[:-1]), strict=True))
