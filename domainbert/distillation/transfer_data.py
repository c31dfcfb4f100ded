"""LightningDataModule with labelled and unlabelled text for task distillation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset

from domainbert.base.errors import DomainbertError
from domainbert.corpus.config import CorpusConfig
from domainbert.data.batches import GlobalOrder, Share
from domainbert.data.packing import Batch, Example
from domainbert.distillation.batches import DistillationBatches
from domainbert.distillation.module_config import TransferDataSettings
from domainbert.distillation.soft_labels import SoftLabels
from domainbert.distillation.teachers import Teachers, TransferText, load_teachers
from domainbert.labelled.contents import Content, text_in
from domainbert.tasks.config import TaskConfig
from domainbert.tasks.labelled_data import LabelledData
from domainbert.tasks.task import Task
from domainbert.training.config import Precision


class TransferData(LabelledData):
    """Labelled and unlabelled text for `TaskDistillation`.

        data = TransferData(Ner(), "train.conll", "dev.conll", unlabelled=CorpusConfig([Source("corpus.jsonl")]))

    >>> from domainbert import Ner, TransferData
    >>> TransferData(Ner(), "train.conll", unlabelled=["Prices rose."]).unlabelled_batch_size
    64

    Also accepts the arguments of `LabelledData`.

    Args:
        unlabelled: corpus of the domain, which is split into sentences; or the texts themselves.
        teachers: fine-tuned model folders for the same labels, whose logits the batches contain if there is a `cache`.
        precision: precision of teachers that fill the cache.
        settings: all settings; or single settings by keyword, see `TransferDataSettings`.
    """

    def __init__(
        self,
        task: TaskConfig | Task[Any, Any],
        train: Any = None,
        validation: Any = None,
        test: Any = None,
        predict: Any = None,
        *,
        unlabelled: CorpusConfig | Sequence[Content] | None = None,
        teachers: Sequence[str | Path] | Teachers = (),
        precision: Precision = "auto",
        tokenizer: Any = None,
        seed: int = 1,
        settings: TransferDataSettings | None = None,
        **changes: Any,
    ) -> None:
        settings = TransferDataSettings.of(settings, **changes)
        super().__init__(task, train, validation, test, predict, tokenizer=tokenizer, seed=seed, settings=settings)
        if isinstance(unlabelled, (str, Path)):
            expected = "CorpusConfig([Source(...)]) or a list of texts"
            raise DomainbertError(where="unlabelled", found=f"{str(unlabelled)[:80]!r}", expected=expected)
        self.unlabelled, self.max_unlabelled = unlabelled, settings.max_unlabelled
        most = self.max_unlabelled
        if isinstance(unlabelled, Sequence) and most is not None and len(unlabelled) > most:
            found, expected = f"{len(unlabelled):,} texts", f"at most {most:,}, or max_unlabelled=None"
            raise DomainbertError(where="unlabelled", found=found, expected=expected)
        self.unlabelled_batch_size = settings.unlabelled_batch_size
        self._teachers = teachers
        self._cache = None if settings.cache is None else Path(settings.cache)
        self._top_k, self._precision = settings.top_k, precision

    @cached_property
    def teachers(self) -> Teachers | None:
        """The teachers, loaded by the first call; None without teachers."""
        if isinstance(self._teachers, Teachers):
            return self._teachers
        paths = [Path(path) for path in self._teachers]
        return load_teachers(paths, self.task, self._precision, self._cache, self._top_k) if paths else None

    @cached_property
    def text(self) -> TransferText:
        """Items of the training set, and the unlabelled sentences."""
        train, unlabelled = self.labelled("train"), self.unlabelled
        if unlabelled is None or isinstance(unlabelled, CorpusConfig):
            return TransferText.read(train, unlabelled, self.max_unlabelled, self.task.word_splitting)
        return TransferText(train, unlabelled)

    def setup(self, stage: str) -> None:
        """Read the files of a stage of Lightning; for `fit`, compute the logits of the teachers if there is a cache."""
        super().setup(stage)
        if stage == "fit":
            _ = self.logits  # before the training, not in its first step

    @cached_property
    def logits(self) -> Sequence[SoftLabels] | None:
        """Logits of all examples by each teacher; None if the teachers run during training."""
        if self.teachers is None or self.teachers.cache is None:
            return None
        sizes = [example.num_outputs for example in self.examples("train")]
        return self.teachers.soft_labels(self.text, self.task, sizes)

    def examples(self, name: str) -> list[Example]:
        """Return the examples of a data set (`train`, ...). In `train` the unlabelled examples come last."""
        if name == "train" and name not in self._examples:
            self._examples[name] = self.text.encode(self.task, self.tokenizer, self.window)
        return super().examples(name)

    @property
    def orders(self) -> list[GlobalOrder]:
        """Order of the labelled examples and, if there are unlabelled examples, their order."""
        num_unlabelled = len(self.text.sentences)
        if not num_unlabelled:
            return [self.order]
        return [self.order, GlobalOrder(num_unlabelled, self.unlabelled_batch_size, self.seed)]

    def describe(self, step: int) -> dict[str, Any]:
        """Return the file lines of the labelled examples of a step, and the unlabelled texts."""
        facts = super().describe(step)
        for order in self.orders[1:]:
            _, numbers = order.batch(step)
            facts["unlabelled"] = [text_in(self.text.sentences[number]) for number in numbers.tolist()]
        return facts

    def train_batches(self, share: Share, steps: range) -> Dataset[Batch]:
        """Return micro-batches of labelled and unlabelled text, with `teacher_logits` if they are in the cache."""
        return DistillationBatches(self.examples("train"), self.tokenizer, self.orders, share, steps, self.logits)
