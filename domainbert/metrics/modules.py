"""Scores of labels as `torchmetrics.Metric`, which accumulate over batches and ranks until `reset`; of entities:
`domainbert.metrics.entity_modules`.

`update` takes predictions, then gold. `compute` returns scalar tensors by name, for `log_dict`; without items shares
are 0, and correlations and errors NaN.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat
from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.metrics.answers import score_answer, validation_scores
from domainbert.metrics.attachment import ATTACHMENT, Trees, count_arcs
from domainbert.metrics.classification import (
    CLASS_STATISTICS,
    NULL_CLASS_STATISTICS,
    THRESHOLDS,
    count_class_ids,
    count_thresholds,
    f1_by_threshold,
    without_null_class,
)
from domainbert.metrics.classification import threshold_scores as best_threshold_scores
from domainbert.metrics.counts import FloatArray, IntArray, score_counts
from domainbert.metrics.regression import regression_scores

Classes = Sequence[str] | ArrayLike | Tensor
"""Names or ids (indices) of classes."""


class MergeableScores(Metric):
    """Base class of metrics whose states are summed or concatenated over batches and ranks."""

    full_state_update = False
    scores: Callable[[Any], Mapping[str, Any]]
    """Maps the accumulated numbers to scores by name."""

    @abstractmethod
    def _accumulated(self) -> NDArray[Any]: ...

    def compute(self) -> dict[str, Tensor]:
        """Return the scores since the last reset: scalar tensors in double precision."""
        scores = self.scores(self._accumulated())
        return {name: torch.tensor(float(value), dtype=torch.float64) for name, value in scores.items()}

    @override
    def merge_state(self, incoming_state: dict[str, Any] | Metric) -> None:
        super().merge_state(incoming_state)
        self._computed = None  # torchmetrics 1.9 would return the scores from before the merge


class SummedCounts(MergeableScores):
    """Base class of metrics that sum counts of shape `shape` over batches and ranks."""

    counts: Tensor

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.add_state("counts", torch.zeros(shape, dtype=torch.int64), dist_reduce_fx="sum")

    def add(self, counts: IntArray) -> None:
        """Add counts with the shape given to the constructor."""
        self.counts += torch.from_numpy(counts).to(self.counts.device)

    def _accumulated(self) -> IntArray:
        return self.counts.cpu().numpy()


class StoredRows(MergeableScores):
    """Base class of metrics that store rows (N, `width`) of numbers, as scores at the best threshold need all items."""

    numbers: list[Tensor]
    dtype = torch.float64  # of the rows, and of the empty tensor of a rank without items

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.add_state("numbers", [], dist_reduce_fx="cat")

    def add(self, rows: NDArray[Any]) -> None:
        """Add rows (N, `width`); they are stored flat, like the empty tensor of a rank without items."""
        self.numbers.append(torch.from_numpy(rows.ravel()).to(self.device))

    def _accumulated(self) -> NDArray[Any]:
        numbers = dim_zero_cat(self.numbers) if len(self.numbers) else torch.zeros(0, dtype=self.dtype)
        return numbers.cpu().numpy().reshape(-1, self.width)


class RowScores(StoredRows):
    """Scores of rows of numbers (N, `width`), which the caller computes for each batch."""

    def __init__(self, scores: Callable[[FloatArray], Mapping[str, Any]], width: int) -> None:
        super().__init__(width)
        self.scores = scores

    def update(self, rows: FloatArray) -> None:
        """Add the rows of a batch."""
        self.add(rows)


class ClassificationScores(SummedCounts):
    """Macro F1 (`f1`) over the classes that occur, and accuracy, of texts with one class.

    >>> from domainbert import ClassificationScores
    >>> scores = ClassificationScores(["civil", "criminal"])
    >>> scores.update(["civil", "civil", "criminal"], ["civil", "criminal", "criminal"])
    >>> {name: round(float(score), 3) for name, score in scores.compute().items()}
    {'f1': 0.667, 'accuracy': 0.667}
    """

    scores = staticmethod(partial(score_counts, CLASS_STATISTICS))

    def __init__(self, labels: Sequence[str]) -> None:
        super().__init__(len(labels), 3)  # tp, fp, fn
        self.labels = tuple(labels)

    def update(self, predicted: Classes, gold: Classes) -> None:
        """Add texts: names or ids of their predicted and gold classes (N,)."""
        self.add(_class_counts(predicted, gold, self.labels))


class LabelScores(SummedCounts):
    """Macro and micro F1 without the null class, and accuracy, of words or of pairs of entities.

    >>> from domainbert import LabelScores
    >>> scores = LabelScores(["O", "date"], null_class="O")
    >>> scores.update(["date", "O", "O", "O"], ["date", "date", "O", "O"])
    >>> {name: round(float(score), 3) for name, score in scores.compute().items()}
    {'macro_f1': 0.667, 'micro_f1': 0.667, 'accuracy': 0.75}

    Args:
        labels: names of the classes.
        null_class: the label that macro and micro F1 ignore, such as `O` or `no_relation`; None if there is none.
    """

    scores = staticmethod(partial(score_counts, NULL_CLASS_STATISTICS))

    def __init__(self, labels: Sequence[str], null_class: str | None = None) -> None:
        if null_class is not None and null_class not in labels:
            raise DomainbertError(where="null_class", found=repr(null_class), expected=f"one of {', '.join(labels)}")
        # rows of `without_null_class`: the labels without the null class, and a sum
        num_rows = len(labels) if null_class in labels else len(labels) + 1
        super().__init__(num_rows, 3)
        self.labels, self.null_class = tuple(labels), null_class

    def update(self, predicted: Classes, gold: Classes) -> None:
        """Add words or pairs: names or ids of their predicted and gold classes (N,)."""
        self.add(without_null_class(_class_counts(predicted, gold, self.labels), self.labels, self.null_class))


class MultiLabelScores(SummedCounts):
    """Micro F1, precision and recall, and macro F1 at the threshold with the highest micro F1; and the threshold.

    >>> from domainbert import MultiLabelScores
    >>> scores = MultiLabelScores(["tax", "work"])
    >>> scores.update([[0.9, 0.2], [0.1, 0.4]], [[1, 0], [0, 1]])
    >>> {name: round(float(score), 2) for name, score in scores.compute().items() if name in ("f1", "threshold")}
    {'f1': 1.0, 'threshold': 0.4}

    Args:
        labels: names of the labels.
        every_threshold: return micro F1 at each threshold ("0.01" to "0.99") instead.
    """

    def __init__(self, labels: Sequence[str], every_threshold: bool = False) -> None:
        super().__init__(len(labels), 2, len(THRESHOLDS) + 1)  # counts of `count_thresholds`
        self.scores = f1_by_threshold if every_threshold else best_threshold_scores

    def update(self, predicted: ArrayLike | Tensor, gold: ArrayLike | Tensor) -> None:
        """Add texts: probabilities of the labels (N, labels), and gold values 0 or 1 (N, labels)."""
        self.add(count_thresholds(_as_numpy(gold).astype(np.int64), _as_numpy(predicted)))


class AttachmentScores(SummedCounts):
    """Labelled and unlabelled attachment scores of dependency trees, with and without punctuation, and exact trees.

    >>> from domainbert import AttachmentScores
    >>> scores = AttachmentScores()
    >>> scores.update([[(2, "det"), (0, "root")]], [[(2, "amod"), (0, "root")]])
    >>> float(scores.compute()["las"]), float(scores.compute()["uas"])
    (0.5, 1.0)
    """

    scores = staticmethod(partial(score_counts, ATTACHMENT))

    def __init__(self) -> None:
        super().__init__(3, 3)  # the counts of a sentence from `count_arcs`

    def update(self, predicted: Trees, gold: Trees, punctuation: Sequence[Sequence[bool]] | None = None) -> None:
        """Add sentences: (head, label) of each word, where head is from 1 and 0 is the root, and whether the word is
        punctuation."""
        is_punctuation = [[False] * len(tree) for tree in gold] if punctuation is None else punctuation
        self.add(count_arcs(gold, predicted, is_punctuation).sum(axis=0))


class AnswerScores(StoredRows):
    """Exact match and F1 of answers to questions, as in the official scripts of SQuAD.

    >>> from domainbert import AnswerScores
    >>> scores = AnswerScores()
    >>> scores.update(["the high court", "1996"], [["High Court"], ["in 1997", "1997"]])
    >>> float(scores.compute()["exact"]), float(scores.compute()["f1"])
    (0.5, 0.5)
    """

    scores = staticmethod(validation_scores)

    def __init__(self) -> None:
        super().__init__(width=6)

    def update(
        self,
        predicted: Sequence[str],
        gold: Sequence[Sequence[str]],
        margins: Sequence[float] | None = None,
    ) -> None:
        """Add questions: predicted answers and gold answers.

        `margins` are score of "no answer" - score of the predicted answer, for all questions or none. If some questions
        have no gold answer, the scores are computed as in SQuAD 2.0, with margins at their best threshold, without
        margins for the given answers. Otherwise they are computed as in SQuAD 1.1.
        """
        for texts in gold:
            if isinstance(texts, (str, Mapping)):
                expected = "a list of answers for each question, such as the value of 'text' in SQuAD"
                raise DomainbertError(where="gold", found=repr(texts), expected=expected)
        margins = [-np.inf] * len(predicted) if margins is None else margins  # below every threshold
        rows = [
            (
                *score_answer(answer, texts, version_2=not texts),
                *score_answer(answer, texts, version_2=True),
                float(bool(texts)),
                margin,
            )
            for answer, texts, margin in zip(predicted, gold, margins, strict=True)
        ]
        self.add(np.asarray(rows, dtype=np.float64).reshape(-1, 6))


class RegressionScores(StoredRows):
    """Pearson and Spearman correlations, errors and R2 of numbers.

    >>> from domainbert import RegressionScores
    >>> scores = RegressionScores()
    >>> scores.update([1.0, 2.0, 4.0], [1.0, 2.0, 3.0])
    >>> {name: round(float(score), 3) for name, score in scores.compute().items() if name in ("spearman", "mae")}
    {'spearman': 1.0, 'mae': 0.333}
    """

    scores = staticmethod(lambda rows: regression_scores(*rows.T))

    def __init__(self) -> None:
        super().__init__(width=2)  # gold, predicted

    def update(self, predicted: ArrayLike | Tensor, gold: ArrayLike | Tensor) -> None:
        """Add texts: their predicted and gold numbers (N,)."""
        self.add(np.column_stack([_as_numpy(gold), _as_numpy(predicted)]).astype(np.float64))


def _class_counts(predicted: Classes, gold: Classes, labels: Sequence[str]) -> IntArray:
    class_ids, gold_ids = (_class_ids(side, labels) for side in (predicted, gold))
    if len(class_ids) != len(gold_ids):
        raise DomainbertError(
            where="predicted", found=f"length {len(class_ids):,}", expected=f"{len(gold_ids):,}, as in gold"
        )
    return count_class_ids(gold_ids, class_ids, len(labels)).sum(axis=0)


def _class_ids(classes: Classes, labels: Sequence[str]) -> IntArray:
    values = _as_numpy(classes)
    if values.dtype.kind == "O":  # such as names in a column of pandas
        values = np.asarray(values.tolist())
    if values.dtype.kind != "U":  # "U": names
        ids = values.astype(np.int64)
        if (invalid := (ids != values) | (ids < 0) | (ids >= len(labels))).any():
            expected = f"an index of the {len(labels)} labels, from 0"
            raise DomainbertError(found=f"the class id {values[invalid][0]}", expected=expected)
        return ids
    index = {label: number for number, label in enumerate(labels)}
    if unknown := sorted(set(values.tolist()).difference(index)):
        raise DomainbertError(found=f"the class {unknown[0]!r}", expected=f"one of the labels {', '.join(labels)}")
    return np.array([index[label] for label in values.tolist()], dtype=np.int64)


def _as_numpy(values: Any) -> NDArray[Any]:
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        return values.float().numpy() if values.dtype == torch.bfloat16 else values.numpy()  # NumPy has no bfloat16
    return np.asarray(values)
