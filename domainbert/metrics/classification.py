"""Scores of single-label classification, from the counts of each class.

Macro F1 is the mean over the classes of the training label set that occur in gold or prediction: a class that the test
set lacks and the model never predicts has no F1 and would only lower the mean.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torchmetrics import Metric

from domainbert.metrics.counts import IntArray, accuracy, macro_f1


def count_classes(gold: Sequence[str], predicted: Sequence[str], labels: Sequence[str]) -> IntArray:
    """Counts of each text and class: (texts, classes, 3) of tp, fp, fn.

    A wrong text is a false negative of its class and a false positive of the predicted one.

    Raises:
        ValueError: the two have different lengths, or a label is not in `labels`.
    """
    if len(gold) != len(predicted):
        raise ValueError(f"{len(gold)} gold labels but {len(predicted)} predictions")
    index = {label: number for number, label in enumerate(labels)}
    unknown = {*gold, *predicted} - index.keys()
    if unknown:
        raise ValueError(f"labels {sorted(unknown)} are not among {list(labels)}")
    wanted = np.array([index[label] for label in gold], dtype=np.int64)
    found = np.array([index[label] for label in predicted], dtype=np.int64)
    return count_class_ids(wanted, found, len(labels))


def count_class_ids(gold: IntArray, predicted: IntArray, num_classes: int) -> IntArray:
    """As `count_classes`, for class numbers: two arrays (texts,) give (texts, classes, 3)."""
    counts = np.zeros((len(gold), num_classes, 3), dtype=np.int64)
    text = np.arange(len(gold))
    right = gold == predicted
    counts[text[right], gold[right], 0] = 1
    counts[text[~right], predicted[~right], 1] = 1
    counts[text[~right], gold[~right], 2] = 1
    return counts


def confusion_matrix(gold: Sequence[str], predicted: Sequence[str], labels: Sequence[str]) -> IntArray:
    """Number of texts by class: (labels, labels), gold in rows and predictions in columns."""
    index = {label: number for number, label in enumerate(labels)}
    matrix = np.zeros((len(labels), len(labels)), dtype=np.int64)
    for one, other in zip(gold, predicted, strict=True):
        matrix[index[one], index[other]] += 1
    return matrix


class ClassificationF1(Metric):
    """Macro F1 and accuracy for validation during training: counts are summed over batches and ranks.

    `compute()` gives `f1` (macro, the headline) and `accuracy` as scalar tensors, fit for `log_dict`.

    Args:
        num_classes: how many classes the model knows.
    """

    full_state_update = False
    higher_is_better = True
    counts: torch.Tensor  # (classes, 3)

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.add_state("counts", torch.zeros(num_classes, 3, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, gold: torch.Tensor, predicted: torch.Tensor) -> None:
        """Add the class numbers of some texts, both (texts,)."""
        counts = count_class_ids(gold.cpu().numpy(), predicted.cpu().numpy(), self.num_classes).sum(axis=0)
        self.counts += torch.from_numpy(counts).to(self.counts.device)

    def compute(self) -> dict[str, torch.Tensor]:
        """The scores of everything seen since the last reset."""
        counts = self.counts.cpu().numpy()
        values = {"f1": float(macro_f1(counts)), "accuracy": float(accuracy(counts))}
        return {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}
