"""Any number of labels a text: a linear head on the pooled [CLS], a sigmoid for each label, and one threshold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from domainbert.base.errors import DomainbertError
from domainbert.data.types import IGNORED
from domainbert.tasks.advice import ADVICE
from domainbert.tasks.decoding import mean_over_windows
from domainbert.tasks.labelled import Labelled
from domainbert.tasks.multi_label.config import PROBLEM_TYPE, MultiLabel
from domainbert.tasks.multi_label.files import LabelledText
from domainbert.tasks.multi_label.labeller import LabelsOfText, MultiLabeller
from domainbert.tasks.task import Batch
from domainbert.tasks.text_task import TextTask

if TYPE_CHECKING:
    from torchmetrics import Metric

    from domainbert.tasks.multi_label.scoring import MultiLabelScoring

_THRESHOLD = "domainbert_threshold"  # key of config.json
_USUAL = 0.5
_NEAR = 0.02  # of micro F1: as good as no better


class MultiLabelTask(TextTask[LabelledText, LabelsOfText]):
    """Gives each text those of `labels` whose probability is at least `threshold`."""

    exclusive = False
    predictor = MultiLabeller

    def __init__(self, labels: Sequence[str], threshold: float = _USUAL) -> None:
        super().__init__(labels)
        self.threshold = threshold

    @classmethod
    def of_folder(cls, labels: Sequence[str], fields: Mapping[str, Any]) -> MultiLabelTask:
        """See `Task.of_folder`; a folder from elsewhere has no threshold, and 0.5 is taken."""
        threshold = fields.get(_THRESHOLD, _USUAL)
        if not isinstance(threshold, float) or not 0 < threshold < 1:
            raise DomainbertError(f"{_THRESHOLD}: found {threshold!r}; expected a number between 0 and 1")
        return cls(labels, threshold)

    def folder_facts(self, scores: Mapping[str, float]) -> dict[str, Any]:
        """The `problem_type` for `transformers`, and the threshold that is best on validation."""
        threshold = round(scores["threshold"], 2)  # it was logged in single precision
        return {"problem_type": PROBLEM_TYPE, _THRESHOLD: threshold}

    def target(self, item: LabelledText) -> NDArray[np.int64]:
        """1 for each of its labels, 0 for the others: (labels,)."""
        return np.isin(self.labels, item.labels).astype(np.int64)

    @property
    def unknown(self) -> NDArray[np.int64]:
        """See `TextTask.unknown`."""
        return np.full(len(self.labels), IGNORED, dtype=np.int64)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Binary cross-entropy, the mean over labels, as that of `transformers`, summed over the texts."""
        targets = self.targets(batch)
        known = targets[:, 0] != IGNORED
        logits = mean_over_windows(logits, batch)[known]
        each = functional.binary_cross_entropy_with_logits(logits, targets[known].float(), reduction="none")
        return each.mean(dim=1).sum()

    def divergence(self, teacher: Tensor, student: Tensor) -> Tensor:
        """Kullback-Leibler divergence of each label, which holds or does not; the mean over labels."""
        holds = torch.sigmoid(teacher)
        yes = functional.logsigmoid(teacher) - functional.logsigmoid(student)
        no = functional.logsigmoid(-teacher) - functional.logsigmoid(-student)
        return (holds * yes + (1 - holds) * no).mean(dim=-1)

    def metric(self) -> Metric:
        """Micro and macro F1 at the threshold that is best."""
        from domainbert.metrics.multi_label import MultiLabelF1

        return MultiLabelF1(len(self.labels))

    def update(self, metric: Metric, logits: Tensor, batch: Batch, items: Sequence[LabelledText]) -> None:
        """See `Task.update`."""
        gold = np.stack([self.target(items[item]) for item in batch["items"].tolist()])
        metric.update(torch.from_numpy(gold), torch.sigmoid(mean_over_windows(logits, batch)))

    def decode(self, logits: Tensor, batch: Batch) -> list[LabelsOfText]:
        """The labels of each text, and the probabilities of all."""
        rows = torch.sigmoid(mean_over_windows(logits, batch)).tolist()
        return [self._labels_of(dict(zip(self.labels, row, strict=True))) for row in rows]

    def _labels_of(self, scores: dict[str, float]) -> LabelsOfText:
        return LabelsOfText([label for label, score in scores.items() if score >= self.threshold], scores)

    def warnings(self, items: Sequence[LabelledText], scores: Mapping[str, float]) -> list[str]:
        """A model that is no better than one that always gives the same labels."""
        counts = Counter(label for item in items for label in item.labels)
        right, always = np.cumsum([count for _, count in counts.most_common()]), 0.0
        if counts:
            given = len(items) * np.arange(1, len(right) + 1)
            always = float((2 * right / (given + right[-1])).max())
        if not counts or always == 1 or scores["f1"] > always + _NEAR:
            return []
        found = f"micro F1 {100 * scores['f1']:.1f} on validation, while the same labels for every text get"
        return [f"{found} {100 * always:.1f}; {ADVICE}"]

    @classmethod
    def scoring(
        cls, config: MultiLabel, test: Labelled[LabelledText], train: Labelled[LabelledText] | None
    ) -> MultiLabelScoring:
        """See `Task.scoring`."""
        from domainbert.tasks.multi_label.scoring import MultiLabelScoring

        return MultiLabelScoring(config, test)
