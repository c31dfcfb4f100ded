"""One class a text: a linear head on the pooled [CLS]; the windows of a long text are averaged."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional
from torchmetrics import Metric

from domainbert.data.examples import Example, text_example
from domainbert.metrics.classification import ClassificationF1
from domainbert.tasks.classification.config import Classification
from domainbert.tasks.decoding import mean_over_windows
from domainbert.tasks.labelled import LabelledText, check_labels_known, label_set, read_classification
from domainbert.tasks.task import Batch, Task, TaskFiles
from domainbert.tokenization.align import align_text
from domainbert.tokenization.load import DomainTokenizer


class ClassificationTask(Task):
    """Gives each text one of `labels`."""

    head = "sequence"

    def encode(self, items: Sequence[LabelledText], tokenizer: DomainTokenizer, max_length: int) -> list[Example]:
        """See `Task.encode`."""
        number = {label: index for index, label in enumerate(self.labels)}
        aligned = align_text(tokenizer, [item.text for item in items])
        return [text_example(words, number[i.label], max_length) for words, i in zip(aligned, items, strict=True)]

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Cross-entropy, averaged over the texts of the global batch."""
        mean, example = mean_over_windows(logits, batch), batch["example"]
        targets = torch.zeros(len(mean), dtype=torch.int64, device=logits.device).scatter(0, example, batch["targets"])
        return functional.cross_entropy(mean, targets, reduction="sum") / batch["num_examples"]

    def metric(self) -> Metric:
        """Macro F1 and accuracy."""
        return ClassificationF1(len(self.labels))

    def update(self, metric: Metric, logits: Tensor, batch: Batch, items: Sequence[LabelledText]) -> None:
        """See `Task.update`."""
        number = {label: index for index, label in enumerate(self.labels)}
        gold = torch.tensor([number[items[item].label] for item in batch["items"].tolist()], device=logits.device)
        metric.update(gold, mean_over_windows(logits, batch).argmax(dim=-1))


class Files(TaskFiles):
    """JSONL, CSV or TSV files of texts with a class."""

    def __init__(self, config: Classification) -> None:
        self.config = config

    def read(self, path: Path) -> list[LabelledText]:
        """See `TaskFiles.read`."""
        file = read_classification(path, self.config.format)
        print(file.describe())
        return file.texts

    def task(self, train: Sequence[LabelledText]) -> ClassificationTask:
        """See `TaskFiles.task`."""
        return ClassificationTask(label_set(train))

    def check(self, items: Sequence[LabelledText], task: Task, path: Path) -> None:
        """See `TaskFiles.check`."""
        check_labels_known(items, task.labels, path)
