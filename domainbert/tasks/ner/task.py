"""Named entities: a linear head that gives every word an IOB2 tag."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchmetrics import Metric

from domainbert.data.examples import Example, encode_words
from domainbert.data.types import IGNORED
from domainbert.encoders.crf import Crf, WordGrid, crf_of
from domainbert.metrics.entities import EntityF1
from domainbert.tasks.decoding import decode_words, iob2_field
from domainbert.tasks.labelled import check_labels_known, label_set, read_ner
from domainbert.tasks.ner.config import Ner
from domainbert.tasks.ner.conll import Sentence
from domainbert.tasks.ner.tags import entity_types, iob2_labels, spans_from_tags, tag_facts
from domainbert.tasks.task import Batch, Task, TaskFiles
from domainbert.tokenization.align import align_words
from domainbert.tokenization.load import DomainTokenizer


class NerTask(Task):
    """Tags words; `labels` are `O` and `B-X`, `I-X` for every type."""

    head = "tokens"
    crf: Crf | None = None

    def __init__(self, labels: Sequence[str]) -> None:
        super().__init__(labels)
        self.valid = iob2_field(self.labels)

    def folder_facts(self) -> dict[str, str]:
        """The tag scheme."""
        return tag_facts(self.labels)

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
        predicted = decode_words(logits, batch, self.crf, self.valid)
        gold = [items[item].spans for item in batch["items"].tolist()]
        metric.update(gold, [spans_from_tags([self.labels[i] for i in ids.tolist()]) for ids, _ in predicted])


class CrfNerTask(NerTask):
    """The same with a random field over the words; pieces that go on with a word learn from the emissions alone."""

    head = "crf"

    def bind(self, head: nn.Module) -> None:
        """See `Task.bind`."""
        self.crf = crf_of(head)
        assert self.crf is not None
        self.crf.constrain(self.labels)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Negative log-likelihood of the words' tags, with cross-entropy of other pieces; a mean as in `NerTask`."""
        assert self.crf is not None
        targets = batch["targets"]
        words = (batch["outputs"] >= 0) & (targets != IGNORED)
        others = targets.masked_fill(batch["outputs"] >= 0, IGNORED)
        with torch.autocast(logits.device.type, enabled=False):
            summed = functional.cross_entropy(logits.float(), others, ignore_index=IGNORED, reduction="sum")
            if bool(words.any()):
                chosen = WordGrid(batch["example"], batch["outputs"].masked_fill(~words, -1))
                emissions, tags = chosen.fill(logits.float()), chosen.fill(targets)
                likelihood = self.crf.score(emissions, tags, chosen.lengths)
                summed = summed + (self.crf.log_partition(emissions, chosen.lengths) - likelihood).sum()
        return summed / batch["num_targets"]


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
        kind = CrfNerTask if self.config.head == "crf" else NerTask
        return kind(iob2_labels(label_set(train)))

    def check(self, items: Sequence[Sentence], task: Task, path: Path) -> None:
        """See `TaskFiles.check`."""
        check_labels_known(items, entity_types(task.labels), path)
